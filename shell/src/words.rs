//! The words of a command line: flags, their values, and errors with a hint. Must not know what
//! the flags mean.
//!
//! The flags that a command knows are those its help text names: a hint cannot offer anything else.

use crate::decimal;
use crate::failure::Failure;
use core::fmt::Display;
use core::ops::RangeInclusive;
use std::ffi::OsString;
use std::path::PathBuf;

/// One word of the command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// A flag with its dashes: `--temp`, `-m`.
    Flag(String),
    /// Anything else.
    Value(OsString),
}

/// A help text in pieces: what several commands say is there once.
pub type Help = &'static [&'static str];

/// Reads the words after the command's name.
pub struct Words {
    parser: lexopt::Parser,
    command: &'static str,
    help: Help,
    /// The flag whose value is asked for next.
    flag: String,
}

impl Words {
    /// The words left in `parser`, for a command and its help text.
    pub fn new(parser: lexopt::Parser, command: &'static str, help: Help) -> Words {
        Words { parser, command, help, flag: String::new() }
    }

    /// All words that are left, to be read again by [`Words::instead`].
    ///
    /// # Errors
    /// A value was expected first.
    pub fn rest(&mut self) -> Result<Vec<OsString>, Failure> {
        Ok(self.parser.raw_args()?.collect())
    }

    /// Other words for the same command.
    pub fn instead(&self, words: Vec<OsString>) -> Words {
        Words::new(lexopt::Parser::from_args(words), self.command, self.help)
    }

    /// The next word; the flag in it is the one that values are asked for.
    ///
    /// # Errors
    /// A flag that is not UTF-8, a value given to a flag that takes none, or a call for help.
    pub fn advance(&mut self) -> Result<Option<Word>, Failure> {
        let word = match self.parser.next()? {
            None => return Ok(None),
            Some(lexopt::Arg::Long(name)) => Word::Flag(format!("--{name}")),
            Some(lexopt::Arg::Short(name)) => Word::Flag(format!("-{name}")),
            Some(lexopt::Arg::Value(value)) => Word::Value(value),
        };
        if let Word::Flag(flag) = &word {
            if matches!(flag.as_str(), "--help" | "-h") {
                return Err(Failure::Help(self.help));
            }
            self.flag.clone_from(flag);
        }
        Ok(Some(word))
    }

    /// The value of the flag just read.
    ///
    /// # Errors
    /// There is none.
    pub fn os(&mut self) -> Result<OsString, Failure> {
        self.parser.value().map_err(|_| self.bad("needs a value"))
    }

    /// The value as a path.
    ///
    /// # Errors
    /// There is none.
    pub fn path(&mut self) -> Result<PathBuf, Failure> {
        Ok(PathBuf::from(self.os()?))
    }

    /// The value as text.
    ///
    /// # Errors
    /// There is none, or it is not UTF-8.
    pub fn text(&mut self) -> Result<String, Failure> {
        self.os()?.into_string().map_err(|_| self.bad("the value is not UTF-8"))
    }

    /// The value as a whole number within `range`.
    ///
    /// # Errors
    /// There is none, it is no number, or it lies outside.
    pub fn number<T>(&mut self, range: RangeInclusive<T>) -> Result<T, Failure>
    where
        T: Copy + TryInto<u64> + TryFrom<u64>,
    {
        // One body for all widths. No range of ours leaves u64, and what lies in it fits T.
        let bound = |n: T| n.try_into().unwrap_or(u64::MAX);
        let n = self.whole(bound(*range.start()), bound(*range.end()))?;
        Ok(T::try_from(n).unwrap_or(*range.end()))
    }

    fn whole(&mut self, least: u64, most: u64) -> Result<u64, Failure> {
        let text = self.text()?;
        match text.trim().parse() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => Err(self.no_number(&text, &least, &most)),
        }
    }

    /// The value as any number within `range`.
    ///
    /// # Errors
    /// As for [`Words::number`].
    pub fn real(&mut self, range: RangeInclusive<f32>) -> Result<f32, Failure> {
        let text = self.text()?;
        match decimal::parse_f32(text.trim()) {
            Some(n) if range.contains(&n) => Ok(n),
            _ => {
                let [least, most] = [range.start(), range.end()].map(|n| decimal::short(*n));
                Err(self.no_number(&text, &least, &most))
            }
        }
    }

    fn no_number(&self, text: &str, least: &dyn Display, most: &dyn Display) -> Failure {
        let text = text.escape_debug();
        self.bad(&format!("'{text}' is no number from {least} to {most}"))
    }

    /// The value as one of the given words; its index.
    ///
    /// # Errors
    /// There is none, or it is another word.
    pub fn choice(&mut self, words: &[&str]) -> Result<usize, Failure> {
        let text = self.text()?;
        words
            .iter()
            .position(|w| *w == text)
            .ok_or_else(|| self.bad(&format!("'{}' is none of: {}", text.escape_debug(), words.join(", "))))
    }

    /// A fault in the value of the flag just read.
    pub fn bad(&self, fault: &str) -> Failure {
        Failure::Usage(format!("{} {}: {fault}", self.command, self.flag))
    }

    /// A fault of the command line as a whole.
    pub fn wrong(&self, fault: &str) -> Failure {
        Failure::Usage(format!("{}: {fault}", self.command))
    }

    /// `value`, which the flag in `flag` would have given.
    ///
    /// # Errors
    /// It is not there.
    pub fn need<T>(&self, value: Option<T>, flag: &str) -> Result<T, Failure> {
        value.ok_or_else(|| self.wrong(&format!("{flag} is missing")))
    }

    /// An unknown flag, or a value where none belongs.
    pub fn unknown(&self, word: Word) -> Failure {
        match word {
            Word::Value(value) => {
                let value = value.to_string_lossy().escape_debug().to_string();
                self.wrong(&format!("unexpected '{value}'"))
            }
            Word::Flag(flag) => {
                let hint = nearest(&flag, flags(self.help))
                    .map_or(String::new(), |near| format!("; did you mean {near}?"));
                self.wrong(&format!("unknown flag '{}'{hint}", flag.escape_debug()))
            }
        }
    }
}

/// The long flags that a help text names.
pub fn flags<'a>(help: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let is_part = |c: char| c == '-' || c.is_ascii_alphanumeric();
    help.iter()
        .flat_map(move |text| text.split(move |c| !is_part(c)))
        .filter(|w| w.len() > 2 && w.starts_with("--"))
}

/// The candidate nearest to `word`, if one is near enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let len = word.chars().count();
    // Longer than any flag: no slip of the finger.
    if len > 40 {
        return None;
    }
    let most = (len / 3).clamp(1, 3);
    let near = candidates.map(|c| (if is_start(word, c) { 1 } else { distance(word, c) }, c));
    near.filter(|(d, _)| *d <= most).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// Whether one is a beginning of the other long enough to tell something.
fn is_start(word: &str, candidate: &str) -> bool {
    (word.len() >= 5 && candidate.starts_with(word)) || (candidate.len() >= 5 && word.starts_with(candidate))
}

/// Edit distance: insertions, deletions, replacements, and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // d[i][j]: distance of the first i characters of a from the first j of b.
    let mut d = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            d[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = d[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let least = replaced.min(d[i - 1][j] + 1).min(d[i][j - 1] + 1);
                let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if is_swap { least.min(d[i - 2][j - 2] + 1) } else { least }
            };
        }
    }
    d[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_near_or_absent() {
        let known = ["--temp", "--top-k", "--top-p", "--threads"];
        let hint = |word| nearest(word, known.into_iter());
        assert_eq!(hint("--tmep"), Some("--temp"));
        assert_eq!(hint("--temperature"), Some("--temp"));
        assert_eq!(hint("--thread"), Some("--threads"));
        assert_eq!(hint("--topk"), Some("--top-k"));
        assert_eq!(hint("--frobnicate"), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("rnu", "run"), 1);
    }

    #[test]
    fn flags_come_from_the_help_text() {
        let help = "  -m, --model FILE   the model\n  --ctx N, see --batch.\n  a -- b";
        assert_eq!(flags(&[help]).collect::<Vec<_>>(), ["--model", "--ctx", "--batch"]);
    }

    #[test]
    fn values_are_checked() {
        let words = |args: &[&str]| {
            let mut words = Words::new(lexopt::Parser::from_args(args), "run", &["--temp --seed"]);
            words.advance().unwrap();
            words
        };
        assert_eq!(words(&["--temp", "-0.5"]).real(-1.0..=1.0), Ok(-0.5));
        assert_eq!(words(&["-n", "7"]).number(1..=10), Ok(7));
        let message = format!("{:?}", words(&["--temp", "2"]).real(0.001..=1.0));
        assert!(message.contains("'2' is no number from 0.001 to 1\""), "{message}");
        let message = |e: Failure| format!("{e:?}");
        assert!(message(words(&["-n", "70"]).number(1..=10).unwrap_err()).contains("run -n: '70' is no"));
        assert!(message(words(&["--temp=NaN"]).real(0.0..=1.0).unwrap_err()).contains("'NaN'"));
        assert!(message(words(&["--temp"]).text().unwrap_err()).contains("run --temp: needs a value"));
        let unknown = words(&[]).unknown(Word::Flag("--sede".into()));
        assert!(message(unknown).contains("unknown flag '--sede'; did you mean --seed?"));
    }
}
