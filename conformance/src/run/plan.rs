//! The order of a run: what may run side by side, then what must run alone.

use crate::name;

/// Tests that run in the same number of processes.
#[derive(Debug, PartialEq)]
pub struct Phase {
    /// `parallel` or `serial`.
    pub name: &'static str,
    /// What runs.
    pub tests: Vec<String>,
    /// In how many processes.
    pub processes: usize,
    /// All of them are serial.
    pub serial: bool,
}

/// The phases for `tests`.
pub fn phases(tests: Vec<String>, processes: usize) -> Vec<Phase> {
    let (serial, parallel): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| name::is_serial(test));
    let phases = [
        Phase { name: "parallel", tests: parallel, processes, serial: false },
        Phase { name: "serial", tests: serial, processes: 1, serial: true },
    ];
    phases.into_iter().filter(|phase| !phase.tests.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_tests_run_alone_and_last() {
        let tests = ["[sig-a] x [Serial]", "[sig-a] y"].map(str::to_owned).to_vec();
        let phases = phases(tests, 4);
        let seen: Vec<_> = phases.iter().map(|phase| (phase.name, phase.tests[0].as_str(), phase.processes)).collect();
        assert_eq!(seen, [("parallel", "[sig-a] y", 4), ("serial", "[sig-a] x [Serial]", 1)]);
    }
}
