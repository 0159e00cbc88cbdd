//! A document as sections that are written one entry at a time: a whole document as a value would take tens of megabytes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pintle_machinery::schema::Schema;
use serde_json::{Map, Value, json};

use super::descriptions::Descriptions;
use super::endpoints::Endpoint;
use super::render;
use super::schemas::{Notation, Schemas};

/// What documents are about, and the version of the API.
pub const INFO: (&str, &str) = ("Kubernetes", "1.37");

/// Takes a document's parts in order.
pub trait Sink {
    /// An object begins, as the value of a key of the one that is open.
    fn open(&mut self, key: &str) -> io::Result<()>;
    /// A key and its value.
    fn entry(&mut self, key: &str, value: &Value) -> io::Result<()>;
    /// The object that was opened last ends.
    fn close(&mut self) -> io::Result<()>;
}

/// What a document is made of.
pub struct Document<'a> {
    /// All kinds.
    pub schema: &'a Schema,
    /// What fields are for.
    pub descriptions: &'a Descriptions<'a>,
    /// Paths.
    pub endpoints: Vec<Endpoint>,
    /// Groups and versions whose options kinds are told; none: all.
    pub versions: Option<Vec<(String, String)>>,
    /// Schemas of custom resources.
    pub custom: BTreeMap<String, Value>,
    /// Title and version.
    pub info: (&'static str, &'static str),
}

impl Document<'_> {
    /// Writes it in a version's notation.
    pub fn write(&self, notation: Notation, sink: &mut impl Sink) -> io::Result<()> {
        let info = json!({"title": self.info.0, "version": self.info.1});
        let token = json!({"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization",
                           "in": "header"});
        let tokens = json!({"BearerToken": token});
        match notation {
            Notation::V2 => {
                sink.entry("swagger", &json!("2.0"))?;
                sink.entry("info", &info)?;
                self.paths(notation, sink)?;
                self.schemas("definitions", notation, sink)?;
                section("parameters", &render::shared_parameters(&self.endpoints), sink)?;
                sink.entry("securityDefinitions", &tokens)?;
                sink.entry("security", &json!([{"BearerToken": []}]))
            }
            Notation::V3 => {
                sink.entry("openapi", &json!("3.0.0"))?;
                sink.entry("info", &info)?;
                self.paths(notation, sink)?;
                sink.open("components")?;
                self.schemas("schemas", notation, sink)?;
                sink.entry("securitySchemes", &tokens)?;
                sink.close()
            }
        }
    }

    fn paths(&self, notation: Notation, sink: &mut impl Sink) -> io::Result<()> {
        sink.open("paths")?;
        for endpoint in &self.endpoints {
            sink.entry(&endpoint.path, &render::item(endpoint, notation))?;
        }
        sink.close()
    }

    fn schemas(&self, key: &str, notation: Notation, sink: &mut impl Sink) -> io::Result<()> {
        let schemas = Schemas::new(self.schema, self.descriptions, notation, self.versions.as_deref(), &self.custom);
        let names = schemas.closure(&self.endpoints);
        if names.is_empty() {
            return Ok(());
        }
        sink.open(key)?;
        for name in names {
            sink.entry(&name, &schemas.of(&name))?;
        }
        sink.close()
    }
}

fn section(key: &str, entries: &Map<String, Value>, sink: &mut impl Sink) -> io::Result<()> {
    sink.open(key)?;
    for (name, value) in entries {
        sink.entry(name, value)?;
    }
    sink.close()
}

/// Writes JSON.
pub struct Json<W> {
    out: W,
    first: bool,
}

impl<W: Write> Json<W> {
    /// Into a writer.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{")?;
        Ok(Self { out, first: true })
    }

    /// The writer, when all is written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"}")?;
        Ok(self.out)
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.write_all(b",")?;
        }
        serde_json::to_writer(&mut self.out, key)?;
        self.out.write_all(b":")
    }
}

impl<W: Write> Sink for Json<W> {
    fn open(&mut self, key: &str) -> io::Result<()> {
        self.key(key)?;
        self.first = true;
        self.out.write_all(b"{")
    }

    fn entry(&mut self, key: &str, value: &Value) -> io::Result<()> {
        self.key(key)?;
        serde_json::to_writer(&mut self.out, value)?;
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.first = false;
        self.out.write_all(b"}")
    }
}
