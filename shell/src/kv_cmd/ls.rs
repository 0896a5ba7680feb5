//! `kv ls`: the conversations in a directory. Must not know how they are found.
//!
//! As with `inspect`, the report is made once, as JSON; the text is made from it.

use super::about;
use super::age;
use super::catalogue::{Catalogue, Spare};
use super::chains::sorted;
use super::conversations::{Conversation, Conversations};
use super::label::{Label, Labels, shown};
use crate::failure::{Failure, printable};
use crate::memory::megabytes;
use crate::report::object;
use crate::term::{note, print};
use serde_json::Value;
use std::path::Path;

/// Columns of a conversation's beginning.
const TEXT_COLUMNS: usize = 40;
/// Columns of the columns before it.
const COLUMNS: [usize; 5] = [9, 11, 11, 9, 8];

/// Prints what is in `all`, the directory `dir`, at `now` (seconds since 1970).
///
/// # Errors
/// `model` cannot be used; nobody reads.
#[inline(never)]
pub fn ls(dir: &Path, all: &Catalogue, now: i64, model: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let mut labels = Labels::new(model)?;
    let conversations = Conversations::of(all);
    let report = report(dir, &conversations, all, now, &mut labels);
    if let Some(path) = model
        && !labels.named_fits
    {
        note(format_args!("{}: no cache here has its tokenizer", printable(path)));
    }
    if as_json { print(&format!("{report:#}\n")) } else { print(&text(&report, conversations.digits())) }
}

fn report(
    dir: &Path,
    conversations: &Conversations<'_>,
    all: &Catalogue,
    now: i64,
    labels: &mut Labels,
) -> Value {
    let list = &conversations.list;
    let used = |i: usize| conversations.node(&list[i]).used;
    // By folder, the last used first.
    let order = sorted(list.len(), &|a, b| list[a].folder.cmp(&list[b].folder).then(used(b).cmp(&used(a))));
    let mut models = Vec::new();
    let mut next = order.iter().map(|i| &list[*i as usize]).peekable();
    for (i, folder) in (0..).zip(&all.folders) {
        let vocabulary = labels.fitting(folder);
        let mut rows = Vec::new();
        while let Some(one) = next.next_if(|one| one.folder == i) {
            let label = labels.label(vocabulary, folder, &folder.chains.chain(one.end));
            rows.push(row(conversations, one, now, label));
        }
        let identity = folder.identity.as_ref();
        let geometry = identity.map(|identity| identity.geometry);
        let size = |f: fn(&kinglet_core::kv::Geometry) -> usize| {
            geometry.as_ref().map_or(Value::Null, |g| f(g).into())
        };
        models.push(object(&mut [
            ("fingerprint", Value::from(folder.fingerprint.to_string())),
            ("name", Value::from(about::name(&folder.about))),
            ("file", Value::from(about::file(&folder.about).map(|path| path.to_string_lossy().into_owned()))),
            ("kv_type", Value::from(geometry.as_ref().ok().map(|g| g.kv_type.name()))),
            ("layers", size(|g| g.n_layers)),
            ("kv_heads", size(|g| g.n_kv_heads)),
            ("head_dim", size(|g| g.head_dim)),
            ("unknown_because", Value::from(identity.err().map(ToString::to_string))),
            ("files", Value::from(folder.blocks.len())),
            ("bytes", Value::from(folder.blocks.iter().map(|block| block.bytes).sum::<u64>())),
            ("conversations", Value::Array(rows)),
        ]));
    }
    let sum = |list: &[Spare]| {
        let bytes = list.iter().map(|file| file.bytes).sum::<u64>();
        object(&mut [("files", Value::from(list.len())), ("bytes", Value::from(bytes))])
    };
    object(&mut [
        ("directory", Value::from(dir.to_string_lossy())),
        ("models", Value::Array(models)),
        ("files", Value::from(all.files)),
        ("bytes", Value::from(all.bytes)),
        ("bad", sum(&all.bad)),
        ("temporary", sum(&all.temporary)),
        ("damaged", Value::from(all.damaged.len())),
        ("foreign", Value::from(all.foreign)),
    ])
}

fn row(conversations: &Conversations<'_>, one: &Conversation, now: i64, label: Label) -> Value {
    let node = conversations.node(one);
    let (name, label) = match label {
        Label::Text(text) => ("text", Value::from(text)),
        Label::Ids(ids) => ("token_ids", Value::from(ids)),
    };
    object(&mut [
        ("id", Value::from(conversations.id(one).to_string())),
        ("tokens", Value::from(node.tokens)),
        ("blocks", Value::from(node.blocks)),
        ("bytes", Value::from(node.bytes)),
        ("shared_bytes", Value::from(node.shared)),
        ("last_used", Value::from(node.used.seconds)),
        ("age_seconds", Value::from(age::of(node.used, now))),
        ("hits", Value::from(node.hits)),
        ("orphan", Value::from(node.orphan)),
        (name, label),
    ])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn bytes(value: &Value) -> String {
    megabytes(number(value) as usize)
}

/// Text, or nothing.
fn word(value: &Value) -> String {
    shown(value.as_str().unwrap_or(""), usize::MAX)
}

/// Puts `text` at the right end of `columns` more columns.
fn right(out: &mut String, text: &str, columns: usize) {
    (text.chars().count()..columns).for_each(|_| out.push(' '));
    out.push_str(text);
}

fn text(report: &Value, digits: usize) -> String {
    let (mut out, mut count) = (String::new(), 0);
    for model in report["models"].as_array().into_iter().flatten() {
        out.push_str(&heading(model));
        let rows = model["conversations"].as_array().map_or(&[][..], |rows| rows);
        count += rows.len();
        if rows.is_empty() {
            out.push_str("  no conversations\n\n");
            continue;
        }
        out.push_str("  id");
        (2..digits).for_each(|_| out.push(' '));
        for (head, columns) in ["tokens", "size", "shared", "age", "hits"].into_iter().zip(COLUMNS) {
            right(&mut out, head, columns);
        }
        out.push_str("  begins with\n");
        rows.iter().for_each(|row| line(&mut out, row, digits));
        out.push('\n');
    }
    out.push_str(&total(report, count));
    out
}

fn heading(model: &Value) -> String {
    let name = match word(&model["name"]) {
        name if name.is_empty() => String::from("unnamed model"),
        name => name,
    };
    let what = match model["unknown_because"].as_str() {
        Some(why) => ["identity ", why].concat(),
        None => ["kv ", &word(&model["kv_type"])].concat(),
    };
    let size = bytes(&model["bytes"]);
    let fingerprint = word(&model["fingerprint"]);
    [&name, ", ", &what, ", ", &size, " (", &fingerprint[..8], "..)\n"].map(String::from).concat()
}

fn line(out: &mut String, row: &Value, digits: usize) {
    out.push_str("  ");
    out.push_str(&word(&row["id"])[..digits]);
    let columns = [
        number(&row["tokens"]).to_string(),
        bytes(&row["bytes"]),
        bytes(&row["shared_bytes"]),
        age::shown(number(&row["age_seconds"])),
        number(&row["hits"]).to_string(),
    ];
    columns.iter().zip(COLUMNS).for_each(|(text, columns)| right(out, text, columns));
    out.push_str("  ");
    if row["orphan"] == true {
        out.push_str("(orphan) ");
    }
    match row["token_ids"].as_array() {
        None => out.push_str(&shown(row["text"].as_str().unwrap_or(""), TEXT_COLUMNS)),
        Some(ids) => {
            out.push_str("ids");
            for id in ids {
                out.push(' ');
                out.push_str(&id.as_u64().map_or(String::from("[image]"), |id| id.to_string()));
            }
        }
    }
    out.push('\n');
}

fn total(report: &Value, conversations: usize) -> String {
    let files = number(&report["files"]);
    let mut out = conversations.to_string();
    out.push_str(if conversations == 1 { " conversation in " } else { " conversations in " });
    out.push_str(&files.to_string());
    out.push_str(if files == 1 { " file, " } else { " files, " });
    out.push_str(&bytes(&report["bytes"]));
    let spare = [
        (number(&report["bad"]["files"]), " set aside (.bad)"),
        (number(&report["temporary"]["files"]), " being written (.tmp)"),
        (number(&report["damaged"]), " damaged ('kinglet kv fsck' says more)"),
    ];
    for (files, what) in spare.into_iter().filter(|(files, _)| *files > 0) {
        out.push_str("; ");
        out.push_str(&files.to_string());
        out.push_str(what);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_right() {
        let mut out = String::new();
        right(&mut out, "12", 5);
        right(&mut out, "123456", 5);
        assert_eq!(out, "   12123456");
    }
}
