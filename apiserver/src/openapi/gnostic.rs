//! The messages of OpenAPI documents in protobuf, versions 2 and 3, as tables: a JSON key, its field's number and what it holds.
//! Only what documents of this server have is here.

use serde_json::Value;

/// What a field holds.
pub enum Shape {
    /// Text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A number of 64 bits, floating point.
    Number,
    /// An `Any`: the value as YAML in field 2.
    Any,
    /// A message by keys; unknown keys are extensions, in the field of that number.
    Message(&'static [(&'static str, u32, &'static Shape)], u32),
    /// Entries: a message of name and value for each, in the field of that number.
    Entries(u32, &'static Shape),
    /// One field for each item.
    List(&'static Shape),
    /// A message whose field of that number holds the value, or its items.
    Inside(u32, &'static Shape),
    /// One of several messages, by the value.
    Choice(fn(&Value) -> (u32, &'static Shape)),
}

use Shape::{Any, Bool, Choice, Entries, Inside, List, Message, Number, Text};

static TEXT: Shape = Text;
static BOOL: Shape = Bool;
static TEXTS: Shape = List(&TEXT);
static ANYS: Shape = List(&Any);
static REFERENCE: Shape = Message(&[("$ref", 1, &TEXT), ("description", 3, &TEXT)], 0);

/// `openapi.v2.Document`
pub static DOCUMENT_V2: Shape = Message(
    &[
        ("swagger", 1, &TEXT),
        ("info", 2, &INFO_V2),
        ("paths", 8, &PATHS_V2),
        ("definitions", 9, &SCHEMAS_V2),
        ("parameters", 10, &SHARED_V2),
        ("security", 12, &REQUIREMENTS),
        ("securityDefinitions", 13, &DEFINITIONS),
    ],
    16,
);
static INFO_V2: Shape = Message(&[("title", 1, &TEXT), ("version", 2, &TEXT)], 7);
static PATHS_V2: Shape = Entries(2, &ITEM_V2);
static ITEM_V2: Shape = Message(
    &[
        ("get", 2, &OPERATION_V2),
        ("put", 3, &OPERATION_V2),
        ("post", 4, &OPERATION_V2),
        ("delete", 5, &OPERATION_V2),
        ("options", 6, &OPERATION_V2),
        ("head", 7, &OPERATION_V2),
        ("patch", 8, &OPERATION_V2),
        ("parameters", 9, &PARAMETERS_V2),
    ],
    10,
);
static OPERATION_V2: Shape = Message(
    &[
        ("tags", 1, &TEXTS),
        ("description", 3, &TEXT),
        ("operationId", 5, &TEXT),
        ("produces", 6, &TEXTS),
        ("consumes", 7, &TEXTS),
        ("parameters", 8, &PARAMETERS_V2),
        ("responses", 9, &RESPONSES_V2),
        ("schemes", 10, &TEXTS),
    ],
    13,
);
static PARAMETERS_V2: Shape = List(&PARAMETER_OR_REFERENCE_V2);
static PARAMETER_OR_REFERENCE_V2: Shape =
    Choice(|value| if refers(value) { (2, &REFERENCE) } else { (1, &PARAMETER_V2) });
static PARAMETER_V2: Shape = Choice(|value| if value["in"] == "body" { (1, &BODY_V2) } else { (2, &NO_BODY_V2) });
static BODY_V2: Shape = Message(
    &[
        ("description", 1, &TEXT),
        ("name", 2, &TEXT),
        ("in", 3, &TEXT),
        ("required", 4, &BOOL),
        ("schema", 5, &SCHEMA_V2),
    ],
    6,
);
static NO_BODY_V2: Shape = Choice(|value| if value["in"] == "query" { (3, &QUERY_V2) } else { (4, &IN_PATH_V2) });
static QUERY_V2: Shape = Message(
    &[
        ("required", 1, &BOOL),
        ("in", 2, &TEXT),
        ("description", 3, &TEXT),
        ("name", 4, &TEXT),
        ("type", 6, &TEXT),
        ("uniqueItems", 20, &BOOL),
    ],
    23,
);
static IN_PATH_V2: Shape = Message(
    &[
        ("required", 1, &BOOL),
        ("in", 2, &TEXT),
        ("description", 3, &TEXT),
        ("name", 4, &TEXT),
        ("type", 5, &TEXT),
        ("uniqueItems", 19, &BOOL),
    ],
    22,
);
static SHARED_V2: Shape = Entries(1, &PARAMETER_V2);
static RESPONSES_V2: Shape = Entries(1, &RESPONSE_CHOICE_V2);
static RESPONSE_CHOICE_V2: Shape = Inside(1, &RESPONSE_V2);
static RESPONSE_V2: Shape = Message(&[("description", 1, &TEXT), ("schema", 2, &SCHEMA_ITEM_V2)], 5);
static SCHEMA_ITEM_V2: Shape = Inside(1, &SCHEMA_V2);
static SCHEMAS_V2: Shape = Entries(1, &SCHEMA_V2);
static SCHEMA_V2: Shape = Message(
    &[
        ("$ref", 1, &TEXT),
        ("format", 2, &TEXT),
        ("description", 4, &TEXT),
        ("default", 5, &Any),
        ("required", 19, &TEXTS),
        ("enum", 20, &ANYS),
        ("additionalProperties", 21, &SCHEMA_ITEM_V2),
        ("type", 22, &TYPE_V2),
        ("items", 23, &SCHEMA_ITEM_V2),
        ("properties", 25, &SCHEMAS_V2),
    ],
    31,
);
static TYPE_V2: Shape = Inside(1, &TEXT);
static REQUIREMENTS: Shape = List(&REQUIREMENT);
static REQUIREMENT: Shape = Entries(1, &SCOPES);
static SCOPES: Shape = Inside(1, &TEXTS);
static DEFINITIONS: Shape = Entries(1, &DEFINITION);
static DEFINITION: Shape = Inside(2, &API_KEY);
static API_KEY: Shape =
    Message(&[("type", 1, &TEXT), ("name", 2, &TEXT), ("in", 3, &TEXT), ("description", 4, &TEXT)], 5);

/// `openapi.v3.Document`
pub static DOCUMENT_V3: Shape = Message(
    &[("openapi", 1, &TEXT), ("info", 2, &INFO_V3), ("paths", 4, &PATHS_V3), ("components", 5, &COMPONENTS)],
    9,
);
static INFO_V3: Shape = Message(&[("title", 1, &TEXT), ("version", 6, &TEXT)], 7);
static PATHS_V3: Shape = Entries(1, &ITEM_V3);
static ITEM_V3: Shape = Message(
    &[
        ("get", 4, &OPERATION_V3),
        ("put", 5, &OPERATION_V3),
        ("post", 6, &OPERATION_V3),
        ("delete", 7, &OPERATION_V3),
        ("options", 8, &OPERATION_V3),
        ("head", 9, &OPERATION_V3),
        ("patch", 10, &OPERATION_V3),
        ("parameters", 13, &PARAMETERS_V3),
    ],
    14,
);
static OPERATION_V3: Shape = Message(
    &[
        ("tags", 1, &TEXTS),
        ("description", 3, &TEXT),
        ("operationId", 5, &TEXT),
        ("parameters", 6, &PARAMETERS_V3),
        ("requestBody", 7, &BODY_CHOICE_V3),
        ("responses", 8, &RESPONSES_V3),
    ],
    13,
);
static PARAMETERS_V3: Shape = List(&PARAMETER_CHOICE_V3);
static PARAMETER_CHOICE_V3: Shape = Inside(1, &PARAMETER_V3);
static PARAMETER_V3: Shape = Message(
    &[
        ("name", 1, &TEXT),
        ("in", 2, &TEXT),
        ("description", 3, &TEXT),
        ("required", 4, &BOOL),
        ("schema", 10, &SCHEMA_CHOICE_V3),
    ],
    14,
);
static BODY_CHOICE_V3: Shape = Inside(1, &BODY_V3);
static BODY_V3: Shape = Message(&[("description", 1, &TEXT), ("content", 2, &CONTENT), ("required", 3, &BOOL)], 4);
static CONTENT: Shape = Entries(1, &MEDIA_TYPE);
static MEDIA_TYPE: Shape = Message(&[("schema", 1, &SCHEMA_CHOICE_V3)], 5);
static RESPONSES_V3: Shape = Entries(2, &RESPONSE_CHOICE_V3);
static RESPONSE_CHOICE_V3: Shape = Inside(1, &RESPONSE_V3);
static RESPONSE_V3: Shape = Message(&[("description", 1, &TEXT), ("content", 3, &CONTENT)], 5);
static COMPONENTS: Shape = Message(&[("schemas", 1, &SCHEMAS_V3), ("securitySchemes", 7, &SCHEMES)], 10);
static SCHEMAS_V3: Shape = Entries(1, &SCHEMA_CHOICE_V3);
static SCHEMA_CHOICE_V3: Shape = Choice(|value| if refers(value) { (2, &REFERENCE) } else { (1, &SCHEMA_V3) });
static SCHEMA_LIST_V3: Shape = List(&SCHEMA_CHOICE_V3);
static SCHEMA_V3: Shape = Message(
    &[
        ("uniqueItems", 20, &BOOL),
        ("required", 23, &TEXTS),
        ("enum", 24, &ANYS),
        ("type", 25, &TEXT),
        ("allOf", 26, &SCHEMA_LIST_V3),
        ("oneOf", 27, &SCHEMA_LIST_V3),
        ("items", 30, &ITEMS_V3),
        ("properties", 31, &SCHEMAS_V3),
        ("additionalProperties", 32, &ITEMS_V3),
        ("default", 33, &DEFAULT),
        ("description", 34, &TEXT),
        ("format", 35, &TEXT),
    ],
    36,
);
static ITEMS_V3: Shape = Inside(1, &SCHEMA_CHOICE_V3);
/// A scalar; objects and lists can't be told.
static DEFAULT: Shape = Choice(|value| match value {
    Value::Number(_) => (1, &NUMBER),
    Value::Bool(_) => (2, &BOOL),
    Value::String(_) => (3, &TEXT),
    _ => (0, &TEXT),
});
static NUMBER: Shape = Number;
static SCHEMES: Shape = Entries(1, &SCHEME_CHOICE);
static SCHEME_CHOICE: Shape = Inside(1, &SCHEME);
static SCHEME: Shape =
    Message(&[("type", 1, &TEXT), ("description", 2, &TEXT), ("name", 3, &TEXT), ("in", 4, &TEXT)], 9);

/// It is a reference to something and nothing else.
fn refers(value: &Value) -> bool {
    value.get("$ref").is_some()
}
