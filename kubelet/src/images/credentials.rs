//! Registry credentials from image pull secrets.

use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use pintle_cri::messages::AuthConfig;

/// The credentials that a secret has for an image's registry.
pub fn from_secret(secret: &Secret, image: &str) -> Option<AuthConfig> {
    let data = secret.data.as_ref()?;
    let auths = match (data.get(".dockerconfigjson"), data.get(".dockercfg")) {
        (Some(text), _) => serde_json::from_slice::<serde_json::Value>(&text.0).ok()?.get("auths")?.clone(),
        (None, Some(text)) => serde_json::from_slice(&text.0).ok()?,
        (None, None) => return None,
    };
    let mut best: Option<(usize, AuthConfig)> = None;
    for (key, entry) in auths.as_object()? {
        let Some(length) = matches(key, image) else { continue };
        if best.as_ref().is_none_or(|(n, _)| length > *n) {
            best = Some((length, read(entry)));
        }
    }
    best.map(|(_, auth)| auth)
}

/// Length of the match of a registry key with an image; the longest wins.
fn matches(key: &str, image: &str) -> Option<usize> {
    let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let key = key.trim_end_matches("/v1").trim_end_matches("/v2").trim_end_matches('/');
    let key = if key == "index.docker.io" { "docker.io" } else { key };
    let first = image.split('/').next().unwrap_or_default();
    let qualified = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let image = if qualified { image.to_owned() } else { format!("docker.io/{image}") };
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let (image_host, image_path) = image.split_once('/')?;
    let host_ok = match host.strip_prefix("*.") {
        Some(rest) => image_host.split_once('.').is_some_and(|(_, tail)| tail == rest),
        None => host == image_host,
    };
    (host_ok && image_path.starts_with(path)).then_some(key.len())
}

fn read(entry: &serde_json::Value) -> AuthConfig {
    let text = |name: &str| entry.get(name).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let mut auth = AuthConfig { username: text("username"), password: text("password"), ..AuthConfig::default() };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth")).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((user, password)) =
        decoded.as_deref().and_then(|d| d.split_once(':')).filter(|_| auth.username.is_empty())
    {
        auth.username = user.to_owned();
        auth.password = password.to_owned();
    }
    auth.identity_token = text("identitytoken");
    auth.registry_token = text("registrytoken");
    auth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_registry_wins() {
        let config = r#"{"auths": {"reg.io": {"auth": "YTpi"}, "reg.io/team": {"username": "u", "password": "p"},
            "*.example.org": {"username": "w", "password": "x"}, "https://index.docker.io/v1/": {"username": "d"}}}"#;
        let secret = Secret {
            data: Some([(".dockerconfigjson".to_owned(), k8s_openapi::ByteString(config.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let of = |image: &str| from_secret(&secret, image).map(|a| (a.username, a.password));
        let pair = |u: &str, p: &str| Some((u.to_owned(), p.to_owned()));
        assert_eq!(of("reg.io/x:1"), pair("a", "b"));
        assert_eq!(of("reg.io/team/x:1"), pair("u", "p"));
        assert_eq!(of("a.example.org/x"), pair("w", "x"));
        assert_eq!(of("busybox:1"), pair("d", ""));
        assert_eq!(of("other.io/x"), None);
    }
}
