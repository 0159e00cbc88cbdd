//! A cluster's etcd is taken over from upstream's kube-apiserver, and handed back: all objects are the same over the API.
//! Needs upstream's kube-apiserver, etcd and kubectl in the directory `PINTLE_UPSTREAM_BIN`, so it is ignored unless asked for.

#![allow(clippy::print_stdout, reason = "the log of a test")]

mod common;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Server;
use pintle_api::Resource;
use pintle_apiserver::storage::{resource_of, upstream_form};
use pintle_host::upstream;
use pintle_store::Store;
use pintle_store::encryption::{Encrypted, Encryption};
use pintle_store::etcd::{Etcd, Options};
use serde::Deserialize;
use serde_json::{Value, json};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/corpus");
/// Resources whose objects can't be made by hand: they carry a signature over what the server gave out.
const WITHOUT_SAMPLE: [&str; 1] = ["podcertificaterequests"];
/// Objects that a server keeps for itself, with its own address or name in them: (resource, name), `""`: all.
const OWN: [(&str, &str); 8] = [
    ("leases", ""),
    ("endpoints", "kubernetes"),
    ("endpointslices", "kubernetes"),
    ("services", "kubernetes"),
    ("servicecidrs", "kubernetes"),
    ("configmaps", "extension-apiserver-authentication"),
    ("configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
    ("configmaps", "kube-root-ca.crt"),
];
/// Resources whose status upstream's server writes itself, as soon as it starts.
const WRITTEN_BY_UPSTREAM: [&str; 4] =
    ["customresourcedefinitions", "apiservices", "flowschemas", "prioritylevelconfigurations"];
/// Resources of which there is nothing to keep.
const NONE: [&str; 1] = ["componentstatuses"];

/// What may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defaults {
    /// Nothing.
    None,
    /// Upstream may fill in defaults on reading that are not filled in here on writing.
    Allowed,
}

/// Objects by path of their resource and by namespace and name.
type Objects = BTreeMap<String, BTreeMap<String, Value>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's kube-apiserver and etcd"]
async fn an_etcd_is_taken_over_and_handed_back() {
    let mut upstream = Upstream::start();
    upstream.ensure(Path::new("/api/v1/namespaces/default/serviceaccounts"), &json!({"metadata": {"name": "default"}}));
    let refused = create_samples(|path, object| upstream.create(path, object));
    let before = settle(|| upstream.objects());
    let sampled = |path: &str| WITHOUT_SAMPLE.iter().all(|plural| !path.ends_with(plural));
    let empty = before.iter().filter(|(path, objects)| objects.is_empty() && sampled(path));
    let empty: Vec<_> = empty.map(|(path, _)| path).collect();
    assert!(empty.is_empty(), "no sample of {empty:?} was taken: {refused:#?}");
    upstream.stop_server();

    let ours = server(&upstream.etcd).await;
    let taken = ours_objects(&ours).await;
    assert_same(&before, &taken, Defaults::None, "taken over");
    let refused = label_all(&ours, &taken).await;
    let labelled = ours_objects(&ours).await;
    drop(ours);

    upstream.start_server();
    assert_same(&labelled, &upstream.objects(), Defaults::None, "handed back");
    assert!(refused.is_empty(), "labels were refused: {refused:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's kube-apiserver and etcd"]
async fn upstream_reads_what_was_only_ever_written_here() {
    let mut upstream = Upstream::prepare();
    let ours = server(&upstream.etcd).await;
    ours.ok("POST", "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let mut refused = Vec::new();
    for (path, object) in samples() {
        let answer = ours.json("POST", &path, object).await;
        if answer.code >= 300 {
            refused.push(format!("{path}: {}", answer.message()));
        }
    }
    let written = ours_objects(&ours).await;
    drop(ours);
    upstream.start_server();
    let read = upstream.objects();
    assert_same(&written, &read, Defaults::Allowed, "written here");
    let written: usize = written.values().map(BTreeMap::len).sum();
    assert!(written > 150, "only {written} objects: {refused:#?}");
}

/// Both servers are told to encrypt in the same ways: each reads what the other one wrote, and nothing is plain in etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's kube-apiserver and etcd"]
async fn encrypted_values_are_read_both_ways() {
    let mut upstream = Upstream::prepare();
    let file = upstream.dir.path().join("encryption.yaml");
    std::fs::write(&file, ENCRYPTION).expect("write");
    upstream.flags.push(format!("--encryption-provider-config={}", file.display()));
    upstream.start_server();
    let objects = [("secrets", "aescbc"), ("configmaps", "aesgcm"), ("podtemplates", "secretbox")];
    let object = |plural: &str, name: &str| {
        let mut object = json!({"metadata": {"name": name, "annotations": {"a": "plain-as-day"}}});
        if plural == "podtemplates" {
            object["template"] = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        }
        object
    };
    let path = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    for (plural, _) in objects {
        upstream.create(&path(plural), &object(plural, "theirs")).expect("created upstream");
    }
    let before = upstream.objects();
    upstream.stop_server();

    let etcd = Arc::new(Etcd::new(&Options::new([&upstream.etcd])).expect("store"));
    let encrypted =
        Encrypted::new(etcd.clone(), Encryption::from_file(&file, false, resource_of()).expect("configuration"));
    let mut config = common::config(upstream_form(Arc::new(encrypted)));
    config.service_cidr = "10.97.0.0/16".parse().expect("cidr");
    let ours = Server::with(config).await;
    assert_same(&before, &ours_objects(&ours).await, Defaults::None, "decrypted here");
    for (plural, _) in objects {
        ours.ok("POST", &path(plural), object(plural, "ours")).await;
    }
    let written = ours_objects(&ours).await;
    drop(ours);
    for (plural, provider) in objects {
        for name in ["theirs", "ours"] {
            let kv = etcd.get(&format!("/registry/{plural}/default/{name}")).await.expect("get").expect("there");
            assert!(kv.value.starts_with(format!("k8s:enc:{provider}:v1:key1:").as_bytes()), "{plural} {name}");
            assert!(!kv.value.windows(12).any(|part| part == b"plain-as-day"), "{plural} {name} is plain");
        }
    }
    upstream.start_server();
    assert_same(&written, &upstream.objects(), Defaults::Allowed, "decrypted upstream");
}

const ENCRYPTION: &str = "
kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [secrets]
  providers: [{aescbc: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}, {identity: {}}]
- resources: [configmaps]
  providers: [{aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}, {identity: {}}]
- resources: [podtemplates]
  providers: [{secretbox: {keys: [{name: key1, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}}, {identity: {}}]
";

/// Upstream's etcd and API server, ended when dropped.
struct Upstream {
    bin: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
    etcd_port: u16,
    etcd: String,
    /// Further flags of the API server.
    flags: Vec<String>,
    children: [Option<Child>; 2],
}

impl Upstream {
    /// etcd alone.
    fn prepare() -> Self {
        let bin = std::env::var_os("PINTLE_UPSTREAM_BIN")
            .expect("PINTLE_UPSTREAM_BIN names a directory with upstream's binaries");
        let bin = PathBuf::from(bin);
        let dir = tempfile::tempdir().expect("temporary directory");
        let etcd_port = free_port();
        let told = upstream::etcd(&dir.path().join("etcd"), etcd_port, free_port()).with("log-level", "error");
        let etcd = Command::new(bin.join("etcd"))
            .args(told)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start etcd");
        let key = rcgen::KeyPair::generate().expect("key");
        std::fs::write(dir.path().join("sa.key"), key.serialize_pem()).expect("write");
        std::fs::write(dir.path().join("sa.pub"), key.public_key_pem()).expect("write");
        std::fs::write(dir.path().join("tokens"), "admintoken,admin,admin,system:masters\n").expect("write");
        let url = upstream::etcd_url(etcd_port);
        Self { bin, dir, port: free_port(), etcd_port, etcd: url, flags: Vec::new(), children: [Some(etcd), None] }
    }

    fn start() -> Self {
        let mut upstream = Self::prepare();
        upstream.start_server();
        upstream
    }

    fn start_server(&mut self) {
        let file = |name: &str| self.dir.path().join(name);
        let log = std::fs::File::create(file("log")).expect("log");
        let told = upstream::Apiserver {
            port: self.port,
            etcd_port: self.etcd_port,
            service_cidr: "10.97.0.0/16",
            issuer: "https://kubernetes.default.svc.cluster.local",
            signing_key: &file("sa.key"),
            public_key: &file("sa.pub"),
        };
        let told = told
            .on_loopback(&file("certs"))
            .with("authorization-mode", "Node,RBAC")
            .with("token-auth-file", file("tokens"));
        let server = Command::new(self.bin.join("kube-apiserver"))
            .args(told)
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start kube-apiserver");
        self.children[1] = Some(server);
        let begin = Instant::now();
        while self.kubectl(&["get", "--raw", "/readyz"]).is_err() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(begin.elapsed() < Duration::from_secs(120), "kube-apiserver does not get ready: {}", log());
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn stop_server(&mut self) {
        end(&mut self.children[1]);
    }

    fn kubectl(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        let output = Command::new(self.bin.join("kubectl"))
            .args(["--kubeconfig=/dev/null", "--insecure-skip-tls-verify", "--token=admintoken"])
            .arg(format!("--server=https://127.0.0.1:{}", self.port))
            .args(args)
            .output()
            .expect("run kubectl");
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn create(&self, path: &str, object: &Value) -> Result<(), String> {
        let file = self.dir.path().join("object.json");
        std::fs::write(&file, object.to_string()).expect("write");
        let path = format!("{path}?fieldValidation=Strict");
        self.kubectl(&["create", "--raw", &path, "-f", &file.display().to_string()]).map(drop)
    }

    fn ensure(&self, path: &Path, object: &Value) {
        if let Err(error) = self.create(&path.display().to_string(), object) {
            assert!(error.contains("already exists"), "{error}");
        }
    }

    fn objects(&self) -> Objects {
        let read = |path: String| {
            let text = self.kubectl(&["get", "--raw", &path]).unwrap_or_else(|error| panic!("{path}: {error}"));
            serde_json::from_slice(&text).expect("JSON")
        };
        listable().map(|resource| (path_of(resource), by_name(read(path_of(resource))))).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let [etcd, server] = &mut self.children;
        end(server);
        end(etcd);
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("address").port()
}

/// This server on that etcd.
async fn server(etcd: &str) -> Server {
    let store = Arc::new(Etcd::new(&Options::new([etcd])).expect("store"));
    let mut config = common::config(upstream_form(store));
    config.node_ports = 30000..=32767;
    config.service_cidr = "10.97.0.0/16".parse().expect("cidr");
    Server::with(config).await
}

/// All samples with the paths where they are created.
fn samples() -> Vec<(String, Value)> {
    let objects = Path::new(CORPUS).join("objects");
    let mut files: Vec<_> =
        std::fs::read_dir(objects).expect("samples").map(|file| file.expect("file").path()).collect();
    files.sort();
    let values = std::fs::read_to_string(Path::new(CORPUS).join("values.yaml")).expect("values");
    let mut values: BTreeMap<String, String> = serde_yaml_ng::from_str(&values).expect("values");
    values.insert("ns".into(), "default".into());
    let mut samples = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("read");
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let mut object = Value::deserialize(document).expect("YAML");
            fill_in(&mut object, &values);
            let Some(resource) = kind_of(&object) else { continue };
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            let base = base_of(resource);
            let path = match resource.namespaced {
                true => format!("{base}/namespaces/{namespace}/{}", resource.plural),
                false => format!("{base}/{}", resource.plural),
            };
            samples.push((path, object));
        }
    }
    assert!(samples.len() > 60, "only {} samples", samples.len());
    samples
}

/// Samples name some values: `$ns`.
fn fill_in(value: &mut Value, values: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(found) = text.strip_prefix('$').and_then(|name| values.get(name)) {
                text.clone_from(found);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, values)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, values)),
        _ => {}
    }
}

fn create_samples(create: impl Fn(&str, &Value) -> Result<(), String>) -> Vec<String> {
    let outcome =
        |(path, object): (String, Value)| create(&path, &object).err().map(|error| format!("{path}: {error}"));
    samples().into_iter().filter_map(outcome).collect()
}

fn kind_of(object: &Value) -> Option<&'static Resource> {
    let (group, version) = match object["apiVersion"].as_str()?.split_once('/') {
        Some(parts) => parts,
        None => ("", object["apiVersion"].as_str()?),
    };
    listable().find(|r| (r.group, r.version, r.kind) == (group, version, object["kind"].as_str().unwrap_or_default()))
}

/// Resources whose objects are kept.
fn listable() -> impl Iterator<Item = &'static Resource> {
    pintle_api::resources().iter().filter(|r| {
        r.default_served && r.verbs.contains(&"list") && r.verbs.contains(&"get") && !NONE.contains(&r.plural)
    })
}

fn base_of(resource: &Resource) -> String {
    match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

fn path_of(resource: &Resource) -> String {
    format!("{}/{}", base_of(resource), resource.plural)
}

fn by_name(list: Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let name = |object: &Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    items.into_iter().map(|object| (name(&object), object)).collect()
}

async fn ours_objects(server: &Server) -> Objects {
    let mut all = Objects::new();
    for resource in listable() {
        let path = path_of(resource);
        all.insert(path.clone(), by_name(server.ok("GET", &path, Value::Null).await));
    }
    all
}

/// What a server that just started still writes has been written.
fn settle(read: impl Fn() -> Objects) -> Objects {
    let mut last = read();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_secs(1));
        let next = read();
        let stable = differences(&last, &next, Defaults::None).is_empty()
            && last.values().map(BTreeMap::len).eq(next.values().map(BTreeMap::len));
        last = next;
        if stable {
            break;
        }
    }
    last
}

/// Gives every object a label through this server; what was refused.
async fn label_all(server: &Server, objects: &Objects) -> Vec<String> {
    let mut refused = Vec::new();
    // Events are labelled as those of the core group; the other group asks for more than they have.
    let labelled = objects.iter().filter(|(path, _)| !path.starts_with("/apis/events.k8s.io/"));
    for (path, name) in labelled.flat_map(|(path, objects)| objects.keys().map(move |name| (path, name))) {
        let address = address(path, name);
        let label = json!({"metadata": {"labels": {"passed-through": "pintle"}}});
        let answer = server.patch(&address, "application/merge-patch+json", label).await;
        if answer.code >= 300 {
            refused.push(format!("{address}: {} {}", answer.code, answer.message()));
        }
    }
    refused
}

/// Path of an object out of its resource's and `namespace/name`.
fn address(path: &str, name: &str) -> String {
    let (base, plural) = path.rsplit_once('/').expect("path");
    match name.split_once('/').expect("name") {
        ("", name) => format!("{path}/{name}"),
        (namespace, name) => format!("{base}/namespaces/{namespace}/{plural}/{name}"),
    }
}

fn assert_same(wanted: &Objects, found: &Objects, defaults: Defaults, what: &str) {
    let differences = differences(wanted, found, defaults);
    assert!(differences.is_empty(), "{what}: {} differences\n{}", differences.len(), differences.join("\n"));
    println!("{what}: {} objects are the same", wanted.values().map(BTreeMap::len).sum::<usize>());
}

/// What `found` has otherwise than `wanted`; further objects may be there.
fn differences(wanted: &Objects, found: &Objects, defaults: Defaults) -> Vec<String> {
    let mut all = Vec::new();
    for (path, objects) in wanted {
        let plural = path.rsplit('/').next().unwrap_or_default();
        for (name, object) in objects {
            let own = |(resource, own): &(&str, &str)| {
                plural == *resource && (own.is_empty() || name.rsplit('/').next() == Some(own))
            };
            let Some(other) = found.get(path).and_then(|objects| objects.get(name)) else {
                all.push(format!("{path} {name} is missing"));
                continue;
            };
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let rewritten = WRITTEN_BY_UPSTREAM.contains(&plural) && version(object) != version(other);
            if !rewritten && !OWN.iter().any(own) {
                compare(&format!("{path} {name}"), object, other, defaults, &mut all);
            }
        }
    }
    all
}

fn compare(at: &str, wanted: &Value, found: &Value, defaults: Defaults, all: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                compare(&format!("{at}.{key}"), &wanted[key], &found[key], defaults, all);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            (0..left.len()).for_each(|i| compare(&format!("{at}[{i}]"), &left[i], &right[i], defaults, all));
        }
        (Value::Null, _) if defaults == Defaults::Allowed => {}
        // Protobuf does not tell an empty list from none.
        (Value::Array(none), Value::Null) if none.is_empty() => {}
        // An older form of the object, written out of the stored one.
        _ if at.contains(".annotations.autoscaling.alpha.kubernetes.io/") => {}
        _ if wanted == found => {}
        _ => all.push(format!("{at}: {wanted} is {found}")),
    }
}
