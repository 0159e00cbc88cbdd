//! `cargo x bench`: the bars of this project's start, idle use and pod latency, measured on an isolated cluster that is
//! started and removed here.

mod cluster;
mod pods;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cluster::{Cluster, Tools};

/// What to measure with.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// The binary.
    #[arg(long)]
    pintle: PathBuf,
    /// A kubectl.
    #[arg(long)]
    kubectl: PathBuf,
    /// The demo's image archive (`cargo x image`).
    #[arg(long)]
    image: PathBuf,
    /// Manifest of the application that runs while idle use is measured.
    #[arg(long, default_value = "hack/demo/app.yaml")]
    demo: PathBuf,
    /// Pods to start, one at a time.
    #[arg(long, default_value_t = 30)]
    pods: usize,
    /// Seconds over which idle use is measured.
    #[arg(long, default_value_t = 60)]
    window: u64,
    /// Loopback port of the cluster's API server.
    #[arg(long, default_value_t = 26_450)]
    port: u16,
}

/// One line of the result: what was measured, and the most that it may be.
struct Bar {
    what: &'static str,
    measured: f64,
    limit: Option<f64>,
    unit: &'static str,
}

impl Bar {
    fn new(what: &'static str, measured: f64, limit: f64, unit: &'static str) -> Self {
        Self { what, measured, limit: Some(limit), unit }
    }

    fn info(what: &'static str, measured: f64, unit: &'static str) -> Self {
        Self { what, measured, limit: None, unit }
    }

    fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| self.measured <= limit)
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit.map_or_else(String::new, |limit| format!("≤ {limit} {}", self.unit));
        let verdict = match self.limit {
            None => "",
            Some(_) if self.holds() => "pass",
            Some(_) => "FAIL",
        };
        let line = format!("{:<58} {:>10.2} {:<3} {limit:<10} {verdict}", self.what, self.measured, self.unit);
        f.write_str(line.trim_end())
    }
}

/// Measures, prints the table; an error if a bar does not hold.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let load_before = load();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bars = runtime.block_on(measure(args))?;
    pintle_host::say!("{:<58} {:>14} {:<10}", "what", "measured", "bar");
    for bar in &bars {
        pintle_host::say!("{bar}");
    }
    pintle_host::say!("one-minute load of the machine: {load_before} before, {} after", load());
    let failed = bars.iter().filter(|bar| !bar.holds()).count();
    anyhow::ensure!(failed == 0, "{failed} bars do not hold");
    Ok(())
}

/// What else was going on: a bar that fails on a busy machine says little.
fn load() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().unwrap_or_default().to_owned()
}

async fn measure(args: &BenchArgs) -> anyhow::Result<Vec<Bar>> {
    let mut bars =
        vec![Bar::new("size of the binary", std::fs::metadata(&args.pintle)?.len() as f64 / 1e6, 60.0, "MB")];
    let tools = Tools { pintle: args.pintle.clone(), kubectl: args.kubectl.clone() };
    pintle_host::complain!("starting a cluster");
    let (cluster, start) = Cluster::start(tools, &args.image, args.port)?;
    bars.push(Bar::new("pintle up, from its start until /readyz", start.api.as_secs_f64(), 1.0, "s"));
    bars.push(Bar::new("pintle up until the node is Ready", start.node.as_secs_f64(), 5.0, "s"));
    bars.push(Bar::info("pintle up until DNS answers", start.dns.as_secs_f64(), "s"));

    pintle_host::complain!("the demo");
    cluster.run_demo(&args.demo)?;
    pintle_host::complain!("idle for {} s", args.window);
    let idle = cluster.idle(Duration::from_secs(args.window)).await?;
    bars.push(Bar::new("resident memory with the demo running", idle.resident_mb, 100.0, "MB"));
    bars.push(Bar::new("CPU with the demo running, of one core", idle.cpu_percent, 2.0, "%"));

    pintle_host::complain!("{} pods one at a time, and as many by CRI calls alone", args.pods);
    let mut times = pods::measure(&cluster, args.pods).await?;
    let pod = Quantiles::of(&mut times.pods);
    let bare = Quantiles::of(&mut times.bare);
    bars.push(Bar::new("pod from create until Running, p50", pod.p50, 600.0, "ms"));
    bars.push(Bar::info("pod from create until Running, p90", pod.p90, "ms"));
    bars.push(Bar::info("pod from create until Running, max", pod.max, "ms"));
    bars.push(Bar::info("the same by CRI calls alone, p50", bare.p50, "ms"));
    bars.push(Bar::info("the same by CRI calls alone, p90", bare.p90, "ms"));
    bars.push(Bar::info("the same by CRI calls alone, max", bare.max, "ms"));
    bars.push(Bar::new("difference of the medians", pod.p50 - bare.p50, 150.0, "ms"));
    Ok(bars)
}

/// Quantiles of times, in milliseconds.
struct Quantiles {
    p50: f64,
    p90: f64,
    max: f64,
}

impl Quantiles {
    /// By nearest rank; sorts the times.
    fn of(times: &mut [Duration]) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Self { p50: at(50), p90: at(90), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut times: Vec<Duration> = (1..=10).rev().map(Duration::from_millis).collect();
        let quantiles = Quantiles::of(&mut times);
        assert_eq!((quantiles.p50, quantiles.p90, quantiles.max), (5.0, 9.0, 10.0));
        assert!(Quantiles::of(&mut []).p50.is_nan());
    }

    #[test]
    fn a_bar_that_was_not_measured_does_not_hold() {
        assert!(Bar::new("x", 1.0, 1.0, "s").holds());
        assert!(!Bar::new("x", 1.1, 1.0, "s").holds());
        assert!(!Bar::new("x", f64::NAN, 1.0, "s").holds());
        assert!(Bar::info("x", 9.0, "s").holds());
    }
}
