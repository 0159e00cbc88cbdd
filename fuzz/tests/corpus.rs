//! Runs each target over its corpus and over bounded, seeded mutations of it.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Mutations of each seed.
const ROUNDS: usize = 5000;
/// What mutations like to put in.
const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "-1",
    "1e999",
    "\\u0000",
    "\0",
    "$patch",
    "$deleteFromPrimitiveList/x",
    "&a",
    "*a",
    "!!",
    "---\n",
    "9223372036854775808",
    "Ki",
    "notin (",
    "=",
    "\u{fffd}",
    "\n  ",
];

fn mutate(seed: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..8)).min(bytes.len());
        match random.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] = random.random(),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.splice(at..at, PIECES[random.random_range(0..PIECES.len())].bytes()).for_each(drop),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy).for_each(drop);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

#[test]
fn corpus_and_mutations() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in pintle_fuzz::TARGETS {
        let mut seeds: Vec<_> =
            std::fs::read_dir(root.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        seeds.sort();
        assert!(!seeds.is_empty(), "{name} has no corpus");
        let mut random = StdRng::seed_from_u64(1);
        for path in seeds {
            let seed = std::fs::read(&path).unwrap();
            target(&seed);
            for _ in 0..ROUNDS {
                let bytes = mutate(&seed, &mut random);
                let outcome = std::panic::catch_unwind(|| target(&bytes));
                assert!(outcome.is_ok(), "{name}, from {}: {:?}", path.display(), String::from_utf8_lossy(&bytes));
            }
        }
    }
}
