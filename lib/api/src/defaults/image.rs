//! Names of images: what their tag is, as container runtimes read them.

/// Longest repository name.
const NAME: usize = 255;
/// Longest tag.
const TAG: usize = 128;
/// Shortest digest, in hexadecimal digits.
const DIGEST: usize = 32;
/// Digits of an image's own identifier, which is no name.
const IDENTIFIER: usize = 64;

/// When to pull an image: `Always` for the tag `latest`, also when there is neither tag nor digest.
pub fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// The tag; `None` if there is a digest only, or if the text is no image's name.
fn tag(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon behind the last slash starts the tag, an earlier one a port.
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((start, tag)) => (&rest[..last + start.len()], Some(tag)),
        None => (rest, None),
    };
    let identifier = name.len() == IDENTIFIER && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if identifier && tag.is_none() && digest.is_none() {
        return None;
    }
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return None;
    }
    tag.or(if digest.is_some() { None } else { Some("latest") })
}

/// A path of lowercase parts, perhaps with a registry's host before it.
fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((first, path)) if is_host_like(first) => {
            if !is_host(first) {
                return false;
            }
            path
        }
        _ => name,
    };
    name.len() <= NAME && path.split('/').all(is_component)
}

/// The first part of a name is a host if it can't be part of a path.
fn is_host_like(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost" || part.to_lowercase() != part
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let label = |label: &str| {
        let inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty() && inside && !label.starts_with('-') && !label.ends_with('-')
    };
    let address = |host: &str| {
        host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|inner| {
            !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        })
    };
    port.is_none_or(digits) && (address(host) || host.split('.').all(label))
}

/// Lowercase letters and digits, between them a dot, up to two underscores or any number of dashes.
fn is_component(part: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = bytes.first().is_some_and(is_word) && bytes.last().is_some_and(is_word);
    let mut separators = bytes.split(is_word).filter(|separator| !separator.is_empty());
    let fits =
        |separator: &[u8]| matches!(separator, b"." | b"_" | b"__") || separator.iter().all(|byte| *byte == b'-');
    ends && separators.all(fits)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let inside = tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
    inside && tag.len() <= TAG && tag.bytes().next().is_some_and(is_word)
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let part = |part: &str| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part)
        && hex.len() >= DIGEST
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (image, policy) in [
            ("x", "Always"),
            ("x:latest", "Always"),
            ("reg:5000/x", "Always"),
            ("reg:5000/x:v1", "IfNotPresent"),
            ("Reg/x", "Always"),
            ("localhost/a/b", "Always"),
            ("a_b/c__d/e--f", "Always"),
            (&format!("x@{digest}"), "IfNotPresent"),
            (&format!("x:latest@{digest}"), "Always"),
            (&"0a".repeat(32), "IfNotPresent"),
            ("x@sha256:aa", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("UPPER", "IfNotPresent"),
            ("a/UPPER", "IfNotPresent"),
            ("a b", "IfNotPresent"),
            ("-x", "IfNotPresent"),
            ("a..b", "IfNotPresent"),
            ("x:", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
