//! token-cleaner-controller: removes bootstrap tokens whose time is over.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Preconditions};

use crate::context::Context;
use crate::meta;
use crate::retry::gone_is_fine;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The longest pause. Tokens are few: they are listed, not watched.
const PERIOD: Duration = Duration::from_secs(60);

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let params = ListParams::default().fields(&format!("type={TYPE}"));
    loop {
        let now = Timestamp::now();
        let mut pause = PERIOD;
        match ctx.api::<Secret>(NAMESPACE).list(&params).await {
            Ok(tokens) => {
                for token in tokens {
                    match left(&token, now) {
                        Some(left) if left.is_zero() => remove(&ctx, &token).await,
                        Some(left) => pause = pause.min(left),
                        None => {}
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "bootstrap tokens not listed, will retry"),
        }
        tokio::select! {
            () = ctx.shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How long the token is good; `None`: for ever, or nobody can tell.
fn left(token: &Secret, now: Timestamp) -> Option<Duration> {
    let text = token.data.as_ref()?.get("expiration")?;
    let until: Timestamp = std::str::from_utf8(&text.0).ok()?.parse().ok()?;
    // An end that is over is none to wait for.
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

async fn remove(ctx: &Context, token: &Secret) {
    let name = meta::name(&token.metadata);
    let same = Preconditions { uid: token.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().preconditions(same);
    match gone_is_fine(ctx.api::<Secret>(NAMESPACE).delete(name, &params).await.map(drop)) {
        Ok(_) => tracing::info!(token = name, "removed an expired bootstrap token"),
        Err(error) => tracing::debug!(%error, token = name, "token not removed, will retry"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn ends() {
        let token = |expiration: &str| Secret {
            data: Some([("expiration".to_owned(), ByteString(expiration.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("valid");
        assert_eq!(left(&Secret::default(), now), None);
        assert_eq!(left(&token("soon"), now), None);
        assert_eq!(left(&token("2025-12-31T00:00:00Z"), now), Some(Duration::ZERO));
        assert_eq!(left(&token("2026-01-01T00:00:30Z"), now), Some(Duration::from_secs(30)));
    }
}
