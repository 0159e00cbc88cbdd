//! One target under libFuzzer; FUZZ_TARGET names it.
#![no_main]

use std::sync::OnceLock;

use pintle_fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

/// A library whose panics the decoders catch.
const CAUGHT: &str = "libyaml-safer";

fn chosen() -> Target {
    let ends = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|place| place.file().contains(CAUGHT)) {
            ends(panic);
        }
    }));
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    pintle_fuzz::target(&name).unwrap_or_else(|| panic!("no target is called «{name}»"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(chosen)(bytes));
