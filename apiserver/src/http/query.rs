//! The query string: decoded pairs and the options that several verbs share.

/// Decoded `key=value` pairs in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|part| !part.is_empty()).map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// First value of a key; `None` if absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// First value of a key, absent or empty is `None`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// All values of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean as Go's conversion of query parameters reads it: absent is false, empty or anything but false and 0 is true.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A whole number; anything else counts as absent.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.text(key).and_then(|value| value.parse().ok())
    }
}

/// Percent decoding; `+` is a blank in queries.
pub fn decode(text: &str, plus_is_blank: bool) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if plus_is_blank => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_in_order() {
        let query = Query::parse(Some("a=1&b=x%2Cy+z&a=2&flag&off=false"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some("x,y z"));
        assert!(query.flag("flag") && !query.flag("off") && !query.flag("absent"));
    }

    #[test]
    fn broken_escapes_stay() {
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz%41", false), "%zzA");
    }
}
