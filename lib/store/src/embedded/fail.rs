//! Points of the write path at which tests end the process.

/// Ends the process here if a test wants it: `PINTLE_STORE_FAIL=NAME:COUNT`, at the point's so manieth passing.
#[cfg(test)]
pub(super) fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("PINTLE_STORE_FAIL").ok()?;
        let (name, count) = text.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(count.parse().ok()?)))
    });
    if let Some((wanted, left)) = wanted
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

/// Nothing outside of tests.
#[cfg(not(test))]
pub(super) fn point(_: &str) {}
