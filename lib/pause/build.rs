//! Compiles the sandbox program.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=pause.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("pause");
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie", "-s"])
        .args(["-Wl,--build-id=none", "-o"])
        .arg(&out)
        .arg("pause.c")
        .status()
        .expect("a C compiler runs");
    assert!(status.success(), "compiling pause.c failed");
}
