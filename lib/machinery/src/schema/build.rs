//! Puts a [`Schema`] together: reserve ids first, because types refer to each other, then fill them.

use super::{Field, Gvk, MapKind, Schema, Source, StructId, StructType, Type, Wire, order};
use crate::{defaults, normalize};

/// Collects struct types, then gives a [`Schema`].
#[derive(Debug, Default)]
pub struct Builder {
    schema: Schema,
    embeds: Vec<Vec<Embed>>,
}

/// An embedded struct: its fields belong before the field at `position`.
#[derive(Clone, Copy, Debug)]
struct Embed {
    position: usize,
    number: u32,
    id: StructId,
}

impl Builder {
    /// A place for a struct of that OpenAPI name.
    pub fn reserve(&mut self, name: &str, go: String) -> StructId {
        let id = StructId(self.schema.structs.len() as u32);
        self.schema.structs.push(StructType {
            id,
            name: name.to_owned(),
            go,
            kind: None,
            fields: Vec::new(),
            wire: Vec::new(),
            map: MapKind::Granular,
            preserve_unknown: false,
            one_of: None,
            by_json: Vec::new(),
            by_number: Vec::new(),
            standing: Vec::new(),
            seeded: Vec::new(),
            has_defaults: false,
        });
        self.embeds.push(Vec::new());
        // A struct without a name is found by its id alone.
        if !name.is_empty() {
            self.schema.names.insert(name.to_owned(), id);
        }
        id
    }

    /// The struct that was reserved under that OpenAPI name.
    pub fn find(&self, name: &str) -> Option<StructId> {
        self.schema.names.get(name).copied()
    }

    /// Copies a struct of another schema, with all that it refers to; once each.
    pub fn copy(&mut self, from: &Schema, ty: &StructType) -> StructId {
        if let Some(id) = self.find(&ty.name) {
            return id;
        }
        let id = self.reserve(&ty.name, ty.go.clone());
        for field in &ty.fields {
            let field = Field { ty: self.copied(from, &field.ty), ..field.clone() };
            self.field(id, field);
        }
        self.map_kind(id, ty.map);
        id
    }

    fn copied(&mut self, from: &Schema, ty: &Type) -> Type {
        match ty {
            Type::Struct(id) => Type::Struct(self.copy(from, from.get(*id))),
            Type::Union(id) => Type::Union(self.copy(from, from.get(*id))),
            Type::List(item) => Type::List(Box::new(self.copied(from, item))),
            Type::Wrapped(item) => Type::Wrapped(Box::new(self.copied(from, item))),
            Type::Map(item) => Type::Map(Box::new(self.copied(from, item))),
            other => other.clone(),
        }
    }

    /// Makes the struct a kind.
    pub fn kind(&mut self, id: StructId, kind: Gvk) {
        self.schema.structs[id.0 as usize].kind = Some(kind.clone());
        self.schema.kinds.push((kind, id));
    }

    /// Whether the struct is owned as one value.
    pub fn map_kind(&mut self, id: StructId, map: MapKind) {
        self.schema.structs[id.0 as usize].map = map;
    }

    /// At most one of the struct's fields is set; the field of that name tells which.
    pub fn one_of(&mut self, id: StructId, discriminator: &str) {
        self.schema.structs[id.0 as usize].one_of = Some(discriminator.to_owned());
    }

    /// Keeps unknown fields of the struct.
    pub fn preserve_unknown(&mut self, id: StructId) {
        self.schema.structs[id.0 as usize].preserve_unknown = true;
    }

    /// Appends a field.
    pub fn field(&mut self, id: StructId, field: Field) {
        self.schema.structs[id.0 as usize].fields.push(field);
    }

    /// Embeds a struct here: its fields become fields of this one in JSON; in protobuf it is the field of that number.
    pub fn embed(&mut self, id: StructId, number: u32, embedded: StructId) {
        let position = self.schema.structs[id.0 as usize].fields.len();
        self.embeds[id.0 as usize].push(Embed { position, number, id: embedded });
    }

    /// The schema.
    pub fn finish(mut self) -> Schema {
        for index in 0..self.schema.structs.len() {
            self.flatten(index);
        }
        for ty in &mut self.schema.structs {
            index(ty);
        }
        self.note_defaults();
        for at in 0..self.schema.structs.len() {
            let ty = &self.schema.structs[at];
            let those = |wanted: &dyn Fn(&Field) -> bool| {
                let fields = ty.fields.iter().enumerate();
                fields.filter(|(_, field)| wanted(field)).map(|(index, _)| index as u16).collect()
            };
            let standing = those(&|field| normalize::zero(&self.schema, field).is_some());
            let seeded = those(&|field| defaults::seed(&self.schema, field).is_some());
            let ty = &mut self.schema.structs[at];
            (ty.standing, ty.seeded) = (standing, seeded);
        }
        self.schema.kinds.sort();
        self.schema
    }

    /// Finds out which structs have defaults anywhere in them.
    fn note_defaults(&mut self) {
        let structs = &mut self.schema.structs;
        let mut more = true;
        while std::mem::take(&mut more) {
            for at in 0..structs.len() {
                let inside = |field: &Field| field.default.is_some() || in_type(&field.ty, structs);
                if !structs[at].has_defaults && structs[at].fields.iter().any(inside) {
                    (structs[at].has_defaults, more) = (true, true);
                }
            }
        }
    }

    /// Merges embedded structs' fields in; an embedded struct may embed others.
    fn flatten(&mut self, index: usize) {
        let embeds = std::mem::take(&mut self.embeds[index]);
        for embed in embeds.iter().rev() {
            self.flatten(embed.id.0 as usize);
            let embedded = &self.schema.structs[embed.id.0 as usize];
            let (name, inner) = (embedded.short_name().to_owned(), embedded.fields.clone());
            let ty = &mut self.schema.structs[index];
            for mut field in inner.into_iter().rev() {
                if !ty.fields.iter().any(|own| own.json == field.json) {
                    field.number = 0;
                    field.embedded = Some(match field.embedded {
                        Some(deeper) => format!("{name}.{deeper}"),
                        None => name.clone(),
                    });
                    ty.fields.insert(embed.position, field);
                }
            }
            if embed.number != 0 {
                ty.wire.push(Wire { number: embed.number, source: Source::Embedded(embed.id) });
            }
        }
    }
}

/// Whether a type is known to have defaults in it.
fn in_type(ty: &Type, structs: &[StructType]) -> bool {
    match ty {
        Type::Struct(id) => structs[id.0 as usize].has_defaults,
        Type::List(item) | Type::Map(item) => in_type(item, structs),
        _ => false,
    }
}

/// Fills the look-up tables of a struct whose fields are complete.
fn index(ty: &mut StructType) {
    for (at, field) in ty.fields.iter().enumerate() {
        if field.number != 0 {
            ty.wire.push(Wire { number: field.number, source: Source::Field(at) });
        }
    }
    ty.wire.sort_by_key(|wire| wire.number);
    let fields = &ty.fields;
    ty.by_json = (0..fields.len() as u16).collect();
    ty.by_json.sort_by(|&left, &right| order(&fields[usize::from(left)].json, &fields[usize::from(right)].json));
    let last = ty.wire.last().map_or(0, |wire| wire.number as usize);
    ty.by_number = vec![0; last + 1];
    for (at, wire) in ty.wire.iter().enumerate() {
        ty.by_number[wire.number as usize] = at as u16 + 1;
    }
}
