//! `core/src/kv/FORMAT.md` against the code: a number in prose that no check compares is soon wrong.

use kinglet::store::names::{self, Kind};
use kinglet_core::KvType;
use kinglet_core::kv::header::{FIELDS, HEADER_BYTES, MAGIC, VERSION};
use kinglet_core::kv::identity::LAYOUT_VERSION;
use kinglet_core::kv::{BlockId, ContentId, Fault, Geometry, Header, Identity, file, pack};
use kinglet_tests::block::{identity, smallest};

const FORMAT: &str = include_str!("../../core/src/kv/FORMAT.md");

/// The rows of the tables below a heading, up to the next one; cells without their backticks.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let below = FORMAT.lines().skip_while(|line| *line != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with('#'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    let rows: Vec<Vec<String>> = section.filter(|line| line.starts_with('|')).map(cells).collect();
    assert!(rows.len() > 2, "no table below {heading}");
    rows
}

/// Rows whose first cell is a number.
fn numbered(heading: &str) -> Vec<Vec<String>> {
    rows(heading).into_iter().filter(|row| row[0].starts_with(|c: char| c.is_ascii_digit())).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn header_table() {
    let table = numbered("### Header");
    let ours = FIELDS.map(|f| [f.offset.to_string(), f.bytes.to_string(), f.name.to_owned()]);
    assert_eq!(table.iter().map(|row| &row[..3]).collect::<Vec<_>>(), ours.each_ref().map(|f| &f[..]));
    // No gap, no overlap, nothing left over.
    let end = FIELDS.iter().fold(0, |at, field| {
        assert_eq!(field.offset, at);
        at + field.bytes
    });
    assert_eq!(end, HEADER_BYTES);
    assert!(FORMAT.contains(&format!("A header of {HEADER_BYTES} bytes")));
    let what = |name: &str| table.iter().find(|row| row[2] == name).unwrap()[3].clone();
    assert_eq!(what("magic"), hex(&MAGIC));
    assert!(what("layout").ends_with(&format!("; {LAYOUT_VERSION}")));
    let types = [KvType::Q8, KvType::F32].map(|t| format!("{}: {}", t.number(), t.name()));
    assert_eq!(what("kv_type"), types.join(", "));
}

/// The ranges of the table are those of the code: the last value passes, the next does not.
#[test]
fn header_ranges() {
    let table = numbered("### Header");
    for (name, step) in [("n_layers", 1), ("n_kv_heads", 1), ("head_dim", 16)] {
        let text = &table.iter().find(|row| row[2] == name).unwrap()[3];
        let range: Vec<usize> = text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        let check = |n: usize| {
            let mut geometry = smallest(KvType::Q8);
            let field = match name {
                "n_layers" => &mut geometry.n_layers,
                "n_kv_heads" => &mut geometry.n_kv_heads,
                _ => &mut geometry.head_dim,
            };
            *field = n;
            geometry.check()
        };
        let (first, last) = (range[0], range[1]);
        assert_eq!((check(first), check(last)), (None, None), "{name}");
        assert_eq!(check(first - step), Some((name, first - step)));
        assert_eq!(check(last + step), Some((name, last + step)));
        assert!(step == 1 || check(first + 1).is_some() && range[2] == step, "{name}");
    }
    // Positions are below a power of two.
    let text = &table.iter().find(|row| row[2] == "position").unwrap()[3];
    let end = 1u32 << text.split_once("below 2^").unwrap().1.parse::<u32>().unwrap();
    let (identity, root) = (identity(smallest(KvType::Q8)), BlockId::default());
    let at = |position| Header::new(&identity, &root, &root, position, &[ContentId::token(0)]);
    assert!(at(end - 1).is_ok());
    assert_eq!(at(end), Err(Fault::Position { found: end }));
}

#[test]
fn payload_tables() {
    // Bytes like "4 g D".
    let value = |text: &str, g: usize, d: usize| -> usize {
        text.split(' ')
            .map(|factor| match factor {
                "g" => g,
                "D" => d,
                number => number.parse().unwrap(),
            })
            .product()
    };
    let table = numbered("### Payload");
    assert_eq!(table.len(), 6);
    for (kv_type, rows) in [(KvType::Q8, &table[..4]), (KvType::F32, &table[4..])] {
        for head_dim in [16, 64, 256] {
            let geometry = Geometry { kv_type, n_layers: 3, n_kv_heads: 2, head_dim };
            for count in 1..=32usize {
                let slab: usize = rows.iter().map(|row| value(&row[0], count.div_ceil(4), head_dim)).sum();
                assert_eq!(pack::payload_bytes(&geometry, count), 6 * slab as u64);
            }
            let whole: usize = rows.iter().map(|row| value(&row[0], 8, head_dim)).sum();
            assert_eq!(whole, geometry.slab_bytes());
        }
    }
}

/// On disk a token takes at most 3 % more than in memory, for the models this is about.
#[test]
fn bytes_per_token() {
    // Layers, KV heads and lanes of a head; bytes per token as the models' arithmetic has them: 272 for each
    // layer and pair of heads of 64 lanes, 264 for each head of 128.
    for (name, n_layers, n_kv_heads, head_dim, bytes) in
        [("Qwen2.5-0.5B", 24, 2, 64, 272 * 24), ("Qwen3-VL-2B", 28, 8, 128, 264 * 8 * 28)]
    {
        let geometry = Geometry { kv_type: KvType::Q8, n_layers, n_kv_heads, head_dim };
        let payload = pack::payload_bytes(&geometry, 32);
        assert_eq!(payload, bytes * 32, "{name}");
        assert!((HEADER_BYTES as u64 + payload) * 100 <= payload * 103, "{name}");
    }
}

/// Which bytes of the identity's file move when a part of it changes.
#[test]
fn identity_table() {
    let table = numbered("## Names");
    let good = identity(smallest(KvType::Q8));
    let of = file::encode_identity(&good);
    assert_eq!(table[0][2], hex(&file::IDENTITY_MAGIC));
    type Change = fn(&mut Identity);
    let changes: [(&str, Change); 12] = [
        ("numerics", |i| i.numerics = !i.numerics),
        ("layout", |i| i.layout = !i.layout),
        ("kv_type", |i| i.geometry.kv_type = KvType::F32),
        ("n_layers", |i| i.geometry.n_layers ^= usize::from(u16::MAX)),
        ("n_kv_heads", |i| i.geometry.n_kv_heads ^= usize::from(u16::MAX)),
        ("head_dim", |i| i.geometry.head_dim ^= usize::from(u16::MAX)),
        ("dimensions", |i| i.dimensions.0 = i.dimensions.0.map(|b| !b)),
        ("rope", |i| i.rope.0 = i.rope.0.map(|b| !b)),
        ("tokenizer", |i| i.tokenizer.0 = i.tokenizer.0.map(|b| !b)),
        ("template", |i| i.template.0 = i.template.0.map(|b| !b)),
        ("types", |i| i.types.0 = i.types.0.map(|b| !b)),
        ("weights", |i| i.weights.0 = i.weights.0.map(|b| !b)),
    ];
    let mut at = 0;
    let hash_at = file::IDENTITY_FILE_BYTES - 8;
    for row in &table {
        let (offset, size): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!(offset, at, "{row:?}");
        at += size;
        let Some((name, change)) = changes.iter().find(|(name, _)| *name == row[2]) else {
            assert!(offset == 0 || offset == hash_at, "{row:?}");
            continue;
        };
        let mut other = good;
        change(&mut other);
        let moved = file::encode_identity(&other);
        let differs: Vec<usize> = (0..hash_at).filter(|i| of[*i] != moved[*i]).collect();
        assert!(
            !differs.is_empty() && differs.iter().all(|i| (offset..at).contains(i)),
            "{name}: {differs:?}"
        );
        assert_ne!(good.fingerprint(), other.fingerprint(), "{name}");
    }
    assert_eq!((table.len(), at), (changes.len() + 2, file::IDENTITY_FILE_BYTES));
    assert!(FORMAT.contains(&format!("bytes 8 to {}", hash_at - 1)));
}

/// The paths that the store makes, in the order of the table.
#[test]
fn names_table() {
    let [fingerprint, id, parent] = [0xf0, 0x1d, 0x9a].map(|byte| BlockId([byte; 16]));
    let n = 0x123;
    let stored = |kind, id| names::stored(&fingerprint, kind, id);
    let beside = |name| names::beside(&fingerprint, name);
    let made = [
        names::folder(&fingerprint),
        stored(Kind::Block, &id),
        stored(Kind::Tail, &parent),
        stored(Kind::Block, &id).bad(),
        stored(Kind::Tail, &parent).bad(),
        names::temporary(&fingerprint, &id, n),
        beside(names::IDENTITY),
        beside(names::ABOUT),
        names::Name::new(format_args!("{}", names::WRITTEN)),
        names::temporary_beside(&beside(names::ABOUT), n),
    ];
    let rows = rows("## Names");
    let described = rows.iter().skip(2).take(made.len()).map(|row| {
        let aa = if row[0].contains("<parent>") { &parent } else { &id };
        let filled = row[0]
            .replace("<path>", &format!("<fingerprint>/{}", names::ABOUT))
            .replace("<fingerprint>", &fingerprint.to_string())
            .replace("<aa>", &aa.to_string()[..2])
            .replace("<id>", &id.to_string())
            .replace("<parent>", &parent.to_string())
            .replace("<n>", &format!("{n:016x}"));
        filled.trim_end_matches('/').to_owned()
    });
    assert_eq!(described.collect::<Vec<_>>(), made.map(|name| name.to_string()));
    // The next row is the next table's.
    assert_eq!(rows[2 + made.len()][0], "offset");
}

#[test]
fn versions() {
    assert!(FORMAT.contains(&format!("Version of this format: **{VERSION}**")));
    // The newest is the last row, and all before it are there.
    let table = numbered("## Versions");
    let versions: Vec<String> = table.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(versions, (1..=VERSION).map(|v| v.to_string()).collect::<Vec<_>>());
}

/// Sentences are numbered in order, so that tests can name them.
#[test]
fn sentences() {
    let numbers =
        FORMAT.lines().filter_map(|line| line.strip_prefix("- **S")?.split_once("** ")?.0.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    assert_eq!(numbers, (1..=17).collect::<Vec<_>>());
}
