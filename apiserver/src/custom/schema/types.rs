//! A schema's types as field ownership and apply know them.

use pintle_machinery::schema::{Builder, Field, Gvk, ListKind, MapKind, Schema, StructId, Type};

use super::{List, METADATA, Node};

/// The types of a kind: its fields by the schema, its metadata as in every kind. Without a schema everything is kept and
/// every field is owned on its own.
pub fn compile(kind: &Gvk, node: &Node, builtin: &Schema) -> Schema {
    let mut builder = Builder::default();
    let root = builder.reserve(&format!("{}.{}.{}", kind.group, kind.version, kind.kind), kind.kind.clone());
    builder.kind(root, kind.clone());
    let metadata = builtin.by_name(OBJECT_META).map(|metadata| builder.copy(builtin, metadata));
    let mut compiler = Compiler { builder, metadata };
    compiler.own(root);
    compiler.fields(root, node, true);
    compiler.builder.finish()
}

/// The type of all objects' metadata.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

struct Compiler {
    builder: Builder,
    metadata: Option<StructId>,
}

impl Compiler {
    /// What an object has, whatever its schema says.
    fn own(&mut self, id: StructId) {
        for name in ["kind", "apiVersion"] {
            self.builder.field(id, Field { json: name.into(), omit_empty: true, ..Field::of(Type::String) });
        }
        if let Some(metadata) = self.metadata {
            self.builder.field(id, Field { json: "metadata".into(), ..Field::of(Type::Struct(metadata)) });
        }
    }

    fn fields(&mut self, id: StructId, node: &Node, embeds: bool) {
        for (name, node) in node.properties.iter().filter(|(name, _)| !(embeds && METADATA.contains(&name.as_str()))) {
            let field = self.field(name, node);
            self.builder.field(id, field);
        }
        if node.preserve {
            self.builder.preserve_unknown(id);
        }
        if node.atomic {
            self.builder.map_kind(id, MapKind::Atomic);
        }
    }

    fn field(&mut self, name: &str, node: &Node) -> Field {
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
            ..Field::of(self.ty(node))
        }
    }

    fn ty(&mut self, node: &Node) -> Type {
        if node.int_or_string {
            return Type::Any;
        }
        match node.ty.as_deref() {
            Some("boolean") => Type::Bool,
            Some("integer" | "number") => Type::Double,
            Some("string") => Type::String,
            Some("array") => Type::List(self.item(node.items.as_deref())),
            Some("object") if node.additional.is_some() && node.properties.is_empty() => {
                Type::Map(self.item(node.additional.as_deref()))
            }
            Some("object") if !node.properties.is_empty() || !node.preserve || node.embedded => {
                let id = self.builder.reserve("", String::new());
                if node.embedded {
                    self.own(id);
                }
                self.fields(id, node, node.embedded);
                Type::Struct(id)
            }
            _ => Type::Free,
        }
    }

    fn item(&mut self, node: Option<&Node>) -> Box<Type> {
        Box::new(node.map_or(Type::Free, |node| self.ty(node)))
    }
}
