//! Started through a link that is named as one of upstream's components, the binary takes that component's flags and
//! configuration file. They are told in our own flags: what matters does what it does there, what is accepted only is
//! reported, what is unknown is an error.

mod files;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

pub use table::Component;
use table::{COMMON, COMPONENTS, Empty, Flag, Means, Takes};

/// A command line of upstream's in our terms.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    /// Arguments of the `pintle` command, the program's name included.
    pub arguments: Vec<String>,
    /// Flags and fields that have no effect.
    pub accepted: Vec<String>,
}

/// Why a command line can't be told.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    /// No such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// A flag without its value.
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    /// Neither true nor false.
    #[error("invalid argument {value:?} for {flag:?} flag: must be true or false")]
    NoBool {
        /// The flag.
        flag: String,
        /// What it got.
        value: String,
    },
    /// Something that is no flag.
    #[error("unknown command {0:?}")]
    Positional(String),
    /// The configuration file.
    #[error("configuration file {file}: {message}")]
    File {
        /// Which.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// `--help`.
    #[error("{0}")]
    Help(String),
}

/// The component that a program's name stands for.
pub fn component(program: &OsStr) -> Option<&'static Component> {
    let name = Path::new(program).file_name()?.to_str()?;
    COMPONENTS.iter().find(|component| component.name == name)
}

/// Values by the names of upstream's flags.
type Values = BTreeMap<String, String>;

/// Tells a command line; `read` reads a configuration file.
pub fn tell(
    component: &Component,
    arguments: &[String],
    read: impl Fn(&str) -> std::io::Result<String>,
) -> Result<Told, Error> {
    let given = parse(component, arguments)?;
    let mut accepted = Vec::new();
    let mut values = Values::new();
    if let Some(file) = given.get("config") {
        let fault = |message: String| Error::File { file: file.clone(), message };
        let text = read(file).map_err(|error| fault(error.to_string()))?;
        values = files::values(component, &text, &mut accepted).map_err(fault)?;
    }
    values.extend(given);
    values.retain(|name, value| {
        !value.is_empty() || flag(component, name).is_some_and(|flag| flag.empty == Empty::Value)
    });
    let mut told = vec!["pintle".to_owned(), component.command.to_owned()];
    for (name, value) in (component.adjust)(values) {
        match flag(component, &name).map(|flag| &flag.means) {
            Some(Means::Is(own)) => told.push(format!("--{own}={value}")),
            Some(Means::Socket(own)) => told.push(format!("--{own}={}", value.trim_start_matches("unix://"))),
            Some(Means::Port(own)) => {
                let port = value.rsplit(':').next().filter(|port| !port.is_empty());
                told.push(format!("--{own}={}", port.unwrap_or("0")));
            }
            Some(Means::Verbosity) => {
                let debug = value.parse::<u32>().is_ok_and(|level| level >= 4);
                told.push(format!("--log={}", if debug { "debug" } else { "info" }));
            }
            Some(Means::Adjusted) => {}
            Some(Means::Nothing) | None => accepted.push(format!("--{name}={value}")),
        }
    }
    Ok(Told { arguments: told, accepted })
}

fn flag(component: &Component, name: &str) -> Option<&'static Flag> {
    component.flags.iter().chain(COMMON).find(|flag| flag.name == name)
}

/// Reads flags as upstream's parser does: `--name=value`, `--name value`, `--name` for true; underscores are dashes.
fn parse(component: &Component, arguments: &[String]) -> Result<Values, Error> {
    let mut values = Values::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(text) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            return Err(Error::Positional(argument.clone()));
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
            None => (text.replace('_', "-"), None),
        };
        if name == "help" || name == "h" {
            return Err(Error::Help(help(component)));
        }
        let known = flag(component, &name).ok_or_else(|| Error::Unknown(argument.clone()))?;
        let value = match (known.takes, value) {
            (Takes::Bool, None) => "true".to_owned(),
            (Takes::Bool, Some(value)) => match value.as_str() {
                "true" | "1" | "t" | "T" | "TRUE" | "True" => "true".to_owned(),
                "false" | "0" | "f" | "F" | "FALSE" | "False" => "false".to_owned(),
                _ => return Err(Error::NoBool { flag: format!("--{name}"), value }),
            },
            (Takes::Value, Some(value)) => value,
            (Takes::Value, None) => rest.next().cloned().ok_or_else(|| Error::NoValue(format!("--{name}")))?,
        };
        values.insert(name, value);
    }
    Ok(values)
}

fn help(component: &Component) -> String {
    let mut text = format!("{}: `pintle {}` with upstream's flags.\n", component.name, component.command);
    for flag in component.flags.iter().chain(COMMON) {
        let effect = if matches!(flag.means, Means::Nothing) { "  (accepted, without effect)" } else { "" };
        text.push_str(&format!("  --{}{effect}\n", flag.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, arguments: &str, file: &str) -> Result<Told, Error> {
        let component = component(OsStr::new(&format!("/usr/bin/{name}"))).unwrap();
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        tell(component, &arguments, |_| Ok(file.to_owned()))
    }

    fn arguments(name: &str, arguments: &str, file: &str) -> String {
        told(name, arguments, file).unwrap().arguments.join(" ")
    }

    #[test]
    fn names_of_links() {
        assert!(component(OsStr::new("pintle")).is_none());
        assert_eq!(component(OsStr::new("./kubelet")).unwrap().command, "kubelet");
    }

    #[test]
    fn flags_are_told_in_ours() {
        let seen = told("kube-scheduler", "--kubeconfig=/k --leader_elect=false --v 4 --cert-dir /c", "").unwrap();
        assert_eq!(seen.arguments.join(" "), "pintle scheduler --kubeconfig=/k --leader-elect=false --log=debug");
        assert_eq!(seen.accepted, ["--cert-dir=/c"]);
        let line = "--kubeconfig=/k --root-ca-file=/ca --cluster-cidr=10.0.0.0/8 --controllers=*,-ttl --leader-elect";
        let expected =
            "pintle controller-manager --controllers=*,-ttl --kubeconfig=/k --leader-elect=true --root-ca-file=/ca";
        assert_eq!(arguments("kube-controller-manager", line, ""), expected);
        let line = format!("{line} --allocate-node-cidrs");
        assert!(arguments("kube-controller-manager", &line, "").contains("--cluster-cidr=10.0.0.0/8"));
    }

    #[test]
    fn faults_are_named() {
        let fault = |line: &str| told("kube-scheduler", line, "").unwrap_err().to_string();
        assert_eq!(fault("--nonsense=1"), "unknown flag: --nonsense=1");
        assert_eq!(fault("--kubeconfig"), "flag needs an argument: --kubeconfig");
        assert_eq!(fault("run"), "unknown command \"run\"");
        assert!(fault("--leader-elect=maybe").contains("must be true or false"));
        assert!(fault("--help").contains("--kubeconfig"));
    }

    #[test]
    fn files_are_told_and_flags_weigh_more() {
        let file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10, 10.96.0.11]\n\
            cgroupRoot: /lab\ncontainerRuntimeEndpoint: unix:///run/c.sock\nevictionHard: {memory.available: 1Mi}\n\
            authentication: {x509: {clientCAFile: /ca}, anonymous: {enabled: false}}\nport: 1\n";
        let seen = told("kubelet", "--config=/f --kubeconfig=/k --cgroup-root=/own --v=2", file).unwrap();
        let expected = "pintle kubelet --cgroup-root=/own --client-ca-file=/ca --cluster-dns=10.96.0.10,10.96.0.11 \
            --container-runtime-endpoint=/run/c.sock --kubeconfig=/k --port=1 --log=info";
        assert_eq!(seen.arguments.join(" "), expected);
        assert_eq!(seen.accepted, ["authentication.anonymous.enabled: false", "evictionHard.memory.available: 1Mi"]);
        let proxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclientConnection: {kubeconfig: /p}\n\
            clusterCIDR: 10.244.0.0/16\nmode: nftables\nhostnameOverride: n1\n";
        let expected = "pintle proxy --cluster-cidr=10.244.0.0/16 --hostname-override=n1 --kubeconfig=/p";
        assert_eq!(arguments("kube-proxy", "--config /f", proxy), expected);
        let scheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /s}\n\
            leaderElection: {leaderElect: false}\n";
        let expected = "pintle scheduler --kubeconfig=/s --leader-elect=false";
        assert_eq!(arguments("kube-scheduler", "--config=/f", scheduler), expected);
    }

    #[test]
    fn nodes_register_as_their_file_says() {
        let file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n\
            registerNode: false\nregisterWithTaints: [{key: a, effect: NoExecute}, {key: b, value: c, effect: NoSchedule}]\n";
        let expected = "pintle kubelet --cgroup-driver=systemd --node-labels=x=y --register-node=false \
            --register-with-taints=a=:NoExecute,b=c:NoSchedule";
        assert_eq!(arguments("kubelet", "--config=/f --node-labels x=y", file), expected);
    }

    /// kubeadm writes every field.
    #[test]
    fn what_is_empty_is_not_set() {
        let proxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nbindAddress: 0.0.0.0\n\
            clientConnection: {acceptContentTypes: \"\", burst: 0, kubeconfig: /p, qps: 0}\nclusterCIDR: \"\"\nconfigSyncPeriod: 0s\n\
            conntrack: {maxPerCore: null, udpTimeout: 0s}\ndetectLocal: {bridgeInterface: \"\"}\nhostnameOverride: \"\"\n\
            ipvs: {excludeCIDRs: null, scheduler: \"\", strictARP: false}\nmetricsBindAddress: \"\"\nmode: \"\"\n\
            nodePortAddresses: null\noomScoreAdj: null\nportRange: \"\"\nwinkernel: {enableDSR: false, networkName: \"\"}\n";
        let seen = told("kube-proxy", "--config=/f --hostname-override=n1", proxy).unwrap();
        assert_eq!(seen.arguments.join(" "), "pintle proxy --hostname-override=n1 --kubeconfig=/p");
        assert_eq!(seen.accepted, ["bindAddress: 0.0.0.0", "ipvs.strictARP: false", "winkernel.enableDSR: false"]);
        // An empty flag takes back what the file says.
        let named =
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nhostnameOverride: n1\n";
        assert_eq!(arguments("kube-proxy", "--config=/f --hostname-override=", named), "pintle proxy");
        assert_eq!(arguments("kube-proxy", "--metrics-bind-address=", ""), "pintle proxy --metrics-port=0", "no port");
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: \"\"\n\
            cpuManagerReconcilePeriod: 0s\ncrashLoopBackOff: {}\nevictionPressureTransitionPeriod: 0s\nimageMaximumGCAge: 0s\n\
            maxPods: 0\nresolvConf: \"\"\nstaticPodPath: /m\n";
        let seen = told("kubelet", "--config=/f --node-ip=", kubelet).unwrap();
        assert_eq!(seen.arguments.join(" "), "pintle kubelet --static-pod-path=/m --resolv-conf=");
        assert_eq!(seen.accepted, [""; 0]);
    }

    #[test]
    fn files_that_are_wrong() {
        let fault = |file: &str| told("kubelet", "--config=/f", file).unwrap_err().to_string();
        assert!(fault("kind: Other\napiVersion: v1\n").contains("no kind \"Other\""));
        let file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnonsense: {x: 1}\n";
        assert!(fault(file).contains("unknown field \"nonsense.x\""));
        assert!(fault("[").starts_with("configuration file /f: "));
    }
}
