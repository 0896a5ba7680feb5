//! Base64 with padding: hashes of the policy, the drawing of the KV region, screenshots. Must not know what
//! the bytes are.

use crate::sh::{Failure, Outcome};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let all = part.iter().fold(0u32, |all, &byte| all << 8 | u32::from(byte)) << (8 * (3 - part.len()));
        for i in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= part.len() { digit as char } else { '=' });
        }
    }
    text
}

/// Text as bytes.
///
/// # Errors
/// It is no base64.
pub fn decode(text: &str) -> Outcome<Vec<u8>> {
    let wrong = || Failure::new("this is no base64");
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for part in digits.as_bytes().chunks(4) {
        let mut all = 0;
        for digit in part {
            let value = DIGITS.iter().position(|d| d == digit).ok_or_else(wrong)?;
            all = all << 6 | value as u32;
        }
        if part.len() == 1 {
            return Err(wrong());
        }
        let whole = (all << (6 * (4 - part.len()))).to_be_bytes();
        bytes.extend_from_slice(&whole[1..part.len()]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{3ff}~", "z79+"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert!(decode("Zg-_").is_err() && decode("Zm9vY").is_err());
    }
}
