//! Parameters of operations: the fields of the options kinds, and those that stand in paths.

use pintle_machinery::schema::text::META;
use pintle_machinery::schema::{Field, Schema, Type};

use super::descriptions::Descriptions;

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// `query` or `path`.
    pub place: &'static str,
    /// OpenAPI type.
    pub ty: &'static str,
    /// Name under which version 2 has it among its shared parameters, if it does.
    pub key: Option<&'static str>,
    /// What it is for.
    pub description: Option<String>,
}

/// Shared parameters of version 2 by options kind and field (upstream makes the names from the texts).
const KEYS: [(&str, &str, &str); 46] = [
    ("", "namespace", "namespace-vgWSWtn3"),
    ("", "path", "path-z6Ciiujn"),
    ("", "pretty", "pretty-tJGM1-ng"),
    ("CreateOptions", "fieldManager", "fieldManager-Qy4HdaTW"),
    ("DeleteOptions", "gracePeriodSeconds", "gracePeriodSeconds--K5HaBOS"),
    (
        "DeleteOptions",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
    ),
    ("DeleteOptions", "orphanDependents", "orphanDependents-uRB25kX5"),
    ("DeleteOptions", "propagationPolicy", "propagationPolicy-6jk3prlO"),
    ("ListOptions", "allowWatchBookmarks", "allowWatchBookmarks-HC2hJt-J"),
    ("ListOptions", "continue", "continue-QfD61s0i"),
    ("ListOptions", "fieldSelector", "fieldSelector-xIcQKXFG"),
    ("ListOptions", "labelSelector", "labelSelector-5Zw57w4C"),
    ("ListOptions", "limit", "limit-1NfNmdNH"),
    ("ListOptions", "resourceVersion", "resourceVersion-5WAnf1kx"),
    ("ListOptions", "resourceVersionMatch", "resourceVersionMatch-t8XhRHeC"),
    ("ListOptions", "sendInitialEvents", "sendInitialEvents-rLXlEK_k"),
    ("ListOptions", "shardSelector", "shardSelector-Kgyki_3_"),
    ("ListOptions", "timeoutSeconds", "timeoutSeconds-yvYezaOC"),
    ("ListOptions", "watch", "watch-XNNPZGbK"),
    ("NodeProxyOptions", "path", "path-rFDtV0x9"),
    ("PatchOptions", "fieldManager", "fieldManager-7c6nTn1T"),
    ("PatchOptions", "force", "force-tOGGb0Yi"),
    ("PodAttachOptions", "container", "container-_Q-EJ3nR"),
    ("PodAttachOptions", "stderr", "stderr-26jJhFUR"),
    ("PodAttachOptions", "stdin", "stdin-sEFnN3IS"),
    ("PodAttachOptions", "stdout", "stdout-005YMKE6"),
    ("PodAttachOptions", "tty", "tty-g7MlET_l"),
    ("PodExecOptions", "command", "command-Py3eQybp"),
    ("PodExecOptions", "container", "container-i5dOmRiM"),
    ("PodExecOptions", "stderr", "stderr-W_1TNlWc"),
    ("PodExecOptions", "stdin", "stdin-PSzNhyUC"),
    ("PodExecOptions", "stdout", "stdout--EZLRwV1"),
    ("PodExecOptions", "tty", "tty-s0flW37O"),
    ("PodLogOptions", "container", "container-1GeXxFDC"),
    ("PodLogOptions", "follow", "follow-9OIXh_2R"),
    ("PodLogOptions", "insecureSkipTLSVerifyBackend", "insecureSkipTLSVerifyBackend-gM00jVbe"),
    ("PodLogOptions", "limitBytes", "limitBytes-zwd1RXuc"),
    ("PodLogOptions", "previous", "previous-1jxDPu3y"),
    ("PodLogOptions", "sinceSeconds", "sinceSeconds-vE2NLdnP"),
    ("PodLogOptions", "stream", "stream-l-48cgXv"),
    ("PodLogOptions", "tailLines", "tailLines-9xQLWHMV"),
    ("PodLogOptions", "timestamps", "timestamps-c17fW1w_"),
    ("PodPortForwardOptions", "ports", "ports-91KROJmm"),
    ("PodProxyOptions", "path", "path-oPbzgLUj"),
    ("ServiceProxyOptions", "path", "path-QCf0eosM"),
    ("UpdateOptions", "fieldManager", "fieldManager-Qy4HdaTW"),
];

fn key(options: &str, name: &str) -> Option<&'static str> {
    KEYS.iter().find(|(kind, field, _)| *kind == options && *field == name).map(|(.., key)| *key)
}

/// What an options kind says of a query: its scalar fields.
pub fn of_options(schema: &Schema, descriptions: &Descriptions<'_>, kind: &str) -> Vec<Parameter> {
    let Some(ty) = schema.by_name(&format!("{META}.{kind}")).or_else(|| schema.kind("", "v1", kind)) else {
        return Vec::new();
    };
    let own = |field: &&Field| !matches!(field.json.as_str(), "kind" | "apiVersion");
    let parameters = ty.fields.iter().filter(own).filter_map(|field| {
        Some(Parameter {
            name: field.json.clone(),
            place: "query",
            ty: simple(&field.ty)?,
            key: key(&ty.name[ty.name.len() - kind.len()..], &field.json),
            description: descriptions.of_field(&ty.name, &field.json).map(str::to_owned),
        })
    });
    parameters.collect()
}

/// A parameter may come several times: a list's type is its items'. Times travel only in bodies.
fn simple(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Bool => "boolean",
        Type::Int32 | Type::Int64 => "integer",
        Type::String => "string",
        Type::List(item) => return simple(item),
        _ => return None,
    })
}

/// The parameters that a path has in braces.
pub fn of_path(path: &str, kind: &str) -> Vec<Parameter> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters = names.map(|name| Parameter {
        name: name.to_owned(),
        place: "path",
        ty: "string",
        key: key("", name),
        description: (name == "name").then(|| format!("name of the {kind}")),
    });
    parameters.collect()
}

/// Whether JSON is indented.
pub fn pretty() -> Parameter {
    Parameter { name: "pretty".to_owned(), place: "query", ty: "string", key: key("", "pretty"), description: None }
}
