//! The configurations, read once for each of their versions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use pintle_machinery::selector::label;
use pintle_serving::dial::Dialer;
use serde_json::Value;

use super::rules::Rule;
use crate::internal;
use crate::state::State;

/// Which hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They may change the object.
    Mutating,
    /// They only judge it.
    Validating,
}

/// One webhook.
#[derive(Debug)]
pub struct Hook {
    /// Its name, for messages.
    pub name: String,
    /// Where it is.
    pub client: Client,
    /// Requests that it is for.
    pub rules: Vec<Rule>,
    /// Requests by other versions of the same resource count, too.
    pub equivalent: bool,
    /// Objects in these namespaces.
    pub namespaces: label::Selector,
    /// Objects with these labels.
    pub objects: label::Selector,
    /// Expressions that all have to hold.
    pub conditions: Vec<(String, String)>,
    /// A failure to ask it lets requests pass.
    pub fail_open: bool,
    /// It does something beside its answer, and so can't be asked about a dry run.
    pub side_effects: bool,
    /// It has so long to answer.
    pub timeout: Duration,
    /// It is asked again when others changed the object after it.
    pub reinvoke: bool,
}

/// Where a webhook is.
#[derive(Debug)]
pub struct Client {
    /// A URL, or a service.
    pub place: Place,
    /// Authorities (PEM) that its certificate is checked against; none: those of the machine.
    pub ca: Vec<u8>,
    /// Made of the authorities when it is first asked.
    dialer: OnceLock<Dialer>,
}

/// The authorities that this machine trusts: who names none means those.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

impl Client {
    /// What connects to it; its certificate has to be for `host`.
    pub fn dialer(&self, host: &str) -> anyhow::Result<&Dialer> {
        if let Some(dialer) = self.dialer.get() {
            return Ok(dialer);
        }
        let system = self.ca.is_empty().then(|| std::fs::read(SYSTEM_CA).unwrap_or_default());
        let dialer = Dialer::new(None, Some(system.as_deref().unwrap_or(&self.ca)))?.named(host);
        Ok(self.dialer.get_or_init(|| dialer))
    }
}

/// A URL, or a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `https://…`
    Url(String),
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
        /// The path there, with its slash.
        path: String,
    },
}

/// All hooks as they were last read.
#[derive(Debug, Default)]
pub struct Configs {
    mutating: Mutex<Known>,
    validating: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Revision of the newest change, and how many there were: what the hooks were read from.
    of: (i64, usize),
    hooks: Vec<Arc<Hook>>,
}

impl Configs {
    /// The hooks of one kind, in the order in which they are asked.
    pub fn of(&self, state: &State, kind: Kind) -> Vec<Arc<Hook>> {
        let (resource, known) = match kind {
            Kind::Mutating => ("mutatingwebhookconfigurations", &self.mutating),
            Kind::Validating => ("validatingwebhookconfigurations", &self.validating),
        };
        let entries = internal::entries(state, super::EXEMPT, resource, "");
        if entries.is_empty() {
            return Vec::new();
        }
        let of = (entries.iter().map(|entry| entry.revision).max().unwrap_or(0), entries.len());
        let mut known = known.lock();
        if known.of != of {
            // Entries are in the order of their names.
            let hooks = entries.iter().flat_map(|entry| hooks(&entry.value())).map(Arc::new).collect();
            *known = Known { of, hooks };
        }
        known.hooks.clone()
    }
}

fn hooks(configuration: &Value) -> Vec<Hook> {
    configuration["webhooks"].as_array().into_iter().flatten().filter_map(hook).collect()
}

fn hook(hook: &Value) -> Option<Hook> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = hook["matchConditions"].as_array().into_iter().flatten();
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    Some(Hook {
        name: text(&hook["name"]),
        client: client(&hook["clientConfig"])?,
        rules: hook["rules"].as_array().into_iter().flatten().map(Rule::read).collect(),
        equivalent: hook["matchPolicy"] != "Exact",
        namespaces: label::Selector::from_object(hook.get("namespaceSelector")).ok()?,
        objects: label::Selector::from_object(hook.get("objectSelector")).ok()?,
        conditions: conditions.map(|one| (text(&one["name"]), text(&one["expression"]))).collect(),
        fail_open: hook["failurePolicy"] == "Ignore",
        side_effects: !matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
        timeout: Duration::from_secs(seconds.clamp(1, 30)),
        reinvoke: hook["reinvocationPolicy"] == "IfNeeded",
    })
}

fn client(config: &Value) -> Option<Client> {
    let service = &config["service"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let place = match config["url"].as_str() {
        Some(url) => Place::Url(url.to_owned()),
        None => Place::Service {
            namespace: text(&service["namespace"]),
            name: service["name"].as_str()?.to_owned(),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            path: service["path"].as_str().filter(|path| path.starts_with('/')).unwrap_or("/").to_owned(),
        },
    };
    let ca = config["caBundle"].as_str().and_then(|bundle| STANDARD.decode(bundle).ok()).unwrap_or_default();
    Some(Client { place, ca, dialer: OnceLock::new() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_are_read() {
        let service = json!({"namespace": "n", "name": "s", "path": "/p"});
        let hooks = hooks(&json!({"webhooks": [
            {"name": "a.b.c", "clientConfig": {"service": service, "caBundle": "YQ=="}, "sideEffects": "None",
             "failurePolicy": "Ignore", "timeoutSeconds": 3, "matchConditions": [{"name": "m", "expression": "true"}]},
            {"name": "d.e.f", "clientConfig": {"url": "https://x/"}, "sideEffects": "Some"},
        ]}));
        let place = Place::Service { namespace: "n".into(), name: "s".into(), port: 443, path: "/p".into() };
        assert_eq!((&hooks[0].client.place, hooks[0].client.ca.as_slice()), (&place, &b"a"[..]));
        assert_eq!(
            (hooks[0].fail_open, hooks[0].side_effects, hooks[0].timeout),
            (true, false, Duration::from_secs(3))
        );
        assert_eq!(hooks[0].conditions, [("m".into(), "true".into())]);
        assert_eq!(
            (hooks[1].fail_open, hooks[1].side_effects, hooks[1].timeout),
            (false, true, Duration::from_secs(10))
        );
    }
}
