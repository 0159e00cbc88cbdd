//! Errors of security contexts: of pods, of containers, and of both on Windows.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::one_of;
use crate::registry::value::{at, flag, has, items, number, text};

const ID: &str = "must be between 0 and 2147483647, inclusive";
const SYSCTL: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const SYSCTL_LENGTH: usize = 253;
const APPARMOR_LENGTH: usize = 4095;
/// Fields of a container's context in upstream's order, with the names that it shows.
const SHOWN: [(&str, &str); 12] = [
    ("capabilities", "Capabilities"),
    ("privileged", "Privileged"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("windowsOptions", "WindowsOptions"),
    ("runAsUser", "RunAsUser"),
    ("runAsGroup", "RunAsGroup"),
    ("runAsNonRoot", "RunAsNonRoot"),
    ("readOnlyRootFilesystem", "ReadOnlyRootFilesystem"),
    ("allowPrivilegeEscalation", "AllowPrivilegeEscalation"),
    ("procMount", "ProcMount"),
    ("seccompProfile", "SeccompProfile"),
    ("appArmorProfile", "AppArmorProfile"),
];
/// What Windows knows nothing of.
const POD_NOT_ON_WINDOWS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];
const CONTAINER_NOT_ON_WINDOWS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn ids(errors: &mut ErrorList, context: &Value, path: &Path, fields: &[&str]) {
    for field in fields {
        if let Some(id) = number(context, field).filter(|id| !is_id(*id)) {
            errors.invalid(&path.child(field), id, ID);
        }
    }
}

fn is_id(id: i64) -> bool {
    (0..=i64::from(i32::MAX)).contains(&id)
}

/// What a pod says about its security, and the namespaces of the host that it uses.
pub fn pod(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let context = at(spec, "securityContext");
    let own = path.child("securityContext");
    ids(errors, context, &own, &["fsGroup", "runAsUser", "runAsGroup"]);
    for (index, group) in items(context, "supplementalGroups").iter().enumerate() {
        if let Some(id) = group.as_i64().filter(|id| !is_id(*id)) {
            errors.invalid(&own.child("supplementalGroups").index(index), id, ID);
        }
    }
    sysctls(errors, spec, &own.child("sysctls"));
    choices(errors, context, &own, &[("fsGroupChangePolicy", &["Always", "OnRootMismatch"])]);
    profile(errors, context, &own, SECCOMP);
    windows(errors, at(context, "windowsOptions"), &own.child("windowsOptions"));
    profile(errors, context, &own, APPARMOR);
    choices(
        errors,
        context,
        &own,
        &[("supplementalGroupsPolicy", &["Merge", "Strict"]), ("seLinuxChangePolicy", &["MountOption", "Recursive"])],
    );
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, detail);
    }
}

/// With users of its own a pod has little of the host's.
pub fn users(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const DETAIL: &str = "when `hostUsers` is false";
    if at(spec, "hostUsers") != &Value::Bool(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, field) {
            errors.forbidden(&path.child(shown), DETAIL);
        }
    }
    for (container, path) in containers_at(spec, path) {
        if !items(container, "volumeDevices").is_empty() {
            errors.forbidden(&path.child("volumeDevices"), DETAIL);
        }
    }
}

/// All containers with their paths, the first to start first.
fn containers_at<'a>(spec: &'a Value, path: &Path) -> Vec<(&'a Value, Path)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let of_list = |list: &'static str| {
        let path = path.child(list);
        items(spec, list).iter().enumerate().map(move |(index, container)| (container, path.index(index)))
    };
    lists.flat_map(of_list).collect()
}

fn choices(errors: &mut ErrorList, holder: &Value, path: &Path, fields: &[(&str, &[&str])]) {
    for (field, known) in fields.iter().filter(|(field, _)| has(holder, field)) {
        one_of(errors, &path.child(field), text(holder, field), known);
    }
}

/// Parameters of the kernel that are told by their beginnings, and the field that makes them the host's.
const OF_HOST: [(&str, &str); 5] = [
    ("net.", "hostNetwork"),
    ("kernel.shm", "hostIPC"),
    ("kernel.msg", "hostIPC"),
    ("kernel.sem", "hostIPC"),
    ("fs.mqueue.", "hostIPC"),
];

fn sysctls(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let mut seen = HashSet::new();
    for (index, sysctl) in items(spec, "securityContext.sysctls").iter().enumerate() {
        let path = path.index(index).child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            errors.invalid(&path, name, SYSCTL);
        } else if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
        let dotted = name.replace('/', ".");
        let host = OF_HOST.iter().find(|(start, field)| dotted.starts_with(start) && flag(spec, field));
        if let Some((_, field)) = host {
            errors.invalid(&path, name, format!("may not be specified when '{field}' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        part.starts_with(word) && part.ends_with(word) && part.chars().all(|c| word(c) || c == '-' || c == '_')
    };
    name.len() <= SYSCTL_LENGTH && name.split(['.', '/']).all(part)
}

/// Fields of profiles, and what their messages call them.
const SECCOMP: (&str, &str) = ("seccompProfile", "seccomp");
const APPARMOR: (&str, &str) = ("appArmorProfile", "AppArmor");

/// A profile of seccomp or AppArmor.
fn profile(errors: &mut ErrorList, context: &Value, path: &Path, (field, what): (&str, &str)) {
    const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
    let profile = at(context, field);
    if profile.is_null() {
        return;
    }
    let path = path.child(field);
    let (ty, local) = (text(profile, "type"), text(profile, "localhostProfile"));
    let given = has(profile, "localhostProfile");
    let of_local = path.child("localhostProfile");
    match ty {
        "Localhost" if !given => {
            errors.required(&of_local, format!("must be set when {what} type is Localhost"));
        }
        "Localhost" => local_profile(errors, what, local, &of_local),
        _ if given => {
            let detail = format!("can only be set when {what} type is Localhost");
            let shown = match what {
                "seccomp" => {
                    format!("{{\"Type\":\"{ty}\",\"LocalhostProfile\":{}}}", at(profile, "localhostProfile"))
                }
                _ => at(profile, "localhostProfile").to_string(),
            };
            errors.push(FieldError::new(Fault::Invalid, &of_local, local, detail).shown_as(shown));
        }
        _ => {}
    }
    if ty.is_empty() {
        errors.required(&path.child("type"), format!("type is required when {field} is set"));
    } else {
        one_of(errors, &path.child("type"), ty, &TYPES);
    }
}

fn local_profile(errors: &mut ErrorList, what: &str, local: &str, path: &Path) {
    if what == "seccomp" {
        return super::pod_volumes::local_path(errors, local, path);
    }
    let trimmed = local.trim();
    if trimmed != local {
        errors.invalid(path, local, "must not be padded with whitespace");
    } else if trimmed.is_empty() {
        errors.required(path, "must be set when AppArmor type is Localhost");
    }
    if local.len() > APPARMOR_LENGTH {
        errors.too_long(path, APPARMOR_LENGTH);
    }
}

/// What a container says about its security.
pub fn container(errors: &mut ErrorList, container: &Value, spec: &Value, path: &Path) {
    let context = at(container, "securityContext");
    if context.is_null() {
        return;
    }
    let path = path.child("securityContext");
    ids(errors, context, &path, &["runAsUser", "runAsGroup"]);
    if has(context, "procMount") {
        let mount = text(context, "procMount");
        one_of(errors, &path.child("procMount"), mount, &["Default", "Unmasked"]);
        if mount == "Unmasked" && at(spec, "hostUsers") != &Value::Bool(false) {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(&path.child("procMount"), mount, detail);
        }
    }
    profile(errors, context, &path, SECCOMP);
    if at(context, "allowPrivilegeEscalation") == &Value::Bool(false) {
        let mut refuse = |what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.push(FieldError::new(Fault::Invalid, &path, Value::Null, detail).shown_as(shown(context)));
        };
        if flag(context, "privileged") {
            refuse("`privileged` to true");
        }
        if items(context, "capabilities.add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            refuse("`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    windows(errors, at(context, "windowsOptions"), &path.child("windowsOptions"));
    profile(errors, context, &path, APPARMOR);
}

/// A container's context as Go prints it.
fn shown(context: &Value) -> String {
    let list = |value: &Value| if value.is_null() { "null".to_owned() } else { value.to_string() };
    let fields = SHOWN.map(|(field, name)| {
        let value = at(context, field);
        let words = match field {
            _ if value.is_null() => "null".to_owned(),
            "capabilities" => format!("{{\"Add\":{},\"Drop\":{}}}", list(at(value, "add")), list(at(value, "drop"))),
            "seLinuxOptions" => {
                let part = |field| pintle_machinery::Value::String(text(value, field).to_owned()).to_string();
                let [user, role, ty, level] = ["user", "role", "type", "level"].map(part);
                format!("{{\"User\":{user},\"Role\":{role},\"Type\":{ty},\"Level\":{level}}}")
            }
            "seccompProfile" | "appArmorProfile" => {
                format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", at(value, "type"), at(value, "localhostProfile"))
            }
            "windowsOptions" => {
                let [name, spec, user, host] =
                    ["gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess"].map(|f| at(value, f));
                format!(
                    "{{\"GMSACredentialSpecName\":{name},\"GMSACredentialSpec\":{spec},\"RunAsUserName\":{user},\"HostProcess\":{host}}}"
                )
            }
            _ => value.to_string(),
        };
        format!("\"{name}\":{words}")
    });
    format!("{{{}}}", fields.join(","))
}

fn windows(errors: &mut ErrorList, options: &Value, path: &Path) {
    const SPEC_KIB: usize = 64;
    if has(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        errors.invalid_each(&path.child("gmsaCredentialSpecName"), name, names::dns1123_subdomain(name));
    }
    if has(options, "gmsaCredentialSpec") {
        let spec = text(options, "gmsaCredentialSpec");
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&path, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > SPEC_KIB * 1024 {
            errors.invalid(&path, spec, format!("gmsaCredentialSpec size must be under {SPEC_KIB} KiB"));
        }
    }
    if has(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        if let Some(fault) = user_fault(name) {
            errors.invalid(&path.child("runAsUserName"), name, fault);
        }
    }
}

/// What is wrong with the name of a Windows user, `DOMAIN\user` or `user`.
fn user_fault(name: &str) -> Option<String> {
    const USER: usize = 104;
    const DOMAIN: usize = 256;
    let fault = |words: &str| Some(format!("runAsUserName{words}"));
    if name.is_empty() {
        return fault(" cannot be an empty string");
    }
    if name.chars().any(char::is_control) {
        return fault(" cannot contain control characters");
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return fault(" cannot contain more than one backslash"),
    };
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN {
            return fault(&format!("'s Domain length must be under {DOMAIN} characters"));
        }
        let word = |c: char| c.is_ascii_alphanumeric();
        let net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.chars().any(|c| "\\/:*?<>|\"".contains(c));
        let dns = domain
            .trim_end_matches('.')
            .split('.')
            .all(|part| !part.is_empty() && part.chars().all(|c| word(c) || c == '-') && part.starts_with(word));
        if !net_bios && !dns {
            return fault("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        return fault("'s User cannot be empty");
    }
    if user.len() > USER {
        return fault(&format!("'s User length must not be longer than {USER} characters"));
    }
    if user.trim_matches(['.', ' ']).is_empty() {
        return fault("'s User cannot contain only periods or spaces");
    }
    if user.chars().any(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        return fault("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    None
}

/// Containers that run on the host itself come all or not at all, and with the host's network.
pub fn host_processes(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let whole = at(spec, "securityContext.windowsOptions.hostProcess").as_bool();
    let (mut on_host, mut others) = (0, 0);
    for (container, path) in containers_at(spec, path) {
        let own = at(container, "securityContext.windowsOptions.hostProcess").as_bool();
        if let Some((whole, own)) = whole.zip(own).filter(|(whole, own)| whole != own) {
            let path = path.child("securityContext").child("windowsOptions").child("hostProcess");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {whole}");
            errors.invalid(&path, own, detail);
        }
        match own.or(whole) {
            Some(true) => on_host += 1,
            _ => others += 1,
        }
    }
    if on_host == 0 {
        return;
    }
    if others > 0 {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, detail);
    }
}

/// What does not exist on the system that a pod is for.
pub fn os(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const FORBID: &str = "cannot be set for a windows pod";
    if !has(spec, "os") {
        return;
    }
    let own = path.child("securityContext");
    match text(spec, "os.name") {
        "" => errors.required(&path.child("os").child("name"), ""),
        "linux" => {
            let pod = (at(spec, "securityContext"), own);
            let containers = containers_at(spec, path);
            let contexts = containers
                .into_iter()
                .map(|(container, path)| (at(container, "securityContext"), path.child("securityContext")));
            for (context, path) in [pod].into_iter().chain(contexts) {
                if has(context, "windowsOptions") {
                    let detail = "windows options cannot be set for a linux pod";
                    errors.forbidden(&path.child("windowsOptions"), detail);
                }
            }
        }
        "windows" => {
            let given = |field: &&str| match *field {
                "sysctls" | "supplementalGroups" => !items(&spec["securityContext"], field).is_empty(),
                field => has(&spec["securityContext"], field),
            };
            for field in POD_NOT_ON_WINDOWS.iter().filter(|field| given(field)) {
                errors.forbidden(&own.child(field), FORBID);
            }
            let of_host = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
            let told = |field: &&str| match *field {
                "hostPID" | "hostIPC" => flag(spec, field),
                field => has(spec, field),
            };
            for field in of_host.into_iter().filter(told) {
                errors.forbidden(&path.child(field), FORBID);
            }
            for (container, path) in containers_at(spec, path) {
                let context = at(container, "securityContext");
                for field in CONTAINER_NOT_ON_WINDOWS.into_iter().filter(|field| has(context, field)) {
                    errors.forbidden(&path.child("securityContext").child(field), FORBID);
                }
            }
        }
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods() {
        let cases = [
            (json!({"securityContext": {"runAsUser": 1000, "sysctls": [{"name": "net.ipv4/x_y"}]}}), ""),
            (
                json!({"securityContext": {"runAsUser": -1}}),
                "s.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
                "s.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ),
            (
                json!({"hostPID": true, "shareProcessNamespace": true}),
                "s.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            ),
            (json!({"hostUsers": false, "hostPID": true}), "s.HostPID: Forbidden: when `hostUsers` is false"),
            (
                json!({"hostUsers": false, "containers": [{"volumeDevices": [{}]}]}),
                "s.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
            ),
            (
                json!({"os": {"name": "windows"}, "hostIPC": true}),
                "s.hostIPC: Forbidden: cannot be set for a windows pod",
            ),
            (
                json!({"os": {"name": "windows"}, "ephemeralContainers": [{"securityContext": {"runAsUser": 1}}]}),
                "s.ephemeralContainers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ),
            (
                json!({"os": {"name": "linux"}, "containers": [{"securityContext": {"windowsOptions": {}}}]}),
                "s.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            ),
            (
                json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}},
                    "containers": [{"securityContext": {"windowsOptions": {"hostProcess": false}}}]}),
                "s.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true",
            ),
        ];
        for (spec, expected) in cases {
            let mut errors = ErrorList::new();
            pod(&mut errors, &spec, &Path::new("s"));
            users(&mut errors, &spec, &Path::new("s"));
            host_processes(&mut errors, &spec, &Path::new("s"));
            os(&mut errors, &spec, &Path::new("s"));
            assert_eq!(errors.to_string(), expected, "{spec}");
        }
    }

    #[test]
    fn escalation_contradicts_privilege() {
        let mut errors = ErrorList::new();
        let given = json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}});
        container(&mut errors, &given, &json!({}), &Path::new("c"));
        let text = errors.to_string();
        assert!(
            text.starts_with("c.securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,"),
            "{text}"
        );
        assert!(text.ends_with(": cannot set `allowPrivilegeEscalation` to false and `privileged` to true"), "{text}");
    }

    #[test]
    fn windows_users() {
        for (name, fault) in [
            ("user", None),
            ("DOMAIN\\user", None),
            ("a\\b\\c", Some("runAsUserName cannot contain more than one backslash")),
            ("\\a", Some("runAsUserName's Domain doesn't match the NetBios nor the DNS format")),
            ("d\\", Some("runAsUserName's User cannot be empty")),
        ] {
            assert_eq!(user_fault(name).as_deref(), fault, "{name}");
        }
    }
}
