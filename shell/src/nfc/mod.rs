//! Normalization form C of Unicode: canonical decomposition, ordering, composition.
//!
//! The tables are a seventh of those of crate `unicode-normalization`, which would be a third of
//! the shell; a test compares the two over every character. Must not know why text is normalised.

mod table;

use std::borrow::Cow;
use table::{CLASSES, COMPOSED, HIGH_PAIRS, HIGH_SINGLES, PAIRS, SINGLES};

/// All characters below this are as NFC wants them and join nothing before them.
const FIRST_MARK: char = '\u{300}';

/// Hangul is composed by arithmetic: leading consonants, vowels, trailing consonants, syllables.
const L_BASE: u32 = 0x1100;
const V_BASE: u32 = 0x1161;
const T_BASE: u32 = 0x11A7;
const S_BASE: u32 = 0xAC00;
const L_COUNT: u32 = 19;
const V_COUNT: u32 = 21;
const T_COUNT: u32 = 28;

/// `text` in NFC; not copied if no character in it can change.
pub fn nfc(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut cluster = Vec::new();
    // `text[..done]` is in `out`; `text[start..]` begins with the last inert character seen.
    let (mut done, mut start) = (0, 0);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if is_inert(c) {
            start = at;
            continue;
        }
        // From the inert character that this one may join, up to the next that joins nothing.
        let mut end = at + c.len_utf8();
        while let Some((at, c)) = chars.next_if(|(_, c)| !is_inert(*c)) {
            end = at + c.len_utf8();
        }
        let start_of_cluster = start.max(done);
        out.push_str(&text[done..start_of_cluster]);
        normalize(&text[start_of_cluster..end], &mut cluster, &mut out);
        done = end;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Whether `c` neither changes nor joins what stands before it.
fn is_inert(c: char) -> bool {
    c < FIRST_MARK
        || (class(c) == 0
            && !is_second(u32::from(c))
            && pair(u32::from(c)).is_none()
            && single(u32::from(c)).is_none())
}

/// Appends the NFC of `text` to `out`; `cluster` is working memory.
#[inline(never)]
fn normalize(text: &str, cluster: &mut Vec<(u8, char)>, out: &mut String) {
    cluster.clear();
    text.chars().for_each(|c| decompose(u32::from(c), cluster));
    // Marks between two starters by class, those of one class in their order.
    for marks in cluster.split_mut(|(class, _)| *class == 0) {
        marks.sort_by_key(|(class, _)| *class);
    }
    // In place: `kept` characters are final but for the last starter among them.
    let (mut kept, mut starter, mut last_class) = (0, None::<usize>, 0);
    for i in 0..cluster.len() {
        let (class, c) = cluster[i];
        if let Some(at) = starter {
            let adjacent = kept == at + 1;
            if (adjacent || last_class < class)
                && let Some(joined) = compose(u32::from(cluster[at].1), u32::from(c))
            {
                cluster[at].1 = joined;
                continue;
            }
        }
        if class == 0 {
            starter = Some(kept);
        }
        last_class = class;
        cluster[kept] = (class, c);
        kept += 1;
    }
    out.extend(cluster[..kept].iter().map(|(_, c)| c));
}

/// Appends the parts of a character with their classes. Hangul syllables stay whole: they would
/// only be composed again.
fn decompose(code: u32, parts: &mut Vec<(u8, char)>) {
    if let Some((first, second)) = pair(code) {
        decompose(first, parts);
        parts.extend(char::from_u32(second).map(|c| (class(c), c)));
    } else {
        let code = single(code).unwrap_or(code);
        parts.extend(char::from_u32(code).map(|c| (class(c), c)));
    }
}

/// The canonical combining class.
fn class(c: char) -> u8 {
    let code = u32::from(c);
    let after = CLASSES.partition_point(|&change| change >> 8 <= code);
    after.checked_sub(1).map_or(0, |i| CLASSES[i] as u8)
}

/// The two parts of a character.
fn pair(code: u32) -> Option<(u32, u32)> {
    if let Ok(i) = PAIRS.binary_search_by_key(&code, |row| u32::from(row[0])) {
        return Some((PAIRS[i][1].into(), PAIRS[i][2].into()));
    }
    let i = HIGH_PAIRS.binary_search_by_key(&code, |row| row[0]).ok()?;
    Some((HIGH_PAIRS[i][1], HIGH_PAIRS[i][2]))
}

/// What a character stands for.
fn single(code: u32) -> Option<u32> {
    if let Ok(i) = SINGLES.binary_search_by_key(&code, |row| u32::from(row[0])) {
        return Some(SINGLES[i][1].into());
    }
    let place = match code.checked_sub(HIGH_SINGLES[SCATTERED][0]) {
        Some(i) => SCATTERED + i as usize,
        None => FIRST_SCATTERED.iter().position(|first| *first == code)?,
    };
    let low = HIGH_SINGLES_LOW.get(place)?;
    let plane = u32::from(HIGH_SINGLES_PLANE_2[place / 8] >> (place % 8) & 1) * 2;
    Some(plane << 16 | u32::from(*low))
}

/// Rows of [`HIGH_SINGLES`] before the compatibility block, whose characters follow each other without a gap.
const SCATTERED: usize = 7;

/// The characters of those rows.
static FIRST_SCATTERED: [u32; SCATTERED] = {
    let mut firsts = [0; SCATTERED];
    let mut i = 0;
    while i < SCATTERED {
        firsts[i] = HIGH_SINGLES[i][0];
        i += 1;
    }
    firsts
};

/// What the characters of [`HIGH_SINGLES`] stand for, a quarter of the bytes: the low 16 bits.
static HIGH_SINGLES_LOW: [u16; HIGH_SINGLES.len()] = {
    let mut lows = [0; HIGH_SINGLES.len()];
    let mut i = 0;
    while i < lows.len() {
        let [code, single] = HIGH_SINGLES[i];
        assert!(i < SCATTERED || code - HIGH_SINGLES[SCATTERED][0] == (i - SCATTERED) as u32);
        assert!(single >> 16 == 0 || single >> 16 == 2);
        lows[i] = single as u16;
        i += 1;
    }
    lows
};

/// Of each, one bit: whether it lies in plane 2 and not in plane 0.
static HIGH_SINGLES_PLANE_2: [u8; HIGH_SINGLES.len().div_ceil(8)] = {
    let mut bits = [0; HIGH_SINGLES.len().div_ceil(8)];
    let mut i = 0;
    while i < HIGH_SINGLES.len() {
        bits[i / 8] |= ((HIGH_SINGLES[i][1] >> 17) as u8) << (i % 8);
        i += 1;
    }
    bits
};

/// A row of both tables of pairs: the whole and its parts.
fn row(index: u16) -> [u32; 3] {
    let index = usize::from(index);
    PAIRS.get(index).map_or_else(|| HIGH_PAIRS[index - PAIRS.len()], |row| row.map(u32::from))
}

/// Whether a character may join the one before it.
fn is_second(code: u32) -> bool {
    let hangul = (V_BASE..V_BASE + V_COUNT).contains(&code) || (T_BASE + 1..T_BASE + T_COUNT).contains(&code);
    hangul || COMPOSED.binary_search_by_key(&code, |&i| row(i)[2]).is_ok()
}

/// The character that two make together.
fn compose(first: u32, second: u32) -> Option<char> {
    let l = first.wrapping_sub(L_BASE);
    let v = second.wrapping_sub(V_BASE);
    if l < L_COUNT && v < V_COUNT {
        return char::from_u32(S_BASE + (l * V_COUNT + v) * T_COUNT);
    }
    let s = first.wrapping_sub(S_BASE);
    let t = second.wrapping_sub(T_BASE);
    if s < L_COUNT * V_COUNT * T_COUNT && s.is_multiple_of(T_COUNT) && (1..T_COUNT).contains(&t) {
        return char::from_u32(first + t);
    }
    let key = |&i: &u16| {
        let [_, first, second] = row(i);
        (second, first)
    };
    let found = COMPOSED.binary_search_by_key(&(second, first), key).ok()?;
    char::from_u32(row(COMPOSED[found])[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_change_is_not_copied() {
        for text in ["", "plain", "d\u{e9}j\u{e0}", "\u{4e2d}\u{6587}", "\u{d55c}\u{ae00}", "\u{1f600}"] {
            assert!(matches!(nfc(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn marks_join_are_ordered_and_are_blocked() {
        for (text, want) in [
            ("e\u{301}", "\u{e9}"),
            ("xe\u{301}y", "x\u{e9}y"),
            ("\u{301}e", "\u{301}e"),
            ("a\u{302}\u{301}", "\u{1ea5}"),
            ("a\u{301}\u{323}", "\u{1ea1}\u{301}"),
            ("\u{212b}", "\u{c5}"),
            ("\u{1100}\u{1161}\u{11a8}", "\u{ac01}"),
            ("\u{ac00}\u{11a7}", "\u{ac00}\u{11a7}"),
            ("\u{958}", "\u{915}\u{93c}"),
            ("\u{1611e}\u{1611e}", "\u{16121}"),
        ] {
            assert_eq!(nfc(text), want, "{text:?}");
        }
    }
}
