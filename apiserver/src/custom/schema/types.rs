//! A schema's types as field ownership and apply know them.

use pintle_machinery::schema::{Builder, Field, Gvk, ListKind, MapKind, Schema, StructId, Type};

use super::{List, METADATA, Node};

/// The types of a kind: its fields by the schema, its metadata as in every kind. Without a schema everything is kept and
/// every field is owned on its own.
pub fn compile(kind: &Gvk, node: &Node, builtin: &Schema) -> Schema {
    let mut builder = Builder::default();
    let root = builder.reserve(&format!("{}.{}.{}", kind.group, kind.version, kind.kind), kind.kind.clone());
    builder.kind(root, kind.clone());
    for name in ["apiVersion", "kind"] {
        builder.field(root, Field { json: name.into(), omit_empty: true, ..Field::of(Type::String) });
    }
    let metadata = builtin.by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    if let Some(metadata) = metadata {
        let id = builder.copy(builtin, metadata);
        builder.field(root, Field { json: "metadata".into(), ..Field::of(Type::Struct(id)) });
    }
    fields(&mut builder, root, node);
    builder.finish()
}

fn fields(builder: &mut Builder, id: StructId, node: &Node) {
    for (name, node) in node.properties.iter().filter(|(name, _)| !METADATA.contains(&name.as_str())) {
        let field = field(builder, name, node);
        builder.field(id, field);
    }
    if node.preserve {
        builder.preserve_unknown(id);
    }
    if node.atomic {
        builder.map_kind(id, MapKind::Atomic);
    }
}

fn field(builder: &mut Builder, name: &str, node: &Node) -> Field {
    Field {
        json: name.to_owned(),
        list: match &node.list {
            List::Atomic => ListKind::Atomic,
            List::Set => ListKind::Set,
            List::Map(keys) => ListKind::Map(keys.clone()),
        },
        map: if node.atomic { MapKind::Atomic } else { MapKind::Granular },
        default: node.default.clone(),
        pointer: true,
        omit_empty: true,
        ..Field::of(ty(builder, node))
    }
}

fn ty(builder: &mut Builder, node: &Node) -> Type {
    if node.int_or_string {
        return Type::Any;
    }
    let item = |builder: &mut Builder, node: &Option<Box<Node>>| {
        Box::new(node.as_deref().map_or(Type::Free, |node| ty(builder, node)))
    };
    match node.ty.as_deref() {
        Some("boolean") => Type::Bool,
        Some("integer" | "number") => Type::Double,
        Some("string") => Type::String,
        Some("array") => Type::List(item(builder, &node.items)),
        Some("object") if node.additional.is_some() && node.properties.is_empty() => {
            Type::Map(item(builder, &node.additional))
        }
        Some("object") if !node.properties.is_empty() || !node.preserve => {
            let id = builder.reserve("", String::new());
            fields(builder, id, node);
            Type::Struct(id)
        }
        _ => Type::Free,
    }
}
