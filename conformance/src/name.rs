//! What a test's name tells: upstream writes a test's properties into it, in brackets.

/// Upstream's groups of maintainers stand first: `[sig-apps] ...`.
pub fn sig(name: &str) -> &str {
    name.split(['[', ']']).find(|part| part.starts_with("sig-")).unwrap_or("none")
}

/// Must not run beside other tests.
pub fn is_serial(name: &str) -> bool {
    name.contains("[Serial]")
}

/// The part of the system that a test is about: its outermost named container without tags.
pub fn area(containers: &[String]) -> String {
    let named = containers.iter().map(|text| untagged(text)).find(|text| !text.is_empty());
    named.or_else(|| containers.iter().find_map(|text| last_tag(text))).unwrap_or_default()
}

/// The text without what stands in brackets.
fn untagged(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The value of the last tag: `[FeatureGate:ClusterTrustBundle]` is about ClusterTrustBundle.
fn last_tag(text: &str) -> Option<String> {
    let tag = text.rsplit_once('[')?.1.split_once(']')?.0;
    (!tag.starts_with("sig-")).then(|| tag.rsplit(':').next().unwrap_or(tag).to_owned())
}

/// A file name for a test: readable, and different for different names.
pub fn slug(name: &str) -> String {
    use sha2::{Digest, Sha256};
    let mut slug = String::new();
    for c in name.chars() {
        match c {
            _ if slug.len() >= 120 => break,
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    let digest = Sha256::digest(name.as_bytes());
    format!("{}-{:02x}{:02x}{:02x}", slug.trim_end_matches('-'), digest[0], digest[1], digest[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_sig_and_area() {
        assert_eq!(sig("[sig-apps] Job should work [Conformance]"), "sig-apps");
        assert_eq!(sig("[It] something"), "none");
        let area = |texts: &[&str]| area(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(area(&["[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin]"]), "AdmissionWebhook");
        assert_eq!(area(&["[sig-cli] Kubectl client", "Kubectl diff"]), "Kubectl client");
        assert_eq!(area(&["[sig-auth] [FeatureGate:X] [FeatureGate:ClusterTrustBundle]"]), "ClusterTrustBundle");
        assert_eq!(area(&["[sig-node]", "Probing"]), "Probing");
        assert!(is_serial("[sig-x] a [Serial]") && !is_serial("[sig-x] a"));
    }

    #[test]
    fn slugs_are_short_and_unique() {
        let long = "[sig-apps] x ".repeat(40);
        assert!(slug(&long).len() < 130 && slug(&long) != slug(&format!("{long}y")));
        assert!(slug("[sig-apps] Job: a/b").starts_with("sig-apps-job-a-b-"));
    }
}
