//! What each server makes up itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::wire::{Answer, Request};

/// Metadata that nobody is told to change.
const COUNTED: [&str; 2] = ["resourceVersion", "managedFields"];

/// What each server makes up itself: upstream's value and ours. Requests are made of upstream's answers, and ours is told
/// its own.
#[derive(Debug, Default)]
pub struct Own(BTreeMap<String, String>);

impl Own {
    /// Notes where two answers that say the same have other words.
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
            (Value::String(left), Value::String(right))
                if left != right && !left.is_empty() && !right.is_empty() && left.parse::<Timestamp>().is_err() =>
            {
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
        let live = |uid: &str, address: &str, version: &str| {
            json!({"metadata": {"name": "p1", "uid": uid, "resourceVersion": version, "creationTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"clusterIP": address, "clusterIPs": [address]}})
        };
        let (theirs, mine) = (live("u-1", "10.97.1.2", "7"), live("u-2", "10.97.200.9", "8"));
        let mut own = Own::default();
        own.learn(&theirs, &mine);
        let patch = json!([{"op": "test", "path": "/spec/clusterIP", "value": "10.97.1.2"}, {"op": "add", "path": "/x", "value": "u-1"}]);
        let told = own.told(&Request::json("PATCH", "/p1", &patch));
        assert_eq!(
            String::from_utf8(told.body).unwrap(),
            patch.to_string().replace("10.97.1.2", "10.97.200.9").replace("u-1", "u-2")
        );
        let heard = own.heard(Answer { body: mine.to_string().into_bytes(), ..Answer::default() });
        assert_eq!(heard.json(), Some(live("u-1", "10.97.1.2", "8")));
    }
}
