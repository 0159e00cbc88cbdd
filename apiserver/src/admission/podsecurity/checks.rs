//! What the levels forbid. Pure: a pod in, what it breaks out, in upstream's words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, Rule};

/// Something that a level forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// In a few words.
    pub reason: String,
    /// Where and what.
    pub detail: String,
}

/// A pod, or a template of one.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its metadata.
    pub metadata: &'a Value,
    /// Its spec.
    pub spec: &'a Value,
}

type Check = fn(&Subject<'_>, u32) -> Option<Violation>;

/// (since which minor version, check), in the order in which they are told.
const BASELINE: [(u32, Check); 9] = [
    (0, app_armor),
    (0, host_namespaces),
    (0, host_ports),
    (34, hosts),
    (0, privileged),
    (0, proc_mount),
    (0, se_linux),
    (0, sysctls),
    (0, host_process),
];
/// What the stricter level has other checks for.
const BASELINE_ONLY: [(u32, Check); 3] = [(0, added_capabilities), (0, host_paths), (0, seccomp)];
const RESTRICTED: [(u32, Check); 7] = [
    (8, escalation),
    (22, capabilities),
    (0, restricted_proc_mount),
    (0, volume_types),
    (0, non_root),
    (23, root_user),
    (19, restricted_seccomp),
];

/// All that a pod breaks.
pub fn violations(rule: Rule, pod: &Subject<'_>) -> Vec<Violation> {
    let minor = rule.minor();
    let applied = |checks: &[(u32, Check)]| -> Vec<Violation> {
        checks.iter().filter(|(since, _)| minor >= *since).filter_map(|(_, check)| check(pod, minor)).collect()
    };
    match rule.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => {
            // By name: AppArmor, capabilities, namespaces, paths, ports, …
            let [armor, namespaces, ports, hosts, privileged, mounts, linux, sysctls, windows] = BASELINE;
            let [added, paths, seccomp] = BASELINE_ONLY;
            applied(&[
                armor, added, namespaces, paths, ports, hosts, privileged, mounts, linux, seccomp, sysctls, windows,
            ])
        }
        // Its own check of seccomp says what the other says, and more.
        Level::Restricted => applied(&BASELINE).into_iter().chain(applied(&RESTRICTED)).collect(),
    }
}

impl<'a> Subject<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| spec[list].as_array().into_iter().flatten())
    }

    fn is_windows(&self, minor: u32) -> bool {
        minor >= 25 && self.spec["os"]["name"] == "windows"
    }

    /// In a user namespace, root of the container is nobody on the host.
    fn has_user_namespace(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// Names of the containers of which something is true.
    fn that(&self, test: impl Fn(&Value) -> bool) -> Names<'a> {
        Names(self.containers().filter(|container| test(container)).map(name).collect())
    }
}

fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// Names of containers.
struct Names<'a>(Vec<&'a str>);

impl Names<'_> {
    /// `container "a"`, `containers "a", "b"`.
    fn shown(&self) -> String {
        format!("{} {}", plural(self.0.len(), "container", "containers"), quoted(self.0.iter().copied()))
    }
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn violation(reason: &str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail: detail.into() })
}

/// A violation of which some containers are guilty.
fn guilty(names: Names<'_>, reason: &str, what: &str) -> Option<Violation> {
    if names.0.is_empty() { None } else { violation(reason, format!("{} {what}", names.shown())) }
}

/// `pod`, `container "a"`, or both.
fn setters(pod: bool, names: &Names<'_>) -> Option<String> {
    match (pod, names.0.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(names.shown()),
        (true, false) => Some(format!("pod and {}", names.shown())),
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn app_armor(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let profile = |holder: &Value| holder["securityContext"]["appArmorProfile"]["type"].as_str().map(str::to_owned);
    let bad = |holder: &Value| profile(holder).filter(|ty| !matches!(ty.as_str(), "RuntimeDefault" | "Localhost"));
    let names = pod.that(|container| bad(container).is_some());
    let mut details: Vec<String> = Vec::new();
    if let Some(setters) = setters(bad(pod.spec).is_some(), &names) {
        let values: BTreeSet<String> = pod.containers().chain([pod.spec]).filter_map(bad).collect();
        let values = quoted(values.iter().map(String::as_str));
        details.push(format!("{setters} must not set AppArmor profile type to {values}"));
    }
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let mut annotated: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(PREFIX))
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, value)| !value.is_empty() && *value != "runtime/default" && !value.starts_with("localhost/"))
        .map(|(key, value)| format!("{key}=\"{value}\""))
        .collect();
    annotated.sort();
    if !annotated.is_empty() {
        let word = plural(annotated.len(), "annotation", "annotations");
        details.push(format!("{word} {}", annotated.join(", ")));
    }
    let reason = plural(details.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    if details.is_empty() { None } else { violation(reason, details.join(", ")) }
}

fn added_capabilities(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    const DEFAULT: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let (names, added) = beyond(pod, &DEFAULT);
    guilty(names, "non-default capabilities", &format!("must not include {added} in securityContext.capabilities.add"))
}

/// Containers that add other capabilities than these, and which.
fn beyond<'a>(pod: &Subject<'a>, allowed: &[&str]) -> (Names<'a>, String) {
    let bad = |container: &Value| -> BTreeSet<String> {
        let added = texts(&container["securityContext"]["capabilities"]["add"]);
        added.filter(|capability| !allowed.contains(capability)).map(str::to_owned).collect()
    };
    let names = pod.that(|container| !bad(container).is_empty());
    let all: BTreeSet<String> = pod.containers().flat_map(bad).collect();
    (names, quoted(all.iter().map(String::as_str)))
}

fn host_namespaces(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let used = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let used: Vec<String> = used.map(|field| format!("{field}=true")).collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

fn host_paths(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let names: Vec<&str> = volumes.filter(|volume| !volume["hostPath"].is_null()).map(name).collect();
    let word = plural(names.len(), "volume", "volumes");
    if names.is_empty() { None } else { violation("hostPath volumes", format!("{word} {}", quoted(names))) }
}

fn host_ports(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let ports = |container: &Value| -> BTreeSet<i64> {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0).collect()
    };
    let names = pod.that(|container| !ports(container).is_empty());
    let all: BTreeSet<i64> = pod.containers().flat_map(ports).collect();
    let listed = all.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let verb = plural(names.0.len(), "uses", "use");
    guilty(names, "hostPort", &format!("{verb} {} {listed}", plural(all.len(), "hostPort", "hostPorts")))
}

/// Probes and hooks may not make the kubelet call others.
fn hosts(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let called = |container: &Value| -> BTreeSet<String> {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| container[probe].clone());
        let hooks = ["postStart", "preStop"].map(|hook| container["lifecycle"][hook].clone());
        let handlers = probes.into_iter().chain(hooks);
        let hosts = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| handler[action]["host"].clone()));
        hosts.filter_map(|host| host.as_str().map(str::to_owned)).filter(|host| !host.is_empty()).collect()
    };
    let names = pod.that(|container| !called(container).is_empty());
    let all: BTreeSet<String> = pod.containers().flat_map(called).collect();
    let verb = plural(names.0.len(), "uses", "use");
    let word = plural(all.len(), "host", "hosts");
    let listed = quoted(all.iter().map(String::as_str));
    guilty(names, "probe or lifecycle host", &format!("{verb} probe or lifecycle {word} {listed}"))
}

fn privileged(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let names = pod.that(|container| container["securityContext"]["privileged"] == true);
    guilty(names, "privileged", "must not set securityContext.privileged=true")
}

fn proc_mount(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { restricted_proc_mount_of(pod, minor) }
}

/// The stricter level forbids it in user namespaces, too; elsewhere the other check has told it.
fn restricted_proc_mount(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    if pod.has_user_namespace() { restricted_proc_mount_of(pod, minor) } else { None }
}

fn restricted_proc_mount_of(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let mount = |container: &Value| container["securityContext"]["procMount"].as_str().map(str::to_owned);
    let bad = |container: &Value| mount(container).filter(|mount| mount != "Default");
    let names = pod.that(|container| bad(container).is_some());
    let all: BTreeSet<String> = pod.containers().filter_map(bad).collect();
    let listed = quoted(all.iter().map(String::as_str));
    guilty(names, "procMount", &format!("must not set securityContext.procMount to {listed}"))
}

fn se_linux(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    let options = |holder: &Value| holder["securityContext"]["seLinuxOptions"].clone();
    let text = |holder: &Value, field: &str| options(holder)[field].as_str().unwrap_or_default().to_owned();
    let bad_type = |holder: &Value| {
        let ty = text(holder, "type");
        let known = matches!(ty.as_str(), "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (minor >= 31 && ty == "container_engine_t");
        (!known).then_some(ty)
    };
    let set = |holder: &Value, field: &str| !text(holder, field).is_empty();
    let bad = |holder: &Value| bad_type(holder).is_some() || set(holder, "user") || set(holder, "role");
    let setters = setters(bad(pod.spec), &pod.that(bad))?;
    let holders = || pod.containers().chain([pod.spec]);
    let types: BTreeSet<String> = holders().filter_map(bad_type).collect();
    let mut details = Vec::new();
    if !types.is_empty() {
        let word = plural(types.len(), "type", "types");
        details.push(format!("{word} {}", quoted(types.iter().map(String::as_str))));
    }
    for field in ["user", "role"] {
        if holders().any(|holder| set(holder, field)) {
            details.push(format!("{field} may not be set"));
        }
    }
    violation(
        "seLinuxOptions",
        format!("{setters} set forbidden securityContext.seLinuxOptions: {}", details.join("; ")),
    )
}

/// The bad profiles that somebody set.
fn bad_seccomp(pod: &Subject<'_>) -> Option<Violation> {
    let profile = |holder: &Value| holder["securityContext"]["seccompProfile"]["type"].as_str().map(str::to_owned);
    let bad = |holder: &Value| profile(holder).filter(|ty| !matches!(ty.as_str(), "RuntimeDefault" | "Localhost"));
    let setters = setters(bad(pod.spec).is_some(), &pod.that(|container| bad(container).is_some()))?;
    let values: BTreeSet<String> = pod.containers().chain([pod.spec]).filter_map(bad).collect();
    let listed = quoted(values.iter().map(String::as_str));
    violation("seccompProfile", format!("{setters} must not set securityContext.seccompProfile.type to {listed}"))
}

fn seccomp(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    bad_seccomp(pod)
}

fn sysctls(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    const SAFE: [(u32, &str); 11] = [
        (0, "kernel.shm_rmid_forced"),
        (0, "net.ipv4.ip_local_port_range"),
        (0, "net.ipv4.tcp_syncookies"),
        (0, "net.ipv4.ping_group_range"),
        (0, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
    ];
    let safe = |name: &str| {
        SAFE.iter().any(|(since, known)| minor >= *since && *known == name)
            || (minor >= 32 && name == "net.ipv4.tcp_wmem")
    };
    let named = pod.spec["securityContext"]["sysctls"].as_array().into_iter().flatten().map(name);
    let bad: Vec<&str> = named.filter(|name| !safe(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn host_process(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    let set = |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(set(pod.spec), &pod.that(set))?;
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn escalation(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    if pod.is_windows(minor) {
        return None;
    }
    let names = pod.that(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    guilty(names, "allowPrivilegeEscalation != false", "must set securityContext.allowPrivilegeEscalation=false")
}

fn capabilities(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    if pod.is_windows(minor) {
        return None;
    }
    let keeps =
        |container: &Value| texts(&container["securityContext"]["capabilities"]["drop"]).all(|drop| drop != "ALL");
    let mut details = Vec::new();
    let keeping = pod.that(keeps);
    if !keeping.0.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", keeping.shown()));
    }
    let (adding, added) = beyond(pod, &["NET_BIND_SERVICE"]);
    if !adding.0.is_empty() {
        details.push(format!("{} must not include {added} in securityContext.capabilities.add", adding.shown()));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn volume_types(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    const GOOD: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let mut names = Vec::new();
    let mut types = BTreeSet::new();
    for volume in pod.spec["volumes"].as_array().into_iter().flatten() {
        let fields = volume.as_object().into_iter().flatten();
        let bad = fields.map(|(field, _)| field.as_str()).find(|field| *field != "name" && !GOOD.contains(field));
        if let Some(bad) = bad {
            names.push(name(volume));
            types.insert(bad);
        }
    }
    if names.is_empty() {
        return None;
    }
    let (volumes, verb) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
    let word = plural(types.len(), "type", "types");
    let detail = format!("{volumes} {} {verb} restricted volume {word} {}", quoted(names), quoted(types));
    violation("restricted volume types", detail)
}

fn non_root(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.has_user_namespace() {
        return None;
    }
    let own = |holder: &Value| holder["securityContext"]["runAsNonRoot"].as_bool();
    let refusing = pod.that(|container| own(container) == Some(false));
    if let Some(setters) = setters(own(pod.spec) == Some(false), &refusing) {
        return violation(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    if own(pod.spec) == Some(true) {
        return None;
    }
    let silent = pod.that(|container| own(container).is_none());
    if silent.0.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", silent.shown()))
}

fn root_user(pod: &Subject<'_>, _minor: u32) -> Option<Violation> {
    if pod.has_user_namespace() {
        return None;
    }
    let root = |holder: &Value| holder["securityContext"]["runAsUser"] == 0;
    let setters = setters(root(pod.spec), &pod.that(root))?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

fn restricted_seccomp(pod: &Subject<'_>, minor: u32) -> Option<Violation> {
    if pod.is_windows(minor) {
        return None;
    }
    if let Some(bad) = bad_seccomp(pod) {
        return Some(bad);
    }
    let set = |holder: &Value| !holder["securityContext"]["seccompProfile"]["type"].is_null();
    let silent = pod.that(|container| !set(container));
    if set(pod.spec) || silent.0.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        silent.shown()
    );
    violation("seccompProfile", detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(level: Level, spec: Value) -> String {
        let subject = Subject { metadata: &Value::Null, spec: &spec };
        let all = violations(Rule { level, version: None }, &subject);
        all.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn baseline() {
        let container = |context: Value| json!([{"name": "c", "securityContext": context}]);
        for (spec, expected) in [
            (json!({"containers": [{"name": "c"}]}), ""),
            (json!({"hostPID": true, "hostIPC": true}), "host namespaces (hostPID=true, hostIPC=true)"),
            (
                json!({"containers": container(json!({"capabilities": {"add": ["SYS_ADMIN", "NET_RAW", "KILL"]}}))}),
                "non-default capabilities (container \"c\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
                 securityContext.capabilities.add)",
            ),
            (
                json!({"volumes": [{"name": "v", "hostPath": {}}, {"name": "w", "hostPath": {}}]}),
                "hostPath volumes (volumes \"v\", \"w\")",
            ),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "x", "user": "u"}}}),
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set)",
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}, {"hostPort": 81}]}]}),
                "hostPort (container \"c\" uses hostPorts 80, 81)",
            ),
        ] {
            assert_eq!(told(Level::Baseline, spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn restricted() {
        let good = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(told(Level::Restricted, json!({"containers": [{"name": "c", "securityContext": good}]})), "");
        assert_eq!(
            told(Level::Restricted, json!({"containers": [{"name": "c"}]})),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod \
             or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
        let volumes = json!([{"name": "v", "nfs": {}}, {"name": "e", "emptyDir": {}}, {"name": "i", "iscsi": {}}]);
        assert_eq!(
            told(Level::Restricted, json!({"volumes": volumes})),
            "restricted volume types (volumes \"v\", \"i\" use restricted volume types \"iscsi\", \"nfs\")"
        );
    }
}
