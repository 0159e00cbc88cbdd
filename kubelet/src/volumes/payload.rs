//! What the files of configMap, secret, downwardAPI and projected volumes contain. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, PodCertificateProjection, Secret,
};

use super::atomic::File;
use crate::certificates::Credential;
use crate::container::field::{self, Addresses, Allocatable};
use crate::pods::spec;

/// Mode of files whose volume says nothing.
pub const DEFAULT_MODE: i32 = 0o644;

/// What the downward API draws on.
#[derive(Clone, Copy)]
pub struct Downward<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Addresses.
    pub addresses: &'a Addresses,
    /// The node's allocatable resources.
    pub allocatable: Allocatable,
}

/// Keys of an object as files: those that `items` picks, or all.
fn pick(
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    missing: impl Fn(&str) -> String,
) -> Result<Vec<File>, String> {
    let file = |path: &str, content: &[u8], mode: i32| File {
        path: PathBuf::from(path),
        content: content.to_vec(),
        mode: mode.unsigned_abs() & 0o777,
        owner: None,
    };
    let Some(items) = items.filter(|i| !i.is_empty()) else {
        return Ok(data.iter().map(|(k, v)| file(k, v, mode)).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(content) => files.push(file(&item.path, content, item.mode.unwrap_or(mode))),
            None if optional => {}
            None => return Err(missing(&item.key)),
        }
    }
    Ok(files)
}

/// Files of a ConfigMap.
pub fn config_map(
    name: &str,
    map: Option<&ConfigMap>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Vec<File>, String> {
    let Some(map) = map else {
        return if optional { Ok(Vec::new()) } else { Err(format!("configmap \"{name}\" not found")) };
    };
    let text = map.data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, v): (&String, &ByteString)| (k.as_str(), v.0.as_slice()));
    let missing = |key: &str| format!("configmap references non-existent config key: {key}");
    pick(&text.chain(binary).collect(), items, mode, optional, missing)
}

/// Files of a Secret.
pub fn secret(
    name: &str,
    secret: Option<&Secret>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Vec<File>, String> {
    let Some(secret) = secret else {
        return if optional { Ok(Vec::new()) } else { Err(format!("secret \"{name}\" not found")) };
    };
    let data = secret.data.iter().flatten().map(|(k, v)| (k.as_str(), v.0.as_slice()));
    let missing = |key: &str| format!("references non-existent secret key: {key}");
    pick(&data.collect(), items, mode, optional, missing)
}

/// Files of the downward API.
pub fn downward(items: &[DownwardAPIVolumeFile], mode: i32, from: Downward<'_>) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field::pod_field(from.pod, &field.field_path, from.addresses)?,
            (None, Some(selector)) => {
                let name = selector.container_name.as_deref().unwrap_or_default();
                let (_, container): (_, std::borrow::Cow<'_, Container>) =
                    spec::container(from.pod, name).ok_or_else(|| format!("container {name} not found"))?;
                field::resource_field(&container, selector, from.allocatable)?
            }
            (None, None) => continue,
        };
        files.push(File {
            path: PathBuf::from(&item.path),
            content: content.into_bytes(),
            mode: item.mode.unwrap_or(mode).unsigned_abs() & 0o777,
            owner: None,
        });
    }
    Ok(files)
}

/// The user that all containers of the pod run as, if it is one and known: a token file can then be its alone.
pub fn common_user(pod: &Pod) -> Option<u32> {
    let of_pod = spec::spec(pod).security_context.as_ref().and_then(|c| c.run_as_user);
    let mut users = spec::containers(pod)
        .into_iter()
        .map(|(_, c)| c.security_context.as_ref().and_then(|s| s.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|u| u == Some(first)).then(|| u32::try_from(first).ok())?
}

/// The file of a secret that is the pod's own: a service-account token, a private key.
pub fn private(pod: &Pod, path: &str, text: &str, mode: i32) -> File {
    let has_group = spec::spec(pod).security_context.as_ref().is_some_and(|c| c.fs_group.is_some());
    let owner = common_user(pod).filter(|_| !has_group);
    let mode = if owner.is_some() || has_group { 0o600 } else { mode.unsigned_abs() & 0o777 };
    File { path: PathBuf::from(path), content: text.as_bytes().to_vec(), mode, owner }
}

/// The files of a pod certificate.
pub fn certificate(pod: &Pod, source: &PodCertificateProjection, credential: &Credential, mode: i32) -> Vec<File> {
    let Credential { key, chain, .. } = credential;
    let wanted = [
        (&source.credential_bundle_path, format!("{key}{chain}")),
        (&source.key_path, key.clone()),
        (&source.certificate_chain_path, chain.clone()),
    ];
    let named = wanted.into_iter().filter_map(|(path, text)| Some((path.as_deref().filter(|p| !p.is_empty())?, text)));
    named.map(|(path, text)| private(pod, path, &text, mode)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_as_files() {
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}})).unwrap();
        let all = config_map("m", Some(&map), None, 0o644, false).unwrap();
        assert_eq!(all.iter().map(|f| f.path.to_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let items = |key: &str| {
            vec![KeyToPath { key: key.into(), path: "x/y".into(), mode: Some(0o400), ..KeyToPath::default() }]
        };
        let one = config_map("m", Some(&map), Some(&items("b")), 0o644, false).unwrap();
        assert_eq!(
            (one[0].path.to_str(), one[0].mode, one[0].content.as_slice()),
            (Some("x/y"), 0o400, b"2".as_slice())
        );
        let missing = config_map("m", Some(&map), Some(&items("z")), 0o644, false);
        assert_eq!(missing.unwrap_err(), "configmap references non-existent config key: z");
        assert_eq!(config_map("m", None, None, 0o644, false).unwrap_err(), "configmap \"m\" not found");
        assert!(config_map("m", None, None, 0o644, true).unwrap().is_empty());
        assert!(config_map("m", Some(&map), Some(&items("z")), 0o644, true).unwrap().is_empty());
    }

    #[test]
    fn a_token_is_its_users_alone() {
        let pod = |spec| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let plain = pod(json!({"containers": [{"name": "a"}]}));
        let user = pod(json!({"securityContext": {"runAsUser": 7}, "containers": [{"name": "a"}]}));
        let group = pod(json!({"securityContext": {"fsGroup": 9}, "containers": [{"name": "a"}]}));
        let of = |p: &Pod| {
            let f = private(p, "token", "t", 0o644);
            (f.mode, f.owner)
        };
        assert_eq!(of(&plain), (0o644, None));
        assert_eq!(of(&user), (0o600, Some(7)));
        assert_eq!(of(&group), (0o600, None));
    }
}
