//! Level-triggered waits: look at the state until it is as wanted or time is over.

use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until there is an answer. An error is a look that gave none: it is told if it was the last one.
pub async fn until<T, R>(what: &str, limit: Duration, mut look: impl FnMut() -> R) -> anyhow::Result<T>
where
    R: Future<Output = anyhow::Result<Option<T>>>,
{
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let last = match tokio::time::timeout(left, look()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(anyhow::anyhow!("no answer")),
        };
        if Instant::now() + PAUSE >= end {
            let told = last.map(|error| format!(": {error:#}")).unwrap_or_default();
            anyhow::bail!("not within {} s: {what}{told}", limit.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks until something is so.
pub async fn until_true(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    until(what, limit, || std::future::ready(Ok(is_so().then_some(())))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_error_is_told() {
        let mut looks = 0;
        let outcome = until::<(), _>("the thing", Duration::from_millis(350), || {
            looks += 1;
            std::future::ready(Err(anyhow::anyhow!("broken")))
        });
        assert_eq!(outcome.await.unwrap_err().to_string(), "not within 0 s: the thing: broken");
        assert!(looks > 1);
    }

    #[tokio::test]
    async fn an_answer_ends_the_wait() {
        let mut looks = 0;
        let found = until("it", Duration::from_secs(5), || {
            looks += 1;
            std::future::ready(Ok((looks == 3).then_some(looks)))
        });
        assert_eq!(found.await.unwrap(), 3);
    }
}
