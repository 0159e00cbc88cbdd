//! What each server makes up itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::scrub::pattern;
use super::wire::{Answer, Request};

/// Metadata that nobody is told to change.
const COUNTED: [&str; 2] = ["resourceVersion", "managedFields"];

/// What ids and the ends of generated names look like.
static MADE_UP: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|-[bcdfghjklmnpqrstvwxz2456789]{5}$"));

/// True for texts that can only differ because each server made up its own: ids, addresses, generated names. All else that
/// differs is a difference, and stays one.
fn made_up(upstream: &str, ours: &str) -> bool {
    let frame = |text: &str| MADE_UP.replace_all(text, "…").into_owned();
    let addresses = [upstream, ours].iter().all(|text| text.parse::<IpAddr>().is_ok());
    upstream != ours && (addresses || (MADE_UP.is_match(upstream) && frame(upstream) == frame(ours)))
}

/// What each server makes up itself: upstream's value and ours. Requests are made of upstream's answers, and ours is told
/// its own.
#[derive(Debug, Default)]
pub struct Own(BTreeMap<String, String>);

impl Own {
    /// Notes what two answers have of each server's making.
    pub fn learn(&mut self, upstream: &Value, ours: &Value) {
        match (upstream, ours) {
            (Value::Object(left), Value::Object(right)) => {
                for (name, value) in left.iter().filter(|(name, _)| !COUNTED.contains(&name.as_str())) {
                    right.get(name).into_iter().for_each(|other| self.learn(value, other));
                }
            }
            (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                left.iter().zip(right).for_each(|(value, other)| self.learn(value, other));
            }
            (Value::String(left), Value::String(right)) if made_up(left, right) => {
                self.0.insert(left.clone(), right.clone());
            }
            _ => {}
        }
    }

    /// A request as ours is to get it.
    pub fn told(&self, request: &Request) -> Request {
        self.0.iter().fold(request.clone(), |request, (upstream, ours)| request.replaced(upstream, ours))
    }

    /// Our answer, with upstream's values.
    pub fn heard(&self, mut answer: Answer) -> Answer {
        if let Ok(text) = std::str::from_utf8(&answer.body) {
            let text = self.0.iter().fold(text.to_owned(), |text, (upstream, ours)| text.replace(ours, upstream));
            answer.body = text.into_bytes();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_server_is_told_what_it_made_up_itself() {
        let (one, two) = ("2b1c3d4e-0000-4000-8000-000000000001", "2b1c3d4e-0000-4000-8000-000000000002");
        let live = |uid: &str, address: &str, version: &str| {
            json!({"metadata": {"name": "p1", "uid": uid, "resourceVersion": version, "creationTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"clusterIP": address, "clusterIPs": [address]}})
        };
        let (theirs, mine) = (live(one, "10.97.1.2", "7"), live(two, "10.97.200.9", "8"));
        let mut own = Own::default();
        own.learn(&theirs, &mine);
        let patch = json!([{"op": "test", "path": "/spec/clusterIP", "value": "10.97.1.2"}, {"op": "add", "path": "/x", "value": one}]);
        let told = own.told(&Request::json("PATCH", "/p1", &patch));
        assert_eq!(
            String::from_utf8(told.body).unwrap(),
            patch.to_string().replace("10.97.1.2", "10.97.200.9").replace(one, two)
        );
        let heard = own.heard(Answer { body: mine.to_string().into_bytes(), ..Answer::default() });
        assert_eq!(heard.json(), Some(live(one, "10.97.1.2", "8")));
    }

    #[test]
    fn what_is_said_otherwise_stays_a_difference() {
        let id = |last: char| format!("pvc-2b1c3d4e-0000-4000-8000-00000000000{last}");
        for (upstream, ours, expected) in [
            (id('1'), id('2'), true),
            ("web-x7k2p".into(), "web-bbbbb".into(), true),
            ("web-x7k2p".into(), "other-bbbbb".into(), false),
            ("IfNotPresent".into(), "Always".into(), false),
            ("10.0.0.1".into(), "fd00::1".into(), true),
            ("10.0.0.1".into(), "None".into(), false),
            ("a".into(), "a".into(), false),
        ] {
            assert_eq!(made_up(&upstream, &ours), expected, "{upstream} {ours}");
        }
    }
}
