//! The nodes of a grammar while they are made, and where in a schema each of them stands.
//! Must not know what the keywords of a schema mean.
//!
//! Nothing recurses: schemas inside others wait in a list, so that no schema can exhaust the stack.

use super::node::{self, ANY, ANY_OBJECT, ENDLESS, Node, Text};
use super::{Grammar, SchemaError};
use serde_json::Value;

/// Most nodes, names and alternatives together; a long name counts as several.
const MOST_PARTS: usize = 8192;
/// Longest name of a property or alternative of an `enum`, in bytes as JSON writes it.
const LONGEST_TEXT: usize = 4096;
const TOO_LARGE: &str = "the schema is too large";

/// A step of a JSON pointer.
#[derive(Clone, Copy)]
pub(super) enum Step<'s> {
    Name(&'s str),
    Index(usize),
    /// From the root of a schema: a whole pointer.
    From(&'s str),
}

use Step::{Index, Name};

/// Where a node's schema stands: steps from another node's.
#[derive(Clone, Copy, Default)]
struct Place<'s> {
    parent: Option<u32>,
    steps: [Option<Step<'s>>; 2],
}

/// Makes nodes of schemas.
pub(super) struct Builder<'s> {
    pub(super) root: &'s Value,
    nodes: Vec<Node>,
    places: Vec<Place<'s>>,
    /// Nodes that are not made yet.
    todo: Vec<(u32, &'s Value)>,
    /// Pointers of references and their nodes.
    references: Vec<(&'s str, u32)>,
    parts: usize,
    /// The node of the whole schema.
    top: u32,
    /// The node that is being made.
    at: u32,
}

impl<'s> Builder<'s> {
    pub(super) fn new() -> Builder<'s> {
        let nodes = node::any();
        let places = vec![Place::default(); nodes.len()];
        let (todo, references) = (Vec::new(), Vec::new());
        Builder { root: &Value::Null, nodes, places, todo, references, parts: 0, top: ANY, at: ANY }
    }

    /// The node of a whole schema, that of tool `tool` if there is one.
    pub(super) fn schema(&mut self, schema: &'s Value, tool: Option<usize>) -> Result<u32, SchemaError> {
        self.root = schema;
        self.references.clear();
        let root = self.add(Node::Choice(Vec::new()), &[]);
        self.places[root as usize] = Place { parent: None, steps: [tool.map(Index), None] };
        self.top = root;
        self.references.push(("", root));
        self.todo.push((root, schema));
        while let Some((id, schema)) = self.todo.pop() {
            self.at = id;
            let node = self.node(schema)?;
            self.nodes[id as usize] = node;
            if self.parts + self.nodes.len() > MOST_PARTS {
                return Err(self.error(&[], TOO_LARGE));
            }
        }
        Ok(root)
    }

    /// The grammar, once all nodes are made; ends the builder.
    pub(super) fn finish(&mut self, root: u32) -> Result<Grammar, SchemaError> {
        let heights = match node::finish(&mut self.nodes) {
            Ok(heights) => heights,
            Err(id) => {
                self.at = id;
                return Err(self.error(&[], "there are too many alternatives"));
            }
        };
        if heights.get(root as usize) == Some(&ENDLESS) {
            self.at = root;
            return Err(self.error(&[], "no document of at most 64 levels fits this"));
        }
        Ok(Grammar { nodes: core::mem::take(&mut self.nodes), heights, root, lazy: false, one_call: false })
    }

    /// The grammar of calls of tools.
    pub(super) fn calls(
        &mut self,
        heads: Vec<Text>,
        arguments: Vec<u32>,
        lazy: bool,
        one_call: bool,
    ) -> Result<Grammar, SchemaError> {
        if heads.is_empty() {
            self.at = ANY;
            return Err(self.error(&[], "there are no tools"));
        }
        if self.parts + heads.iter().map(|head| cost(head)).sum::<usize>() > MOST_PARTS {
            return Err(self.error(&[], TOO_LARGE));
        }
        let root = self.add(Node::Calls { heads, arguments: arguments.clone() }, &[]);
        let mut grammar = self.finish(root)?;
        for id in arguments {
            self.at = id;
            if grammar.heights[id as usize] == ENDLESS {
                return Err(self.error(&[], "no arguments of at most 64 levels fit this"));
            }
            let leaves = match &grammar.nodes[id as usize] {
                Node::Choice(leaves) => &leaves[..],
                _ => core::slice::from_ref(&id),
            };
            let is_object = |id: &u32| matches!(grammar.nodes[*id as usize], Node::Object(_));
            if leaves.contains(&ANY_OBJECT) {
                // Any value: any object.
                grammar.nodes[id as usize] = Node::Choice(vec![ANY_OBJECT]);
                grammar.heights[id as usize] = 1;
            } else if !leaves.iter().all(is_object) {
                return Err(self.error(&[], "arguments are an object"));
            }
        }
        (grammar.lazy, grammar.one_call) = (lazy, one_call);
        Ok(grammar)
    }

    /// Adds a node whose schema stands at `steps` from that of the node being made.
    pub(super) fn add(&mut self, node: Node, steps: &[Step<'s>]) -> u32 {
        let steps = [steps.first().copied(), steps.get(1).copied()];
        self.places.push(Place { parent: Some(self.at), steps });
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// A node to be made of `schema`.
    pub(super) fn child(&mut self, schema: &'s Value, steps: &[Step<'s>]) -> u32 {
        if matches!(schema, Value::Bool(true)) {
            return ANY;
        }
        let id = self.add(Node::Choice(Vec::new()), steps);
        self.todo.push((id, schema));
        id
    }

    /// The node of the schema to which `pointer` leads from the root.
    pub(super) fn refer(&mut self, pointer: &'s str, schema: &'s Value) -> u32 {
        if let Some((_, id)) = self.references.iter().find(|(known, _)| *known == pointer) {
            return *id;
        }
        let id = self.add(Node::Choice(Vec::new()), &[Step::From(pointer)]);
        self.places[id as usize].parent = Some(self.top);
        self.todo.push((id, schema));
        self.references.push((pointer, id));
        id
    }

    /// An error at keyword `key`.
    #[inline(never)]
    pub(super) fn wrong(&self, key: &'s str, what: &'static str) -> SchemaError {
        self.error(&[Name(key)], what)
    }

    /// An error at `steps` from the node being made.
    pub(super) fn error(&self, steps: &[Step<'s>], what: &'static str) -> SchemaError {
        let mut all: Vec<Step<'s>> = steps.iter().rev().copied().collect();
        let mut at = Some(self.at);
        while let Some(place) = at.and_then(|id| self.places.get(id as usize)) {
            all.extend(place.steps.iter().rev().flatten());
            at = place.parent;
        }
        let mut path = String::new();
        for each in all.iter().rev() {
            path = step(&mut path, each);
        }
        SchemaError { path, what }
    }

    /// Counts a text, which stands at `steps`.
    pub(super) fn spend(&mut self, text: &[u8], steps: &[Step<'s>]) -> Result<(), SchemaError> {
        self.parts += cost(text);
        if text.len() > LONGEST_TEXT {
            return Err(self.error(steps, "is too long"));
        }
        if self.parts > MOST_PARTS { Err(self.error(steps, TOO_LARGE)) } else { Ok(()) }
    }
}

fn cost(text: &[u8]) -> usize {
    1 + text.len() / 64
}

/// A pointer with one more step.
fn step(path: &mut String, step: &Step<'_>) -> String {
    match step {
        Step::From(pointer) => path.push_str(pointer),
        Step::Index(i) => {
            path.push('/');
            path.push_str(&i.to_string());
        }
        Step::Name(name) => {
            path.push('/');
            path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
    }
    core::mem::take(path)
}
