//! The rules in a real kernel: a node with two pods and a client beside it, each a network namespace made here.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use pintle_proxy::Syncer;
use pintle_proxy::model::{Place, Portal, portals};
use pintle_proxy::netns::Namespace;
use pintle_proxy::ruleset::Settings;
use pintle_proxy::script::Table;
use serde_json::{Value, json};

const VIP: &str = "10.96.0.9";
const NODE: &str = "192.168.50.1";
const CLIENT: &str = "192.168.50.2";
const PODS: [&str; 2] = ["10.244.1.2", "10.244.1.3"];

fn sh(command: &str) {
    let status = Command::new("sh").args(["-ec", command]).status().expect("sh");
    assert!(status.success(), "{command}");
}

struct Lab {
    prefix: String,
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { prefix: format!("pxt{}", std::process::id()) };
        for name in ["node", "client", "pod0", "pod1"] {
            sh(&format!("ip netns add {0} && ip -n {0} link set lo up", lab.name(name)));
        }
        let node = lab.name("node");
        lab.wire("client", CLIENT, NODE);
        sh(&format!("ip -n {node} addr add {NODE}/32 dev to-client"));
        lab.wire("pod0", PODS[0], "10.244.1.1");
        lab.wire("pod1", PODS[1], "10.244.1.1");
        sh(&format!("ip -n {node} addr add 10.244.1.1/32 dev to-pod0"));
        sh(&format!(
            "ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet'"
        ));
        for (at, ip) in PODS.iter().enumerate() {
            lab.serve(&format!("pod{at}"), format!("{ip}:8080").parse().expect("address"));
        }
        lab.serve("client", format!("{CLIENT}:9000").parse().expect("address"));
        lab
    }

    fn name(&self, role: &str) -> String {
        format!("{}{role}", self.prefix)
    }

    fn path(&self, role: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name(role))
    }

    /// Joins a namespace to the node by a wire of its own, the node being its gateway.
    fn wire(&self, role: &str, ip: &str, gateway: &str) {
        let (node, other) = (self.name("node"), self.name(role));
        sh(&format!(
            "ip -n {node} link add to-{role} type veth peer name eth0 netns {other}
             ip -n {node} link set to-{role} up
             ip -n {node} route add {ip}/32 dev to-{role}
             ip -n {other} addr add {ip}/32 dev eth0
             ip -n {other} link set eth0 up
             ip -n {other} route add {gateway}/32 dev eth0
             ip -n {other} route add default via {gateway}"
        ));
    }

    /// Runs something inside a namespace.
    fn within<T: Send + 'static>(
        &self,
        role: &str,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = self.path(role);
        std::thread::spawn(move || {
            pintle_host::netns::enter(&path).expect("namespace");
            act()
        })
    }

    /// A TCP and UDP server that answers with its own and the client's address.
    fn serve(&self, role: &str, at: SocketAddr) {
        let (tcp, udp) = self
            .within(role, move || (TcpListener::bind(at).expect("tcp"), UdpSocket::bind(at).expect("udp")))
            .join()
            .expect("sockets");
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let Ok(mut stream) = stream else { continue };
                let peer = stream.peer_addr().map(|a| a.ip().to_string()).unwrap_or_default();
                let _ = write!(stream, "{} {peer}", at.ip());
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(format!("{} {}", at.ip(), peer.ip()).as_bytes(), peer);
            }
        });
    }

    /// What answers at an address: (server, the client as the server saw it), or the kind of failure.
    fn ask(&self, role: &str, at: &str) -> Result<(String, String), String> {
        let at: SocketAddr = at.parse().expect("address");
        let act = move || -> Result<String, String> {
            let failed = |e: std::io::Error| format!("{:?}", e.kind());
            let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).map_err(failed)?;
            stream.set_read_timeout(Some(Duration::from_secs(1))).map_err(failed)?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map_err(failed)?;
            Ok(text)
        };
        let text = self.within(role, act).join().expect("client")?;
        let (server, client) = text.split_once(' ').ok_or("odd answer")?;
        Ok((server.to_owned(), client.to_owned()))
    }

    fn servers(&self, role: &str, at: &str, times: usize) -> Vec<String> {
        let mut seen: Vec<String> =
            (0..times).map(|_| self.ask(role, at).map_or_else(|e| e, |(server, _)| server)).collect();
        seen.sort();
        seen.dedup();
        seen
    }

    fn udp(&self, role: &str) -> UdpSocket {
        let make = || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("socket");
            socket.set_read_timeout(Some(Duration::from_millis(500))).expect("timeout");
            socket
        };
        self.within(role, make).join().expect("socket")
    }

    fn tables(&self) -> String {
        let output = Command::new("ip").args(["netns", "exec", &self.name("node"), "nft", "list", "ruleset"]).output();
        String::from_utf8(output.expect("nft").stdout).expect("text")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["node", "client", "pod0", "pod1"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(name)]).output();
        }
    }
}

fn udp_ask(socket: &UdpSocket, at: &str) -> String {
    let mut buffer = [0; 64];
    for _ in 0..3 {
        let _ = socket.send_to(b"?", at);
        if let Ok(n) = socket.recv(&mut buffer) {
            return String::from_utf8_lossy(&buffer[..n]).split(' ').next().unwrap_or_default().to_owned();
        }
    }
    "nothing".to_owned()
}

fn made(pods: &[&str], spec: Value) -> Vec<Portal> {
    let mut all = json!({"type": "NodePort", "clusterIP": VIP, "ports": [
        {"name": "tcp", "protocol": "TCP", "port": 80, "nodePort": 30080},
        {"name": "udp", "protocol": "UDP", "port": 53, "nodePort": 30053}]});
    for (k, v) in spec.as_object().into_iter().flatten() {
        all[k] = v.clone();
    }
    let service: Service =
        serde_json::from_value(json!({"metadata": {"namespace": "d", "name": "web"}, "spec": all})).expect("service");
    let endpoints: Vec<Value> = pods.iter().map(|ip| json!({"addresses": [ip], "nodeName": "n"})).collect();
    let slice: EndpointSlice = serde_json::from_value(json!({"metadata": {"name": "s"}, "addressType": "IPv4",
        "ports": [{"name": "tcp", "port": 8080, "protocol": "TCP"}, {"name": "udp", "port": 8080, "protocol": "UDP"}],
        "endpoints": endpoints}))
    .expect("slice");
    portals(&service, [&slice], &Place { node: "n".to_owned(), zone: None }, false)
}

fn syncer(lab: &Lab) -> Syncer {
    let settings = Settings {
        v6: false,
        cluster_cidr: "10.244.0.0/16".parse().ok(),
        masquerade_pods: "10.244.1.0/24".parse().ok(),
        no_masquerade: Vec::new(),
        masquerade_all: false,
        localhost_node_ports: true,
        node_port_addresses: Vec::new(),
        mark: 0x4000,
    };
    let table = Table { v6: false, name: "pintle-test".to_owned() };
    Syncer::new(table, settings, Namespace { path: Some(lab.path("node")) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_arrive() {
    let lab = Lab::new();
    let mut proxy = syncer(&lab);
    let vip = format!("{VIP}:80");
    proxy.sync(made(&PODS, json!({}))).await.expect("first sync");

    // Cluster IP and node port spread over both pods; traffic from outside is masqueraded.
    for (role, at) in
        [("client", vip.as_str()), ("client", "192.168.50.1:30080"), ("node", "127.0.0.1:30080"), ("pod0", &vip)]
    {
        assert_eq!(lab.servers(role, at, 24), PODS, "{role} {at}");
    }
    let (_, seen) = lab.ask("client", &vip).expect("answer");
    assert_ne!(seen, CLIENT);
    let outward = lab.ask("pod0", &format!("{CLIENT}:9000")).expect("answer");
    assert_eq!(outward, (CLIENT.to_owned(), NODE.to_owned()), "pods leave by the node's address");

    // A pod reaches itself by its service.
    proxy.sync(made(&PODS[..1], json!({}))).await.expect("sync");
    assert_eq!(lab.servers("pod0", &vip, 4), PODS[..1]);

    // A UDP client that keeps its port follows when its endpoint goes.
    let socket = lab.udp("client");
    let (vip_udp, node_udp) = (format!("{VIP}:53"), "192.168.50.1:30053");
    assert_eq!(udp_ask(&socket, &vip_udp), PODS[0]);
    assert_eq!(udp_ask(&socket, node_udp), PODS[0]);
    proxy.sync(made(&PODS[1..], json!({}))).await.expect("sync");
    assert_eq!(udp_ask(&socket, &vip_udp), PODS[1]);
    assert_eq!(udp_ask(&socket, node_udp), PODS[1]);

    // Affinity keeps a client where it is, whatever else changes.
    proxy.sync(made(&PODS, json!({"sessionAffinity": "ClientIP"}))).await.expect("sync");
    let first = lab.servers("client", &vip, 12);
    assert_eq!(first.len(), 1, "{first:?}");
    let ported = json!({"sessionAffinity": "ClientIP", "externalIPs": ["192.0.2.1"]});
    proxy.sync(made(&PODS, ported)).await.expect("sync");
    assert_eq!(lab.servers("client", &vip, 12), first);
    assert_eq!(lab.servers("client", "192.0.2.1:80", 4), first);

    // Local traffic keeps the client's address.
    proxy.sync(made(&PODS, json!({"externalTrafficPolicy": "Local"}))).await.expect("sync");
    assert_eq!(lab.ask("client", "192.168.50.1:30080").map(|(_, seen)| seen), Ok(CLIENT.to_owned()));

    // No endpoint: refused at once.
    proxy.sync(made(&[], json!({}))).await.expect("sync");
    let began = Instant::now();
    for (role, at) in [("client", vip.as_str()), ("client", "192.168.50.1:30080"), ("node", "127.0.0.1:30080")] {
        assert_eq!(lab.ask(role, at), Err("ConnectionRefused".to_owned()), "{role} {at}");
    }
    assert!(began.elapsed() < Duration::from_millis(900));
    assert_eq!(lab.ask("client", &format!("{VIP}:81")), Err("ConnectionRefused".to_owned()), "no such port");

    // A table that someone removed comes back.
    proxy.sync(made(&PODS, json!({}))).await.expect("sync");
    sh(&format!("ip netns exec {} nft flush ruleset", lab.name("node")));
    proxy.verify().await;
    proxy.sync(made(&PODS, json!({}))).await.expect("sync");
    assert_eq!(lab.servers("client", &vip, 24), PODS);

    // The service goes, and all traces of it; the table goes with cleanup.
    proxy.sync(Vec::new()).await.expect("sync");
    let left = lab.tables();
    assert!(!left.contains("d/web") && !left.contains(VIP), "{left}");
    assert!(lab.ask("client", &vip).is_err());
    let inside = Namespace { path: Some(lab.path("node")) };
    pintle_proxy::cleanup_in("pintle-test", &inside).await.expect("cleanup");
    assert!(!lab.tables().contains("pintle-test"));
}

/// A namespace without wires.
fn bare(prefix: &str) -> Lab {
    let lab = Lab { prefix: format!("{prefix}{}", std::process::id()) };
    sh(&format!("ip netns add {0} && ip -n {0} link set lo up", lab.name("node")));
    lab
}

#[tokio::test]
async fn the_kernel_takes_ipv6_rules() {
    let lab = bare("px6");
    let place = Place { node: "n".to_owned(), zone: None };
    let service: Service = serde_json::from_value(json!({"metadata": {"namespace": "d", "name": "web"}, "spec": {
        "type": "LoadBalancer", "clusterIP": "fd00::9", "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": ["2001:db8::/32"], "ports": [{"port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::1"}]}}}))
    .expect("service");
    let slice = |addresses: &[&str]| -> EndpointSlice {
        let endpoints: Vec<Value> = addresses.iter().map(|a| json!({"addresses": [a], "nodeName": "n"})).collect();
        serde_json::from_value(json!({"metadata": {"name": "s"}, "addressType": "IPv6", "ports": [{"port": 8080}],
            "endpoints": endpoints}))
        .expect("slice")
    };
    let settings = Settings {
        v6: true,
        cluster_cidr: "fd01::/48".parse().ok(),
        masquerade_pods: "fd01:0:0:1::/64".parse().ok(),
        no_masquerade: vec!["fd00::/112".parse().expect("net")],
        masquerade_all: false,
        localhost_node_ports: true,
        node_port_addresses: vec!["2001:db8::/64".parse().expect("net")],
        mark: 0x4000,
    };
    let table = Table { v6: true, name: "pintle-test".to_owned() };
    let mut proxy = Syncer::new(table, settings, Namespace { path: Some(lab.path("node")) });
    for endpoints in [&["fd01:0:0:1::2", "fd01:0:0:1::3"][..], &["fd01:0:0:1::2"], &[]] {
        let portals = portals(&service, [&slice(endpoints)], &place, true);
        assert_eq!(portals.len(), 1);
        proxy.sync(portals).await.expect("accepted");
        let tables = lab.tables();
        assert_eq!(
            tables.contains("dnat to [fd01:0:0:1::2]:8080") || tables.contains("dnat to [fd01::1:0:0:0:2]:8080"),
            !endpoints.is_empty(),
            "{tables}"
        );
    }
}

#[tokio::test]
async fn a_socket_is_opened_inside() {
    let lab = bare("pxl");
    let inside = Namespace { path: Some(lab.path("node")) };
    let listener = inside.listen((IpAddr::from([127, 0, 0, 1]), 10999).into()).await.expect("listener");
    assert!(TcpStream::connect_timeout(&listener.local_addr().expect("address"), Duration::from_secs(1)).is_err());
}
