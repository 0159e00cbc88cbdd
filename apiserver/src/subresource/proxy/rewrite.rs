//! Links in proxied pages: what points to a path of the proxied server is made to point through the proxy.

use bytes::Bytes;

/// Attributes that hold a URL, by element.
const LINKS: [(&str, &[&str]); 26] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("track", &["src"]),
    ("video", &["poster", "src"]),
];
/// Elements whose content is no markup.
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];
/// A tag is held back until it is whole, up to this size.
const LONGEST_TAG: usize = 64 * 1024;

/// Where links point: the server's own address, and the path of the proxy before its paths.
#[derive(Debug, Clone)]
pub struct Links {
    /// `host:port` of the server that is proxied.
    pub authority: String,
    /// Path of the proxy without a slash at its end.
    pub prefix: String,
}

impl Links {
    /// The link as the client has to follow it. Links to other servers and relative ones stay as they are.
    pub fn rewrite(&self, link: &str) -> String {
        let path = match link.split_once("://") {
            Some(("http" | "https", rest)) => match rest.strip_prefix(self.authority.as_str()) {
                Some(path) => path,
                None => return link.to_owned(),
            },
            _ if link.starts_with("//") => return link.to_owned(),
            _ => link,
        };
        match path.starts_with('/') && !path.starts_with(&self.prefix) {
            true => format!("{}{path}", self.prefix),
            false => path.to_owned(),
        }
    }
}

/// Rewrites a page that comes in pieces.
#[derive(Debug)]
pub struct Page {
    links: Links,
    pending: Vec<u8>,
    /// The element whose raw content is passed on.
    raw: Option<&'static str>,
}

impl Page {
    /// A page with such links.
    pub fn new(links: Links) -> Self {
        Self { links, pending: Vec::new(), raw: None }
    }

    /// Takes a piece, gives what is whole.
    pub fn push(&mut self, piece: &[u8]) -> Bytes {
        self.pending.extend_from_slice(piece);
        let input = std::mem::take(&mut self.pending);
        let mut out = Vec::with_capacity(input.len() + 64);
        let mut rest = input.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if let Some(raw) = self.raw
                && !closes(rest, raw)
            {
                if rest.len() < raw.len() + 3 {
                    self.pending = rest.to_vec();
                    return out.into();
                }
                out.push(b'<');
                rest = &rest[1..];
                continue;
            }
            let Some(end) = markup_end(rest) else {
                if rest.len() < LONGEST_TAG {
                    self.pending = rest.to_vec();
                    return out.into();
                }
                out.push(b'<');
                rest = &rest[1..];
                continue;
            };
            self.markup(&rest[..end], &mut out);
            rest = &rest[end..];
        }
        out.extend_from_slice(rest);
        out.into()
    }

    /// What was held back, at the end of the page.
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.pending).into()
    }

    fn markup(&mut self, tag: &[u8], out: &mut Vec<u8>) {
        let closing = tag.get(1) == Some(&b'/');
        let name = element(&tag[1 + usize::from(closing)..]);
        if self.raw.take().is_some() {
            return out.extend_from_slice(tag);
        }
        if closing || name.is_empty() {
            return out.extend_from_slice(tag);
        }
        self.raw = RAW.into_iter().find(|raw| *raw == name);
        let known =
            |attribute: &str| LINKS.iter().any(|(element, links)| *element == name && links.contains(&attribute));
        let mut at = 1 + name.len();
        out.extend_from_slice(&tag[..at]);
        while at < tag.len() {
            let (attribute, value) = attribute(tag, at);
            let Some(value) = value else {
                out.extend_from_slice(&tag[at..attribute.1]);
                at = attribute.1;
                continue;
            };
            out.extend_from_slice(&tag[at..value.0]);
            let name = String::from_utf8_lossy(&tag[attribute.0..attribute.1]).to_ascii_lowercase();
            match std::str::from_utf8(&tag[value.0..value.1]) {
                Ok(link) if known(&name) => out.extend_from_slice(self.links.rewrite(link).as_bytes()),
                _ => out.extend_from_slice(&tag[value.0..value.1]),
            }
            at = value.1;
        }
    }
}

/// The tag that ends the element begins here.
fn closes(rest: &[u8], raw: &str) -> bool {
    rest.strip_prefix(b"</").is_some_and(|rest| rest.len() > raw.len() && element(rest) == raw)
}

type Span = (usize, usize);

/// The next attribute's name from `at` on, and its value without quotes if it has one. Without a value the name's end is where to go on.
fn attribute(tag: &[u8], at: usize) -> (Span, Option<Span>) {
    let skip = |from: usize, wanted: &dyn Fn(u8) -> bool| {
        tag[from..].iter().position(|byte| !wanted(*byte)).map_or(tag.len(), |length| from + length)
    };
    let blank = |byte: u8| byte.is_ascii_whitespace();
    let start = skip(at, &|byte| blank(byte) || matches!(byte, b'/' | b'"' | b'\''));
    let end = skip(start, &|byte| !blank(byte) && !matches!(byte, b'=' | b'>' | b'/'));
    // Always forward, whatever stands there.
    let name = (start, end.max(at + 1).min(tag.len()));
    let equals = skip(end, &blank);
    if end == start || tag.get(equals) != Some(&b'=') {
        return (name, None);
    }
    let value = skip(equals + 1, &blank);
    let value = match tag.get(value) {
        Some(quote @ (b'"' | b'\'')) => (value + 1, skip(value + 1, &|byte| byte != *quote)),
        _ => (value, skip(value, &|byte| !blank(byte) && byte != b'>')),
    };
    (name, Some(value))
}

/// The name of the element that begins here, in lower case; empty if none does.
fn element(tag: &[u8]) -> String {
    let name = tag.iter().take_while(|byte| byte.is_ascii_alphanumeric());
    match tag.first().is_some_and(u8::is_ascii_alphabetic) {
        true => name.map(|byte| byte.to_ascii_lowercase() as char).collect(),
        false => String::new(),
    }
}

/// Where the markup that begins with `<` ends; none if its end has not come yet.
fn markup_end(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"<!--") {
        return rest.windows(3).skip(4).position(|end| end == b"-->").map(|at| at + 7);
    }
    if rest.len() < 2 || b"<!--".starts_with(rest) {
        return None;
    }
    if !rest[1].is_ascii_alphabetic() && !matches!(rest[1], b'/' | b'!' | b'?') {
        return Some(1);
    }
    let mut quote = None;
    for (at, byte) in rest.iter().enumerate() {
        match (quote, byte) {
            (None, b'"' | b'\'') if rest[at - 1] == b'=' || rest[at - 1].is_ascii_whitespace() => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            (None, b'>') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links { authority: "10.0.0.1:80".into(), prefix: "/api/v1/namespaces/n/pods/p/proxy".into() }
    }

    fn page(text: &str, piece: usize) -> String {
        let mut page = Page::new(links());
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            out.extend_from_slice(&page.push(piece));
        }
        out.extend_from_slice(&page.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn paths_of_the_server_go_through_the_proxy() {
        let p = "/api/v1/namespaces/n/pods/p/proxy";
        for (link, want) in [
            ("/x?y=1", format!("{p}/x?y=1")),
            ("http://10.0.0.1:80/x", format!("{p}/x")),
            ("https://other/x", "https://other/x".into()),
            ("//other/x", "//other/x".into()),
            ("x", "x".into()),
            ("#part", "#part".into()),
            (&format!("{p}/x"), format!("{p}/x")),
        ] {
            assert_eq!(links().rewrite(link), want, "{link}");
        }
    }

    #[test]
    fn a_page_in_pieces_of_any_size() {
        let p = "/api/v1/namespaces/n/pods/p/proxy";
        let text = "<!DOCTYPE html><!-- <a href=\"/no\"> --><A class=x href=\"/a\">1 < 2</A><img src='/i' alt=\"/no\"><a href=/u>\
                    <script src=\"/s\">if (a<b) x = '<a href=\"/no\">'</script><a title=\"x>y\" href=\"/b\"/><p href=\"/no\"";
        let want = format!(
            "<!DOCTYPE html><!-- <a href=\"/no\"> --><A class=x href=\"{p}/a\">1 < 2</A><img src='{p}/i' alt=\"/no\"><a href={p}/u>\
             <script src=\"{p}/s\">if (a<b) x = '<a href=\"/no\">'</script><a title=\"x>y\" href=\"{p}/b\"/><p href=\"/no\""
        );
        for piece in [1, 2, 7, 10_000] {
            assert_eq!(page(text, piece), want, "pieces of {piece}");
        }
    }

    #[test]
    fn whatever_comes_ends() {
        for text in ["<", "<a", "<a =", "<a ==>", "<a href=>", "<a href='", "</", "<!-", "<a/ / =\"", "<<a href=/x>"] {
            page(text, 1);
        }
    }
}
