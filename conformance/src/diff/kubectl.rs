//! kubectl against one of the servers: its exit status and what it wrote, as an answer.

use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::scrub;
use super::wire::{Answer, Request, Server, Status};

/// What `kubectl edit` starts: it changes a word.
const EDITOR: &str = "sed -i -e s/before/after/g";

/// Between the words of a command line in a request's path.
const BETWEEN: char = '\u{1f}';

/// Ages of what a session made, which nobody can compare: words of their own, and short.
static AGE: LazyLock<Regex> =
    LazyLock::new(|| scrub::pattern(&format!(r"(?m)(^|[\s(]){}( ago)?(\s|\)|,|$)", scrub::AGE)));

/// Where `kubectl diff` keeps what it compares.
static COMPARED: LazyLock<Regex> = LazyLock::new(|| scrub::pattern(r"\S*/(LIVE|MERGED)-\d+"));
/// When it was put there.
static SINCE: LazyLock<Regex> = LazyLock::new(|| scrub::pattern(r"(?m)^((?:---|\+\+\+) \S+)\t.*$"));

/// Times as people read them, and what stands before a line of kubectl's own log.
static TIMES: LazyLock<Regex> = LazyLock::new(|| {
    scrub::pattern(r"(?m)\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+")
});

/// A command line as a request.
pub fn request(words: &[String], input: Vec<u8>) -> Request {
    Request::new("kubectl", words.join(&BETWEEN.to_string())).bytes(input)
}

/// Runs kubectl in a namespace of a server; its exit status is the answer's, its output the body.
pub async fn run(program: &Path, server: &Server, request: &Request, namespace: &str) -> anyhow::Result<Answer> {
    let mut command = tokio::process::Command::new(program);
    command.arg("--kubeconfig").arg(&server.kubeconfig).args(["-n", namespace]);
    command.arg("--cache-dir").arg(server.kubeconfig.with_extension("cache")).env("KUBE_EDITOR", EDITOR);
    command.args(request.path.split(BETWEEN)).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting kubectl")?;
    if let Some(mut input) = child.stdin.take() {
        // kubectl may end without reading it.
        let _ = input.write_all(&request.body).await;
    }
    let output = child.wait_with_output().await?;
    let errors: Vec<String> = text(&output.stderr).lines().map(str::to_owned).collect();
    let body = json!({"stdout": objects(&output.stdout).unwrap_or_else(|| lines(&output.stdout)), "stderr": errors});
    Ok(Answer { status: Status::Exit(output.status.code()), body: body.to_string().into_bytes(), ..Answer::default() })
}

/// JSON or YAML that was asked for.
fn objects(output: &[u8]) -> Option<Value> {
    if output.first() == Some(&b'{') {
        return serde_json::from_slice(output).ok();
    }
    let text = std::str::from_utf8(output).ok().filter(|text| text.starts_with("apiVersion: "))?;
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
    let mut documents = documents.collect::<Result<Vec<_>, _>>().ok()?;
    if documents.len() == 1 { documents.pop() } else { Some(Value::Array(documents)) }
}

/// Lines; how wide columns are follows from ages and made-up names.
fn lines(output: &[u8]) -> Value {
    text(output).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn text(output: &[u8]) -> String {
    let text = scrub::text(&String::from_utf8_lossy(output));
    let text = TIMES.replace_all(&text, "<time>").into_owned();
    let text = SINCE.replace_all(&COMPARED.replace_all(&text, "$1"), "$1").into_owned();
    // Twice: of two ages side by side the first takes what is between them.
    let once = AGE.replace_all(&text, "${1}<age>${2}${3}");
    AGE.replace_all(&once, "${1}<age>${2}${3}").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_go_and_other_durations_stay() {
        let given = b"p 0/1 Pending 0 4s\nc <none> 3s 2s\n  delay=0s timeout=1s\nop=Exists for 300s\n(x1 over 75s)\nAge: 2m3s\n";
        let expected = [
            "p 0/1 Pending 0 <age>",
            "c <none> <age> <age>",
            "delay=0s timeout=1s",
            "op=Exists for 300s",
            "(x1 over <age>)",
            "Age: <age>",
        ];
        assert_eq!(lines(given), json!(expected));
    }

    #[test]
    fn times_go() {
        let given =
            b"Creation: Mon, 30 Nov 2026 15:08:40 +0000\nW1130 15:08:55.972959   31854 diff.go:723] it changes\n";
        assert_eq!(lines(given), json!(["Creation: <time>", "<time> diff.go:723] it changes"]));
    }

    #[test]
    fn differences_have_no_places_and_times() {
        let given = b"diff -u -N /tmp/LIVE-12/v1.a /tmp/MERGED-34/v1.a\n--- /tmp/LIVE-12/v1.a\t2026-11-30 15:00:00.1 +0000\n-a: 1\n";
        assert_eq!(lines(given), json!(["diff -u -N LIVE/v1.a MERGED/v1.a", "--- LIVE/v1.a", "-a: 1"]));
    }

    #[test]
    fn objects_are_read() {
        assert_eq!(objects(b"{\"a\": 1}\n"), Some(json!({"a": 1})));
        assert_eq!(objects(b"apiVersion: v1\nkind: A\n"), Some(json!({"apiVersion": "v1", "kind": "A"})));
        assert_eq!(
            objects(b"apiVersion: v1\n---\napiVersion: v2\n"),
            Some(json!([{"apiVersion": "v1"}, {"apiVersion": "v2"}]))
        );
        assert_eq!(objects(b"NAME AGE\n"), None);
    }
}
