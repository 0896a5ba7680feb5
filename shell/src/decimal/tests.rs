//! Compared with what std reads and prints, on awkward numbers and on many random ones.

use super::*;

/// xorshift64: the tests are the same every time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[track_caller]
fn same(text: &str) {
    let (ours, std) = (parse_f64(text), text.parse::<f64>().ok());
    assert_eq!(ours.map(f64::to_bits), std.map(f64::to_bits), "f64 {text}");
    let (ours, std) = (parse_f32(text), text.parse::<f32>().ok());
    assert_eq!(ours.map(f32::to_bits), std.map(f32::to_bits), "f32 {text}");
}

#[test]
fn awkward_texts_are_read_as_std_reads_them() {
    for text in [
        "0",
        "-0",
        "+0.0",
        "1",
        "1.",
        ".5",
        "-.5",
        "00012.500",
        "0.1",
        "1e5",
        "1E+5",
        "1e-5",
        "123456789012",
        "9007199254740993",
        "9007199254740992.9999999999999999",
        "16777217",
        "16777216.99999",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "1e308",
        "1e309",
        "-1e400",
        "3.4028235e38",
        "3.4028236e38",
        "340282356779733661637539395458142568447",
        "340282356779733661637539395458142568448",
        "4.9e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "2.2250738585072014e-308",
        "2.2250738585072011e-308",
        "1e-400",
        "7.0064923216240853e-46",
        "7.0064923216240854e-46",
        "1.4e-45",
        "1.1754943508222875e-38",
        "0e999999999999999999999",
        "1e999999999999999999999",
        "1e-999999999999999999999",
        "",
        "-",
        "+",
        ".",
        "-.",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e5.",
        "1.2.3",
        "1 ",
        " 1",
        "--1",
        "1_0",
        "0x1",
        "1f",
        "१",
    ] {
        same(text);
    }
    // Borders between two floats, exact and a little to either side, long before the end of the digits.
    let border = format!("{:.1074}", f64::from_bits(1));
    let half = border.parse::<f64>().map(|_| halved(&border)).unwrap();
    for tail in ["", "0", "1", &"0".repeat(900), &format!("{}1", "0".repeat(900))] {
        same(&format!("{half}{tail}"));
        same(&format!("9007199254740993.{tail}"));
        same(&format!("16777217.{tail}"));
    }
    same(&"9".repeat(2000));
    same(&format!("{}e-2000", "9".repeat(2000)));
    same(&format!("0.{}7e390", "0".repeat(400)));
}

/// Half of a decimal number in digits.
fn halved(text: &str) -> String {
    let mut rest = 0;
    let mut out = String::new();
    for c in format!("{text}0").chars() {
        match c.to_digit(10) {
            None => out.push(c),
            Some(digit) => {
                out.push(char::from_digit((rest * 10 + digit) / 2, 10).unwrap());
                rest = digit % 2;
            }
        }
    }
    out
}

#[test]
fn infinity_and_nan_are_no_numbers() {
    assert!(["inf", "-infinity", "NaN"].iter().all(|text| parse_f64(text).is_none()));
}

#[test]
fn random_texts_are_read_as_std_reads_them() {
    let mut state = 1;
    for _ in 0..20_000 {
        let bits = random(&mut state);
        let value = f64::from_bits(bits);
        if value.is_finite() {
            same(&format!("{value:e}"));
            same(&format!("{:.*e}", (bits % 24) as usize, value));
        }
        let narrow = f32::from_bits(bits as u32);
        if narrow.is_finite() {
            same(&format!("{narrow}"));
            // Halfway to the next one: a tie for f32.
            same(&format!("{:e}", (f64::from(narrow) + f64::from(narrow.next_up())) / 2.0));
        }
        let exponent = (random(&mut state) % 100) as i64 - 60;
        same(&format!("{}.{}e{exponent}", bits % 1000, random(&mut state)));
    }
}

#[track_caller]
fn same_fixed(value: f64) {
    for places in 0..=6 {
        assert_eq!(fixed(value, places), format!("{value:.places$}"), "{value:e} with {places}");
    }
}

#[test]
fn fixed_places_are_those_of_std() {
    for value in [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        0.25,
        0.75,
        0.125,
        0.05,
        0.95,
        9.5,
        9.95,
        99.999_999_5,
        1e-7,
        5e-7,
        1e-40,
        5e-324,
        123.456,
        1e15,
        9_007_199_254_740_993.0,
        1e22,
        1e100,
        f64::MAX,
        f64::MIN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ] {
        same_fixed(value);
    }
    let mut state = 2;
    for _ in 0..20_000 {
        let bits = random(&mut state);
        same_fixed(f64::from_bits(bits));
        same_fixed(bits as f64 / 1024f64.powi((random(&mut state) % 8) as i32));
        // Ties of every number of places.
        same_fixed((bits % 1_000_000) as f64 / 64.0);
    }
}

#[test]
fn shortest_digits_are_as_many_as_those_of_std_and_the_nearest() {
    let mut state = 3;
    let some =
        [0.0, 1.0, 10.0, 1e15, 1e16, 1e17, 123_456.0, 0.001, 1e-5, 1e-6, 5e-324, f64::MAX, 1.5e-7, 1e21];
    for value in some.into_iter().chain((0..50_000).map(|_| f64::from_bits(random(&mut state)))) {
        if !value.is_finite() {
            continue;
        }
        let parts = |text: String| {
            let (mantissa, exponent) = text.split_once('e').unwrap();
            (mantissa.replace('.', ""), exponent.parse::<i32>().unwrap())
        };
        let (ours, std) = (shortest(value), parts(format!("{:e}", value.abs())));
        if ours != std {
            // Two are equally near: Python takes the even one, std the larger one.
            let even = parts(format!("{:.*e}", std.0.len() - 1, value.abs()));
            assert_eq!(ours, even, "{value:e}");
        }
    }
}
