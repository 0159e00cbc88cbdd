//! The Node authorizer: a kubelet sees its own node, its pods, and what these refer to.

use std::sync::OnceLock;

use serde_json::Value;

use super::rules::Rule;
use crate::auth::{Attributes, Objects, UserInfo, policy, text};

/// The group that kubelets are in.
const NODES: &str = "system:nodes";
/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";

/// What the Node authorizer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The user is no node.
    NoNode,
    /// Yes.
    Allowed,
    /// Not by this authorizer: why, or "".
    NoOpinion(String),
}

/// The node that a user is.
pub fn node_name(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|name| !name.is_empty() && user.in_group(NODES))
}

/// What a kubelet may do with a resource beyond the rules of the role `system:node`.
#[derive(Debug, Clone, Copy)]
enum Guard {
    /// Read objects that a pod of the node refers to, one by one.
    Read,
    /// Get single objects that are related to the node.
    Get,
}

/// Resources whose objects must be related to the node.
const GUARDS: &[(&str, &str, Guard)] = &[
    ("", "secrets", Guard::Read),
    ("", "configmaps", Guard::Read),
    ("", "persistentvolumeclaims", Guard::Get),
    ("", "persistentvolumes", Guard::Get),
    ("", "serviceaccounts", Guard::Read),
    ("resource.k8s.io", "resourceclaims", Guard::Get),
    ("storage.k8s.io", "volumeattachments", Guard::Get),
];

/// Judges a request.
pub fn judge(user: &UserInfo, request: &Attributes, objects: &dyn Objects) -> Verdict {
    let Some(node) = node_name(user) else { return Verdict::NoNode };
    match check(node, request, objects) {
        Err(reason) => Verdict::NoOpinion(reason),
        Ok(true) => Verdict::Allowed,
        Ok(false) if node_rules().iter().any(|rule| rule.allows(request)) => Verdict::Allowed,
        Ok(false) => Verdict::NoOpinion(String::new()),
    }
}

/// The rules of the role `system:node`.
fn node_rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let role = policy::objects().iter().find(|o| o.name == "system:node" && o.resource == "clusterroles");
        role.map(|role| Rule::list(&role.value["rules"])).unwrap_or_default()
    })
}

/// `Ok(true)`: allowed; `Ok(false)`: the role's rules decide; `Err`: refused.
fn check(node: &str, request: &Attributes, objects: &dyn Objects) -> Result<bool, String> {
    let refuse = |reason: &str| Err(reason.to_owned());
    let resource = (request.group.as_str(), request.resource.as_str());
    let (verb, subresource) = (request.verb.as_str(), request.subresource.as_str());
    if let Some((.., guard)) = GUARDS.iter().find(|(group, name, _)| (*group, *name) == resource) {
        return match (resource.1, subresource, verb) {
            ("persistentvolumeclaims", "status", "update" | "patch") => related(node, request, objects),
            ("persistentvolumeclaims", "status", _) => refuse("can only get/update/patch this type"),
            ("serviceaccounts", "token", "create") if !request.name.is_empty() => related(node, request, objects),
            ("serviceaccounts", "", "get") => guarded(*guard, node, request, objects),
            ("serviceaccounts", _, "create") if !request.name.is_empty() => {
                refuse("can only create token subresource of serviceaccount")
            }
            ("serviceaccounts", ..) => refuse("can only create tokens for individual service accounts"),
            _ => guarded(*guard, node, request, objects),
        };
    }
    let own = Own { node, request, objects };
    match resource {
        ("", "nodes") => own.node(),
        ("", "pods") => own.pod(),
        ("coordination.k8s.io", "leases") => own.lease(),
        ("storage.k8s.io", "csinodes") => own.csi_node(),
        ("resource.k8s.io", "resourceslices") => own.resource_slice(),
        ("certificates.k8s.io", "podcertificaterequests") => own.certificate_request(),
        _ => Ok(false),
    }
}

fn guarded(guard: Guard, node: &str, request: &Attributes, objects: &dyn Objects) -> Result<bool, String> {
    let verb = request.verb.as_str();
    let fault = match guard {
        Guard::Read if !matches!(verb, "get" | "list" | "watch") => "can only read resources of this type",
        Guard::Get if verb != "get" => "can only get individual resources of this type",
        Guard::Read if !request.subresource.is_empty() => "cannot read subresource",
        Guard::Get if !request.subresource.is_empty() => "cannot get subresource",
        Guard::Read if request.namespace.is_empty() => "can only read namespaced object of this type",
        _ => return related(node, request, objects),
    };
    Err(fault.into())
}

/// A pod of the node refers to the object, or the object is about the node.
fn related(node: &str, request: &Attributes, objects: &dyn Objects) -> Result<bool, String> {
    let Attributes { group, resource, namespace, name, .. } = request;
    if name.is_empty() {
        return Err("No Object name found".into());
    }
    let by_object = |field: &[&str]| {
        objects.get(group, resource, namespace, name).is_some_and(|object| text(&object, field) == node)
    };
    let found = match resource.as_str() {
        "volumeattachments" | "resourceslices" | "podcertificaterequests" => by_object(&["spec", "nodeName"]),
        "persistentvolumes" => claims_volume(node, name, objects),
        _ => objects.pods_on(node).iter().any(|pod| {
            text(pod, &["metadata", "namespace"]) == namespace
                && match resource.as_str() {
                    "pods" => text(pod, &["metadata", "name"]) == name,
                    _ => refers(pod, resource, name),
                }
        }),
    };
    match found {
        true => Ok(true),
        false => Err(format!("no relationship found between node '{node}' and this object")),
    }
}

/// A claim of one of the node's pods is bound to the volume.
fn claims_volume(node: &str, volume: &str, objects: &dyn Objects) -> bool {
    let Some(volume) = objects.get("", "persistentvolumes", "", volume) else { return false };
    let claim = &volume["spec"]["claimRef"];
    let (namespace, name) = (text(claim, &["namespace"]), text(claim, &["name"]));
    objects
        .pods_on(node)
        .iter()
        .any(|pod| text(pod, &["metadata", "namespace"]) == namespace && refers(pod, "persistentvolumeclaims", name))
}

/// A pod refers to an object of its namespace. Mirror pods are the kubelet's own words and refer to nothing.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    if !text(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_empty() {
        return false;
    }
    let spec = &pod["spec"];
    match resource {
        "secrets" => {
            volume_sources(spec).any(|volume| {
                [&["secret", "secretName"][..], &["secret", "name"], &["csi", "nodePublishSecretRef", "name"]]
                    .iter()
                    .chain(&[&["flexVolume", "secretRef", "name"][..], &["azureFile", "secretName"]])
                    .chain(&[&["cephfs", "secretRef", "name"][..], &["rbd", "secretRef", "name"]])
                    .chain(&[&["iscsi", "secretRef", "name"][..], &["scaleIO", "secretRef", "name"]])
                    .any(|path| text(volume, path) == name)
            }) || named(&spec["imagePullSecrets"], "name", name)
                || environment(spec).any(|source| {
                    text(source, &["secretRef", "name"]) == name
                        || text(source, &["valueFrom", "secretKeyRef", "name"]) == name
                })
        }
        "configmaps" => {
            volume_sources(spec).any(|volume| text(volume, &["configMap", "name"]) == name)
                || environment(spec).any(|source| {
                    text(source, &["configMapRef", "name"]) == name
                        || text(source, &["valueFrom", "configMapKeyRef", "name"]) == name
                })
        }
        "persistentvolumeclaims" => volume_sources(spec).any(|volume| {
            let ephemeral = || format!("{}-{}", text(pod, &["metadata", "name"]), text(volume, &["name"]));
            text(volume, &["persistentVolumeClaim", "claimName"]) == name
                || (volume["ephemeral"].is_object() && ephemeral() == name)
        }),
        "serviceaccounts" => text(spec, &["serviceAccountName"]) == name,
        "resourceclaims" => {
            named(&spec["resourceClaims"], "resourceClaimName", name)
                || named(&pod["status"]["resourceClaimStatuses"], "resourceClaimName", name)
        }
        _ => false,
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn named(list: &Value, field: &str, name: &str) -> bool {
    items(list).any(|item| text(item, &[field]) == name)
}

/// Volumes, and the sources within projected ones.
fn volume_sources(spec: &Value) -> impl Iterator<Item = &Value> {
    items(&spec["volumes"]).flat_map(|volume| std::iter::once(volume).chain(items(&volume["projected"]["sources"])))
}

/// Entries of `env` and `envFrom` of all containers.
fn environment(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|field| items(&spec[field]))
        .flat_map(|container| items(&container["env"]).chain(items(&container["envFrom"])))
}

/// Resources of which a node has its own.
struct Own<'a> {
    node: &'a str,
    request: &'a Attributes,
    objects: &'a dyn Objects,
}

impl Own<'_> {
    fn node(&self) -> Result<bool, String> {
        let read =
            matches!(self.request.verb.as_str(), "get" | "list" | "watch") && self.request.subresource.is_empty();
        let own = |what: &str| Err(format!("node '{}' cannot read {what}, only its own Node object", self.node));
        match self.request.name.as_str() {
            _ if !read => Ok(false),
            "" => own("all nodes"),
            name if name == self.node => Ok(true),
            name => own(&format!("'{name}'")),
        }
    }

    fn pod(&self) -> Result<bool, String> {
        match self.request.verb.as_str() {
            _ if !self.request.subresource.is_empty() => Ok(false),
            "get" => related(self.node, self.request, self.objects),
            "list" | "watch" if self.selects("spec.nodeName") => Ok(true),
            "list" | "watch" if !self.request.name.is_empty() => related(self.node, self.request, self.objects),
            "list" | "watch" => Err("can only list/watch pods with spec.nodeName field selector".into()),
            _ => Ok(false),
        }
    }

    fn lease(&self) -> Result<bool, String> {
        let request = self.request;
        let known = ["get", "create", "update", "patch", "delete"].contains(&request.verb.as_str());
        if !known {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if request.namespace != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        if request.verb != "create" && request.name != self.node {
            return Err("can only access node lease with the same name as the requesting node".into());
        }
        Ok(true)
    }

    fn csi_node(&self) -> Result<bool, String> {
        let request = self.request;
        if !request.subresource.is_empty() {
            return Err("cannot authorize CSINode subresources".into());
        }
        if !["get", "create", "update", "patch", "delete"].contains(&request.verb.as_str()) {
            return Err("can only get, create, update, patch, or delete a CSINode".into());
        }
        if request.verb != "create" && request.name != self.node {
            return Err("can only access CSINode with the same name as the requesting node".into());
        }
        Ok(true)
    }

    fn resource_slice(&self) -> Result<bool, String> {
        match self.request.verb.as_str() {
            _ if !self.request.subresource.is_empty() => Err("cannot authorize ResourceSlice subresources".into()),
            "create" => Ok(true),
            "get" | "update" | "patch" | "delete" => related(self.node, self.request, self.objects),
            "list" | "watch" | "deletecollection" => self.collection("list/watch/deletecollection"),
            _ => {
                let verbs = "get, watch, list, create, update, patch, delete, deletecollection";
                Err(format!("only the following verbs are allowed for a ResourceSlice: {verbs}"))
            }
        }
    }

    fn certificate_request(&self) -> Result<bool, String> {
        match (self.request.verb.as_str(), self.request.subresource.as_str()) {
            ("create", "") => Ok(true),
            ("get", "") => related(self.node, self.request, self.objects),
            ("list" | "watch", "") => self.collection("list/watch"),
            (verb, "") => Err(format!("nodes may not {verb} podcertificaterequests")),
            (_, subresource) => {
                Err(format!("nodes may not access the {subresource} subresource of PodCertificateRequests"))
            }
        }
    }

    /// Collections are for this node's objects only.
    fn collection(&self, verbs: &str) -> Result<bool, String> {
        match self.selects("spec.nodeName") {
            true => Ok(true),
            false => Err(format!("can only {verbs} {} with nodeName field selector", self.request.resource)),
        }
    }

    fn selects(&self, field: &str) -> bool {
        let wanted = [format!("{field}={}", self.node), format!("{field}=={}", self.node)];
        self.request.field_selector.split(',').any(|term| wanted.iter().any(|w| term == w))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;

    fn ask(what: &str, objects: &Fixed) -> Verdict {
        let words: Vec<&str> = what.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
        let mut request = Attributes::resource(words[0], words[1], resource, words[3], words[4]);
        request.subresource = subresource.into();
        request.field_selector = words.get(5).copied().unwrap_or_default().into();
        judge(&UserInfo::new("system:node:n1", &[NODES]), &request, objects)
    }

    /// What the upstream server v1.37.2 answered to the same questions.
    #[test]
    fn refuses_and_allows_as_upstream() {
        let cases = [
            ("get - pods d x", "no relationship found between node 'n1' and this object"),
            ("list - pods - -", "can only list/watch pods with spec.nodeName field selector"),
            ("list - pods - - spec.nodeName=n1", "+"),
            ("watch - pods - - spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"),
            ("create - pods d -", "+"),
            ("delete - pods d x", "+"),
            ("patch - pods/status d x", "+"),
            ("create - pods/eviction d x", "+"),
            ("update - pods d x", ""),
            ("get - pods/log d x", ""),
            ("deletecollection - pods d -", ""),
            ("get - nodes - n1", "+"),
            ("get - nodes - n2", "node 'n1' cannot read 'n2', only its own Node object"),
            ("list - nodes - -", "node 'n1' cannot read all nodes, only its own Node object"),
            ("list - nodes - n1", "+"),
            ("create - nodes - -", "+"),
            ("update - nodes - n2", "+"),
            ("patch - nodes/status - n1", "+"),
            ("delete - nodes - n1", ""),
            ("get - nodes/proxy - n2", ""),
            ("watch - secrets d x", "no relationship found between node 'n1' and this object"),
            ("update - secrets d x", "can only read resources of this type"),
            ("get - secrets - x", "can only read namespaced object of this type"),
            ("get - secrets/foo d x", "cannot read subresource"),
            ("list - configmaps d -", "No Object name found"),
            ("list - persistentvolumeclaims d x", "can only get individual resources of this type"),
            ("patch - persistentvolumeclaims d x", "can only get individual resources of this type"),
            ("patch - persistentvolumeclaims/status d x", "no relationship found between node 'n1' and this object"),
            ("list - persistentvolumes - -", "can only get individual resources of this type"),
            ("list storage.k8s.io volumeattachments - x", "can only get individual resources of this type"),
            ("create - serviceaccounts/token d x", "no relationship found between node 'n1' and this object"),
            ("get - serviceaccounts d x", "no relationship found between node 'n1' and this object"),
            ("create - serviceaccounts/token d -", "can only create tokens for individual service accounts"),
            ("get coordination.k8s.io leases kube-node-lease n1", "+"),
            (
                "get coordination.k8s.io leases kube-node-lease n2",
                "can only access node lease with the same name as the requesting node",
            ),
            (
                "get coordination.k8s.io leases d n1",
                "can only access leases in the \"kube-node-lease\" system namespace",
            ),
            (
                "list coordination.k8s.io leases kube-node-lease n1",
                "can only get, create, update, patch, or delete a node lease",
            ),
            ("create coordination.k8s.io leases kube-node-lease -", "+"),
            ("get storage.k8s.io csinodes - n1", "+"),
            ("get storage.k8s.io csinodes - n2", "can only access CSINode with the same name as the requesting node"),
            ("list storage.k8s.io csinodes - -", "can only get, create, update, patch, or delete a CSINode"),
            ("get storage.k8s.io csinodes/x - n1", "cannot authorize CSINode subresources"),
            ("create resource.k8s.io resourceslices - -", "+"),
            ("get resource.k8s.io resourceslices - x", "no relationship found between node 'n1' and this object"),
            (
                "list resource.k8s.io resourceslices - -",
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            (
                "list certificates.k8s.io podcertificaterequests d -",
                "can only list/watch podcertificaterequests with nodeName field selector",
            ),
            ("create certificates.k8s.io podcertificaterequests d -", "+"),
            ("update certificates.k8s.io podcertificaterequests d x", "nodes may not update podcertificaterequests"),
            (
                "update certificates.k8s.io podcertificaterequests/status d x",
                "nodes may not access the status subresource of PodCertificateRequests",
            ),
            ("create resource.k8s.io resourceslices/x - -", "cannot authorize ResourceSlice subresources"),
            ("list - services - -", "+"),
            ("create - events d -", "+"),
            ("create certificates.k8s.io certificatesigningrequests/selfnodeclient - -", ""),
        ];
        for (what, wanted) in cases {
            let wanted = if wanted == "+" { Verdict::Allowed } else { Verdict::NoOpinion(wanted.into()) };
            assert_eq!(ask(what, &Fixed::default()), wanted, "{what}");
        }
        let user = UserInfo::new("system:node:n1", &["else"]);
        assert_eq!(
            judge(&user, &Attributes::resource("get", "", "nodes", "", "n1"), &Fixed::default()),
            Verdict::NoNode
        );
    }

    #[test]
    fn follows_what_its_pods_refer_to() {
        let mut objects = Fixed::default();
        objects.add("", "pods", json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {
                "nodeName": "n1", "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "vol"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "ca"}}, {"secret": {"name": "proj"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "d", "ephemeral": {}},
                ],
                "initContainers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}]}],
                "containers": [{"envFrom": [{"configMapRef": {"name": "from"}}]}],
            },
        }));
        objects.add(
            "",
            "pods",
            json!({
                "metadata": {"name": "mirror", "namespace": "d", "annotations": {"kubernetes.io/config.mirror": "x"}},
                "spec": {"nodeName": "n1", "imagePullSecrets": [{"name": "stolen"}]},
            }),
        );
        objects.add(
            "",
            "persistentvolumes",
            json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "d", "name": "claim"}}}),
        );
        let allowed = [
            "get - pods d p",
            "get - pods d mirror",
            "get - secrets d vol",
            "watch - secrets d proj",
            "get - secrets d pull",
            "get - secrets d env",
            "get - configmaps d ca",
            "get - configmaps d from",
            "get - persistentvolumeclaims d claim",
            "get - persistentvolumeclaims d p-d",
            "get - persistentvolumes - pv",
            "create - serviceaccounts/token d sa",
        ];
        for what in allowed {
            assert_eq!(ask(what, &objects), Verdict::Allowed, "{what}");
        }
        for what in
            ["get - secrets other vol", "get - secrets d stolen", "get - configmaps d vol", "get - secrets d sa"]
        {
            assert!(matches!(ask(what, &objects), Verdict::NoOpinion(_)), "{what}");
        }
    }
}
