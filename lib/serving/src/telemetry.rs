//! What a component tells about itself while it runs: whoever starts it hands this in and serves it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    health::{Checks, Scope},
    metrics::Registry,
};

/// Checks and metrics of one component. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// Its health.
    pub checks: Checks,
    /// Its numbers.
    pub metrics: Registry,
}

impl Telemetry {
    /// One that reports the process, too.
    pub fn with_process() -> Self {
        Self { checks: Checks::default(), metrics: Registry::with_process() }
    }

    /// A check that fails until the returned switch is turned on.
    pub fn switch(&self, name: &str, scope: Scope) -> Switch {
        let switch = Switch::default();
        let shown = switch.clone();
        self.checks.add(name, scope, move || {
            let outcome = if shown.is_on() { Ok(()) } else { Err("not yet".to_owned()) };
            async { outcome }
        });
        switch
    }

    /// A check that fails when the last beat is longer ago than `limit`; from now on, as long, it holds without one.
    pub fn beat(&self, name: &str, scope: Scope, limit: Duration) -> Beat {
        let beat = Beat(Arc::new(Mutex::new(Instant::now())));
        let shown = beat.clone();
        self.checks.add(name, scope, move || {
            let outcome = shown.within(limit);
            async { outcome }
        });
        beat
    }
}

/// Something that comes true once.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// It is true.
    pub fn turn_on(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that must go on happening.
#[derive(Clone, Debug)]
pub struct Beat(Arc<Mutex<Instant>>);

impl Beat {
    /// It happened just now.
    pub fn now(&self) {
        *self.0.lock() = Instant::now();
    }

    fn within(&self, limit: Duration) -> Result<(), String> {
        let ago = self.0.lock().elapsed();
        if ago <= limit { Ok(()) } else { Err(format!("last success {} s ago", ago.as_secs())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn code(telemetry: &Telemetry, path: &str) -> u16 {
        telemetry.checks.respond(path, None).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn switches_and_beats_decide_the_endpoints() {
        let telemetry = Telemetry::default();
        let synced = telemetry.switch("informer-sync", Scope::Ready);
        assert_eq!((code(&telemetry, "/livez").await, code(&telemetry, "/readyz").await), (200, 500));
        synced.turn_on();
        assert_eq!(code(&telemetry, "/readyz").await, 200);
        let beat = telemetry.beat("loop", Scope::Live, Duration::from_millis(30));
        assert_eq!(code(&telemetry, "/livez").await, 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(code(&telemetry, "/livez").await, 500);
        beat.now();
        assert_eq!(code(&telemetry, "/livez").await, 200);
        // A component that is started again is not ready before it has synced again.
        telemetry.switch("informer-sync", Scope::Ready);
        assert_eq!(code(&telemetry, "/readyz").await, 500);
    }
}
