//! Builds the index of a vocabulary in memory of the caller, checking all of it.
//!
//! Texts of tokens stay in the file. Nothing here knows how text is encoded.

use super::merge::Rules;
use super::{MAX_TOKEN_BYTES, Tokenizer, TokenizerError, TokenizerFault, alphabet, table};
use crate::cast::Arena;
use crate::gguf::{Array, ElemType, Gguf, GgufFault, StrArray, Value};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";

/// More tokens or merges than any vocabulary has (Qwen3 has 151,936).
const MAX_ENTRIES: usize = table::MAX_ENTRIES;

/// The longest added token that is accepted, in bytes; Qwen's longest has 20.
///
/// The search for added tokens goes from each place of a text as far as some added token agrees with
/// it: this bounds its steps, whatever file and text are.
pub(super) const MAX_ADDED_BYTES: usize = 128;

/// What a token is, by the converter's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Made of bytes by merges; type 1.
    Normal,
    /// Added, and means something to the model's format; type 3.
    Control,
    /// Added as plain text; type 4.
    UserDefined,
    /// A hole in the numbering, never text; type 5.
    Unused,
}

impl TokenKind {
    fn of(value: Value<'_>) -> Option<Self> {
        let number = match value {
            Value::U64(n) => n,
            Value::I64(n) => u64::try_from(n).ok()?,
            _ => return None,
        };
        Some(match number {
            1 => Self::Normal,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            _ => return None,
        })
    }
}

/// The vocabulary as it stands in the file: lists present, their lengths sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) tokens: StrArray<'a>,
    types: Array<'a>,
    merges: StrArray<'a>,
    n_added: usize,
}

impl<'a> Source<'a> {
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(super) fn read(gguf: &Gguf<'a, '_>) -> Result<Self, TokenizerError> {
        if gguf.str(MODEL)? != "gpt2" {
            return Err(TokenizerError::at(MODEL, TokenizerFault::Model));
        }
        if gguf.str(PRE)? != "qwen2" {
            return Err(TokenizerError::at(PRE, TokenizerFault::Split));
        }
        let (tokens, merges) = (gguf.strings(TOKENS)?, gguf.strings(MERGES)?);
        for (key, found, least) in [(TOKENS, tokens.len(), 1), (MERGES, merges.len(), 0)] {
            if found < least || found > MAX_ENTRIES {
                let fault = TokenizerFault::Count { found, most: MAX_ENTRIES };
                return Err(TokenizerError::at(key, fault));
            }
        }
        let types = match gguf.require(TYPES)? {
            Value::Array(types @ Array::Fixed(ty, _)) if ty != ElemType::Bool => types,
            _ => return Err(metadata(TYPES, GgufFault::ValueType)),
        };
        if types.len() != tokens.len() {
            let fault = TokenizerFault::Length { tokens: tokens.len(), found: types.len() };
            return Err(TokenizerError::at(TYPES, fault));
        }
        let mut source = Source { tokens, types, merges, n_added: 0 };
        for token in 0..tokens.len() as u32 {
            let Some(kind) = source.kind(token) else {
                return Err(TokenizerError::at(TYPES, TokenizerFault::TokenType { token }));
            };
            source.n_added += usize::from(is_added(kind));
        }
        Ok(source)
    }

    /// Kind of a token below the vocabulary size.
    pub(super) fn kind(&self, token: u32) -> Option<TokenKind> {
        self.types.get(token as usize).and_then(TokenKind::of)
    }

    fn table_len(&self) -> usize {
        table::slots_for(self.tokens.len().max(self.merges.len()))
    }

    /// Bytes of the index.
    pub(super) fn index_bytes(&self) -> usize {
        let lens = [self.tokens.len(), self.n_added, 256, 3 * self.merges.len(), self.table_len()];
        lens.into_iter().map(Arena::size_of::<u32>).sum()
    }
}

fn is_added(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Control | TokenKind::UserDefined)
}

fn metadata(key: &str, fault: GgufFault) -> TokenizerError {
    TokenizerError::at(key, TokenizerFault::Metadata(fault))
}

/// Builds everything; `region` as large as [`Source::index_bytes`].
pub(super) fn build<'a>(gguf: &Gguf<'a, '_>, region: &'a mut [u8]) -> Result<Tokenizer<'a>, TokenizerError> {
    let source = Source::read(gguf)?;
    let mut arena = Arena::new(region)?;
    let offsets = arena.take::<u32>(source.tokens.len())?;
    let added = arena.take::<u32>(source.n_added)?;
    let bytes = arena.take::<u32>(256)?;
    let merges = arena.take::<u32>(3 * source.merges.len())?;
    let slots = arena.take::<u32>(source.table_len())?;

    let longest = read_tokens(&source, offsets)?;
    sort_added(&source, offsets, added)?;
    // The slots first find tokens by text, which only the merges need, then merges by pair.
    enter_tokens(&source, offsets, slots)?;
    for (byte, token) in (0..=u8::MAX).zip(bytes.iter_mut()) {
        let mut buffer = [0; 4];
        let text = alphabet::char_of(byte).encode_utf8(&mut buffer);
        *token = find_token(&source, offsets, slots, text, "")
            .ok_or(TokenizerError::at(TOKENS, TokenizerFault::MissingByte { byte }))?;
    }
    resolve_merges(&source, offsets, slots, merges)?;
    enter_merges(merges, slots)?;

    let n_tokens = source.tokens.len();
    let id = |key| {
        let id = gguf.u32(key)?;
        if id as usize >= n_tokens {
            return Err(TokenizerError::at(key, TokenizerFault::TokenId { id, tokens: n_tokens }));
        }
        Ok(id)
    };
    let eos = id(EOS)?;
    let bos = match gguf.get(ADD_BOS) {
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(id(BOS)?),
        Some(_) => return Err(metadata(ADD_BOS, GgufFault::ValueType)),
    };
    let rules = Rules { bytes, merges, table: slots };
    let first_bytes = Default::default();
    let tokenizer =
        Tokenizer { source, offsets, added, first_bytes, rules, longest, eos, bos, ends: [None; 2] };
    Ok(tokenizer.with_added())
}

/// Notes where each token's text is, and checks the text. Returns the longest length.
fn read_tokens(source: &Source<'_>, offsets: &mut [u32]) -> Result<usize, TokenizerError> {
    let mut longest = 0;
    for ((token, (offset, text)), slot) in (0..).zip(source.tokens.offsets()).zip(offsets) {
        let at = |fault| Err(TokenizerError::at(TOKENS, fault));
        let Ok(offset) = u32::try_from(offset) else {
            return at(TokenizerFault::TooLong { token });
        };
        *slot = offset;
        let (len, most) = match source.kind(token) {
            Some(TokenKind::Unused) | None => continue,
            Some(TokenKind::Normal) => (text.chars().count(), MAX_TOKEN_BYTES),
            Some(TokenKind::Control | TokenKind::UserDefined) => (text.len(), MAX_ADDED_BYTES),
        };
        if len == 0 {
            return at(TokenizerFault::Empty { token });
        }
        if len > most {
            return at(TokenizerFault::TooLong { token });
        }
        if source.kind(token) == Some(TokenKind::Normal)
            && text.chars().any(|c| alphabet::byte_of(c).is_none())
        {
            return at(TokenizerFault::Alphabet { token });
        }
        longest = longest.max(len);
    }
    Ok(longest)
}

/// Lists the added tokens in the order of their texts.
#[cfg_attr(kinglet_small, optimize(size))]
fn sort_added(source: &Source<'_>, offsets: &[u32], added: &mut [u32]) -> Result<(), TokenizerError> {
    let tokens = 0..source.tokens.len() as u32;
    let found = tokens.filter(|&token| source.kind(token).is_some_and(is_added));
    added.iter_mut().zip(found).for_each(|(slot, token)| *slot = token);
    let text = |token: u32| source.tokens.at(offsets[token as usize] as usize);
    added.sort_unstable_by_key(|&token| (text(token), token));
    match added.windows(2).find(|pair| text(pair[0]) == text(pair[1])) {
        Some(pair) => Err(TokenizerError::at(TOKENS, TokenizerFault::DuplicateToken { token: pair[1] })),
        None => Ok(()),
    }
}

/// Enters all tokens that merges can make.
///
/// A fine-tuned model may declare some of its ordinary tokens as added; those keep their merges.
/// Only plain ASCII reads the same as an added token's text and in the alphabet.
fn enter_tokens(source: &Source<'_>, offsets: &[u32], slots: &mut [u32]) -> Result<(), TokenizerError> {
    table::clear(slots);
    let collisions = TokenizerError::at(TOKENS, TokenizerFault::Collisions);
    for normal in [true, false] {
        for (token, text) in (0..).zip(source.tokens.iter()) {
            let wanted = match source.kind(token) {
                Some(TokenKind::Normal) => normal,
                Some(kind) => !normal && is_added(kind) && text.bytes().all(|b| b.is_ascii_graphic()),
                None => false,
            };
            if !wanted {
                continue;
            }
            let same = |other: u32| source.tokens.at(offsets[other as usize] as usize) == text;
            let entered = table::insert(slots, table::hash_bytes(text.bytes()), token, same);
            match entered.break_value() {
                Some(None) => return Err(collisions),
                Some(Some(_)) if normal => {
                    let fault = TokenizerFault::DuplicateToken { token };
                    return Err(TokenizerError::at(TOKENS, fault));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The token whose text is `left` followed by `right`.
fn find_token(source: &Source<'_>, offsets: &[u32], slots: &[u32], left: &str, right: &str) -> Option<u32> {
    table::find(slots, table::hash_bytes(left.bytes().chain(right.bytes())), |token| {
        let text = source.tokens.at(offsets[token as usize] as usize);
        text.strip_prefix(left) == Some(right)
    })
}

/// Turns the texts of the merges into ids.
fn resolve_merges(
    source: &Source<'_>,
    offsets: &[u32],
    slots: &[u32],
    merges: &mut [u32],
) -> Result<(), TokenizerError> {
    for ((merge, text), out) in (0..).zip(source.merges.iter()).zip(merges.chunks_exact_mut(3)) {
        let (left, right) = match text.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => (left, right),
            _ => return Err(TokenizerError::at(MERGES, TokenizerFault::MergeSyntax { merge })),
        };
        let find = |left, right| {
            find_token(source, offsets, slots, left, right)
                .ok_or(TokenizerError::at(MERGES, TokenizerFault::MergeUnknown { merge }))
        };
        let ids = [find(left, "")?, find(right, "")?, find(left, right)?];
        out.copy_from_slice(&ids);
    }
    Ok(())
}

/// Enters all merges by their pair.
fn enter_merges(merges: &[u32], slots: &mut [u32]) -> Result<(), TokenizerError> {
    table::clear(slots);
    for (merge, sides) in (0..).zip(merges.chunks_exact(3)) {
        let hash = table::hash_pair(sides[0], sides[1]);
        let same = |other: u32| merges[3 * other as usize..][..2] == sides[..2];
        let fault = match table::insert(slots, hash, merge, same).break_value() {
            None => continue,
            Some(Some(_)) => TokenizerFault::DuplicateMerge { merge },
            Some(None) => TokenizerFault::Collisions,
        };
        return Err(TokenizerError::at(MERGES, fault));
    }
    Ok(())
}
