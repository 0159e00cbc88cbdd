//! Bootstrap tokens, `ID.SECRET`: Secrets of kube-system with which new nodes join.

use jiff::Timestamp;
use serde_json::Value;

use super::same_secret;
use crate::auth::{Objects, UserInfo, text};

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// The user of a token, if it is a bootstrap token that is there and valid.
pub fn user(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<UserInfo> {
    let (id, secret) = token.split_once('.')?;
    let part =
        |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !part(id, 6) || !part(secret, 16) {
        return None;
    }
    let name = format!("bootstrap-token-{id}");
    let object = objects.get("", "secrets", "kube-system", &name)?;
    let deleted = !text(&object, &["metadata", "deletionTimestamp"]).is_empty();
    let data = |key| field(&object, key);
    let expired = data("expiration").is_some_and(|at| at.parse::<Timestamp>().is_ok_and(|at| at <= now));
    let invalid = data("expiration").is_some_and(|at| !at.is_empty() && at.parse::<Timestamp>().is_err());
    let good = !deleted
        && !expired
        && !invalid
        && text(&object, &["type"]) == TYPE
        && data("token-id").as_deref() == Some(id)
        && data("token-secret").is_some_and(|known| same_secret(&known, secret))
        && data("usage-bootstrap-authentication").as_deref() == Some("true");
    good.then(|| {
        let mut user = UserInfo::new(&format!("system:bootstrap:{id}"), &[GROUP]);
        let further = data("auth-extra-groups").unwrap_or_default();
        for group in further.split(',').map(str::trim).filter(|group| group.starts_with("system:bootstrappers:")) {
            user.join(group);
        }
        user
    })
}

/// A field of a Secret's data.
fn field(secret: &Value, key: &str) -> Option<String> {
    use base64::Engine;
    let encoded = secret["data"][key].as_str()?;
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;

    fn objects(changes: &[(&str, Option<&str>)]) -> Fixed {
        let mut data = std::collections::BTreeMap::from([
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2030-01-01T00:00:00Z"),
            ("auth-extra-groups", "system:bootstrappers:worker,else"),
        ]);
        for (key, value) in changes {
            match value {
                Some(value) => drop(data.insert(key, value)),
                None => drop(data.remove(key)),
            }
        }
        let encode = |value: &str| base64::engine::general_purpose::STANDARD.encode(value);
        let data: serde_json::Map<_, _> = data.iter().map(|(k, v)| ((*k).to_owned(), json!(encode(v)))).collect();
        let mut objects = Fixed::default();
        objects.add(
            "",
            "secrets",
            json!({"metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": TYPE, "data": data}),
        );
        objects
    }

    #[test]
    fn valid_tokens_only() {
        const TOKEN: &str = "abcdef.0123456789abcdef";
        let now = "2029-01-01T00:00:00Z".parse().unwrap();
        let found = user(TOKEN, &objects(&[]), now).expect("valid");
        assert_eq!(found.name, "system:bootstrap:abcdef");
        assert_eq!(found.groups, [GROUP, "system:bootstrappers:worker"]);
        assert!(user(TOKEN, &objects(&[("expiration", None)]), now).is_some());
        for (key, value) in [
            ("expiration", Some("2028-01-01T00:00:00Z")),
            ("expiration", Some("soon")),
            ("usage-bootstrap-authentication", None),
            ("token-secret", Some("0123456789abcdee")),
            ("token-id", Some("abcdeg")),
        ] {
            assert_eq!(user(TOKEN, &objects(&[(key, value)]), now), None, "{key} {value:?}");
        }
        for token in ["abcdef.0123456789abcdee", "abcdeg.0123456789abcdef", "abcdef", "ABCDEF.0123456789abcdef"] {
            assert_eq!(user(token, &objects(&[]), now), None, "{token}");
        }
    }
}
