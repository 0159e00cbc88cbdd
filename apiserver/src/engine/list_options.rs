//! The query parameters of list and watch: selectors, resource version, paging.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::selector::{field, label};
use pintle_machinery::status::{ApiError, GroupResource};
use pintle_store::Revision;
use serde::{Deserialize, Serialize};

use crate::cache::entry::Entry;
use crate::custom::{Custom, object};
use crate::http::query::Query;
use crate::resource::Resource;

/// Which objects are wanted.
#[derive(Debug, Clone)]
pub struct Selection {
    /// By label.
    pub labels: label::Selector,
    /// By field.
    pub fields: field::Selector,
    /// Fields that the served form names otherwise than the stored one: (served, stored).
    aliases: &'static [(&'static str, &'static str)],
    /// Other fields are looked for in the object itself.
    custom: Option<Arc<Custom>>,
}

impl Selection {
    /// All of them.
    pub fn everything() -> Self {
        Self {
            labels: label::Selector::everything(),
            fields: field::Selector::everything(),
            aliases: &[],
            custom: None,
        }
    }

    /// Parses both selectors; the fields must be ones that the resource offers.
    pub fn parse(query: &Query, resource: &Resource) -> Result<Self, ApiError> {
        let labels = match query.text("labelSelector") {
            Some(text) => label::Selector::parse(text).map_err(|error| ApiError::BadRequest(error.to_string()))?,
            None => label::Selector::everything(),
        };
        let fields = match query.text("fieldSelector") {
            Some(text) => field::Selector::parse(text).map_err(|error| ApiError::BadRequest(error.to_string()))?,
            None => field::Selector::everything(),
        };
        for term in fields.terms() {
            let rules = resource.rules;
            let offered = ["metadata.name", "metadata.namespace"].iter().chain(rules.fields);
            if resource.custom.as_ref().is_some_and(|custom| custom.fields.contains(&term.field)) {
                continue;
            }
            if !offered.chain(rules.field_aliases.iter().map(|(served, _)| served)).any(|field| *field == term.field) {
                return Err(unknown_field(&term.field, resource));
            }
        }
        Ok(Self { labels, fields, aliases: resource.rules.field_aliases, custom: resource.custom.clone() })
    }

    /// There is nothing to check.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The object is wanted.
    pub fn matches(&self, entry: &Entry) -> bool {
        (self.labels.is_everything() || self.labels.matches(&entry.labels))
            && (self.fields.is_everything()
                || self.fields.matches(|name| {
                    entry
                        .fields
                        .get(self.stored_field(name))
                        .map(str::to_owned)
                        .or_else(|| self.custom_field(entry, name))
                }))
    }

    fn custom_field(&self, entry: &Entry, name: &str) -> Option<String> {
        let custom = self.custom.as_ref()?;
        let mut object = entry.value();
        object::read(custom, &mut object);
        custom.field(&object, name)
    }

    fn stored_field<'a>(&self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(served, _)| *served == name).map_or(name, |(_, stored)| *stored)
    }
}

/// Kinds whose selectable fields upstream tells in its own words.
const OWN_WORDS: [(&str, &str); 2] = [
    ("Job", "field label \"{}\" not supported for Job"),
    ("ResourceSlice", "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}"),
];

fn unknown_field(name: &str, resource: &Resource) -> ApiError {
    let message = if let Some((_, words)) = OWN_WORDS.iter().find(|(kind, _)| *kind == resource.kind) {
        words.replace("{}", name)
    } else if resource.rules.fields.is_empty() && resource.rules.field_aliases.is_empty() {
        format!("\"{name}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {name}")
    };
    ApiError::BadRequest(message)
}

/// Which state of the collection is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest.
    Latest,
    /// Whatever is there.
    Any,
    /// This or a newer one.
    NotOlderThan(Revision),
    /// Exactly this one.
    Exact(Revision),
}

/// A list request.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// State.
    pub at: At,
    /// Most items.
    pub limit: Option<usize>,
    /// Where an earlier page stopped.
    pub page: Option<Token>,
    /// Filter.
    pub selection: Selection,
}

/// A `continue` token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Form of the token.
    v: String,
    /// Revision of the listing; -1: whatever is there.
    pub rv: Revision,
    /// The last key served, below the listing's prefix, followed by a zero.
    start: String,
}

impl Token {
    /// A token to go on after `key`, which lies below `prefix`.
    pub fn after(key: &str, prefix: &str, revision: Revision) -> Self {
        let start = format!("/{}\0", key.strip_prefix(prefix).unwrap_or(key));
        Self { v: "meta.k8s.io/v1".into(), rv: revision, start }
    }

    /// The text for clients.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let invalid =
            |why: &str| ApiError::BadRequest(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| invalid(&error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| match bytes.first() {
            Some(first) if !b"{[\"-0123456789tfn \t\r\n".contains(first) => invalid(&not_json(*first)),
            _ => invalid(&error.to_string()),
        })?;
        match token.v.as_str() {
            "meta.k8s.io/v1" if token.start.starts_with('/') && !token.start.contains("..") => Ok(token),
            "meta.k8s.io/v1" => Err(invalid("the start key is not valid")),
            _ => Err(invalid("server does not recognize this encoded version")),
        }
    }

    /// The key to go on after.
    pub fn after_key(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.start.trim_start_matches('/').trim_end_matches('\0'))
    }
}

/// What upstream says of bytes that begin no JSON.
fn not_json(first: u8) -> String {
    let shown = match char::from(first) {
        c if c.is_ascii_graphic() || !c.is_control() => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    };
    format!("invalid character '{shown}' looking for beginning of value")
}

impl ListOptions {
    /// Reads and checks the parameters of a list.
    pub fn parse(query: &Query, resource: &Resource) -> Result<Self, ApiError> {
        check_seconds(query)?;
        check_match(query, false)?;
        let limit = match query.text("limit") {
            Some(text) => text.parse::<i64>().map_err(|_| go_parse_error("ParseInt", text))?,
            None => 0,
        };
        let selection = Selection::parse(query, resource)?;
        let page = query.text("continue").map(Token::decode).transpose()?;
        if page.is_some() && query.text("resourceVersion").is_some_and(|text| text != "0") {
            return Err(ApiError::BadRequest("specifying resource version is not allowed when using continue".into()));
        }
        let revision =
            revision(query).map_err(|text| ApiError::BadRequest(format!("invalid resource version: {text}")))?;
        // What may be of any version comes as a whole.
        let whole = page.is_none() && revision == Some(0);
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0 && !whole);
        let at = match (revision, query.text("resourceVersionMatch")) {
            _ if page.as_ref().is_some_and(|page| page.rv < 0) => At::Latest,
            _ if let Some(page) = &page => At::Exact(page.rv),
            (None, _) => At::Latest,
            (Some(0), _) => At::Any,
            (Some(revision), Some("Exact")) => At::Exact(revision),
            (Some(revision), None) if limit.is_some() => At::Exact(revision),
            (Some(revision), _) => At::NotOlderThan(revision),
        };
        Ok(Self { at, limit, page, selection })
    }
}

/// A watch request.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Start after this; `None` and 0: with the present objects.
    pub revision: Option<Revision>,
    /// The present objects first, then a bookmark that says so.
    pub initial_events: bool,
    /// No present objects, even if no version is named.
    pub changes_only: bool,
    /// Bookmarks now and then.
    pub bookmarks: bool,
    /// Filter.
    pub selection: Selection,
}

impl WatchOptions {
    /// Reads and checks the parameters of a watch.
    pub fn parse(query: &Query, resource: &Resource) -> Result<Self, ApiError> {
        check_seconds(query)?;
        check_match(query, true)?;
        let revision = revision(query)
            .map_err(|text| ApiError::Other(Box::new(pintle_machinery::status::Status::failure(500, "", text))))?;
        Ok(Self {
            revision,
            initial_events: query.flag("sendInitialEvents"),
            changes_only: query.text("sendInitialEvents").is_some() && !query.flag("sendInitialEvents"),
            bookmarks: query.flag("allowWatchBookmarks"),
            selection: Selection::parse(query, resource)?,
        })
    }
}

/// A number that is none is told before all else.
fn check_seconds(query: &Query) -> Result<(), ApiError> {
    match query.text("timeoutSeconds").filter(|text| text.parse::<i64>().is_err()) {
        Some(text) => Err(go_parse_error("ParseInt", text)),
        None => Ok(()),
    }
}

/// `resourceVersionMatch` and `sendInitialEvents` are only allowed in some company.
fn check_match(query: &Query, watch: bool) -> Result<(), ApiError> {
    let mut errors = ErrorList::new();
    let path = Path::new("resourceVersionMatch");
    let (matching, initial) = (query.text("resourceVersionMatch"), query.text("sendInitialEvents"));
    if watch {
        match (initial, matching) {
            (Some(_), Some("NotOlderThan")) | (None, None) => {}
            (Some(_), None) => {
                errors.forbidden(&path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
            (Some(_), Some(other)) => {
                errors.forbidden(&path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
                errors.not_supported(&path, other, &["NotOlderThan"]);
            }
            (None, Some(_)) => {
                errors.forbidden(
                    &path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        }
        return finish(errors);
    }
    if let Some(matching) = matching {
        if query.text("resourceVersion").is_none() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if query.text("continue").is_some() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
        }
        match matching {
            "Exact" if query.text("resourceVersion") == Some("0") => {
                errors.forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            "Exact" | "NotOlderThan" => {}
            other => errors.not_supported(&path, other, &["Exact", "NotOlderThan", ""]),
        }
    }
    if initial.is_some() {
        errors.forbidden(&Path::new("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
    finish(errors)
}

fn finish(errors: ErrorList) -> Result<(), ApiError> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(&GroupResource::new("meta.k8s.io", "ListOptions"), "", errors)),
    }
}

/// The resource version asked for; the error is upstream's wording.
pub fn revision(query: &Query) -> Result<Option<Revision>, String> {
    match query.text("resourceVersion") {
        None => Ok(None),
        Some(text) => {
            parse_revision(text).map(Some).map_err(|why| format!("resourceVersion: Invalid value: \"{text}\": {why}"))
        }
    }
}

fn parse_revision(text: &str) -> Result<Revision, String> {
    let number: u64 = text.parse().map_err(|_| format!("strconv.ParseUint: parsing \"{text}\": invalid syntax"))?;
    Ok(Revision::try_from(number).unwrap_or(Revision::MAX))
}

fn go_parse_error(function: &str, text: &str) -> ApiError {
    ApiError::BadRequest(format!("strconv.{function}: parsing \"{text}\": invalid syntax"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_upstreams() {
        let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NDE0LCJzdGFydCI6Ii9rdWJlLW5vZGUtbGVhc2VcdTAwMDAifQ";
        let token = Token::decode(text).unwrap();
        assert_eq!(token, Token::after("/registry/namespaces/kube-node-lease", "/registry/namespaces/", 414));
        assert_eq!(token.encode(), text);
        assert_eq!(token.after_key("/registry/namespaces/"), "/registry/namespaces/kube-node-lease");
        assert!(Token::decode("abc").is_err());
    }
}
