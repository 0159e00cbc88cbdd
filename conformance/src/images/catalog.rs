//! The images that upstream's [Conformance] tests name, as a table.

/// Content that images share: one layer each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// busybox with a link for each applet, users, groups.
    Busybox,
    /// Programs of Debian that the tests call in agnhost.
    Tools,
    /// agnhost and what it serves.
    Agnhost,
    /// A picture.
    Kitten,
    /// Another picture.
    Nautilus,
    /// nginx with a page.
    Nginx,
    /// The program that tells its effective user.
    Nnp,
    /// The API server that tests aggregate.
    SampleApiserver,
    /// etcd.
    Etcd,
    /// The sandbox program.
    Pause,
}

/// One image.
#[derive(Debug)]
pub struct Row {
    /// Name within `registry.k8s.io`.
    pub name: &'static str,
    /// Layers, the lowest first.
    pub parts: &'static [Part],
    /// Entry point.
    pub entrypoint: &'static [&'static str],
    /// Default arguments.
    pub cmd: &'static [&'static str],
    /// User; empty for root.
    pub user: &'static str,
    /// Ports, `80/tcp`.
    pub ports: &'static [&'static str],
}

use Part::*;

const PLAIN: Row = Row { name: "", parts: &[Busybox], entrypoint: &[], cmd: &["sh"], user: "", ports: &[] };
const AGNHOST: Row = Row {
    parts: &[Busybox, Tools, Agnhost],
    entrypoint: &["/agnhost"],
    cmd: &["pause"],
    ports: &["80/tcp", "8080/tcp", "8081/tcp", "9376/tcp", "5000/tcp"],
    ..PLAIN
};
const WEB: Row = Row { cmd: &["test-webserver"], ports: &["80/tcp"], ..AGNHOST };
const NGINX: Row = Row { parts: &[Busybox, Nginx], cmd: &["nginx", "-g", "daemon off;"], ports: &["80/tcp"], ..PLAIN };

/// All of them. Those with an older version beside a newer one are the two sides of a rolling update.
pub const IMAGES: &[Row] = &[
    Row { name: "e2e-test-images/agnhost:2.66.1", ..AGNHOST },
    Row { name: "e2e-test-images/agnhost:2.55", ..AGNHOST },
    Row { name: "e2e-test-images/busybox:1.37.0-2", ..PLAIN },
    Row { name: "e2e-test-images/busybox:1.36.1-1", ..PLAIN },
    Row { name: "e2e-test-images/glibc-dns-testing:2.1.1", parts: &[Busybox, Tools, Agnhost], ..PLAIN },
    Row { name: "e2e-test-images/kitten:1.8", parts: &[Busybox, Tools, Agnhost, Kitten], ..WEB },
    Row { name: "e2e-test-images/nautilus:1.8", parts: &[Busybox, Tools, Agnhost, Nautilus], ..WEB },
    Row { name: "e2e-test-images/nginx:1.27.0-2", ..NGINX },
    Row { name: "e2e-test-images/nginx:1.28.0-2", ..NGINX },
    Row { name: "e2e-test-images/nonewprivs:1.4", parts: &[Busybox, Nnp], cmd: &["nnp"], ..PLAIN },
    Row { name: "e2e-test-images/nonroot:1.5", user: "1234", ..PLAIN },
    Row {
        name: "e2e-test-images/sample-apiserver:1.29.2",
        parts: &[Busybox, SampleApiserver],
        entrypoint: &["/sample-apiserver"],
        cmd: &[],
        ..PLAIN
    },
    Row { name: "build-image/distroless-iptables:v0.9.9", ..PLAIN },
    Row { name: "etcd:3.7.0-0", parts: &[Busybox, Etcd], cmd: &["/usr/local/bin/etcd"], ..PLAIN },
    Row { name: "pause:3.10.2", parts: &[Pause], entrypoint: &["/pause"], cmd: &[], user: "65535:65535", ..PLAIN },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_complete_and_told_once() {
        let names: BTreeSet<&str> = IMAGES.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), IMAGES.len());
        assert!(IMAGES.iter().all(|row| row.name.contains(':') && !row.parts.is_empty()));
    }
}
