//! What was counted, by measurement and by function, beside llama.cpp's figures: as text and as JSON.

use super::counts::Counts;
use super::{Measurement, Phase};
use crate::requantized::WeightType;
use crate::symbols::Functions;
use std::collections::BTreeMap;

/// Multiply-adds of the model per token: in its layers, and in the output matrix.
const LAYER_MACS: f64 = 24.0 * (2.0 * 896.0 * 896.0 + 2.0 * 128.0 * 896.0 + 3.0 * 896.0 * 4864.0);
const OUTPUT_MACS: f64 = 896.0 * 151_936.0;
/// What one `sdot` does.
const SDOT_MACS: f64 = 16.0;

/// llama.cpp's millions of instructions per token (commit 0c1e570; static, `-march=armv8.2-a+dotprod`,
/// one thread, flash attention, KV f16, under the same CPU of QEMU, by the same differences).
fn peer(ty: WeightType, phase: Phase) -> Option<f64> {
    match (ty, phase) {
        (WeightType::Q4KM, Phase::Prefill) => Some(326.6),
        (WeightType::Q4KM, Phase::Decode) => Some(387.9),
        (WeightType::Q8_0, Phase::Prefill) => Some(54.3),
        (WeightType::Q8_0, Phase::Decode) => Some(107.3),
        (WeightType::Q8_0, Phase::DeepDecode) => Some(123.5),
        (WeightType::Q4_0, Phase::Prefill) => Some(52.2),
        (WeightType::Q4_0, Phase::Decode) => Some(138.2),
        (WeightType::Q4KM | WeightType::Q4_0, Phase::DeepDecode) => None,
    }
}

/// One measurement.
#[derive(Debug)]
pub struct Measured {
    ty: WeightType,
    phase: Phase,
    /// Millions of instructions per token.
    total: f64,
    /// The same by function, the largest first.
    functions: Vec<(String, f64)>,
}

impl Measured {
    /// Attributes what was counted to functions.
    pub fn new((ty, phase, counts): Measurement, functions: &Functions) -> Self {
        let tokens = phase.difference() as f64;
        let millions = |n: i64| n as f64 / 1e6 / tokens;
        let by_name = by_function(&counts, functions);
        let mut functions: Vec<_> = by_name.into_iter().map(|(name, n)| (name, millions(n))).collect();
        functions.sort_by(|a, b| b.1.total_cmp(&a.1));
        Measured { ty, phase, total: millions(counts.total), functions }
    }

    /// llama.cpp's figure, if there is one.
    fn peer(&self) -> Option<f64> {
        peer(self.ty, self.phase)
    }

    /// Instructions for as many multiply-adds as one `sdot` does.
    fn per_sdot(&self) -> f64 {
        let macs = match self.phase {
            // The output matrix is for the last token only, and cancels out.
            Phase::Prefill => LAYER_MACS,
            Phase::Decode | Phase::DeepDecode => LAYER_MACS + OUTPUT_MACS,
        };
        self.total * 1e6 / (macs / SDOT_MACS)
    }
}

/// Sums the counts of each function.
fn by_function(counts: &Counts, functions: &Functions) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (&address, &n) in &counts.at {
        let name = functions.at(address).map_or("(no symbol)", |f| f.name.as_str());
        match sums.get_mut(name) {
            Some(sum) => *sum += n,
            None => drop(sums.insert(name.to_owned(), n)),
        }
    }
    sums
}

/// All measurements.
#[derive(Debug)]
pub struct Report {
    /// How keys and values were kept.
    pub kv_type: String,
    /// In the order of measuring.
    pub measured: Vec<Measured>,
}

impl Report {
    /// Tables.
    pub fn text(&self, top: usize) -> String {
        let mut text = format!(
            "M instructions per token, one thread, KV {}; llama.cpp's with KV f16\n\n\
             {:<8} {:<14} {:>8} {:>10} {:>7} {:>22}\n",
            self.kv_type, "file", "", "kinglet", "llama.cpp", "ratio", "per 16 multiply-adds"
        );
        for m in &self.measured {
            let (peer, ratio) = match m.peer() {
                Some(peer) => (format!("{peer:.1}"), format!("{:.2}", m.total / peer)),
                None => ("-".into(), "-".into()),
            };
            text.push_str(&format!(
                "{:<8} {:<14} {:>8.1} {peer:>10} {ratio:>7} {:>22.2}\n",
                m.ty.name(),
                m.phase.name(),
                m.total,
                m.per_sdot()
            ));
        }
        for m in self.measured.iter().filter(|_| top > 0) {
            text.push_str(&format!("\n{}, {}:\n", m.ty.name(), m.phase.name()));
            for (name, millions) in m.functions.iter().take(top) {
                text.push_str(&format!("{millions:>9.3} {:>5.1} % {name}\n", 100.0 * millions / m.total));
            }
        }
        text
    }

    /// The same as JSON: a list of measurements.
    pub fn json(&self, top: usize) -> String {
        let number = |x: f64| format!("{x:.6}");
        let list: Vec<String> = self
            .measured
            .iter()
            .map(|m| {
                let functions: Vec<String> = m
                    .functions
                    .iter()
                    .take(top)
                    .map(|(name, millions)| {
                        format!("{{\"name\": {}, \"millions\": {}}}", quoted(name), number(*millions))
                    })
                    .collect();
                format!(
                    "  {{\"file\": {}, \"phase\": {}, \"kv_type\": {}, \"millions\": {}, \
                     \"peer_millions\": {}, \"per_16_macs\": {},\n   \"functions\": [{}]}}",
                    quoted(m.ty.name()),
                    quoted(m.phase.name()),
                    quoted(&self.kv_type),
                    number(m.total),
                    m.peer().map_or("null".into(), number),
                    number(m.per_sdot()),
                    functions.join(", ")
                )
            })
            .collect();
        format!("[\n{}\n]\n", list.join(",\n"))
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let functions = vec![("few::<\"Q8_0\">".to_owned(), 100.0), ("rope".to_owned(), 7.3)];
        let m = |ty, phase| Measured { ty, phase, total: 107.3, functions: functions.clone() };
        let measured = vec![m(WeightType::Q8_0, Phase::Decode), m(WeightType::Q4_0, Phase::DeepDecode)];
        Report { kv_type: "q8".into(), measured }
    }

    #[test]
    fn tables_have_the_peer_beside_where_it_was_counted() {
        let text = report().text(1);
        let row = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
        assert_eq!(
            row("Q8_0 ").split_whitespace().collect::<Vec<_>>(),
            ["Q8_0", "decode", "107.3", "107.3", "1.00", "3.48"]
        );
        assert!(row("Q4_0 ").contains(" -       - "), "{text}");
        assert!(text.contains("93.2 % few::") && !text.contains("rope"), "{text}");
        assert!(!report().text(0).contains("few"));
    }

    #[test]
    fn json_is_whole_and_escaped() {
        let json = report().json(2);
        assert!(json.contains(r#""name": "few::<\"Q8_0\">", "millions": 100.000000"#), "{json}");
        assert!(json.contains("\"peer_millions\": null") && json.contains("\"peer_millions\": 107.300000"));
        assert_eq!(json.matches('{').count(), json.matches('}').count());
        assert_eq!(quoted("a\n\"\\"), r#""a\u000a\"\\""#);
    }

    #[test]
    fn multiply_adds_are_those_of_the_model() {
        assert!((LAYER_MACS / 1e6 - 358.0).abs() < 0.5 && (OUTPUT_MACS / 1e6 - 136.0).abs() < 0.5);
    }
}
