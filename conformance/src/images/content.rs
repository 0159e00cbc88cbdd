//! What each part of an image holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pintle_cri::archive::Entry;
use pintle_cri::rootfs::{self, folder, link, text};

use super::catalog::Part;
use super::sources::Sources;

/// Programs of Debian in the agnhost images: tests call them, some with options that busybox's lack.
const TOOLS: &[&str] = &[
    "bash", "dig", "host", "nslookup", "curl", "nc", "ss", "ip", "iperf", "socat", "getent", "ipcs", "timeout", "env",
    "nohup", "xargs", "find", "nsenter", "stat", "cat", "ls", "id", "date", "head", "tail", "seq",
];
/// Debian keeps the program that a link of its alternatives system names.
const RENAMED: &[(&str, &str)] = &[("nc", "nc.openbsd")];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
    bin:x:2:2:bin:/bin:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nbin:x:2:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n";
/// A test of image volumes looks for this system's name in the image.
const OS_RELEASE: &str =
    "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.21.0\nPRETTY_NAME=\"stand-in for Alpine Linux\"\n";
const NGINX_CONF: &str = "user nginx;\nworker_processes 1;\nerror_log /var/log/nginx/error.log notice;\npid /run/nginx.pid;\n\
    events { worker_connections 1024; }\nhttp {\n  types { text/html html; text/plain txt; }\n  default_type application/octet-stream;\n  \
    access_log /var/log/nginx/access.log;\n  server {\n    listen 80;\n    listen [::]:80;\n    root /usr/share/nginx/html;\n    \
    index index.html;\n  }\n}\n";
const NGINX_PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1></body></html>\n";

/// The entries of a part.
pub fn entries(part: Part, sources: &Sources) -> anyhow::Result<Vec<Entry>> {
    let built = |path: &str, name: &str, mode| Entry::Copy(path.to_owned(), sources.programs.join(name), mode);
    Ok(match part {
        Part::Busybox => busybox(&sources.busybox)?,
        Part::Tools => tools(sources)?,
        Part::Agnhost => agnhost(sources),
        Part::Kitten => pictures(sources, "kitten")?,
        Part::Nautilus => pictures(sources, "nautilus")?,
        Part::Nginx => nginx(sources)?,
        Part::Nnp => vec![built("usr/local/bin/nnp", "nnp", 0o4755)],
        Part::SampleApiserver => vec![built("sample-apiserver", "sample-apiserver", 0o755)],
        Part::Etcd => vec![built("usr/local/bin/etcd", "etcd", 0o755)],
        Part::Pause => vec![Entry::File("pause".to_owned(), pintle_pause::PROGRAM.to_vec(), 0o755)],
    })
}

fn busybox(binary: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut all = rootfs::busybox(binary)?;
    let folders = [
        "dev",
        "home",
        "lib",
        "lib64",
        "proc",
        "run",
        "sbin",
        "sys",
        "usr/local/bin",
        "usr/sbin",
        "var/log",
        "var/run",
    ];
    all.extend(folders.map(folder));
    all.extend([
        Entry::Dir("var/tmp".to_owned(), 0o1777),
        link("usr/bin/env", "/bin/busybox"),
        text("etc/passwd", PASSWD),
        text("etc/group", GROUP),
        text("etc/os-release", OS_RELEASE),
    ]);
    Ok(all)
}

/// Dynamically linked programs at the given folder, and their libraries, each once.
fn programs(sources: &Sources, folder: &str, names: &[&str]) -> anyhow::Result<Vec<Entry>> {
    let mut all = Vec::new();
    let mut libraries = BTreeMap::new();
    for name in names {
        let original = RENAMED.iter().find(|(to, _)| to == name).map_or(*name, |(_, from)| from);
        let path = rootfs::find(original, &[&sources.packages, Path::new("/")])?;
        for library in rootfs::libraries(&path, &sources.packages)? {
            if let Entry::Copy(to, ..) = &library {
                libraries.insert(to.clone(), library);
            }
        }
        all.push(rootfs::program(&format!("{folder}/{name}"), &path));
    }
    all.extend(libraries.into_values());
    Ok(all)
}

fn tools(sources: &Sources) -> anyhow::Result<Vec<Entry>> {
    let mut all = programs(sources, "usr/bin", TOOLS)?;
    // The others are found before busybox's applets by the order of the PATH; tests name these two by place.
    all.push(link("bin/bash", "/usr/bin/bash"));
    all.push(link("usr/local/bin/iperf", "/usr/bin/iperf"));
    Ok(all)
}

fn agnhost(sources: &Sources) -> Vec<Entry> {
    let porter = |name: &str| {
        Entry::Copy(name.to_owned(), sources.kubernetes.join("test/images/agnhost/porter").join(name), 0o644)
    };
    vec![
        Entry::Copy("agnhost".to_owned(), sources.programs.join("agnhost"), 0o755),
        link("agnhost-2", "agnhost"),
        porter("localhost.crt"),
        porter("localhost.key"),
        folder("uploads"),
        folder("home/user-defined-in-image"),
        text("etc/passwd", format!("{PASSWD}user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")),
        text(
            "etc/group",
            format!("{GROUP}user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"),
        ),
    ]
}

fn pictures(sources: &Sources, name: &str) -> anyhow::Result<Vec<Entry>> {
    let dir = sources.kubernetes.join("test/images").join(name).join("html");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    let entry = |path: PathBuf| Some(Entry::Copy(path.file_name()?.to_str()?.to_owned(), path, 0o644));
    Ok(files.into_iter().filter_map(entry).collect())
}

fn nginx(sources: &Sources) -> anyhow::Result<Vec<Entry>> {
    let mut all = programs(sources, "usr/sbin", &["nginx"])?;
    all.extend(["run", "var/cache/nginx", "var/lib/nginx"].map(folder));
    all.extend([
        link("var/log/nginx/access.log", "/dev/stdout"),
        link("var/log/nginx/error.log", "/dev/stderr"),
        text("etc/passwd", format!("{PASSWD}nginx:x:101:101:nginx:/var/cache/nginx:/bin/false\n")),
        text("etc/group", format!("{GROUP}nginx:x:101:\n")),
        text("etc/nginx/nginx.conf", NGINX_CONF),
        text("usr/share/nginx/html/index.html", NGINX_PAGE),
        text("usr/share/nginx/html/50x.html", NGINX_PAGE),
    ]);
    Ok(all)
}
