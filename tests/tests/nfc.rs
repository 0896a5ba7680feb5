//! Our NFC against crate `unicode-normalization`: every character, every composition, random text.

use kinglet::nfc::nfc;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::compose;

fn check(text: &str) {
    let want: String = text.nfc().collect();
    assert_eq!(nfc(text), want, "{}", text.escape_unicode());
}

/// Alone, between letters, and before and after marks that join, reorder or block.
#[test]
fn every_character_is_normalised_as_the_other_crate_does() {
    for c in '\0'..=char::MAX {
        check(&format!("a{c}b{c}\u{301}{c}\u{323}\u{345}\u{1161}{c}\u{11A8}"));
    }
}

/// No pair composes in one table and not in the other.
#[test]
fn every_pair_that_composes_is_known() {
    let parts = |seconds: bool| {
        let mut parts: Vec<char> = ('\0'..=char::MAX)
            .filter_map(|c| {
                let all: Vec<char> = c.nfd().collect();
                let head: String = all[..all.len() - 1].iter().collect();
                if seconds { all.last().copied().filter(|_| all.len() > 1) } else { head.nfc().next() }
            })
            .collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    };
    let (firsts, seconds) = (parts(false), parts(true));
    let mut composing = 0;
    for &a in &firsts {
        for &b in &seconds {
            composing += usize::from(compose(a, b).is_some());
            check(&String::from_iter([a, b]));
        }
    }
    assert!(composing > 900, "only {composing} pairs compose");
}

proptest! {
    #[test]
    fn random_text(text in "[a-z \u{c0}-\u{17f}\u{300}-\u{36f}\u{590}-\u{5f0}\u{900}-\u{dff}\u{f40}-\u{fbc}\
        \u{1100}-\u{11ff}\u{1b00}-\u{1b44}\u{1e00}-\u{1fff}\u{2f800}-\u{2fa1d}\u{ac00}-\u{ac40}\
        \u{1d15e}-\u{1d1c0}]{0,24}") {
        check(&text);
    }

    #[test]
    fn any_text(text in ".{0,40}") {
        check(&text);
    }
}
