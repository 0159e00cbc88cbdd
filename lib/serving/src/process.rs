//! What the kernel says about this process, as metrics.

use crate::metrics::{Kind, Text};

/// Kernel clock ticks a second as seen in /proc; fixed by Linux's user interface.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

/// Adds the `process_*` gauges.
pub(crate) fn report(text: &mut Text) {
    let Some(stat) = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Stat::parse(&stat)) else {
        return;
    };
    let mut add = |name, help, kind, value| {
        text.family(name, help, kind);
        text.sample(name, &[], value);
    };
    let cpu = "Total user and system CPU time spent in seconds.";
    add("process_cpu_seconds_total", cpu, Kind::Counter, stat.cpu_ticks / TICKS);
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        add("process_open_fds", "Number of open file descriptors.", Kind::Gauge, files.count() as f64);
    }
    let resident = "Resident memory size in bytes.";
    add("process_resident_memory_bytes", resident, Kind::Gauge, stat.resident_pages * PAGE);
    add("process_virtual_memory_bytes", "Virtual memory size in bytes.", Kind::Gauge, stat.virtual_bytes);
    if let Some(booted) = boot_time() {
        let started = "Start time of the process since unix epoch in seconds.";
        add("process_start_time_seconds", started, Kind::Gauge, booted + stat.start_ticks / TICKS);
    }
}

struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The command's name may hold blanks and parentheses; fields are counted from behind it.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
