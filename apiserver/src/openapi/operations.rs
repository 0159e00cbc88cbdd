//! The verbs as OpenAPI tells them: a table row each.

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing.
    Nothing,
    /// An object of the operation's kind.
    Object,
    /// DeleteOptions, if anything.
    DeleteOptions,
    /// A patch.
    Patch,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// An object of the operation's kind.
    Object,
    /// A list of such objects.
    List,
    /// The object, or a Status: as the resource has it.
    Deleted,
    /// A Status.
    Status,
    /// Events of a watch.
    Events,
    /// What the other side of the connection says.
    Text,
}

/// One verb.
#[derive(Debug)]
pub struct Verb {
    /// As discovery names it.
    pub name: &'static str,
    /// HTTP method, lower case.
    pub method: &'static str,
    /// `x-kubernetes-action`.
    pub action: &'static str,
    /// First word of the operation's id.
    pub id: &'static str,
    /// What it does: `{one}` is `a Pod` or `status of a Pod`, `{the}` is `the specified Pod` or `status of it`, `{kind}` is `Pod`.
    pub phrase: &'static str,
    /// Kinds whose fields are its parameters.
    pub options: &'static [&'static str],
    /// Of those fields, the ones that are none.
    pub without: &'static [&'static str],
    /// What is sent.
    pub sent: Sent,
    /// What is answered.
    pub answered: Answered,
    /// Status codes of success.
    pub codes: &'static [(&'static str, &'static str)],
    /// Media types that are taken.
    pub consumes: &'static [&'static str],
    /// Media types that are given.
    pub produces: &'static [&'static str],
}

/// Any media type.
pub const ANY: &[&str] = &["*/*"];
/// What objects are written in.
pub const OBJECTS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const LOGS: &[&str] = &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// 200.
pub const OK: &[(&str, &str)] = &[("200", "OK")];
const OK_OR_CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
const OK_OR_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];
const CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];

const GET: Verb = Verb {
    name: "get",
    method: "get",
    action: "get",
    id: "read",
    phrase: "read {the}",
    options: &[],
    without: &[],
    sent: Sent::Nothing,
    answered: Answered::Object,
    codes: OK,
    consumes: ANY,
    produces: OBJECTS,
};

/// What is done with a collection.
pub const COLLECTION: [Verb; 3] = [
    LIST,
    Verb {
        name: "create",
        method: "post",
        action: "post",
        id: "create",
        phrase: "create {one}",
        options: &["CreateOptions"],
        sent: Sent::Object,
        codes: CREATED,
        ..GET
    },
    Verb {
        name: "deletecollection",
        method: "delete",
        action: "deletecollection",
        id: "delete",
        phrase: "delete collection of {kind}",
        options: &["ListOptions", "DeleteOptions"],
        without: &["watch", "allowWatchBookmarks"],
        sent: Sent::DeleteOptions,
        answered: Answered::Status,
        ..GET
    },
];

/// The list verb alone: what can be done with the objects of all namespaces.
pub const LIST: Verb = Verb {
    name: "list",
    action: "list",
    id: "list",
    phrase: "list or watch objects of kind {kind}",
    options: &["ListOptions"],
    answered: Answered::List,
    produces: STREAMS,
    ..GET
};

/// What is done with one object or its subresource.
pub const OBJECT: [Verb; 4] = [
    GET,
    Verb {
        name: "update",
        method: "put",
        action: "put",
        id: "replace",
        phrase: "replace {the}",
        options: &["UpdateOptions"],
        sent: Sent::Object,
        codes: OK_OR_CREATED,
        ..GET
    },
    Verb {
        name: "patch",
        method: "patch",
        action: "patch",
        id: "patch",
        phrase: "partially update {the}",
        options: &["PatchOptions"],
        sent: Sent::Patch,
        codes: OK_OR_CREATED,
        consumes: PATCHES,
        ..GET
    },
    Verb {
        name: "delete",
        method: "delete",
        action: "delete",
        id: "delete",
        phrase: "delete {one}",
        options: &["DeleteOptions"],
        sent: Sent::DeleteOptions,
        answered: Answered::Deleted,
        codes: OK_OR_ACCEPTED,
        ..GET
    },
];

/// The old way to watch a collection.
pub const WATCH_LIST: Verb = Verb {
    name: "watch",
    action: "watchlist",
    id: "watch",
    phrase: "watch individual changes to a list of {kind}. \
             deprecated: use the 'watch' parameter with a list operation instead.",
    answered: Answered::Events,
    ..LIST
};

/// The old way to watch one object.
pub const WATCH: Verb = Verb {
    action: "watch",
    phrase: "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation \
             instead, filtered to a single item with the 'fieldSelector' parameter.",
    ..WATCH_LIST
};

/// A container's log.
pub const LOG: Verb = Verb { options: &["PodLogOptions"], answered: Answered::Text, produces: LOGS, ..GET };

/// A connection; its options are those of the kind that it is of.
pub const CONNECT: Verb = Verb { action: "connect", id: "connect", answered: Answered::Text, produces: ANY, ..GET };

/// The methods of connections by the verb that discovery shows: a proxy, which takes `update`, takes the last two as well.
pub const CONNECT_METHODS: [(&str, &str); 7] = [
    ("get", "get"),
    ("create", "post"),
    ("update", "put"),
    ("delete", "delete"),
    ("patch", "patch"),
    ("update", "options"),
    ("update", "head"),
];
