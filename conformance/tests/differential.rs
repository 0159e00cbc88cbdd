//! Two minutes of the differential with a fixed seed: generated objects, patches and sessions against upstream's server.
//! Runs where upstream's binaries are (`PINTLE_UPSTREAM_BIN`) and a pintle to judge (`PINTLE_BIN`); else it says that it does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use pintle_conformance::diff::{Args, Feed, run};
use tokio_util::sync::CancellationToken;

/// What the score may be at most; it may only shrink. (per 1,000 requests: sessions, objects, patches)
const LIMITS: &str = include_str!("../results/limits.json");

#[tokio::test(flavor = "multi_thread")]
async fn no_worse_than_it_was() {
    let (Some(upstream_bin), Some(pintle)) = (directory("PINTLE_UPSTREAM_BIN"), directory("PINTLE_BIN")) else {
        eprintln!("skipped: PINTLE_UPSTREAM_BIN and PINTLE_BIN are not both set");
        return;
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let args = Args {
        upstream_bin: Some(upstream_bin),
        pintle: Some(pintle),
        corpus: home.join("corpus"),
        out: out.path().to_owned(),
        feed: vec![Feed::Sessions, Feed::Objects, Feed::Patches],
        seed: 1,
        requests: 10_000,
        seconds: 40,
        only: None,
        strict: false,
        max_per_thousand: None,
    };
    run(args, CancellationToken::new()).await.unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let found = read(&std::fs::read_to_string(out.path().join("differential.json")).unwrap());
    for (feed, limit) in read(LIMITS).as_object().unwrap() {
        let rate = found["feeds"][feed]["per_thousand"].as_f64().unwrap();
        assert!(rate <= limit.as_f64().unwrap(), "{feed}: {rate} differences per 1,000, {limit} may be");
    }
}

fn directory(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

#[test]
fn the_binary_tells_what_it_takes() {
    let Some(pintle) = directory("PINTLE_BIN") else { return };
    let output = Command::new(pintle).args(["conformance", "diff", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("--upstream-bin"));
}
