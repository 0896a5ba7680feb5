//! The fields of a request, read with errors that name them. Must not know what they mean.
//!
//! A field that is null is a field that is not there. Unknown fields are never looked at.

use super::error::ApiError;
use crate::decimal;
use serde_json::{Map, Number, Value};

/// An object of a request.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'v> {
    map: &'v Map<String, Value>,
    /// What stands before the names in errors: nothing, or as `messages[2].`
    path: &'v str,
}

impl<'v> Fields<'v> {
    /// The fields of a whole request.
    ///
    /// # Errors
    /// It is no object.
    pub fn of(request: &'v Value) -> Result<Fields<'v>, ApiError> {
        match request {
            Value::Object(map) => Ok(Fields { map, path: "" }),
            _ => Err(ApiError::new(400, "the body must be a JSON object")),
        }
    }

    /// The fields of a part of a request; `path` ends in a point.
    ///
    /// # Errors
    /// It is no object.
    pub fn part(value: &'v Value, path: &'v str) -> Result<Fields<'v>, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields { map, path }),
            _ => Err(ApiError::field(path.trim_end_matches('.'), "must be an object")),
        }
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&'v Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// An error about a field.
    pub fn wrong(&self, name: &str, what: &str) -> ApiError {
        ApiError::field(&[self.path, name].concat(), what)
    }

    /// An error if the field is missing.
    ///
    /// # Errors
    /// It is.
    pub fn need(&self, name: &str) -> Result<&'v Value, ApiError> {
        self.get(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// A text.
    ///
    /// # Errors
    /// Another type.
    pub fn text(&self, name: &str) -> Result<Option<&'v str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    /// A switch.
    ///
    /// # Errors
    /// Another type.
    pub fn switch(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    /// A whole number from `least` to `most`.
    ///
    /// # Errors
    /// Another type; out of range.
    pub fn whole(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => as_whole(number),
            _ => None,
        };
        match number {
            None => Err(self.wrong(name, "must be a whole number")),
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            Some(_) => Err(self.out_of_range(name, &least.to_string(), &most.to_string())),
        }
    }

    /// Any number from `least` to `most`.
    ///
    /// # Errors
    /// Another type; out of range.
    pub fn real(&self, name: &str, least: f32, most: f32) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match as_real(value) {
            None => Err(self.wrong(name, "must be a number")),
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            Some(_) => Err(self.out_of_range(name, &decimal::short(least), &decimal::short(most))),
        }
    }

    fn out_of_range(&self, name: &str, least: &str, most: &str) -> ApiError {
        self.wrong(name, &["must be from ", least, " to ", most].concat())
    }

    /// A list.
    ///
    /// # Errors
    /// Another type.
    pub fn list(&self, name: &str) -> Result<Option<&'v [Value]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.wrong(name, "must be a list")),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// Another type.
    pub fn map(&self, name: &str) -> Result<Option<&'v Map<String, Value>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }
}

/// A number without a fraction.
fn as_whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let value = decimal::parse_f64(number.as_str())?;
        // Beyond 2^53 it would be another number.
        (value.abs() < 9e15 && value.trunc() == value).then_some(value as i64)
    })
}

/// A JSON number as a float.
pub fn as_real(value: &Value) -> Option<f32> {
    match value {
        Value::Number(number) => decimal::parse_f32(number.as_str()),
        _ => None,
    }
}

/// A list of token ids of a vocabulary, if it is one.
pub fn as_ids(list: &[Value], vocab: usize) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().filter(|id| *id < vocab as u64).map(|id| id as u32);
    list.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn wrong_types_name_the_field() {
        let request = value(r#"{"a": "x", "b": 1.5, "c": true, "d": null, "e": [1], "f": 3.0, "g": {}}"#);
        let fields = Fields::of(&request).unwrap();
        assert_eq!(fields.text("a"), Ok(Some("x")));
        assert_eq!(fields.real("b", 0.0, 2.0), Ok(Some(1.5)));
        assert_eq!(fields.whole("f", 0, 5), Ok(Some(3)));
        assert_eq!(fields.switch("c"), Ok(Some(true)));
        assert_eq!(fields.text("d"), Ok(None));
        assert_eq!(fields.whole("none", 0, 5), Ok(None));
        assert_eq!(fields.list("e").unwrap().unwrap().len(), 1);
        let message = |e: ApiError| (e.param.unwrap(), e.message);
        let of = |name: &str, what: &str| (String::from(name), format!("{name}: {what}"));
        assert_eq!(message(fields.text("b").unwrap_err()), of("b", "must be a string"));
        assert_eq!(message(fields.whole("b", 0, 5).unwrap_err()), of("b", "must be a whole number"));
        assert_eq!(message(fields.whole("f", 4, 5).unwrap_err()), of("f", "must be from 4 to 5"));
        assert_eq!(message(fields.whole("c", 4, 5).unwrap_err()), of("c", "must be a whole number"));
        assert_eq!(message(fields.real("a", 0.0, 1.0).unwrap_err()), of("a", "must be a number"));
        assert_eq!(message(fields.real("b", 0.0, 1.0).unwrap_err()), of("b", "must be from 0 to 1"));
        assert_eq!(message(fields.map("e").unwrap_err()), of("e", "must be an object"));
        let part = Fields::part(&request["g"], "g.").unwrap();
        assert_eq!(message(part.need("h").map(drop).unwrap_err()), of("g.h", "is missing"));
        assert_eq!(message(Fields::part(&request["e"], "e.").map(drop).unwrap_err()).0, "e");
        assert_eq!(Fields::of(&request["e"]).unwrap_err().status, 400);
    }

    #[test]
    fn ids_are_those_of_the_vocabulary() {
        let list = |text: &str| as_ids(value(text).as_array().unwrap(), 10);
        assert_eq!(list("[1, 9]"), Some(vec![1, 9]));
        for bad in ["[10]", "[-1]", "[1.5]", "[\"1\"]"] {
            assert_eq!(list(bad), None, "{bad}");
        }
    }
}
