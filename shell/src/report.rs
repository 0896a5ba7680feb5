//! JSON objects of reports. Must not know what is reported.

use serde_json::Value;

/// An object of these entries, in their order. What `json!` would do, but its code is there once and not
/// once for every entry.
pub fn object(entries: &mut [(&str, Value)]) -> Value {
    entries.iter_mut().map(|(key, value)| (String::from(*key), value.take())).collect()
}
