//! Constrained decoding: which tokens may come next so that the whole is JSON of a schema.
//!
//! # The subset of JSON schema
//! - `type`, a name or a list of names; where it is missing it follows from the other keywords.
//! - Objects: `properties`, `required`, `additionalProperties` (a boolean or a schema). Properties come in
//!   the order of the schema, as in OpenAI's strict mode, others behind them. Where `properties` are given
//!   and nothing is said about others, there are none. Names of others are written without escapes.
//! - Lists: `items`, `minItems`, `maxItems`.
//! - Strings: `minLength`, `maxLength`, in characters.
//! - Whole numbers: `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, in whole numbers that fit
//!   64 bits. For `number` only `minimum: 0`.
//! - `enum` and `const`, beside `type` at most; lists and objects in them without white space.
//! - `anyOf`, and `oneOf` read as `anyOf`: that no second alternative fits is not checked. `allOf` of one.
//! - `$ref` within the schema (`#`, `#/$defs/Name`, ...), recursive too. `true`, `false`, `{}`.
//! - Without effect: `title`, `description`, `default`, `examples`, `format`, `$schema`, `$id`, `$comment`,
//!   `deprecated`, `readOnly`, `writeOnly`, `discriminator`.
//!
//! All else is a [`SchemaError`]. White space is at most one space, or a line end with indentation, where
//! `json.dumps` and `JSON.stringify` put it; numbers have at most 19 digits, 20 behind the point and an
//! exponent of 2; objects and lists nest at most 64 deep. So no model can go on for ever between two
//! characters that matter, and wherever a text stands, it can be completed.
//!
//! Must not know models, requests or what logits mean.

mod builder;
mod mask;
mod node;
mod schema;
mod stacks;
mod steps;
mod table;

pub use mask::Constraint;
pub use table::TokenTable;

use builder::Builder;
use core::fmt;
use node::{Node, Object};
use serde_json::Value;

/// Begins a call of a tool.
pub(crate) const CALL: &str = "<tool_call>";
/// Ends it.
pub(crate) const CALL_END: &str = "</tool_call>";

/// What texts are allowed.
#[derive(Debug)]
pub struct Grammar {
    nodes: Vec<Node>,
    /// Levels that each node needs.
    heights: Vec<u8>,
    root: u32,
    /// Any text may come until a call begins, and between calls.
    lazy: bool,
    /// The text ends with the first call.
    one_call: bool,
}

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Where, as a JSON pointer; empty for the whole.
    pub path: String,
    /// What is the matter.
    pub what: &'static str,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, what } = self;
        write!(f, "#{path}: {what}")
    }
}

impl core::error::Error for SchemaError {}

impl Grammar {
    /// Any JSON object.
    pub fn json_object() -> Grammar {
        let nodes = node::any();
        // Any value can be `null`, so an object needs one level; lists likewise.
        let heights = vec![0, 1, 1, 0, 0, 0];
        Grammar { nodes, heights, root: node::ANY_OBJECT, lazy: false, one_call: false }
    }

    /// The documents of a schema. See the module for what it may say.
    ///
    /// # Errors
    /// What is not supported, contradictory or too large, and where it stands.
    pub fn schema(schema: &Value) -> Result<Grammar, SchemaError> {
        let mut builder = Builder::new();
        let root = builder.schema(schema, None)?;
        builder.finish(root)
    }

    /// Calls of tools as Qwen's templates write them, one to a line:
    /// `<tool_call>\n{"name": "NAME", "arguments": {..}}\n</tool_call>`. `tools` are names and schemas of
    /// arguments; null for a tool without any. Unless there must be `at_least_one`, any text
    /// may come first, and behind calls. `one_only`: the text ends with the first call.
    ///
    /// # Errors
    /// As [`Grammar::schema`], the path beginning with the index of the tool; no tools; arguments that need
    /// not be an object.
    pub fn tool_calls(
        tools: &[(String, Value)],
        at_least_one: bool,
        one_only: bool,
    ) -> Result<Grammar, SchemaError> {
        let mut builder = Builder::new();
        let (mut heads, mut arguments) = (Vec::new(), Vec::new());
        for (i, (name, schema)) in tools.iter().enumerate() {
            let mut head = String::from(CALL);
            head.push_str("\n{\"name\": ");
            head.push_str(&Value::from(name.as_str()).to_string());
            head.push_str(", \"arguments\": ");
            let head = head.into_bytes().into_boxed_slice();
            let node = match schema {
                Value::Null => builder.add(Node::Object(Object::closed()), &[]),
                _ => builder.schema(schema, Some(i))?,
            };
            // Of two tools with one name only the first can be meant.
            if !heads.contains(&head) {
                heads.push(head);
                arguments.push(node);
            }
        }
        builder.calls(heads, arguments, !at_least_one, one_only)
    }
}
