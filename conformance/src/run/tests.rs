//! The whole run against a stand-in for e2e.test: a script that speaks ginkgo's protocol.

use std::os::unix::fs::PermissionsExt;

use clap::Parser;

use super::*;

/// Lists three tests; runs those that the focus names, as ginkgo does: by the index that the judge gives out,
/// serial ones in the end by process 1.
const E2E: &str = r#"#!/bin/bash
tests=("[sig-a] Area one works [Conformance]" "[sig-a] Area two fails [Conformance]" "[sig-b] Area three works [Conformance] [Serial]")
for argument in "$@"; do
  case $argument in
    --list-tests) for test in "${tests[@]}"; do echo "    a/b.go:1: $test"; done; exit 0 ;;
    --ginkgo.parallel.host=*) host=${argument#*=} ;;
    --ginkgo.parallel.process=*) process=${argument#*=} ;;
    --ginkgo.focus=*) focus=${argument#*=} ;;
    --behave=*) behave=${argument#*=} ;;
  esac
done
[ "$GINKGO_PARALLEL_PROTOCOL" = HTTP ] || exit 9
pattern=${focus//'(?:'/'('}
post() { curl -sf --data-binary "$2" "$host/$1" || exit 8; }
get() { curl -s -o /dev/null -w '%{http_code}' "$host/$1"; }
until_is() { until [ "$(get "$1")" = "$2" ]; do sleep 0.02; done; }
[ "$(get up)" = 200 ] || exit 7
post suite-will-begin '{"StartTime":"2026-11-30T10:00:00Z"}'
[ "$process" != 1 ] || post before-suite-completed '{"Data":null,"State":"passed"}'
until_is before-suite-state 200
if [ "$behave" = no-nodes ]; then
  post did-run '{"LeafNodeType":"SynchronizedBeforeSuite","State":"failed","Failure":{"Message":"no nodes"}}'
  exit 1
fi
run() {
  local index=$1 test state more
  test=${tests[$index]} state=passed more=
  if ! [[ "Suite $test" =~ $pattern ]] || [ "$(get abort)" = 410 ]; then
    post did-run "{\"LeafNodeType\":\"It\",\"LeafNodeText\":\"$test\",\"State\":\"skipped\"}"
    return
  fi
  case $behave-$index in
    crash-1) exit 3 ;;
    hang-1)
      post progress-report '{"ContainerHierarchyTexts":["[sig-a] Area"],"LeafNodeText":"two fails [Conformance]"}'
      until_is abort 410; state=interrupted ;;
    *-1)
      [ "$behave" = heal ] && [ -e ../healed ] || state=failed
      touch ../healed
      more=',"Failure":{"Message":"expected 1, got 2","Location":{"FileName":"m@v1/a.go","LineNumber":7}}' ;;
  esac
  post did-run "{\"ContainerHierarchyTexts\":[\"${test%% *} Area\"],\"LeafNodeType\":\"It\",\"LeafNodeText\":\"${test#* Area }\",
    \"State\":\"$state\",\"RunTime\":1000000000,\"CapturedGinkgoWriterOutput\":\"said\\n\"$more}"
}
while index=$(curl -sf "$host/counter") && index=${index//[^0-9]/} && [ "$index" -lt 2 ]; do run "$index"; done
if [ "$process" = 1 ]; then
  until_is have-nonprimary-procs-finished 200
  run 2
fi
[ "$process" != 1 ] || until_is aggregated-nonprimary-procs-report 200
post suite-did-end '{"SuiteSucceeded":true,"SpecReports":[],"EndTime":"2026-11-30T10:00:01Z"}'
"#;

const KUBECTL: &str = "#!/bin/sh\necho '{\"gitVersion\": \"v1.37.2\"}'\n";

const TWO: &str = "[sig-a] Area two fails [Conformance]";

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        for (name, text) in [("e2e.test", E2E), ("kubectl", KUBECTL)] {
            let file = bench.path(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn run(&self, arguments: &[&str], shutdown: &CancellationToken) -> Result<(), String> {
        let binary = format!("--e2e-binary={}", self.path("e2e.test").display());
        let out = format!(
            "--{}={}",
            if arguments.contains(&"resume") { "resume" } else { "out" },
            self.path("out").display()
        );
        let common = ["run", &binary, "--parallel=2", &out];
        let arguments = common.iter().chain(arguments.iter().filter(|argument| **argument != "resume"));
        run(Cli::parse_from(arguments).args, shutdown.clone()).await.map_err(|error| format!("{error:#}"))
    }

    fn states(&self) -> Vec<(String, State)> {
        let results = Results::load(&self.path("out")).unwrap();
        results.tests.into_iter().map(|result| (result.test, result.state)).collect()
    }

    fn state(&self, test: &str) -> Option<State> {
        self.states().into_iter().find(|(name, _)| name == test).map(|(_, state)| state)
    }
}

#[tokio::test]
async fn results_logs_and_junit_are_written() {
    let bench = Bench::new();
    let error = bench.run(&[], &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error, "1 tests failed");
    assert_eq!(
        bench.states().iter().map(|(_, state)| *state).collect::<Vec<_>>(),
        [State::Passed, State::Failed, State::Passed]
    );
    let results = Results::load(&bench.path("out/results.json")).unwrap();
    let failed = results.tests.iter().find(|result| result.test == TWO).unwrap();
    let failure = failed.failure.as_ref().unwrap();
    assert_eq!((failure.message.as_str(), failure.location.as_str()), ("expected 1, got 2", "a.go:7"));
    assert_eq!((failed.area.as_str(), failed.seconds), ("Area", 1.0));
    let log = std::fs::read_to_string(bench.path("out").join(failed.log.as_ref().unwrap())).unwrap();
    assert!(log.contains("---- output\nsaid\n"), "{log}");
    assert!(std::fs::read_to_string(bench.path("out/junit.xml")).unwrap().contains("failures=\"1\""));
    assert!(bench.run(&[], &CancellationToken::new()).await.unwrap_err().contains("--resume"));
}

#[tokio::test]
async fn known_failures_are_no_news_and_stale_ones_are() {
    let bench = Bench::new();
    let file = bench.path("known.yaml");
    let known = format!("--known-failures={}", file.display());
    std::fs::write(&file, format!("- {{test: '{TWO}', reason: not there, issue: 7}}\n")).unwrap();
    bench.run(&[&known], &CancellationToken::new()).await.unwrap();
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    let mut text = std::fs::read_to_string(&file).unwrap();
    text += "- {test: '[sig-a] Area one works [Conformance]', reason: was broken, issue: 8}\n";
    std::fs::write(&file, text).unwrap();
    assert_eq!(bench.run(&[&known], &CancellationToken::new()).await.unwrap_err(), "1 known failures passed");
    std::fs::write(&file, "- {test: nothing, reason: gone, issue: 8}\n").unwrap();
    assert!(bench.run(&[&known], &CancellationToken::new()).await.unwrap_err().contains("no test for"));
}

#[tokio::test]
async fn a_retry_that_passes_is_a_flake() {
    let bench = Bench::new();
    bench.run(&["--retry-failed=2", "--", "--behave=heal"], &CancellationToken::new()).await.unwrap();
    let results = Results::load(&bench.path("out")).unwrap();
    let flaked: Vec<_> = results.tests.iter().filter(|result| result.flaked()).map(|result| result.attempt).collect();
    assert_eq!(flaked, [2]);
}

#[tokio::test]
async fn tests_of_a_dead_process_are_lost() {
    let bench = Bench::new();
    let error = bench.run(&["--", "--behave=crash"], &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error, "1 tests failed");
    assert_eq!(bench.state(TWO), Some(State::Lost));
    assert_eq!(bench.states().len(), 3);
}

#[tokio::test]
async fn an_interrupted_run_is_resumed() {
    let bench = Bench::new();
    let shutdown = CancellationToken::new();
    let cancel = async {
        // The first test's result is there; the second one hangs.
        let there = || Results::load(&bench.path("out")).is_ok_and(|results| !results.tests.is_empty());
        while !there() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        shutdown.cancel();
    };
    let (end, ()) = tokio::join!(bench.run(&["--", "--behave=hang"], &shutdown), cancel);
    assert!(end.unwrap_err().starts_with("interrupted"));
    assert_eq!(bench.states(), [("[sig-a] Area one works [Conformance]".to_owned(), State::Passed)]);
    let logs = std::fs::read_dir(bench.path("out/logs")).unwrap().count();
    assert_eq!(logs, 1);
    let error = bench.run(&["resume"], &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.as_str(), bench.states().len()), ("1 tests failed", 3));
    assert_eq!(Results::load(&bench.path("out")).unwrap().runs.len(), 2);
}

#[tokio::test]
async fn a_suite_that_can_not_be_set_up_loses_no_tests() {
    let bench = Bench::new();
    let error = bench.run(&["--", "--behave=no-nodes"], &CancellationToken::new()).await.unwrap_err();
    assert!(error.starts_with("interrupted"), "{error}");
    assert!(bench.states().is_empty());
}

#[tokio::test]
async fn a_test_that_never_ends_has_failed_and_the_others_run() {
    let bench = Bench::new();
    let error = bench.run(&["--test-timeout=1s", "--", "--behave=hang"], &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error, "1 tests failed");
    let states: Vec<State> = bench.states().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [State::Passed, State::Failed, State::Passed]);
    let results = Results::load(&bench.path("out")).unwrap();
    let failed = results.tests.iter().find(|result| result.test == TWO).unwrap();
    assert!(failed.failure.as_ref().unwrap().message.contains("longer than 1 s"), "{failed:?}");
}

#[test]
fn durations_are_read() {
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
    for wrong in ["0s", "-1m", "10", "soon"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn the_time_limit_interrupts() {
    let bench = Bench::new();
    let error = bench.run(&["--timeout=0", "--", "--behave=hang"], &CancellationToken::new()).await.unwrap_err();
    assert!(error.starts_with("interrupted"), "{error}");
}
