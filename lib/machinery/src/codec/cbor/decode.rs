//! Data items into values, by the schema. Forms are checked here, in upstream's words; what texts mean (times, quantities) the
//! JSON decoder sees to, which reads what came out.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::read::{Head, Major, Reader, check, float, refused};
use super::{TO_BASE16, TO_BASE64, TO_BASE64_URL, text};
use crate::codec::{DecodeError, Decoded, TypeMeta, json};
use crate::schema::{Field, Object, Schema, StructType, Type, Value};

/// The object in the bytes, as one of a type. Of unknown fields upstream tells the first.
pub fn decode(schema: &Schema, ty: &StructType, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    check(bytes).map_err(DecodeError::Syntax)?;
    let mut typed = Typed { reader: Reader::new(bytes), schema, root: ty, field: None, unknown: None };
    let value = typed.root().map_err(DecodeError::Type)?;
    let mut text = Vec::with_capacity(bytes.len());
    json::encode_any(&value, &mut text);
    let mut decoded = json::decode(schema, ty, &text)?;
    decoded.strict_errors.splice(0..0, typed.unknown);
    Ok(decoded)
}

/// apiVersion and kind, of well-formed bytes.
pub fn type_meta(reader: &mut Reader<'_>) -> Result<TypeMeta, String> {
    const INTO: &str = "into Go value of type v1.TypeMeta";
    let head = untagged(reader)?;
    match head.major {
        Major::Map => {}
        Major::Simple if head.info == 22 => return Ok(TypeMeta::default()),
        Major::Array => {
            return Err(format!(
                "cbor: cannot unmarshal array {INTO} (cannot decode CBOR array to struct without toarray option)"
            ));
        }
        other => return Err(format!("cbor: cannot unmarshal {} {INTO}", other.name())),
    }
    let mut meta = TypeMeta::default();
    let mut keys = Keys::default();
    while reader.more(head, keys.count) {
        let key = keys.next(reader)?;
        let place = match &*key {
            b"apiVersion" => &mut meta.api_version,
            b"kind" => &mut meta.kind,
            _ => {
                reader.skip()?;
                continue;
            }
        };
        let head = untagged(reader)?;
        match head.major {
            Major::Bytes | Major::Text => *place = text(reader.string(head)?),
            Major::Simple if head.info == 22 => {}
            other => {
                let field = String::from_utf8_lossy(&key).into_owned();
                return Err(format!(
                    "cbor: cannot unmarshal {} into Go struct field v1.TypeMeta.{field} of type string",
                    other.name()
                ));
            }
        }
    }
    Ok(meta)
}

/// The next item's head, past its tags.
fn untagged(reader: &mut Reader<'_>) -> Result<Head, String> {
    loop {
        let head = reader.head()?;
        if head.major != Major::Tag {
            return Ok(head);
        }
    }
}

/// The keys of a map, which are there once each.
#[derive(Default)]
struct Keys<'a> {
    seen: HashSet<Cow<'a, [u8]>>,
    count: u64,
}

impl<'a> Keys<'a> {
    fn next(&mut self, reader: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, String> {
        let head = untagged(reader)?;
        if !matches!(head.major, Major::Bytes | Major::Text) {
            return Err(head.major.name().to_owned());
        }
        let key = reader.string(head)?;
        if !self.seen.insert(key.clone()) {
            let key = String::from_utf8_lossy(&key).into_owned();
            return Err(format!("cbor: found duplicate map key {key:?} at map element index {}", self.count));
        }
        self.count += 1;
        Ok(key)
    }
}

/// An item of no known type, of well-formed bytes.
pub fn any(reader: &mut Reader<'_>) -> Result<Value, String> {
    let tag = last_tag(reader)?;
    let head = reader.head()?;
    Ok(match head.major {
        Major::Unsigned => head.argument.into(),
        Major::Negative => negative(head).map_or(Value::Null, Value::from),
        Major::Bytes => {
            let bytes = reader.string(head)?;
            as_text(tag, &bytes).unwrap_or_else(|| text(bytes)).into()
        }
        Major::Text => utf8(reader.string(head)?)?.into(),
        Major::Array => {
            let mut items = Vec::new();
            while reader.more(head, items.len() as u64) {
                items.push(any(reader)?);
            }
            items.into()
        }
        Major::Map => {
            let mut object = Object::new();
            let mut keys = Keys::default();
            while reader.more(head, keys.count) {
                let key = keys.next(reader).map_err(no_text)?;
                object.insert(text(key), any(reader)?);
            }
            object.into()
        }
        Major::Simple => simple(head)?,
        Major::Tag => Value::Null,
    })
}

/// A key that is no text has just its form for a message.
fn no_text(message: String) -> String {
    if message.starts_with("cbor: ") {
        return message;
    }
    format!("cbor: cannot unmarshal {message} into Go value of type string")
}

/// The tag right before the next item.
fn last_tag(reader: &mut Reader<'_>) -> Result<Option<u64>, String> {
    let mut tag = None;
    while reader.peek()?.major == Major::Tag {
        tag = Some(reader.head()?.argument);
    }
    Ok(tag)
}

/// The text that tagged bytes stand for.
fn as_text(tag: Option<u64>, bytes: &[u8]) -> Option<String> {
    match tag {
        Some(TO_BASE64) => Some(STANDARD.encode(bytes)),
        Some(TO_BASE64_URL) => Some(URL_SAFE_NO_PAD.encode(bytes)),
        Some(TO_BASE16) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => None,
    }
}

fn utf8(bytes: Cow<'_, [u8]>) -> Result<String, String> {
    String::from_utf8(bytes.into_owned()).map_err(|_| "cbor: invalid UTF-8 string".to_owned())
}

/// None: less than 64 bits can hold.
fn negative(head: Head) -> Option<i64> {
    i64::try_from(head.argument).ok().map(|argument| -1 - argument)
}

fn simple(head: Head) -> Result<Value, String> {
    Ok(match (head.info, float(head)) {
        (20, _) => false.into(),
        (21, _) => true.into(),
        (22, _) => Value::Null,
        (_, Some(float)) => float.into(),
        _ => return Err(refused(Major::Simple, &format!("simple value {} is not recognized", head.argument))),
    })
}

/// Reads by the schema.
struct Typed<'a> {
    reader: Reader<'a>,
    schema: &'a Schema,
    root: &'a StructType,
    /// The field of the root below which it is.
    field: Option<&'a Field>,
    /// What strict validation says of the first field that is not known.
    unknown: Option<String>,
}

/// What is read: a type, of a field, so many lists or maps below it.
#[derive(Clone, Copy)]
struct Target<'a> {
    ty: &'a Type,
    field: &'a Field,
    depth: usize,
}

impl<'a> Typed<'a> {
    fn root(&mut self) -> Result<Value, String> {
        let head = untagged(&mut self.reader)?;
        match head.major {
            Major::Map => self.fields(self.root, head),
            Major::Simple if head.info == 22 => Ok(Value::Object(Object::new())),
            other => Err(format!("cbor: cannot unmarshal {} into Go value of type {}", other.name(), self.root.go)),
        }
    }

    fn fields(&mut self, ty: &'a StructType, head: Head) -> Result<Value, String> {
        let mut object = Object::new();
        let mut keys = Keys::default();
        let top = self.field.is_none();
        while self.reader.more(head, keys.count) {
            let at = keys.count;
            let key = keys.next(&mut self.reader).map_err(no_text)?;
            let field = std::str::from_utf8(&key).ok().and_then(|key| ty.field(key));
            let Some(field) = field else {
                if ty.preserve_unknown {
                    object.insert(text(key), any(&mut self.reader)?);
                    continue;
                }
                self.unknown.get_or_insert_with(|| format!("cbor: found unknown field at map element index {at}"));
                self.reader.skip()?;
                continue;
            };
            if top {
                self.field = Some(field);
            }
            let value = self.value(Target { ty: &field.ty, field, depth: 0 })?;
            object.insert(field.json.clone(), value);
        }
        if top {
            self.field = None;
        }
        Ok(Value::Object(object))
    }

    fn value(&mut self, target: Target<'a>) -> Result<Value, String> {
        if matches!(target.ty, Type::Any | Type::Free | Type::FieldsV1 | Type::Union(_)) {
            return any(&mut self.reader);
        }
        let tag = last_tag(&mut self.reader)?;
        let head = self.reader.head()?;
        if head.major == Major::Simple && head.info == 22 {
            return Ok(Value::Null);
        }
        if head.major == Major::Simple && float(head).is_none() && !matches!(head.info, 20 | 21) {
            return simple(head);
        }
        match (target.ty, head.major) {
            (Type::Bool, Major::Simple) if matches!(head.info, 20 | 21) => Ok((head.info == 21).into()),
            (Type::Double, Major::Simple) if float(head).is_some() => simple(head),
            (Type::Int32 | Type::Int64 | Type::IntOrString | Type::Double, Major::Unsigned | Major::Negative) => {
                self.integer(target, head)
            }
            (Type::Bytes, Major::Bytes) => self.bytes(head, tag),
            (Type::Struct(id), Major::Map) => self.fields(self.schema.get(*id), head),
            (Type::Map(item), Major::Map) => self.map(Target { ty: item, depth: target.depth + 1, ..target }, head),
            (Type::List(item) | Type::Wrapped(item), Major::Array) => {
                self.list(Target { ty: item, depth: target.depth + 1, ..target }, head)
            }
            (ty, Major::Bytes) if is_text(ty) => {
                let bytes = self.reader.string(head)?;
                Ok(as_text(tag, &bytes).unwrap_or_else(|| text(bytes)).into())
            }
            (ty, Major::Text) if is_text(ty) => Ok(utf8(self.reader.string(head)?)?.into()),
            (_, major) => Err(self.wrong(major, target, "")),
        }
    }

    fn integer(&self, target: Target<'a>, head: Head) -> Result<Value, String> {
        let whole = match head.major {
            Major::Unsigned => i64::try_from(head.argument).ok(),
            _ => negative(head),
        };
        let narrow = matches!(target.ty, Type::Int32 | Type::IntOrString);
        match whole.filter(|whole| !narrow || i32::try_from(*whole).is_ok()) {
            Some(whole) => Ok(whole.into()),
            None => {
                let shown = match head.major {
                    Major::Unsigned => head.argument.to_string(),
                    _ => (-1 - i128::from(head.argument)).to_string(),
                };
                let over = format!(" ({shown} overflows {})", self.go(target));
                Err(self.wrong(head.major, target, &over))
            }
        }
    }

    /// Tagged bytes are as they are, others are base64.
    fn bytes(&mut self, head: Head, tag: Option<u64>) -> Result<Value, String> {
        let bytes = self.reader.string(head)?;
        if as_text(tag, &[]).is_some() {
            return Ok(STANDARD.encode(bytes).into());
        }
        match STANDARD.decode(&bytes) {
            Ok(_) => Ok(text(bytes).into()),
            Err(error) => {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => bytes.len() / 4 * 4,
                };
                Err(format!("cbor: failed to decode base64 from byte string: illegal base64 data at input byte {at}"))
            }
        }
    }

    fn map(&mut self, item: Target<'a>, head: Head) -> Result<Value, String> {
        let mut object = Object::new();
        let mut keys = Keys::default();
        while self.reader.more(head, keys.count) {
            let key = keys.next(&mut self.reader).map_err(|message| match message.starts_with("cbor: ") {
                true => message,
                false => self.said(&message, "string", ""),
            })?;
            object.insert(text(key), self.value(item)?);
        }
        Ok(Value::Object(object))
    }

    fn list(&mut self, item: Target<'a>, head: Head) -> Result<Value, String> {
        let mut items = Vec::new();
        while self.reader.more(head, items.len() as u64) {
            items.push(self.value(item)?);
        }
        Ok(Value::Array(items))
    }

    /// The Go type that messages name.
    fn go(&self, target: Target<'a>) -> &'a str {
        match target.ty {
            Type::Bytes => "[]uint8",
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            ty if is_text(ty) => "string",
            _ => target.field.go_type(target.depth),
        }
    }

    fn wrong(&self, major: Major, target: Target<'a>, more: &str) -> String {
        self.said(major.name(), self.go(target), more)
    }

    fn said(&self, found: &str, wanted: &str, more: &str) -> String {
        let field = self.field.map_or("", |field| &field.json);
        format!("cbor: cannot unmarshal {found} into Go struct field {}.{field} of type {wanted}{more}", self.root.go)
    }
}

/// What is text in JSON.
fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Time | Type::MicroTime | Type::Duration | Type::Quantity | Type::IntOrString)
}
