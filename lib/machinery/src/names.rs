//! Rules for names, label keys and values, and other short identifiers, with upstream's messages.
//!
//! Each function returns what is wrong, nothing if the text is fine.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_TEXT: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The longest DNS-1123 label.
pub const LABEL_LENGTH: usize = 63;
/// The longest DNS-1123 subdomain.
pub const SUBDOMAIN_LENGTH: usize = 253;
/// How much of `generateName` is kept before the random suffix.
pub const GENERATED_BASE_LENGTH: usize = 58;

/// A text for a rule given as an expression, with examples.
pub fn regex_message(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn at_most(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn at_most_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn lower_alnum(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Whether a text starts and ends with `edge` and has only `middle` between.
fn shaped(text: &str, edge: fn(u8) -> bool, middle: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => edge(*one),
        [first, between @ .., last] => edge(*first) && edge(*last) && between.iter().all(|c| middle(*c)),
    }
}

fn is_label(text: &str) -> bool {
    shaped(text, lower_alnum, |c| lower_alnum(c) || c == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    shaped(text, |c| c.is_ascii_alphanumeric(), |c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

/// A DNS-1123 label, as namespaces and services are named.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH {
        errors.push(at_most(LABEL_LENGTH));
    }
    if !is_label(text) {
        if is_subdomain(text) {
            errors.push("must not contain dots".into());
        } else {
            errors.push(regex_message(LABEL_TEXT, LABEL, &["my-name", "123-abc"]));
        }
    }
    errors
}

/// A DNS-1123 subdomain, as most objects are named.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH {
        errors.push(at_most(SUBDOMAIN_LENGTH));
    }
    if !is_subdomain(text) {
        errors.push(regex_message(SUBDOMAIN_TEXT, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    errors
}

/// A DNS-1035 label: as DNS-1123, but it starts with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH {
        errors.push(at_most(LABEL_LENGTH));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_message(LABEL_1035_TEXT, LABEL_1035, &["my-name", "abc-123"]));
    }
    errors
}

/// `*.` and a DNS-1123 subdomain.
pub fn wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH {
        errors.push(at_most(SUBDOMAIN_LENGTH));
    }
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_message(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{LABEL}(\\.{LABEL})*"),
            &["*.example.com"],
        ));
    }
    errors
}

/// A name that can be a segment of a URL path, as RBAC's objects are named.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|bad| text.contains(**bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

/// A qualified name (`name` or `example.com/name`), as annotation keys are; upstream calls each a label key.
pub fn qualified(text: &str) -> Vec<String> {
    label_key(text)
}

/// A qualified name as the key of a label.
pub fn label_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let examples = ["MyName", "my.name", "123-abc"];
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            let message = regex_message(&format!("a valid label key {QUALIFIED_TEXT}"), QUALIFIED, &examples);
            return vec![format!(
                "{message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > SUBDOMAIN_LENGTH {
                errors.push(format!("prefix part {}", at_most_bytes(SUBDOMAIN_LENGTH)));
            }
            if !is_subdomain(prefix) {
                let rule = regex_message(SUBDOMAIN_TEXT, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]);
                errors.push(format!("prefix part {rule}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_LENGTH {
        errors.push(format!("name part {}", at_most_bytes(LABEL_LENGTH)));
    }
    if !is_qualified(name) {
        errors.push(format!("name part {}", regex_message(QUALIFIED_TEXT, QUALIFIED, &examples)));
    }
    errors
}

/// The value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH {
        errors.push(at_most_bytes(LABEL_LENGTH));
    }
    if !text.is_empty() && !is_qualified(text) {
        errors.push(regex_message(LABEL_VALUE_TEXT, &format!("({QUALIFIED})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH {
        errors.push(at_most(SUBDOMAIN_LENGTH));
    }
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        errors.push(regex_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(not_dots(text));
    errors
}

fn not_dots(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        text if text.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn env_var(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must not be empty".into()];
    }
    if text.bytes().all(|c| (0x20..=0x7e).contains(&c) && c != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
}

/// The name of a port as services and probes use it.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(at_most(15));
    }
    if !text.bytes().all(|c| lower_alnum(c) || c == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

/// The number of a port.
pub fn port_number(port: i64) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| "must be between 1 and 65535, inclusive".into())
}

/// An HTTP header's name.
pub fn http_header(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Vec::new();
    }
    vec![regex_message(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_and_refuses() {
        let long64 = "a".repeat(64);
        type Check = fn(&str) -> Vec<String>;
        let cases: &[(Check, &str, usize)] = &[
            (dns1123_label, "a-1", 0),
            (dns1123_label, "1a", 0),
            (dns1123_label, "-a", 1),
            (dns1123_label, "", 1),
            (dns1123_label, &long64, 1),
            (dns1123_subdomain, "a.b-c.1", 0),
            (dns1123_subdomain, "a..b", 1),
            (dns1123_subdomain, "A", 1),
            (dns1035_label, "1a", 1),
            (dns1035_label, "a1", 0),
            (qualified, "example.com/My_Name.x", 0),
            (qualified, "a/b/c", 1),
            (qualified, "/x", 1),
            (qualified, "a/", 2),
            (label_value, "", 0),
            (label_value, "My.Value_1", 0),
            (label_value, "x y", 1),
            (config_key, ".hidden", 0),
            (config_key, "..x", 1),
            (path_segment, "system:admin", 0),
            (path_segment, "a/b%", 2),
            (port_name, "http", 0),
            (port_name, "80", 1),
            (port_name, "a--b", 1),
            (wildcard_dns1123_subdomain, "*.a.b", 0),
            (wildcard_dns1123_subdomain, "*", 1),
        ];
        for (check, text, faults) in cases {
            assert_eq!(check(text).len(), *faults, "{text}: {:?}", check(text));
        }
    }

    #[test]
    fn wording() {
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns1123_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            label_key("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        );
    }
}
