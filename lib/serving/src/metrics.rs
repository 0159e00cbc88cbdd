//! A small metrics registry with Prometheus text output, used by every component.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

/// What the exposition format is called in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Upper bounds of a histogram of request durations in seconds.
pub const DURATION_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// The families of one component. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Vec<Source>>>);

/// What reports some families, under a name.
struct Source {
    name: String,
    report: Box<dyn Fn(&mut Text) + Send + Sync>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.lock().iter().map(|source| &source.name)).finish()
    }
}

impl Registry {
    /// A registry that reports the process itself, too.
    pub fn with_process() -> Self {
        let registry = Self::default();
        registry.collect("process", crate::process::report);
        registry
    }

    /// A family of counters, one for each combination of label values.
    pub fn counter<const N: usize>(&self, name: &str, help: &str, labels: [&str; N]) -> Counter<N> {
        Counter(self.scalar(name, help, Kind::Counter, labels))
    }

    /// A family of gauges.
    pub fn gauge<const N: usize>(&self, name: &str, help: &str, labels: [&str; N]) -> Gauge<N> {
        Gauge(self.scalar(name, help, Kind::Gauge, labels))
    }

    /// A family of histograms with the given ascending upper bounds.
    pub fn histogram<const N: usize>(&self, name: &str, help: &str, labels: [&str; N], bounds: &[f64]) -> Histogram<N> {
        let histogram = Histogram { family: Family::new(name, help, labels), bounds: bounds.into() };
        let reported = histogram.clone();
        self.collect(name, move |text| reported.report(text));
        histogram
    }

    /// Adds values that are computed when they are asked for, in the place of those that had this name before: of a
    /// component that was started again.
    pub fn collect(&self, name: &str, report: impl Fn(&mut Text) + Send + Sync + 'static) {
        let source = Source { name: name.to_owned(), report: Box::new(report) };
        let mut sources = self.0.lock();
        match sources.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = source,
            None => sources.push(source),
        }
    }

    /// All families in the text format.
    pub fn render(&self) -> String {
        let mut text = Text::default();
        for source in self.0.lock().iter() {
            (source.report)(&mut text);
        }
        text.0
    }

    fn scalar<const N: usize>(&self, name: &str, help: &str, kind: Kind, labels: [&str; N]) -> Family<Number, N> {
        let family = Family::new(name, help, labels);
        let reported = family.clone();
        self.collect(name, move |text| {
            text.family(&reported.head.name, &reported.head.help, kind);
            reported.each(|labels, number: &Number| text.sample(&reported.head.name, labels, number.get()));
        });
        family
    }
}

/// What a family measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// Text in the exposition format, as it grows.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a family.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One value of the family.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.series(name, labels);
        let _ = writeln!(self.0, " {}", number(value));
    }

    /// One value of the family with its time in milliseconds.
    pub fn sample_at(&mut self, name: &str, labels: &[(&str, &str)], value: f64, milliseconds: i64) {
        self.series(name, labels);
        let _ = writeln!(self.0, " {} {milliseconds}", number(value));
    }

    /// One histogram of the family: for each bound the observations between it and the one before, and those beyond.
    pub fn distribution(&mut self, name: &str, labels: &[(&str, &str)], bounds: &[f64], buckets: &[u64], sum: f64) {
        let mut count = 0;
        for (index, bucket) in buckets.iter().enumerate() {
            count += bucket;
            let bound = number(bounds.get(index).copied().unwrap_or(f64::INFINITY));
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &labels, count as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    /// What was written.
    pub fn into_string(self) -> String {
        self.0
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
    }
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        _ => value.to_string(),
    }
}

/// Counters that share a name.
#[derive(Clone)]
pub struct Counter<const N: usize>(Family<Number, N>);

impl<const N: usize> Counter<N> {
    /// Forgets the series with other label values than these.
    pub fn retain(&self, keep: impl Fn(&[String; N]) -> bool) {
        self.0.retain(keep);
    }

    /// One more.
    pub fn inc(&self, labels: [&str; N]) {
        self.add(labels, 1.0);
    }

    /// That much more.
    pub fn add(&self, labels: [&str; N], amount: f64) {
        self.0.with(labels, Number::default).add(amount);
    }
}

/// Gauges that share a name.
#[derive(Clone)]
pub struct Gauge<const N: usize>(Family<Number, N>);

impl<const N: usize> Gauge<N> {
    /// Sets the value.
    pub fn set(&self, labels: [&str; N], value: f64) {
        self.0.with(labels, Number::default).0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Changes the value.
    pub fn add(&self, labels: [&str; N], amount: f64) {
        self.0.with(labels, Number::default).add(amount);
    }
}

/// Histograms that share a name.
#[derive(Clone)]
pub struct Histogram<const N: usize> {
    family: Family<Distribution, N>,
    bounds: Arc<[f64]>,
}

impl<const N: usize> Histogram<N> {
    /// Forgets the series with other label values than these.
    pub fn retain(&self, keep: impl Fn(&[String; N]) -> bool) {
        self.family.retain(keep);
    }

    /// Counts an observation.
    pub fn observe(&self, labels: [&str; N], value: f64) {
        let series = self.family.with(labels, || Distribution::new(self.bounds.len()));
        series.sum.add(value);
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, text: &mut Text) {
        let name = &self.family.head.name;
        text.family(name, &self.family.head.help, Kind::Histogram);
        self.family.each(|labels, series| {
            let buckets: Vec<u64> = series.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
            text.distribution(name, labels, &self.bounds, &buckets, series.sum.get());
        });
    }
}

#[derive(Default)]
struct Number(AtomicU64);

impl Number {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn add(&self, amount: f64) {
        let add = |bits| Some((f64::from_bits(bits) + amount).to_bits());
        // The closure always returns a value, so the update always happens.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

struct Distribution {
    /// Observations between a bound and the one before; the last is beyond all bounds.
    buckets: Box<[AtomicU64]>,
    sum: Number,
}

impl Distribution {
    fn new(bounds: usize) -> Self {
        Self { buckets: (0..=bounds).map(|_| AtomicU64::new(0)).collect(), sum: Number::default() }
    }
}

struct Head<const N: usize> {
    name: String,
    help: String,
    labels: [String; N],
}

struct Family<T, const N: usize> {
    head: Arc<Head<N>>,
    series: Arc<RwLock<BTreeMap<[String; N], Arc<T>>>>,
}

impl<T, const N: usize> Clone for Family<T, N> {
    fn clone(&self) -> Self {
        Self { head: self.head.clone(), series: self.series.clone() }
    }
}

impl<T, const N: usize> Family<T, N> {
    fn new(name: &str, help: &str, labels: [&str; N]) -> Self {
        let head = Head { name: name.into(), help: help.into(), labels: labels.map(str::to_owned) };
        Self { head: Arc::new(head), series: Arc::default() }
    }

    fn with(&self, labels: [&str; N], new: impl FnOnce() -> T) -> Arc<T> {
        let key = labels.map(str::to_owned);
        if let Some(series) = self.series.read().get(&key) {
            return series.clone();
        }
        self.series.write().entry(key).or_insert_with(|| Arc::new(new())).clone()
    }

    fn retain(&self, keep: impl Fn(&[String; N]) -> bool) {
        self.series.write().retain(|labels, _| keep(labels));
    }

    fn each(&self, mut visit: impl FnMut(&[(&str, &str)], &T)) {
        for (values, series) in self.series.read().iter() {
            let labels: Vec<_> =
                self.head.labels.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
            visit(&labels, series);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_rendered_in_the_text_format() {
        let registry = Registry::default();
        let requests = registry.counter("requests_total", "Requests.", ["verb", "code"]);
        requests.inc(["GET", "200"]);
        requests.inc(["GET", "200"]);
        requests.add(["LIST", "a\"b\\c\nd"], 0.5);
        let depth = registry.gauge("depth", "Depth\nof it.", []);
        depth.set([], 3.0);
        depth.add([], -5.0);
        let took = registry.histogram("took_seconds", "Time.", ["verb"], &[0.1, 1.0]);
        for seconds in [0.05, 0.1, 0.5, 3.0] {
            took.observe(["GET"], seconds);
        }
        let expected = r#"# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{verb="GET",code="200"} 2
requests_total{verb="LIST",code="a\"b\\c\nd"} 0.5
# HELP depth Depth\nof it.
# TYPE depth gauge
depth -2
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{verb="GET",le="0.1"} 2
took_seconds_bucket{verb="GET",le="1"} 3
took_seconds_bucket{verb="GET",le="+Inf"} 4
took_seconds_sum{verb="GET"} 3.65
took_seconds_count{verb="GET"} 4
"#;
        assert_eq!(registry.render(), expected);
    }

    #[test]
    fn a_family_that_is_registered_again_begins_anew() {
        let registry = Registry::default();
        registry.counter("things_total", "Things.", []).inc([]);
        registry.counter("things_total", "Things.", []).add([], 5.0);
        assert!(registry.render().ends_with("counter\nthings_total 5\n"), "{}", registry.render());
    }

    #[test]
    fn the_process_is_reported() {
        let text = Registry::with_process().render();
        let resident = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")).unwrap();
        assert!(resident.parse::<f64>().unwrap() > 1e5, "{text}");
        assert!(text.contains("process_cpu_seconds_total "), "{text}");
    }
}
