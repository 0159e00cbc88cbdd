//! The tables are read once, but at every start: that must not be felt.

use std::time::{Duration, Instant};

#[test]
fn tables_are_read_quickly() {
    let start = Instant::now();
    pintle_api::schema();
    pintle_api::resources();
    let took = start.elapsed();
    println!("{took:?}");
    // Unoptimized and on a busy machine; optimized it is some milliseconds.
    assert!(took < Duration::from_secs(1), "{took:?}");
}
