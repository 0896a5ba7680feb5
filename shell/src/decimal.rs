//! Decimal text to floats and back, exactly. Must not know what the numbers mean.
//!
//! The same results as the standard library's `parse` and `{:.N}`, which are made for speed and bring
//! 20,000 bytes of code and tables along; here a number is read now and then. Everything is computed
//! in whole numbers of any size, so that nothing is rounded but the result, and that once.

use core::cmp::Ordering;
use serde_json::{Number, Value};

/// Digits of a text that are looked at; of those after them it matters only whether all are zero. The
/// border between two floats has at most 767 digits.
const MOST_DIGITS: usize = 800;

/// The layout of a float type: bits of the mantissa, and the exponent of the least subnormal number.
#[derive(Clone, Copy)]
struct Layout {
    bits: i32,
    least: i32,
}

/// The `f64` nearest to a decimal number such as `-1.5e3`, ties to even, infinity where it is too large.
/// None if the text is something else; `inf` and `nan` are no numbers here.
pub fn parse_f64(text: &str) -> Option<f64> {
    parse(text, Layout { bits: 53, least: -1074 })
}

/// As [`parse_f64`], for `f32`: rounded once, not twice.
pub fn parse_f32(text: &str) -> Option<f32> {
    // Rounded to the bits of f32 already; what is too large for f32 becomes infinity here.
    parse(text, Layout { bits: 24, least: -149 }).map(|value| value as f32)
}

fn parse(text: &str, layout: Layout) -> Option<f64> {
    let (negative, text) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let mut digits = Big::from(0);
    // The number is `digits * 10^exponent`.
    let (mut exponent, mut kept, mut seen) = (0i64, 0, 0);
    let (mut after_point, mut rest_is_zero) = (false, true);
    let mut bytes = text.iter();
    let mut written = 0i64;
    for &byte in &mut bytes {
        match byte {
            b'0'..=b'9' => {
                seen += 1;
                exponent -= i64::from(after_point);
                if kept == MOST_DIGITS {
                    rest_is_zero &= byte == b'0';
                    exponent += 1;
                } else {
                    kept += usize::from(kept > 0 || byte != b'0');
                    digits.multiply(10, u32::from(byte - b'0'));
                }
            }
            b'.' if !after_point => after_point = true,
            b'e' | b'E' => {
                written = parse_exponent(bytes.as_slice())?;
                break;
            }
            _ => return None,
        }
    }
    if seen == 0 {
        return None;
    }
    if !rest_is_zero {
        // Anything between this digit and the next says the same.
        digits.multiply(10, 1);
        exponent -= 1;
        kept += 1;
    }
    exponent = exponent.saturating_add(written);
    let place = exponent.saturating_add(kept as i64);
    let size = match place {
        _ if kept == 0 => 0.0,
        // Beyond the borders of f64, whatever the digits.
        310.. => f64::INFINITY,
        ..-330 => 0.0,
        _ => ratio(digits, exponent as i32, layout),
    };
    Some(if negative { -size } else { size })
}

/// The exponent after the letter; absurd ones are cut, which no longer matters.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        all => (1, all),
    };
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        value = (value * 10 + digit).min(1 << 50);
    }
    (!digits.is_empty()).then_some(sign * value)
}

/// `digits * 10^exponent`, rounded; `digits` is not zero.
fn ratio(digits: Big, exponent: i32, layout: Layout) -> f64 {
    let (mut above, mut below) = (digits, Big::from(1));
    let scaled = if exponent < 0 { &mut below } else { &mut above };
    (0..exponent.unsigned_abs()).for_each(|_| scaled.multiply(10, 0));
    // value = above / below * 2^power with 1 <= above / below < 2.
    let mut power = 0;
    while above.compare(&below) == Ordering::Less {
        above.multiply(2, 0);
        power -= 1;
    }
    loop {
        let mut twice = below.clone();
        twice.multiply(2, 0);
        if above.compare(&twice) == Ordering::Less {
            break;
        }
        below = twice;
        power += 1;
    }
    // Subnormal numbers have fewer bits; less than none is less than half of the least one.
    let bits = layout.bits.min(power - layout.least + 1);
    if bits < 0 {
        return 0.0;
    }
    let mut mantissa = 0u64;
    for _ in 0..bits {
        let bit = above.compare(&below) != Ordering::Less;
        if bit {
            above.subtract(&below);
        }
        mantissa = 2 * mantissa + u64::from(bit);
        above.multiply(2, 0);
    }
    // What is left is half of above / below.
    match above.compare(&below) {
        Ordering::Greater => mantissa += 1,
        Ordering::Equal => mantissa += mantissa % 2,
        Ordering::Less => {}
    }
    // Exact: the mantissa has no more bits than there is room for.
    mantissa as f64 * power_of_two(power - bits + 1)
}

/// `2^n`; infinity above the range of f64.
fn power_of_two(n: i32) -> f64 {
    match n {
        ..-1022 => f64::from_bits(1 << (n + 1074)),
        -1022..=1023 => f64::from_bits(((n + 1023) as u64) << 52),
        _ => f64::INFINITY,
    }
}

/// `value` with `places` digits after the point, as `{:.places$}` prints it: rounded to nearest, ties to
/// even. At most 9 places.
pub fn fixed(value: f64, places: usize) -> String {
    if value.is_nan() {
        return String::from("NaN");
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}inf");
    }
    // |value| = mantissa * 2^power.
    let fields = value.abs().to_bits();
    let (mantissa, field) = (fields & ((1 << 52) - 1), (fields >> 52) as i32);
    let (mantissa, power) = if field == 0 { (mantissa, -1074) } else { (mantissa | 1 << 52, field - 1075) };
    let scaled = u128::from(mantissa) * 10u128.pow(places as u32);
    let mut digits = match power {
        0.. => {
            let mut all = Big::from(scaled);
            (0..power).for_each(|_| all.multiply(2, 0));
            all.into_digits()
        }
        // 53 bits and nine digits: less than half.
        ..-127 => Big::from(0).into_digits(),
        _ => {
            let (whole, rest) = (scaled >> -power, scaled & ((1 << -power) - 1));
            let half = 1 << (-power - 1);
            let up = rest > half || rest == half && whole % 2 == 1;
            Big::from(whole + u128::from(up)).into_digits()
        }
    };
    if digits.len() <= places {
        digits.insert_str(0, &"0".repeat(places + 1 - digits.len()));
    }
    if places > 0 {
        digits.insert(digits.len() - places, '.');
    }
    digits.insert_str(0, sign);
    digits
}

/// The shortest decimal digits that read back as `value`, and the place of the first one: `(d, e)` stands
/// for `d[0].d[1..] * 10^e`. Of a finite number; its sign is not told.
pub fn shortest(value: f64) -> (String, i32) {
    // serde_json prints the shortest digits, with the point where it likes.
    let text = Number::from_f64(value.abs()).map_or(String::from("0"), |number| number.to_string());
    let (mantissa, written) = text.split_once('e').unwrap_or((&text, "0"));
    let written = written.parse::<i32>().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return (String::from("0"), 0);
    }
    let zeros = all.len() - digits.len();
    let place = written + whole.len() as i32 - 1 - zeros as i32;
    (String::from(digits.trim_end_matches('0')), place)
}

/// A finite number by its shortest digits, as `{}` prints it: `0.001`, `-2`. Of numbers that people write.
pub fn short(value: f32) -> String {
    let text = Value::from(value).to_string();
    text.strip_suffix(".0").map_or(text.clone(), String::from)
}

/// A whole number of any size: words of 32 bits, the least first, the last one not zero.
#[derive(Clone)]
struct Big {
    words: Vec<u32>,
}

impl Big {
    fn from(mut value: u128) -> Big {
        let mut words = Vec::new();
        while value > 0 {
            words.push(value as u32);
            value >>= 32;
        }
        Big { words }
    }

    /// `self = self * factor + addend`
    fn multiply(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for word in &mut self.words {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.words.push(carry as u32);
        }
    }

    /// `self -= other`, which is not the larger one.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (i, word) in self.words.iter_mut().enumerate() {
            let (value, first) = word.overflowing_sub(other.words.get(i).copied().unwrap_or(0));
            let (value, second) = value.overflowing_sub(u32::from(borrow));
            *word = value;
            borrow = first | second;
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn compare(&self, other: &Big) -> Ordering {
        let lengths = self.words.len().cmp(&other.words.len());
        lengths.then_with(|| self.words.iter().rev().cmp(other.words.iter().rev()))
    }

    /// Its decimal digits; at least one.
    fn into_digits(mut self) -> String {
        let mut digits = Vec::new();
        while digits.is_empty() || !self.words.is_empty() {
            let mut rest = 0;
            for word in self.words.iter_mut().rev() {
                let value = rest << 32 | u64::from(*word);
                *word = (value / 10) as u32;
                rest = value % 10;
            }
            digits.push(b'0' + rest as u8);
            while self.words.last() == Some(&0) {
                self.words.pop();
            }
        }
        digits.iter().rev().map(|&digit| char::from(digit)).collect()
    }
}

#[cfg(test)]
mod tests;
