//! JSON as replies are written: text, appended part by part. Must not know what replies say.

use crate::decimal::{fixed, short};
use crate::tojson::push_json_string;

/// A JSON text in the making. Commas are put where they belong: before whatever follows a finished value.
#[derive(Debug, Default)]
pub struct Json {
    text: String,
}

impl Json {
    /// An object, opened.
    pub fn object() -> Json {
        let mut json = Json::default();
        json.open('{');
        json
    }

    /// The comma, unless this is the first thing here. The last byte tells: a text value ends in its quote.
    fn next(&mut self) {
        if !matches!(self.text.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.text.push(',');
        }
    }

    /// Opens an object or a list: `{` or `[`.
    pub fn open(&mut self, bracket: char) -> &mut Json {
        self.next();
        self.text.push(bracket);
        self
    }

    /// Closes what was opened last: `}` or `]`.
    pub fn close(&mut self, bracket: char) -> &mut Json {
        self.text.push(bracket);
        self
    }

    /// The name of what comes next.
    pub fn key(&mut self, name: &str) -> &mut Json {
        self.str(name);
        self.text.push(':');
        self
    }

    /// A text.
    pub fn str(&mut self, text: &str) -> &mut Json {
        self.next();
        push_json_string(text, &mut self.text);
        self
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, json: &str) -> &mut Json {
        self.next();
        self.text.push_str(json);
        self
    }

    /// A whole number.
    pub fn number(&mut self, n: u64) -> &mut Json {
        self.raw(&n.to_string())
    }

    /// A text under a name.
    pub fn put(&mut self, name: &str, text: &str) -> &mut Json {
        self.key(name).str(text)
    }

    /// A text or null under a name.
    pub fn put_or_null(&mut self, name: &str, text: Option<&str>) -> &mut Json {
        match text {
            Some(text) => self.put(name, text),
            None => self.put_raw(name, "null"),
        }
    }

    /// JSON under a name.
    pub fn put_raw(&mut self, name: &str, json: &str) -> &mut Json {
        self.key(name).raw(json)
    }

    /// A whole number under a name.
    pub fn put_number(&mut self, name: &str, n: u64) -> &mut Json {
        self.key(name).number(n)
    }

    /// A switch under a name.
    pub fn put_bool(&mut self, name: &str, on: bool) -> &mut Json {
        self.put_raw(name, if on { "true" } else { "false" })
    }

    /// A number with three places under a name; null for what is no number.
    pub fn put_real(&mut self, name: &str, value: f64) -> &mut Json {
        if value.is_finite() { self.put_raw(name, &fixed(value, 3)) } else { self.put_raw(name, "null") }
    }

    /// The logarithm of a probability; that of 0 as OpenAI writes it.
    pub fn logprob(&mut self, value: f32) -> &mut Json {
        if value.is_finite() { self.raw(&short(value)) } else { self.raw("-9999.0") }
    }

    /// The text, whose last bracket this closes.
    pub fn end(mut self) -> String {
        self.close('}');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_where_they_belong() {
        let mut json = Json::object();
        json.put("a", "x\"\n{").put_number("b", 7).key("c").open('[').number(1).number(2).close(']');
        json.key("d").open('{').close('}').put_bool("e", true).put_or_null("f", None);
        json.put_real("g", 1.23456).put_real("h", f64::NAN).key("i").logprob(-0.5);
        json.put("j", "[").put("k", "");
        assert_eq!(
            json.end(),
            concat!(
                r#"{"a":"x\"\n{","b":7,"c":[1,2],"d":{},"e":true,"f":null,"g":1.235,"h":null,"i":-0.5,"#,
                r#""j":"[","k":""}"#
            )
        );
    }
}
