//! What a grammar is made of, and what holds for each part: how deep it must nest at least.
//! Must not know schemas or tokens.

/// Deepest nesting of objects and lists.
pub(super) const MAX_DEPTH: u8 = 64;
/// Readings of a text that are followed side by side; most alternatives of one place.
pub(super) const MAX_STATES: usize = 64;
/// Height of what no document of at most [`MAX_DEPTH`] levels satisfies.
pub(super) const ENDLESS: u8 = u8::MAX;

/// Any JSON value; the nodes behind it are its kinds.
pub(super) const ANY: u32 = 0;
/// Any object.
pub(super) const ANY_OBJECT: u32 = 1;

/// A text that is matched byte by byte.
pub(super) type Text = Box<[u8]>;

/// One kind of value, or a choice of several.
#[derive(Debug)]
pub(super) enum Node {
    Object(Object),
    Array(Array),
    /// Limits in characters.
    Str {
        least: u32,
        most: u32,
    },
    /// A whole number: limits of its size without a sign and with a minus; none if the first is larger.
    Integer {
        plus: (u64, u64),
        minus: (u64, u64),
    },
    /// Whether it may be negative.
    Number {
        minus: bool,
    },
    /// One of these JSON texts, in ascending order. None of them: nothing fits.
    Literals(Vec<Text>),
    /// One of these nodes; behind [`finish`], none of them is itself a choice.
    Choice(Vec<u32>),
    /// Calls of tools: what stands before the arguments of each, and the arguments.
    Calls {
        heads: Vec<Text>,
        arguments: Vec<u32>,
    },
}

/// An object: properties in this order, then others.
#[derive(Debug)]
pub(super) struct Object {
    /// Names as JSON writes them, without quotes; no two are equal.
    pub(super) keys: Vec<Text>,
    pub(super) values: Vec<u32>,
    /// For each property and for the end: the first that must come at or behind it; else how many there are.
    pub(super) needed: Vec<u32>,
    /// What other properties are, if there may be any.
    pub(super) more: Option<u32>,
}

/// A list.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) items: u32,
    pub(super) least: u32,
    pub(super) most: u32,
}

/// The nodes that stand for any value, [`ANY`] and [`ANY_OBJECT`] at their places.
pub(super) fn any() -> Vec<Node> {
    let texts = ["false", "null", "true"];
    vec![
        Node::Choice(vec![1, 2, 3, 4, 5]),
        Node::Object(Object { keys: Vec::new(), values: Vec::new(), needed: vec![0], more: Some(ANY) }),
        Node::Array(Array { items: ANY, least: 0, most: u32::MAX }),
        Node::Str { least: 0, most: u32::MAX },
        Node::Number { minus: true },
        Node::Literals(texts.iter().map(|text| text.as_bytes().into()).collect()),
    ]
}

/// Makes choices flat and returns the height of each node: how many levels of objects and lists it has at
/// least, [`ENDLESS`] if no document fits. The error is a node with too many alternatives.
pub(super) fn finish(nodes: &mut [Node]) -> Result<Vec<u8>, u32> {
    for id in 0..nodes.len() {
        if matches!(nodes[id], Node::Choice(_)) {
            let leaves = leaves(nodes, id as u32);
            if leaves.len() > MAX_STATES {
                return Err(id as u32);
            }
            nodes[id] = Node::Choice(leaves);
        }
    }
    let mut heights = vec![ENDLESS; nodes.len()];
    // Each round settles at least the nodes of one more level.
    loop {
        let mut changed = false;
        for (id, node) in nodes.iter().enumerate() {
            let height = height(node, &heights);
            changed |= height != heights[id];
            heights[id] = height;
        }
        if !changed {
            return Ok(heights);
        }
    }
}

/// The nodes that a choice comes to, each once; a choice that leads only to itself has none.
fn leaves(nodes: &[Node], id: u32) -> Vec<u32> {
    let (mut seen, mut leaves, mut todo) = (vec![false; nodes.len()], Vec::new(), vec![id]);
    while let Some(id) = todo.pop() {
        if core::mem::replace(&mut seen[id as usize], true) {
            continue;
        }
        match &nodes[id as usize] {
            Node::Choice(of) => todo.extend(of.iter().rev()),
            _ => leaves.push(id),
        }
    }
    leaves
}

fn height(node: &Node, heights: &[u8]) -> u8 {
    let of = |id: u32| heights[id as usize];
    let inside = match node {
        Node::Object(object) => {
            let required = (0..object.keys.len()).filter(|&i| object.needed[i] as usize == i);
            required.map(|i| of(object.values[i])).max().unwrap_or(0)
        }
        Node::Array(array) if array.least > 0 => of(array.items),
        Node::Array(_) => 0,
        Node::Choice(of_these) => return of_these.iter().map(|&id| of(id)).min().unwrap_or(ENDLESS),
        Node::Literals(texts) if texts.is_empty() => return ENDLESS,
        _ => return 0,
    };
    if inside < MAX_DEPTH { inside + 1 } else { ENDLESS }
}
