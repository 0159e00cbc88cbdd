//! Reads JSON of a known type in one pass: values, unknown and duplicate fields, the first wrong type.

use std::{borrow::Cow, fmt::Write as _};

use super::scan::{Form, Scanner, whole};
use crate::{
    codec::{DecodeError, Decoded, scalar},
    schema::{Field, Object, Schema, StructType, Type, Value},
};

/// More strict errors than this are not listed.
const MAX_STRICT_ERRORS: usize = 100;

/// Decodes an object of that type. Nulls are dropped; fields that the schema does not know are dropped and listed.
pub fn decode(schema: &Schema, ty: &StructType, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut reader = Reader {
        scanner: Scanner::new(bytes),
        schema,
        path: Vec::with_capacity(16),
        strict_errors: Vec::new(),
        error: None,
        refused: None,
    };
    let value = reader.root(ty).map_err(DecodeError::Syntax)?;
    reader.scanner.end().map_err(DecodeError::Syntax)?;
    match reader.refused.or(reader.error) {
        Some(error) => Err(DecodeError::Type(error)),
        None => Ok(Decoded { value, strict_errors: reader.strict_errors }),
    }
}

/// One step of the way to the value that is being read.
enum Step<'a> {
    Field(&'a Field),
    Index(usize),
    Key(Cow<'a, str>),
}

/// What a value is read into: its type, and where error messages find the Go names.
#[derive(Clone, Copy)]
struct Target<'s> {
    ty: &'s Type,
    /// The struct and field it belongs to.
    owner: &'s StructType,
    field: &'s Field,
    /// How many lists or maps down from the field.
    depth: usize,
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    schema: &'a Schema,
    path: Vec<Step<'a>>,
    strict_errors: Vec<String>,
    /// The first value of a wrong type; reading goes on to find syntax errors.
    error: Option<String>,
    /// The first that a type with a reader of its own refused: with that Go's decoding ends, so it is told before all others.
    refused: Option<String>,
}

type Read<T> = Result<T, String>;

impl<'a> Reader<'a> {
    fn root(&mut self, ty: &'a StructType) -> Read<Value> {
        match self.scanner.form()? {
            Form::Object => Ok(Value::Object(self.object(ty)?)),
            form => {
                self.scanner.skip()?;
                if form != Form::Null {
                    let message = format!("json: cannot unmarshal {} into Go value of type {}", form.name(), ty.go);
                    self.error.get_or_insert(message);
                }
                Ok(Value::Object(Object::new()))
            }
        }
    }

    /// The fields of a struct, from its brace.
    fn object(&mut self, ty: &'a StructType) -> Read<Object> {
        self.scanner.enter()?;
        let mut object = Object::new();
        let mut seen = Seen::default();
        let mut begins = true;
        while let Some(key) = self.scanner.key(begins)? {
            begins = false;
            let Some(index) = ty.field_index(&key) else {
                self.unknown(ty, key, &mut object)?;
                continue;
            };
            let field = &ty.fields[index];
            let first = seen.insert(index);
            if !first {
                self.strict("duplicate field", &field.json);
            }
            self.path.push(Step::Field(field));
            let value = self.value(Target { ty: &field.ty, owner: ty, field, depth: 0 })?;
            self.path.pop();
            match value {
                Some(value) if first => drop(object.insert(field.json.clone(), value)),
                Some(value) => merge(&mut object, &field.json, value),
                None => {}
            }
        }
        Ok(object)
    }

    fn unknown(&mut self, ty: &StructType, key: Cow<'a, str>, object: &mut Object) -> Read<()> {
        if ty.preserve_unknown {
            let value = self.scanner.value()?;
            object.insert(key.into_owned(), value);
            return Ok(());
        }
        self.strict("unknown field", &key);
        self.scanner.skip()
    }

    /// One value; none for null, which leaves a field as it was.
    fn value(&mut self, target: Target<'a>) -> Read<Option<Value>> {
        let form = self.scanner.form()?;
        if form == Form::Null && !matches!(target.ty, Type::Any) {
            self.scanner.literal()?;
            return Ok(None);
        }
        Ok(Some(match (target.ty, form) {
            (Type::String, Form::String) => Value::String(self.scanner.string()?.into_owned()),
            (Type::Bool, Form::Bool) => Value::Bool(self.scanner.literal()?),
            (Type::Int32 | Type::Int64, Form::Number) => return self.integer(target).map(Some),
            (Type::IntOrString, Form::Number) => return self.integer(target).map(Some),
            (Type::IntOrString, Form::String) => Value::String(self.scanner.string()?.into_owned()),
            (Type::Double, Form::Number) => whole(self.scanner.number()?),
            (Type::Struct(id), Form::Object) => Value::Object(self.object(self.schema.get(*id))?),
            (Type::Map(item), Form::Object) => Value::Object(self.map(target, item)?),
            (Type::List(item) | Type::Wrapped(item), Form::Array) => Value::Array(self.list(target, item)?),
            (Type::FieldsV1, _) => Value::String(super::fields_text(&self.scanner.text()?)?),
            (Type::Any, _) => match self.scanner.value()? {
                Value::Null => return Ok(None),
                value => value,
            },
            (Type::Quantity, _) => return self.quantity(form).map(Some),
            (Type::Time | Type::MicroTime | Type::Duration | Type::Bytes, Form::String) => {
                let text = self.scanner.string()?;
                let read = canonical(target.ty, &text);
                Value::String(self.checked(target.ty, read))
            }
            (Type::Bytes, Form::Array) => Value::String(scalar::encode_base64(&self.bytes(target)?)),
            (Type::Union(id), _) => return self.union(target, self.schema.get(*id), form),
            _ => {
                self.mismatch(target, form)?;
                return Ok(None);
            }
        }))
    }

    fn integer(&mut self, target: Target<'a>) -> Read<Value> {
        let text = self.scanner.number()?;
        let wide = matches!(target.ty, Type::Int64);
        let number = text.parse::<i64>().ok().filter(|number| wide || i32::try_from(*number).is_ok());
        match number {
            Some(number) => Ok(number.into()),
            None => {
                self.wrong_type(target, &format!("number {text}"));
                Ok(Value::from(0))
            }
        }
    }

    /// A quantity: text, or a bare number.
    fn quantity(&mut self, form: Form) -> Read<Value> {
        let text = match form {
            Form::String => self.scanner.string()?,
            Form::Number => Cow::Borrowed(self.scanner.number()?),
            _ => {
                self.scanner.skip()?;
                Cow::Borrowed("?")
            }
        };
        let read = scalar::canonical_quantity(&text);
        Ok(Value::String(self.checked(&Type::Quantity, read)))
    }

    /// The text, or nothing and the error noted.
    fn checked(&mut self, ty: &Type, read: Result<String, String>) -> String {
        read.unwrap_or_else(|error| {
            self.fault(ty).get_or_insert(error);
            String::new()
        })
    }

    fn map(&mut self, target: Target<'a>, item: &'a Type) -> Read<Object> {
        self.scanner.enter()?;
        let mut map = Object::new();
        let mut first = true;
        while let Some(key) = self.scanner.key(first)? {
            first = false;
            if map.contains_key(&*key) {
                self.strict("duplicate field", &key);
            }
            self.path.push(Step::Key(key));
            let value = self.value(Target { ty: item, depth: target.depth + 1, ..target })?;
            if let Some(Step::Key(key)) = self.path.pop() {
                map.insert(key.into_owned(), value.unwrap_or_else(|| zero(item)));
            }
        }
        Ok(map)
    }

    fn list(&mut self, target: Target<'a>, item: &'a Type) -> Read<Vec<Value>> {
        self.scanner.enter()?;
        let mut items = Vec::new();
        while self.scanner.item(items.is_empty())? {
            self.path.push(Step::Index(items.len()));
            let value = self.value(Target { ty: item, depth: target.depth + 1, ..target })?;
            self.path.pop();
            items.push(value.unwrap_or_else(|| zero(item)));
        }
        Ok(items)
    }

    /// Bytes as a list of numbers, as Go reads them too.
    fn bytes(&mut self, target: Target<'a>) -> Read<Vec<u8>> {
        self.scanner.enter()?;
        let mut bytes = Vec::new();
        while self.scanner.item(bytes.is_empty())? {
            self.path.push(Step::Index(bytes.len()));
            let byte = match self.scanner.form()? {
                Form::Number => {
                    let text = self.scanner.number()?;
                    let byte = text.parse::<u8>();
                    byte.inspect_err(|_| self.mistyped(target, &format!("number {text}"), "uint8")).unwrap_or(0)
                }
                form => {
                    self.scanner.skip()?;
                    if form != Form::Null {
                        self.mistyped(target, form.name(), "uint8");
                    }
                    0
                }
            };
            self.path.pop();
            bytes.push(byte);
        }
        Ok(bytes)
    }

    /// One of a union's fields, chosen by the value's form.
    fn union(&mut self, target: Target<'a>, ty: &'a StructType, form: Form) -> Read<Option<Value>> {
        let fits = |field: &&Field| {
            matches!(
                (&field.ty, form),
                (Type::Struct(_), Form::Object) | (Type::List(_), Form::Array) | (Type::Bool, Form::Bool)
            )
        };
        match ty.fields.iter().find(fits) {
            Some(field) => self.value(Target { ty: &field.ty, owner: ty, field, depth: 0 }),
            None => {
                self.mismatch(target, form)?;
                Ok(None)
            }
        }
    }

    /// Passes over a value of a wrong form and notes the error.
    fn mismatch(&mut self, target: Target<'a>, form: Form) -> Read<()> {
        self.scanner.skip()?;
        self.wrong_type(target, form.name());
        Ok(())
    }

    fn wrong_type(&mut self, target: Target<'a>, found: &str) {
        let wanted = match target.ty {
            Type::Time | Type::MicroTime | Type::Duration => "string",
            Type::IntOrString => "int32",
            _ => target.field.go_type(target.depth),
        };
        self.mistyped(target, found, wanted);
    }

    fn mistyped(&mut self, target: Target<'a>, found: &str, wanted: &str) {
        if self.fault(target.ty).is_some() {
            return;
        }
        let mut message = format!("json: cannot unmarshal {found} into Go struct field {}.", target.owner.short_name());
        let fields = self.path.iter().filter_map(|step| match step {
            Step::Field(field) => Some(*field),
            _ => None,
        });
        for (at, field) in fields.enumerate() {
            if at > 0 {
                message.push('.');
            }
            if let Some(embedded) = &field.embedded {
                let _ = write!(message, "{embedded}.");
            }
            message.push_str(&field.json);
        }
        let _ = write!(message, " of type {wanted}");
        *self.fault(target.ty) = Some(message);
    }

    /// Where a fault of a value of that type is noted.
    fn fault(&mut self, ty: &Type) -> &mut Option<String> {
        if reads_itself(ty) { &mut self.refused } else { &mut self.error }
    }

    fn strict(&mut self, what: &str, name: &str) {
        if self.strict_errors.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let mut message = format!("{what} \"");
        for step in &self.path {
            let name: &str = match step {
                Step::Index(index) => {
                    let _ = write!(message, "[{index}]");
                    continue;
                }
                Step::Field(field) => &field.json,
                Step::Key(key) => key,
            };
            dotted(&mut message, name, what.len() + 2);
        }
        dotted(&mut message, name, what.len() + 2);
        message.push('"');
        if !self.strict_errors.contains(&message) {
            self.strict_errors.push(message);
        }
    }
}

fn dotted(message: &mut String, name: &str, start: usize) {
    if message.len() > start {
        message.push('.');
    }
    message.push_str(name);
}

/// Which fields were there already.
#[derive(Default)]
struct Seen([u64; 4]);

impl Seen {
    /// False if it was there.
    fn insert(&mut self, index: usize) -> bool {
        let Some(word) = self.0.get_mut(index / 64) else { return true };
        let bit = 1 << (index % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

/// Sets a field; the second value of a duplicate struct or map is laid over the first, as Go does.
fn merge(object: &mut Object, name: &str, value: Value) {
    match (object.get_mut(name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (key, value) in new {
                merge(old, &key, value);
            }
        }
        (_, value) => {
            object.insert(name.to_owned(), value);
        }
    }
}

/// Types that Go's decoder leaves the reading to.
fn reads_itself(ty: &Type) -> bool {
    matches!(ty, Type::Time | Type::MicroTime | Type::Duration | Type::Quantity | Type::IntOrString)
}

fn canonical(ty: &Type, text: &str) -> Result<String, String> {
    match ty {
        Type::Time => scalar::canonical_time(text, false),
        Type::MicroTime => scalar::canonical_time(text, true),
        Type::Duration => scalar::parse_duration(text).map(scalar::format_duration),
        _ => scalar::decode_base64(text).map(|bytes| scalar::encode_base64(&bytes)),
    }
}

/// What Go has for null in a list or map.
pub(super) fn zero(ty: &Type) -> Value {
    match ty {
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
        Type::String => Value::String(String::new()),
        Type::Duration => Value::from("0s"),
        Type::Quantity => Value::from("0"),
        Type::Struct(_) => Value::Object(Object::new()),
        _ => Value::Null,
    }
}
