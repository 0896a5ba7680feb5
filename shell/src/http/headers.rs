//! The headers of a request. Must not know what any of them means.

/// Names and values in the order in which they came.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Headers {
    fields: Vec<(String, String)>,
}

impl Headers {
    /// Takes one more. A value that is not UTF-8 is read as Latin-1, which it then most likely is.
    pub(super) fn push(&mut self, name: &str, value: &[u8]) {
        let value = match core::str::from_utf8(value) {
            Ok(text) => String::from(text),
            Err(_) => value.iter().map(|&byte| char::from(byte)).collect(),
        };
        self.fields.push((String::from(name), value));
    }

    /// The first value of `name`, in whichever case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// All values of `name`, in whichever case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Whether one of the elements of the list `name`, over all its lines, is `word` in whichever case.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.all(name).any(|value| value.split(',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word)))
    }
}
