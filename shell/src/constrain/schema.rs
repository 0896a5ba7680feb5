//! What the keywords of a JSON schema mean, as nodes. Must not know texts or tokens.

use super::SchemaError;
use super::builder::Builder;
use super::builder::Step::{self, Index, Name};
use super::node::{ANY, Array, MAX_STATES, Node, Object, Text};
use serde_json::{Map, Value};

/// Most digits of a whole number are 19.
const MOST_SIZE: u64 = 9_999_999_999_999_999_999;

const IGNORED: [&str; 14] = [
    "title",
    "description",
    "default",
    "examples",
    "format",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "deprecated",
    "readOnly",
    "writeOnly",
    "discriminator",
];
/// Keywords that say all that a schema says; they come alone.
const WHOLE: [&str; 6] = ["$ref", "anyOf", "oneOf", "allOf", "enum", "const"];
const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
/// Keywords and the types that they speak of, as bits in the order of [`TYPES`].
const KEYWORDS: [(&str, u8); 12] = [
    ("properties", 1),
    ("required", 1),
    ("additionalProperties", 1),
    ("items", 2),
    ("minItems", 2),
    ("maxItems", 2),
    ("minLength", 4),
    ("maxLength", 4),
    ("minimum", 8 | 16),
    ("maximum", 8 | 16),
    ("exclusiveMinimum", 8 | 16),
    ("exclusiveMaximum", 8 | 16),
];

const NOT_SUPPORTED: &str = "is not supported";
const WRONG_SCHEMA: &str = "a schema is an object or a boolean";
const NOTHING_FITS: &str = "nothing fits this";
const COUNT: &str = "must be a whole number, 0 or more";

impl Object {
    /// `{}`.
    pub(super) fn closed() -> Object {
        Object { keys: Vec::new(), values: Vec::new(), needed: vec![0], more: None }
    }
}

impl<'s> Builder<'s> {
    /// The node of a schema.
    pub(super) fn node(&mut self, schema: &'s Value) -> Result<Node, SchemaError> {
        let map = match schema {
            Value::Bool(true) => return Ok(Node::Choice(vec![ANY])),
            Value::Bool(false) => return Ok(Node::Literals(Vec::new())),
            Value::Object(map) => map,
            _ => return Err(self.error(&[], WRONG_SCHEMA)),
        };
        let types = self.types(map)?;
        let whole = map.iter().find(|(key, _)| WHOLE.contains(&key.as_str()));
        let mut spoken_of = 0;
        for (key, _) in map {
            let keyword = KEYWORDS.iter().find(|(name, _)| name == key);
            let is_known = match (whole, keyword) {
                _ if IGNORED.contains(&key.as_str()) => true,
                (Some((one, _)), _) => key == one || (key == "type" && matches!(&one[..], "enum" | "const")),
                (None, Some((_, of))) => {
                    spoken_of |= of;
                    types.is_none_or(|types| types & of > 0)
                }
                (None, None) => key == "type",
            };
            if !is_known {
                let is_beside = keyword.is_some() || key == "type" || WHOLE.contains(&key.as_str());
                let what =
                    if is_beside { "is not supported beside what else is here" } else { NOT_SUPPORTED };
                return Err(self.wrong(key, what));
            }
        }
        if let Some((key, value)) = whole {
            return self.whole(key, value, types.unwrap_or(u8::MAX));
        }
        // Both kinds of numbers: whole ones are among the others.
        let types = types.unwrap_or(if spoken_of & 8 > 0 { spoken_of & !8 } else { spoken_of });
        if types == 0 {
            return Ok(Node::Choice(vec![ANY]));
        }
        let mut leaves = Vec::new();
        for kind in (0..7).filter(|kind| types & 1 << kind > 0) {
            let leaf = self.leaf(kind, map)?;
            if types.count_ones() == 1 {
                return Ok(leaf);
            }
            leaves.push(self.add(leaf, &[]));
        }
        Ok(Node::Choice(leaves))
    }

    /// What `type` says, as bits in the order of [`TYPES`].
    fn types(&self, map: &'s Map<String, Value>) -> Result<Option<u8>, SchemaError> {
        let list = match map.get("type") {
            None => return Ok(None),
            Some(Value::Array(list)) => &list[..],
            Some(one) => core::slice::from_ref(one),
        };
        let mut types = 0;
        for name in list {
            let known = TYPES.iter().position(|known| name.as_str() == Some(known));
            let fail = || self.wrong("type", "is no type of JSON schema");
            types |= 1 << known.ok_or_else(fail)?;
        }
        if types == 0 { Err(self.wrong("type", NOTHING_FITS)) } else { Ok(Some(types)) }
    }

    /// A schema that is one of [`WHOLE`].
    fn whole(&mut self, key: &'s str, value: &'s Value, types: u8) -> Result<Node, SchemaError> {
        let list = match value {
            Value::Array(list) => &list[..],
            _ => &[],
        };
        match key {
            "$ref" => self.reference(value).map(|id| Node::Choice(vec![id])),
            "const" => self.literals(core::slice::from_ref(value), key, types),
            _ if list.is_empty() => Err(self.wrong(key, "must be a list that is not empty")),
            "enum" => self.literals(list, key, types),
            "allOf" if list.len() > 1 => Err(self.wrong(key, "of more than one is not supported")),
            _ if list.len() > MAX_STATES => Err(self.wrong(key, "has too many alternatives")),
            _ => {
                let one = |(i, schema)| self.child(schema, &[Name(key), Index(i)]);
                Ok(Node::Choice(list.iter().enumerate().map(one).collect()))
            }
        }
    }

    fn reference(&mut self, value: &'s Value) -> Result<u32, SchemaError> {
        let pointer = value.as_str().and_then(|text| text.strip_prefix('#'));
        let target = pointer.and_then(|pointer| Some((pointer, self.root.pointer(pointer)?)));
        let Some((pointer, schema)) = target else {
            return Err(self.wrong("$ref", "does not lead to a place in this schema"));
        };
        Ok(self.refer(pointer, schema))
    }

    fn literals(&mut self, values: &[Value], key: &'s str, types: u8) -> Result<Node, SchemaError> {
        let mut texts: Vec<Text> = Vec::new();
        for (i, value) in values.iter().enumerate() {
            let kinds = match value {
                Value::Object(_) => 1,
                Value::Array(_) => 2,
                Value::String(_) => 4,
                Value::Number(number) if number.is_i64() || number.is_u64() => 8 | 16,
                Value::Number(_) => 16,
                Value::Bool(_) => 32,
                Value::Null => 64,
            };
            if types & kinds == 0 {
                continue;
            }
            let text = value.to_string().into_bytes().into_boxed_slice();
            let steps = [Name(key), Index(i)];
            self.spend(&text, if key == "enum" { &steps } else { &steps[..1] })?;
            if let Err(place) = texts.binary_search(&text) {
                texts.insert(place, text);
            }
        }
        if texts.is_empty() { Err(self.wrong(key, NOTHING_FITS)) } else { Ok(Node::Literals(texts)) }
    }

    /// The node of one of [`TYPES`].
    fn leaf(&mut self, kind: u8, map: &'s Map<String, Value>) -> Result<Node, SchemaError> {
        match kind {
            0 => self.object(map).map(Node::Object),
            1 => {
                let (least, most) = self.counts(map, "minItems", "maxItems")?;
                let items = map.get("items").map_or(ANY, |items| self.child(items, &[Name("items")]));
                Ok(Node::Array(Array { items, least, most }))
            }
            2 => self.counts(map, "minLength", "maxLength").map(|(least, most)| Node::Str { least, most }),
            3 => self.integer(map),
            4 => self.number(map),
            5 => Ok(Node::Literals(vec![(*b"false").into(), (*b"true").into()])),
            _ => Ok(Node::Literals(vec![(*b"null").into()])),
        }
    }

    fn counts(
        &self,
        map: &'s Map<String, Value>,
        least: &'s str,
        most: &'s str,
    ) -> Result<(u32, u32), SchemaError> {
        let count = |key: &'s str, default: u32| match map.get(key) {
            None => Ok(default),
            Some(value) => match value.as_u64() {
                // The largest stands for "any number".
                Some(count) => Ok(count.min(u64::from(u32::MAX)) as u32),
                None => Err(self.wrong(key, COUNT)),
            },
        };
        let (low, high) = (count(least, 0)?, count(most, u32::MAX)?);
        if low > high { Err(self.wrong(least, NOTHING_FITS)) } else { Ok((low, high)) }
    }

    fn integer(&self, map: &'s Map<String, Value>) -> Result<Node, SchemaError> {
        let limit = |key: &'s str| match map.get(key) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(limit) => Ok(Some(i128::from(limit))),
                None => Err(self.wrong(key, "must be a whole number of 64 bits")),
            },
        };
        let larger = limit("exclusiveMinimum")?.map(|limit| limit + 1);
        let smaller = limit("exclusiveMaximum")?.map(|limit| limit - 1);
        let ends = i128::from(MOST_SIZE);
        let low = limit("minimum")?.max(larger).unwrap_or(-ends);
        let high = [limit("maximum")?, smaller].into_iter().flatten().min().unwrap_or(ends);
        if low > high {
            return Err(self.error(&[], NOTHING_FITS));
        }
        let plus = if high < 0 { (1, 0) } else { (low.max(0) as u64, high as u64) };
        let minus = if low >= 0 { (1, 0) } else { ((-high).max(1) as u64, -low as u64) };
        Ok(Node::Integer { plus, minus })
    }

    fn number(&self, map: &'s Map<String, Value>) -> Result<Node, SchemaError> {
        for key in ["maximum", "exclusiveMinimum", "exclusiveMaximum"] {
            if map.contains_key(key) {
                return Err(self.wrong(key, "is supported for whole numbers only"));
            }
        }
        match map.get("minimum") {
            None => Ok(Node::Number { minus: true }),
            Some(limit) if limit.as_i64() == Some(0) => Ok(Node::Number { minus: false }),
            Some(_) => Err(self.wrong("minimum", "other than 0 is supported for whole numbers only")),
        }
    }

    fn object(&mut self, map: &'s Map<String, Value>) -> Result<Object, SchemaError> {
        let properties = match map.get("properties") {
            None => None,
            Some(Value::Object(properties)) => Some(properties),
            Some(_) => return Err(self.wrong("properties", "must be an object")),
        };
        let more = match map.get("additionalProperties") {
            None if map.contains_key("properties") => None,
            None => Some(ANY),
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.child(schema, &[Name("additionalProperties")])),
        };
        let mut object = Object::closed();
        object.more = more;
        let mut names: Vec<&str> = Vec::new();
        for (name, schema) in properties.into_iter().flatten() {
            let steps = [Name("properties"), Name(name)];
            let value = self.child(schema, &steps);
            self.property(&mut object, name, value, &steps)?;
            names.push(name);
        }
        let required = match map.get("required") {
            None => &[],
            Some(Value::Array(list)) => &list[..],
            Some(_) => return Err(self.wrong("required", "must be a list of names")),
        };
        let mut is_needed = vec![false; names.len()];
        for (i, name) in required.iter().enumerate() {
            let steps = [Name("required"), Index(i)];
            self.spend(&[], &steps)?;
            let Some(name) = name.as_str() else { return Err(self.error(&steps, "must be a name")) };
            if let Some(at) = names.iter().position(|known| *known == name) {
                is_needed[at] = true;
                continue;
            }
            let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
            if is_closed {
                return Err(self.error(&steps, "is not one of the properties, and there are no others"));
            }
            self.property(&mut object, name, more.unwrap_or(ANY), &steps)?;
            names.push(name);
            is_needed.push(true);
        }
        let mut next = names.len() as u32;
        object.needed = vec![next; names.len() + 1];
        for at in (0..names.len()).rev() {
            next = if is_needed[at] { at as u32 } else { next };
            object.needed[at] = next;
        }
        Ok(object)
    }

    fn property(
        &mut self,
        object: &mut Object,
        name: &str,
        value: u32,
        steps: &[Step<'s>],
    ) -> Result<(), SchemaError> {
        let text = Value::from(name).to_string().into_bytes();
        let text = text.get(1..text.len() - 1).unwrap_or(&[]);
        self.spend(text, steps)?;
        object.keys.push(text.into());
        object.values.push(value);
        Ok(())
    }
}
