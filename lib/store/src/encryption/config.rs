//! The file: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`.

use std::time::Duration;

use base64::Engine;
use serde::Deserialize;

use super::ciphers::{Algorithm, Cipher};
use crate::duration;
use crate::error::{Error, Result};

const GROUP: &str = "apiserver.config.k8s.io/";
const KIND: &str = "EncryptionConfiguration";
/// Time limit of KMS calls unless the file has another.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// The providers of some resources, in the order in which they are tried on reading; the first one writes.
pub(super) struct Section {
    pub resources: Vec<String>,
    pub providers: Vec<Provider>,
}

/// What turns values into stored values.
pub(super) enum Provider {
    Identity,
    /// Keys with their names; the first one writes.
    Keys(Algorithm, Vec<(String, Cipher)>),
    Kms {
        name: String,
        endpoint: String,
        timeout: Duration,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    kind: String,
    api_version: String,
    #[serde(default)]
    resources: Vec<FileSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSection {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<FileProvider>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileProvider {
    identity: Option<Nothing>,
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    kms: Option<Kms>,
}

#[derive(Deserialize)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kms {
    #[serde(default)]
    api_version: String,
    name: String,
    endpoint: String,
    timeout: Option<String>,
    #[serde(rename = "cachesize")]
    _cache_size: Option<i64>,
}

/// Reads a file's text (YAML or JSON).
pub(super) fn parse(text: &str) -> Result<Vec<Section>> {
    // The parser's message may quote the text, which has secrets in it: only the place is told.
    let file: File = serde_yaml_ng::from_str(text).map_err(|error| match error.location() {
        Some(at) => bad(format!("line {}: not an {KIND}", at.line())),
        None => bad(format!("not an {KIND}")),
    })?;
    if file.kind != KIND || !file.api_version.starts_with(GROUP) {
        return Err(bad(format!("want kind {KIND} of {GROUP}v1")));
    }
    file.resources.into_iter().map(section).collect()
}

fn section(section: FileSection) -> Result<Section> {
    let FileSection { resources, providers } = section;
    if resources.is_empty() || providers.is_empty() {
        return Err(bad("each section needs resources and providers".into()));
    }
    let providers: Result<Vec<Provider>> = providers.into_iter().map(provider).collect();
    Ok(Section { resources, providers: providers? })
}

fn provider(file: FileProvider) -> Result<Provider> {
    let FileProvider { identity, aescbc, aesgcm, secretbox, kms } = file;
    let with_keys = [(Algorithm::AesCbc, aescbc), (Algorithm::AesGcm, aesgcm), (Algorithm::Secretbox, secretbox)];
    let mut found: Vec<Provider> = Vec::new();
    found.extend(identity.map(|_| Provider::Identity));
    for (algorithm, file) in with_keys {
        if let Some(file) = file {
            found.push(Provider::Keys(algorithm, keys(algorithm, file)?));
        }
    }
    if let Some(file) = kms {
        if file.api_version != "v2" {
            return Err(bad(format!("kms {}: only apiVersion v2 is supported", file.name)));
        }
        let timeout = match &file.timeout {
            Some(text) => duration::parse(text).ok_or_else(|| bad(format!("kms {}: bad timeout", file.name)))?,
            None => KMS_TIMEOUT,
        };
        found.push(Provider::Kms { name: file.name, endpoint: file.endpoint, timeout });
    }
    match (found.pop(), found.is_empty()) {
        (Some(provider), true) => Ok(provider),
        _ => Err(bad("each provider is one of identity, aescbc, aesgcm, secretbox, kms".into())),
    }
}

fn keys(algorithm: Algorithm, file: Keys) -> Result<Vec<(String, Cipher)>> {
    if file.keys.is_empty() {
        return Err(bad(format!("{} has no keys", algorithm.name())));
    }
    let key = |key: Key| {
        let context = |why: &str| bad(format!("{} key {:?}: {why}", algorithm.name(), key.name));
        let secret = base64::engine::general_purpose::STANDARD.decode(key.secret.trim());
        let secret = secret.map_err(|_| context("the secret is not base64"))?;
        let cipher = Cipher::new(algorithm, &secret).map_err(|error| context(&error.to_string()))?;
        Ok((key.name, cipher))
    };
    file.keys.into_iter().map(key).collect()
}

fn bad(why: String) -> Error {
    Error::Config(format!("encryption configuration: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    fn file(providers: &str) -> String {
        format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
             - resources: [secrets]\n  providers: {providers}\n"
        )
    }

    #[test]
    fn providers_are_read_in_order() {
        let text = file(&format!(
            "[{{aescbc: {{keys: [{{name: k1, secret: {SECRET}}}]}}}}, {{secretbox: {{keys: [{{name: k2, secret: \
             {SECRET}}}]}}}}, {{kms: {{apiVersion: v2, name: n, endpoint: 'unix:///x', timeout: 250ms}}}}, \
             {{identity: {{}}}}]"
        ));
        let sections = parse(&text).expect("valid");
        let names: Vec<_> = sections[0]
            .providers
            .iter()
            .map(|provider| match provider {
                Provider::Identity => "identity".to_owned(),
                Provider::Keys(algorithm, keys) => format!("{} {}", algorithm.name(), keys[0].0),
                Provider::Kms { name, endpoint, timeout } => format!("{name} {endpoint} {timeout:?}"),
            })
            .collect();
        assert_eq!(names, ["aescbc k1", "secretbox k2", "n unix:///x 250ms", "identity"]);
        assert_eq!(sections[0].resources, ["secrets"]);
    }

    #[test]
    fn mistakes_are_told_without_the_secrets() {
        for (providers, part) in [
            ("[]", "needs resources and providers"),
            ("[{}]", "each provider is one of"),
            ("[{identity: {}, aescbc: {keys: []}}]", "aescbc has no keys"),
            ("[{aescbc: {keys: [{name: k, secret: hunter2}]}}]", "not base64"),
            ("[{aescbc: {keys: [{name: k, secret: aHVudGVyMg==}]}}]", "16, 24 or 32 bytes"),
            ("[{kms: {name: n, endpoint: x}}]", "only apiVersion v2"),
            ("[{aescbc: {secret: hunter2}}]", "line "),
            ("[{rot13: {}}]", "not an EncryptionConfiguration"),
        ] {
            let Err(error) = parse(&file(providers)) else { panic!("{providers} is taken") };
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("hunter2") && !text.contains("aHV"), "{providers}: {text}");
        }
        assert!(parse("kind: Pod\napiVersion: v1\n").is_err());
    }
}
