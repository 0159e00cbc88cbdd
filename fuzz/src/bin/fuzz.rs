//! One target under libFuzzer; FUZZ_TARGET names it.
#![no_main]

use std::sync::OnceLock;

use pintle_fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    pintle_fuzz::target(&name).unwrap_or_else(|| panic!("no target is called «{name}»"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(chosen)(bytes));
