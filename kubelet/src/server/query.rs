//! Query strings.

/// The decoded names and values of a query, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes; bad escapes stand for themselves.
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decode(name), decode(value))).collect())
    }

    /// The first value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs().filter(move |(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Everything.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Undoes percent escapes and `+`.
pub(super) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match (escaped, first) {
            (Some(byte), _) => {
                out.push(byte);
                rest = &tail[2..];
                continue;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(*byte),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("command=sh&command=-c&command=echo+%22a%26b%22&tty&x=%zz%4"));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo \"a&b\""]);
        assert_eq!(query.get("tty"), Some(""));
        assert_eq!(query.get("x"), Some("%zz%4"));
        assert_eq!(query.get("y"), None);
        assert_eq!(Query::parse(None), Query::default());
    }
}
