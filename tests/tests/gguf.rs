//! The GGUF parser on good and on bad files: every fault has its exact error and name.

use kinglet_core::gguf::{Array, ElemType, Gguf, GgufError, GgufFault, Meta, TensorInfo, Value};
use kinglet_core::name::Name;
use kinglet_core::quant::WeightType;
use kinglet_tests::gguf_writer::{GgufWriter, MetaValue, RawTensor, ggml_number, small, write_str};

/// The error of a file, or `None` if it is good.
fn parse(bytes: &[u8]) -> Option<GgufError> {
    let mut metas = [Meta::EMPTY; 64];
    let mut tensors = [TensorInfo::EMPTY; 64];
    Gguf::parse(bytes, &mut metas, &mut tensors).err()
}

#[track_caller]
fn assert_fault(writer: &GgufWriter, name: &str, fault: GgufFault) {
    assert_eq!(parse(&writer.finish()), Some(GgufError { fault, name: Name::new(name) }));
}

/// A file with one F32 tensor `t` of 8 elements, changed by `change`.
fn one_tensor(change: impl FnOnce(&mut RawTensor)) -> GgufWriter {
    let mut w = GgufWriter::new();
    w.meta("k", 1u32).tensor_f32("t", &[8], &[0.0; 8]);
    change(&mut w.tensors[0]);
    w
}

/// A file whose only metadata entry is `key`, its type number and `value`.
fn raw_meta(key: &[u8], ty: u32, value: &[u8]) -> GgufWriter {
    let mut entry = Vec::new();
    write_str(&mut entry, key);
    entry.extend(ty.to_le_bytes());
    entry.extend(value);
    let mut w = GgufWriter::new();
    w.raw_meta(entry);
    w
}

/// Type number and count of an array.
fn array_head(ty: u32, count: u64) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &count.to_le_bytes()].concat()
}

#[test]
fn all_values_are_read_back() {
    let file = small().finish();
    let counts = Gguf::counts(&file).unwrap();
    let mut metas = vec![Meta::EMPTY; counts.metas];
    let mut tensors = vec![TensorInfo::EMPTY; counts.tensors];
    let gguf = Gguf::parse(&file, &mut metas, &mut tensors).unwrap();

    assert_eq!(gguf.str("general.architecture"), Ok("qwen2"));
    assert_eq!(gguf.u32("u8"), Ok(200));
    assert_eq!(gguf.u32("u32"), Ok(4_000_000_000));
    assert!(matches!(gguf.get("i8"), Some(Value::I64(-7))));
    assert!(matches!(gguf.get("u16"), Some(Value::U64(65_000))));
    assert!(matches!(gguf.get("i16"), Some(Value::I64(-300))));
    assert!(matches!(gguf.get("i32"), Some(Value::I64(-5))));
    assert!(matches!(gguf.get("u64"), Some(Value::U64(u64::MAX))));
    assert!(matches!(gguf.get("i64"), Some(Value::I64(i64::MIN))));
    assert_eq!(gguf.f32("f32"), Ok(1.5));
    assert_eq!(gguf.f32("f64"), Ok(-2.25));
    assert!(matches!(gguf.get("yes"), Some(Value::Bool(true))));
    assert!(matches!(gguf.get("no"), Some(Value::Bool(false))));
    assert_eq!((gguf.str("text"), gguf.str("empty")), (Ok("Füße\n"), Ok("")));
    let strings: Vec<&str> = gguf.strings("strings").unwrap().iter().collect();
    assert_eq!(strings, ["a", "", "语言", "token"]);
    let Some(Value::Array(numbers)) = gguf.get("numbers") else { panic!("no array") };
    assert!(matches!(numbers, Array::Fixed(ElemType::I32, _)));
    assert!(matches!(numbers.get(1), Some(Value::I64(-2))));
    assert!(numbers.get(3).is_none());

    // Typed accessors name the key that disappoints them.
    let error = |fault, key| GgufError { fault, name: Name::new(key) };
    assert_eq!(gguf.u32("gone"), Err(error(GgufFault::MissingKey, "gone")));
    for key in ["u64", "i8", "text", "f32", "yes", "numbers"] {
        assert_eq!(gguf.u32(key), Err(error(GgufFault::ValueType, key)));
    }
    assert_eq!(gguf.f32("u8"), Err(error(GgufFault::ValueType, "u8")));
    assert_eq!(gguf.str("strings"), Err(error(GgufFault::ValueType, "strings")));
    assert_eq!(gguf.strings("numbers").err(), Some(error(GgufFault::ValueType, "numbers")));

    let names: Vec<&str> = gguf.tensors().iter().map(TensorInfo::name).collect();
    assert_eq!(names, ["norm.weight", "blk.0.q", "blk.0.k", "half"]);
    let q = gguf.tensor("blk.0.q").unwrap();
    assert_eq!((q.ty(), q.dims(), q.data().len()), (WeightType::Q8_0, &[64, 3][..], 204));
    assert_eq!(&q.data()[..3], [0, 1, 2]);
    assert_eq!(gguf.tensor("half").unwrap().dims(), [3, 2, 1, 2]);
    assert!(gguf.tensor("none").is_none());
}

#[test]
fn every_weight_type_has_its_length() {
    let types = (0..256).filter_map(WeightType::from_ggml);
    let mut seen = 0;
    for ty in types {
        let mut w = GgufWriter::new();
        w.tensor("t", ty, &[512, 3], vec![1; 512 * 3 / ty.block_len() * ty.block_bytes()]);
        let mut file = w.finish();
        assert_eq!(parse(&file), None, "{}", ty.name());
        // One byte less and it must be missed.
        let whole = file.len() as u64;
        file.pop();
        let fault = GgufFault::PastEnd { end: whole, file: whole - 1 };
        assert_eq!(parse(&file), Some(GgufError { fault, name: Name::new("t") }));
        seen += 1;
    }
    assert_eq!(seen, 15);
}

/// Cut anywhere, the file is refused; the error tells a place within what is left.
#[test]
fn truncated_at_every_length() {
    let w = small();
    let (file, head) = (w.finish(), w.head().len());
    for len in 0..file.len() {
        let error = parse(&file[..len]).unwrap_or_else(|| panic!("accepted at {len} of {}", file.len()));
        match error.fault {
            GgufFault::Truncated { offset } if len < head => assert!(offset <= len as u64, "{len}"),
            GgufFault::PastEnd { end, file } if len >= head => {
                assert!(end > file && file == len as u64, "{len}");
                assert_ne!(error.name, Name::NONE);
            }
            other => panic!("{other:?} at {len}"),
        }
    }
    assert_eq!(parse(&file), None);
}

/// The place and the name in errors about files that end too early.
#[test]
fn truncation_is_located_and_named() {
    let truncated =
        |offset, name| GgufError { fault: GgufFault::Truncated { offset }, name: Name::new(name) };
    assert_eq!(parse(b""), Some(truncated(0, "")));
    assert_eq!(parse(b"GGUF\x03\0\0"), Some(truncated(4, "")));
    // Header 24, key 9 bytes, type 4, element type 4, count 8, "a" 9, then "bc" without its "c".
    let mut w = GgufWriter::new();
    w.meta("s", MetaValue::array(["a", "bc"]));
    let mut file = w.finish();
    file.pop();
    assert_eq!(parse(&file), Some(truncated(24 + 9 + 4 + 4 + 8 + 9 + 8, "s")));
    // A tensor's description without its last byte: header 24, "k" 9 + 4 + 4, "t" 9, 4, 8, 4.
    let head = one_tensor(|_| {}).head();
    assert_eq!(parse(&head[..head.len() - 1]), Some(truncated(24 + 17 + 9 + 4 + 8 + 4, "t")));
}

#[test]
fn wrong_header() {
    let mut w = small();
    w.magic = *b"GGML";
    assert_fault(&w, "", GgufFault::Magic);
    w.magic = *b"GGUF";
    for version in [0, 1, 2, 4, u32::MAX] {
        w.version = version;
        assert_fault(&w, "", GgufFault::Version { found: version });
    }
    w.version = 3u32.swap_bytes();
    assert_fault(&w, "", GgufFault::BigEndian);
}

#[test]
fn absurd_counts() {
    for found in [4097, 1 << 32, 1 << 63, u64::MAX] {
        let w = GgufWriter { meta_count: Some(found), ..small() };
        assert_fault(&w, "", GgufFault::Count { found, most: 4096 });
    }
    for found in [65_537, 1 << 32, 1 << 63, u64::MAX] {
        let w = GgufWriter { tensor_count: Some(found), ..small() };
        assert_fault(&w, "", GgufFault::Count { found, most: 65_536 });
        assert!(Gguf::counts(&w.finish()).is_err());
    }
}

#[test]
fn tables_too_small() {
    let file = small().finish();
    let counts = Gguf::counts(&file).unwrap();
    let try_with = |metas: usize, tensors: usize| {
        let (mut m, mut t) = (vec![Meta::EMPTY; metas], vec![TensorInfo::EMPTY; tensors]);
        Gguf::parse(&file, &mut m, &mut t).err().map(|e| e.fault)
    };
    let (metas, tensors) = (counts.metas, counts.tensors);
    assert_eq!(try_with(metas, tensors), None);
    let short = |needed: usize| Some(GgufFault::TableTooSmall { needed, got: needed - 1 });
    assert_eq!(try_with(metas - 1, tensors), short(metas));
    assert_eq!(try_with(metas, tensors - 1), short(tensors));
}

#[test]
fn string_lengths_near_the_end_of_u64() {
    for len in [u64::MAX, u64::MAX - 7, u64::MAX - 32, 1 << 63, 1 << 32] {
        // As a key: nothing has a name yet. Header 24, length 8.
        let mut w = GgufWriter::new();
        w.raw_meta([&len.to_le_bytes()[..], b"key"].concat());
        assert_fault(&w, "", GgufFault::Truncated { offset: 32 });
        // As a value: 24, key 9, type 4, length 8.
        assert_fault(&raw_meta(b"k", 8, &len.to_le_bytes()), "k", GgufFault::Truncated { offset: 45 });
        // As an element: 24, 9, 4, element type 4, count 8, length 8.
        let element = [&array_head(8, 1)[..], &len.to_le_bytes()].concat();
        assert_fault(&raw_meta(b"k", 9, &element), "k", GgufFault::Truncated { offset: 57 });
        // As a tensor's name: 24, length 8.
        let mut w = GgufWriter { tensor_count: Some(1), ..GgufWriter::new() };
        w.meta_count = Some(0);
        w.raw_meta([&len.to_le_bytes()[..], b"name"].concat());
        assert_fault(&w, "", GgufFault::Truncated { offset: 32 });
    }
}

#[test]
fn array_counts_near_the_end_of_u64() {
    for ty in [0, 2, 6, 8, 12] {
        for count in [u64::MAX, u64::MAX / 2 + 1, u64::MAX / 8 + 2, 1 << 61] {
            let w = raw_meta(b"list", 9, &[&array_head(ty, count)[..], &[0; 40]].concat());
            assert_fault(&w, "list", GgufFault::Truncated { offset: 24 + 12 + 4 + 4 + 8 });
        }
    }
}

#[test]
fn unknown_metadata_types_and_nested_arrays() {
    for found in [13, 14, 255, u32::MAX] {
        assert_fault(&raw_meta(b"k", found, &[0; 64]), "k", GgufFault::MetaType { found });
        let array = [&array_head(found, 1)[..], &[0; 64]].concat();
        assert_fault(&raw_meta(b"k", 9, &array), "k", GgufFault::MetaType { found });
    }
    let nested = [array_head(9, 1), array_head(4, 0)].concat();
    assert_fault(&raw_meta(b"k", 9, &nested), "k", GgufFault::MetaType { found: 9 });
}

#[test]
fn strings_that_are_not_utf8() {
    let mut bad = Vec::new();
    write_str(&mut bad, b"\xff\xfe");
    assert_fault(&raw_meta(b"\xc3", 0, &[0]), "", GgufFault::Utf8);
    assert_fault(&raw_meta(b"k", 8, &bad), "k", GgufFault::Utf8);
    assert_fault(&raw_meta(b"k", 9, &[&array_head(8, 1)[..], &bad].concat()), "k", GgufFault::Utf8);
    assert_fault(&one_tensor(|t| t.name = vec![0x80]), "", GgufFault::Utf8);
}

#[test]
fn duplicates() {
    let mut w = small();
    w.meta("u8", "another type");
    assert_fault(&w, "u8", GgufFault::Duplicate);
    let mut w = small();
    w.tensor_f32("blk.0.q", &[1], &[0.0]);
    assert_fault(&w, "blk.0.q", GgufFault::Duplicate);
    // Case and prefixes tell names apart.
    let mut w = small();
    w.meta("U8", 1u8).meta("u", 1u8).tensor_f32("blk.0.", &[1], &[0.0]);
    assert_eq!(parse(&w.finish()), None);
}

#[test]
fn alignments() {
    for good in [8, 16, 64, 4096, 65_536] {
        let mut w = small();
        w.align(good);
        assert_eq!(parse(&w.finish()), None, "{good}");
    }
    let key = "general.alignment";
    for bad in [0u32, 1, 2, 4, 7, 24, 33, 131_072, u32::MAX] {
        let mut w = small();
        w.meta(key, bad);
        assert_fault(&w, key, GgufFault::Alignment);
    }
    let values = [MetaValue::from(32i32), MetaValue::from("32"), MetaValue::from(32.0f32)];
    for value in values.into_iter().chain([MetaValue::array([32u32])]) {
        let mut w = small();
        w.meta(key, value);
        assert_fault(&w, key, GgufFault::Alignment);
    }
}

#[test]
fn shapes() {
    assert_fault(&one_tensor(|t| t.n_dims = Some(0)), "t", GgufFault::Dimensions { found: 0 });
    assert_fault(&one_tensor(|t| t.dims = vec![1; 5]), "t", GgufFault::Dimensions { found: 5 });
    let most = u32::MAX;
    assert_fault(&one_tensor(|t| t.n_dims = Some(most)), "t", GgufFault::Dimensions { found: most });
    for dims in [&[0][..], &[8, 0], &[8, 1, 0], &[8, 1, 1, 0], &[u64::MAX, u64::MAX, 0]] {
        assert_fault(&one_tensor(|t| t.dims = dims.to_vec()), "t", GgufFault::ZeroDimension);
    }
    let half = 1 << 32;
    for dims in [&[u64::MAX][..], &[1 << 62], &[half, half], &[half, 1, half / 4], &[2, 1 << 61, 1, 8]] {
        assert_fault(&one_tensor(|t| t.dims = dims.to_vec()), "t", GgufFault::ShapeOverflow);
    }
    // Products that fit, but not with the start of the data.
    let w = one_tensor(|t| t.dims = vec![(1 << 62) - 1]);
    let file = w.finish().len() as u64;
    assert_fault(&w, "t", GgufFault::PastEnd { end: u64::MAX, file });
}

#[test]
fn unknown_weight_types() {
    for found in [4, 5, 9, 15, 16, 24, 31, 39, 255, u32::MAX] {
        assert_fault(&one_tensor(|t| t.ty = found), "t", GgufFault::TensorType { found });
    }
}

#[test]
fn rows_that_are_no_whole_blocks() {
    for (ty, rows) in [(WeightType::Q8_0, [1, 31, 33]), (WeightType::Q4K, [32, 255, 257])] {
        for row in rows {
            let w = one_tensor(|t| (t.ty, t.dims) = (ggml_number(ty), vec![row, 256]));
            assert_fault(&w, "t", GgufFault::RowLength { row, block: ty.block_len() as u32 });
        }
    }
}

#[test]
fn places() {
    for offset in [1, 16, 31, u64::MAX] {
        assert_fault(&one_tensor(|t| t.offset = Some(offset)), "t", GgufFault::Misaligned { offset });
    }
    // The data section starts at 96 and holds 32 bytes.
    for (offset, end) in [(32, 160), (1 << 40, (1 << 40) + 128), (u64::MAX - 31, u64::MAX)] {
        let w = one_tensor(|t| t.offset = Some(offset));
        assert_eq!(w.finish().len(), 128);
        assert_fault(&w, "t", GgufFault::PastEnd { end, file: 128 });
    }
}

#[test]
fn overlaps() {
    let two = |first: u64, second: u64| {
        let mut w = GgufWriter::new();
        w.tensor_f32("a", &[16], &[0.0; 16]).tensor_f32("b", &[8], &[0.0; 8]);
        w.tensors[0].offset = Some(first);
        w.tensors[1].offset = Some(second);
        w
    };
    assert_eq!(parse(&two(0, 64).finish()), None);
    // The other order is as good: the table is sorted by place.
    assert_eq!(parse(&two(32, 0).finish()), None);
    assert_fault(&two(0, 32), "b", GgufFault::Overlap);
    assert_fault(&two(32, 64), "b", GgufFault::Overlap);
    assert!(matches!(parse(&two(0, 0).finish()), Some(GgufError { fault: GgufFault::Overlap, .. })));
}

/// Errors about hostile files go to terminals: names are shown escaped.
#[test]
fn errors_are_shown_escaped() {
    let mut w = GgufWriter::new();
    w.meta("k\x1b[31m", 1u8).meta("k\x1b[31m", 1u8);
    let error = parse(&w.finish()).unwrap();
    assert_eq!(error.to_string(), "'k\\u{1b}[31m': appears twice");
}
