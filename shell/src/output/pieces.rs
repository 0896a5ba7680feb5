//! What a reply is made of. Must not know how it was read.

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text of the answer.
    Text(String),
    /// Text of the reasoning.
    Reasoning(String),
    /// A call begins.
    ToolCall {
        /// Counts from 0.
        index: usize,
        /// Name of the tool.
        name: String,
    },
    /// More of the arguments of a call.
    Arguments {
        /// Which one.
        index: usize,
        /// JSON, to be joined.
        part: String,
    },
}

/// What text is.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Reasoning,
    Arguments(usize),
}

/// Adds text to the pieces, to the last of them if that is of the same kind.
pub(super) fn put(pieces: &mut Vec<Piece>, kind: Kind, text: &str) {
    if text.is_empty() {
        return;
    }
    match (kind, pieces.last_mut()) {
        (Kind::Text, Some(Piece::Text(last))) | (Kind::Reasoning, Some(Piece::Reasoning(last))) => {
            last.push_str(text);
        }
        (Kind::Arguments(at), Some(Piece::Arguments { index, part })) if *index == at => part.push_str(text),
        (Kind::Text, _) => pieces.push(Piece::Text(text.into())),
        (Kind::Reasoning, _) => pieces.push(Piece::Reasoning(text.into())),
        (Kind::Arguments(index), _) => pieces.push(Piece::Arguments { index, part: text.into() }),
    }
}
