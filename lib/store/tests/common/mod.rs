//! The engines under test, each behind the same handle.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pintle_store::embedded::{Embedded, Options};
use pintle_store::etcd::{self, Etcd};
use pintle_store::memory::Memory;
use pintle_store::{Store, TlsFiles, Watch, WatchEvent, Window};
use tempfile::TempDir;

/// A store under test; what it stands on goes with it.
pub struct Subject {
    pub store: Arc<dyn Store>,
    /// The shortest time to live that the engine can tell, and how late it may be.
    pub ttl: Duration,
    pub late: Duration,
    /// History is bounded by [`window`].
    pub windowed: bool,
    stands_on: Ground,
}

#[allow(clippy::large_enum_variant, reason = "a handful of values")]
enum Ground {
    Nothing,
    Directory(TempDir),
    Etcd(Cluster),
}

impl Deref for Subject {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Subject {
    /// The same data, opened anew; memory has nothing to open.
    pub fn reopen(self) -> Option<Self> {
        let Self { store, ttl, late, windowed, stands_on } = self;
        drop(store);
        let store: Arc<dyn Store> = match &stands_on {
            Ground::Nothing => return None,
            Ground::Directory(dir) => Arc::new(open(dir)),
            Ground::Etcd(cluster) => Arc::new(cluster.store()),
        };
        Some(Self { store, ttl, late, windowed, stands_on })
    }

    /// A second store on the same data, if the engine can have one.
    pub fn second(&self) -> Option<Arc<dyn Store>> {
        match &self.stands_on {
            Ground::Etcd(cluster) => Some(Arc::new(cluster.store())),
            _ => None,
        }
    }
}

/// Small, so that the cases reach its end.
pub fn window() -> Window {
    Window { events: 1000, bytes: 8 << 20 }
}

fn open(dir: &TempDir) -> Embedded {
    Embedded::open(dir.path(), Options { window: window(), ..Options::default() }).expect("open")
}

/// The model.
pub async fn memory() -> Subject {
    let store = Arc::new(Memory::new(window()));
    let (ttl, late) = (Duration::from_secs(1), Duration::from_secs(3));
    Subject { store, ttl, late, windowed: true, stands_on: Ground::Nothing }
}

/// The engine on disk.
pub async fn embedded() -> Subject {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(open(&dir));
    let (ttl, late) = (Duration::from_secs(1), Duration::from_secs(3));
    Subject { store, ttl, late, windowed: true, stands_on: Ground::Directory(dir) }
}

/// etcd.
pub async fn etcd() -> Subject {
    let cluster = Cluster::start(1);
    let store = Arc::new(cluster.store());
    store.current_revision().await.expect("etcd answers");
    let (ttl, late) = (Duration::from_secs(1), Duration::from_secs(5));
    Subject { store, ttl, late, windowed: false, stands_on: Ground::Etcd(cluster) }
}

/// etcd's binary, without which its tests must not be run.
fn etcd_binary() -> PathBuf {
    let dir = std::env::var_os("PINTLE_UPSTREAM_BIN").expect("PINTLE_UPSTREAM_BIN names a directory with etcd");
    PathBuf::from(dir).join("etcd")
}

/// A cluster of etcd members on loopback, ended when dropped.
pub struct Cluster {
    binary: PathBuf,
    pub members: Vec<Member>,
    dir: TempDir,
    tls: Option<TlsFiles>,
}

/// One member.
pub struct Member {
    pub name: String,
    pub client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Starts so many members.
    pub fn start(size: usize) -> Self {
        let binary = etcd_binary();
        let member = |at: usize| Member { name: format!("m{at}"), client: free_port(), peer: free_port(), child: None };
        let members = (0..size).map(member).collect();
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut cluster = Self { binary, members, dir, tls: None };
        (0..size).for_each(|at| cluster.run(at));
        cluster
    }

    /// Starts one member that shows a certificate to its clients and wants theirs.
    pub fn start_with_tls(files: &TlsFiles) -> Self {
        let mut cluster = Self::start(1);
        cluster.kill(0);
        cluster.dir = tempfile::tempdir().expect("temporary directory");
        cluster.tls = Some(files.clone());
        cluster.run(0);
        cluster
    }

    /// Starts a member (again).
    pub fn run(&mut self, at: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let scheme = self.scheme();
        let peers: Vec<_> = self.members.iter().map(|m| format!("{}={}", m.name, url(m.peer))).collect();
        let member = &mut self.members[at];
        let client = format!("{scheme}://127.0.0.1:{}", member.client);
        let mut command = Command::new(&self.binary);
        if let Some(TlsFiles { ca: Some(ca), cert: Some(cert), key: Some(key) }) = &self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            command.arg("--cert-file").arg(cert).arg("--key-file").arg(key);
        }
        let child = command
            .args(["--name", &member.name, "--data-dir"])
            .arg(self.dir.path().join(&member.name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &url(member.peer), "--initial-advertise-peer-urls", &url(member.peer)])
            .args(["--initial-cluster", &peers.join(","), "--unsafe-no-fsync"])
            .args([
                "--heartbeat-interval",
                "20",
                "--election-timeout",
                "200",
                "--logger",
                "zap",
                "--log-level",
                "error",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start etcd");
        member.child = Some(child);
    }

    /// Kills a member.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().expect("kill etcd");
            child.wait().expect("wait for etcd");
        }
    }

    /// Stops a member where it stands, or lets it go on.
    pub fn signal(&self, at: usize, signal: &str) {
        let Some(child) = &self.members[at].child else { return };
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// The members' URLs.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("{}://127.0.0.1:{}", self.scheme(), member.client)).collect()
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A store on all members.
    pub fn store(&self) -> Etcd {
        Etcd::new(&etcd::Options::new(self.urls())).expect("store")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("address").port()
}

/// The next event, which must come soon.
pub async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(Duration::from_secs(20), watch.recv()).await.expect("an event in time");
    event.expect("watch is open").expect("no error")
}
