//! ServiceAccount: every pod runs as one, and gets its token mounted.

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::engine::{Call, meta};
use crate::internal::{self, Address};

/// Where the token is mounted.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of the mounted token, in seconds: an hour and what clients that never reload need.
const EXPIRATION: i64 = 3607;
/// Mirror pods have no service account.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Sets the service account of a new pod, its image pull secrets and its token volume.
pub async fn mutate(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let name = meta::text(pod, "name").to_owned();
    let forbidden = |message: String| ApiError::forbidden(&call.group_resource(), &name, message);
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Ok(());
    }
    if pod["spec"]["serviceAccountName"].as_str().is_none_or(str::is_empty) {
        pod["spec"]["serviceAccountName"] = json!("default");
    }
    pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"].clone();
    let account_name = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default().to_owned();
    let namespace = call.info.namespace.as_str();
    let at = Address::new("", "serviceaccounts", namespace, &account_name);
    let account = internal::known(&call.state, at).await?;
    let account = account.ok_or_else(|| {
        forbidden(format!(
            "error looking up service account {namespace}/{account_name}: serviceaccount \"{account_name}\" not found"
        ))
    })?;
    if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
        && account["imagePullSecrets"].as_array().is_some_and(|list| !list.is_empty())
    {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    if wants_token(pod, &account) {
        mount_token(pod);
    }
    Ok(())
}

/// The pod's own word counts first, then the account's.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let own = pod["spec"]["automountServiceAccountToken"].as_bool();
    own.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true)
}

fn mount_token(pod: &mut Value) {
    let name = meta::generate_name("kube-api-access-");
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT});
            container["volumeMounts"] = mounts.into_iter().chain([mount]).collect();
            used = true;
        }
    }
    if !used {
        return;
    }
    let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    pod["spec"]["volumes"] = volumes.into_iter().chain([token_volume(&name)]).collect();
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": EXPIRATION, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_mounted_where_none_is() {
        let mut pod = json!({"spec": {"containers": [
            {"name": "a"},
            {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT}]},
        ]}});
        mount_token(&mut pod);
        assert_eq!(pod["spec"]["volumes"].as_array().map(Vec::len), Some(1));
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], MOUNT);
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"][0]["name"], "own");
        assert!(!wants_token(&json!({"spec": {"automountServiceAccountToken": false}}), &json!({})));
        assert!(!wants_token(&json!({"spec": {}}), &json!({"automountServiceAccountToken": false})));
    }
}
