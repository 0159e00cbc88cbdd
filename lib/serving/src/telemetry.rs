//! What a component tells about itself while it runs: whoever starts it hands this in and serves it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use crate::{
    health::{Checks, Scope},
    metrics::{Kind, Registry},
};

/// Checks and metrics of one component. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// Its health.
    pub checks: Checks,
    /// Its numbers.
    pub metrics: Registry,
    /// What must go on happening, by name.
    beats: Arc<Mutex<BTreeMap<String, Beat>>>,
}

/// When loops have succeeded last.
const SUCCESS: &str = "pintle_loop_last_success_timestamp_seconds";

impl Telemetry {
    /// One that reports the process, too.
    pub fn with_process() -> Self {
        Self { metrics: Registry::with_process(), ..Self::default() }
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
        let beat = self.success(name);
        let shown = beat.clone();
        self.checks.add(name, scope, move || {
            let outcome = shown.within(limit);
            async { outcome }
        });
        beat
    }

    /// A number that tells when a loop has succeeded last, once it has.
    pub fn success(&self, name: &str) -> Beat {
        let beat = Beat(Arc::new(Mutex::new((Instant::now(), None))));
        self.beats.lock().insert(name.to_owned(), beat.clone());
        let beats = self.beats.clone();
        self.metrics.collect(SUCCESS, move |text| {
            text.family(SUCCESS, "When a loop has succeeded last, in seconds since 1970.", Kind::Gauge);
            for (name, beat) in beats.lock().iter() {
                let since = beat.0.lock().1.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                since.into_iter().for_each(|since| text.sample(SUCCESS, &[("loop", name)], since.as_secs_f64()));
            }
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

/// Something that must go on happening: when it did last, or when it was to begin, and when it did by the clock.
#[derive(Clone, Debug)]
pub struct Beat(Arc<Mutex<(Instant, Option<SystemTime>)>>);

impl Beat {
    /// It happened just now.
    pub fn now(&self) {
        *self.0.lock() = (Instant::now(), Some(SystemTime::now()));
    }

    fn within(&self, limit: Duration) -> Result<(), String> {
        let ago = self.0.lock().0.elapsed();
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
        assert!(!telemetry.metrics.render().contains("{loop="));
        beat.now();
        assert_eq!(code(&telemetry, "/livez").await, 200);
        telemetry.success("other").now();
        let text = telemetry.metrics.render();
        assert!(text.contains("{loop=\"loop\"} 1") && text.contains("{loop=\"other\"} 1"), "{text}");
        // A component that is started again is not ready before it has synced again.
        telemetry.switch("informer-sync", Scope::Ready);
        assert_eq!(code(&telemetry, "/readyz").await, 500);
    }
}
