//! Tokens per second of Qwen3-VL-2B on an RK3588, modelled from the cycles of the loops. Nothing here is
//! measured on a board; every assumption is printed beside the result.

use super::goals::labels;

/// Dimensions of the model's text side.
const LAYERS: f64 = 28.0;
const DIM: f64 = 2048.0;
const HEADS: f64 = 16.0;
const KV_HEADS: f64 = 8.0;
const HEAD_DIM: f64 = 128.0;
const FFN: f64 = 6144.0;
const VOCAB: f64 = 151_936.0;

/// Weights of the layers whose activations are coarse (all but `ffn_down`), and fine.
const COARSE: f64 =
    LAYERS * (2.0 * DIM * HEADS * HEAD_DIM + 2.0 * DIM * KV_HEADS * HEAD_DIM + 2.0 * DIM * FFN);
const FINE: f64 = LAYERS * DIM * FFN;
/// Weights of the output matrix, which is also that of the embedding: fine.
const OUTPUT: f64 = VOCAB * DIM;
/// Rows of the layers' matrices.
const ROWS: f64 = LAYERS * (2.0 * DIM + HEADS * HEAD_DIM + 2.0 * KV_HEADS * HEAD_DIM + 2.0 * FFN);
/// Activations of a token that are normalised, quantised and such.
const VALUES: f64 = LAYERS * (2.0 * DIM + HEADS * HEAD_DIM + FFN);
/// Bytes of keys and values of a token, all layers.
const KV_BYTES: f64 = LAYERS * 2.0 * KV_HEADS * (HEAD_DIM + 4.0);

/// A kind of core: how many, and cycles per second.
const CORES: [(f64, f64); 2] = [(4.0, 2.3e9), (4.0, 1.8e9)];
/// Bytes per second of the memory, as the least and the most that boards reach.
const MEMORY: [f64; 2] = [22e9, 25e9];
/// Instructions per cycle of code that is no inner loop.
const IPC: [f64; 2] = [2.0, 1.0];

/// Instructions of such code, from `cargo xtask count` on the 0.5B model with Q8_0, attention on NEON:
/// per activation of a token for all that is neither product nor attention; per row of a matrix and token
/// of decode; per head, position and token for what attention does beside its products (27 counted, for
/// positions that fill 6 of 7 blocks).
const PER_VALUE: f64 = 26.0;
const PER_ROW: f64 = 30.0;
const PER_SCORE: f64 = 24.0;
/// Tokens that a panel is unpacked for.
const PANEL_TOKENS: f64 = 128.0;
/// Times a token of decode waits until all threads are done, and seconds of each.
const WAITS: f64 = LAYERS * 8.0;
const WAIT: f64 = 1e-6;

/// Prompts, and contexts to decode in.
const CONTEXTS: [usize; 4] = [1024, 2048, 4096, 8192];

/// A file with all matrices of one type.
struct File {
    name: &'static str,
    bytes_per_weight: f64,
    /// Labels of loops, coarse and fine.
    gemm: [&'static str; 2],
    gemv: [&'static str; 2],
    /// Label of the unpacking.
    unpack: &'static str,
}

const FILES: [File; 3] = [
    File {
        name: "Q4_0",
        bytes_per_weight: 18.0 / 32.0,
        gemm: [labels::GEMM_32, labels::GEMM_32_FINE],
        gemv: [labels::GEMV_Q4_0, labels::GEMV_Q4_0_FINE],
        unpack: labels::UNPACK_Q4_0,
    },
    File {
        name: "Q4_K",
        bytes_per_weight: 144.0 / 256.0,
        gemm: [labels::GEMM_Q4_K, labels::GEMM_Q4_K_FINE],
        gemv: [labels::GEMV_Q4_K, labels::GEMV_Q4_K_FINE],
        unpack: labels::UNPACK_Q4_K,
    },
    File {
        name: "Q8_0",
        bytes_per_weight: 34.0 / 32.0,
        gemm: [labels::GEMM_32, labels::GEMM_32_FINE],
        gemv: [labels::GEMV_Q8_0, labels::GEMV_Q8_0_FINE],
        unpack: labels::UNPACK_Q8_0,
    },
];

/// Figures of a loop on both kinds of core, by its label.
pub type Figures<'a> = &'a dyn Fn(&str) -> Option<[f64; 2]>;

/// Parts of a token of prefill.
const PARTS: [&str; 5] = ["coarse products", "fine products", "unpacking", "attention", "the rest"];

/// Cycles per token of prefill on a kind of core, by part. `None` where a loop was not analysed.
fn prefill_cycles(file: &File, figures: Figures<'_>, prompt: f64, core: usize) -> Option<[f64; PARTS.len()]> {
    let at = |label| figures(label).map(|f| f[core]);
    Some([
        COARSE / at(file.gemm[0])?,
        (FINE + OUTPUT / prompt) / at(file.gemm[1])?,
        (COARSE + FINE) * at(file.unpack)? / PANEL_TOKENS,
        // A token sees half of the prompt on average.
        attention_cycles(figures, [labels::SCORES, labels::VALUES], prompt / 2.0, core)?,
        VALUES * PER_VALUE / IPC[core],
    ])
}

/// Cycles of a token's attention over `positions`.
fn attention_cycles(figures: Figures<'_>, both: [&str; 2], positions: f64, core: usize) -> Option<f64> {
    let scores = LAYERS * HEADS * positions;
    let [qk, pv] = both.map(|label| figures(label).map(|f| f[core]));
    Some(scores * (HEAD_DIM / qk? + HEAD_DIM / pv? + PER_SCORE / IPC[core]))
}

/// Seconds for work that takes so many cycles on the first `kinds` of cores, divided without loss.
fn shared(cycles: [f64; 2], kinds: usize) -> f64 {
    let rate: f64 = CORES.iter().zip(cycles).take(kinds).map(|((n, hz), cycles)| n * hz / cycles).sum();
    1.0 / rate
}

/// Seconds per token of a prompt.
fn prefill(file: &File, figures: Figures<'_>, prompt: f64, kinds: usize) -> Option<f64> {
    let cycles = [prefill_cycles(file, figures, prompt, 0)?, prefill_cycles(file, figures, prompt, 1)?];
    Some(shared(cycles.map(|parts| parts.iter().sum()), kinds))
}

/// Seconds that the memory alone needs for a token of decode.
fn memory_limit(file: &File, depth: f64, bandwidth: f64) -> f64 {
    ((COARSE + FINE + OUTPUT) * file.bytes_per_weight + depth * KV_BYTES) / bandwidth
}

/// Seconds per token of decode: of each phase the longer of computing and reading, one after the other.
fn decode(file: &File, figures: Figures<'_>, depth: f64, bandwidth: f64, kinds: usize) -> Option<f64> {
    let matrices = |weights: f64, rows: f64, label| {
        let [a76, a55] = figures(label)?;
        let bytes = weights * file.bytes_per_weight;
        let cycles = [0, 1].map(|core| bytes * [a76, a55][core] + rows * PER_ROW / IPC[core]);
        Some(shared(cycles, kinds).max(bytes / bandwidth))
    };
    let fine_rows = LAYERS * DIM + VOCAB;
    let coarse = matrices(COARSE, ROWS - LAYERS * DIM, file.gemv[0])?;
    let fine = matrices(FINE + OUTPUT, fine_rows, file.gemv[1])?;
    let both = [labels::SCORES_FEW, labels::VALUES_FEW];
    let cycles = [attention_cycles(figures, both, depth, 0)?, attention_cycles(figures, both, depth, 1)?];
    let attention = shared(cycles, kinds).max(depth * KV_BYTES / bandwidth);
    // One token's activations are for one thread, a fast one.
    let rest = VALUES * PER_VALUE / IPC[0] / CORES[0].1 + WAITS * WAIT;
    Some(coarse + fine + attention + rest)
}

/// The tables and what they rest on.
pub fn text(figures: Figures<'_>) -> String {
    let mut text = format!(
        "\nQwen3-VL-2B on an RK3588, MODELLED: tokens/s\n\
         {:<8} {:>7} {:>14} {:>14}   decode at {} GB/s and share of the memory's limit; at {} GB/s\n",
        "weights",
        "context",
        "prefill 4 A76",
        "and 4 A55",
        MEMORY[0] / 1e9,
        MEMORY[1] / 1e9,
    );
    for file in &FILES {
        for context in CONTEXTS {
            let n = context as f64;
            let speed = |seconds: Option<f64>| seconds.map_or("-".into(), |s| format!("{:.1}", 1.0 / s));
            text.push_str(&format!("{:<8} {context:>7}", file.name));
            [1, 2].iter().for_each(|kinds| {
                text.push_str(&format!(" {:>14}", speed(prefill(file, figures, n, *kinds))));
            });
            for bandwidth in MEMORY {
                let seconds = decode(file, figures, n, bandwidth, 1);
                let share = seconds.map_or(0.0, |s| 100.0 * memory_limit(file, n, bandwidth) / s);
                text.push_str(&format!("   {:>6} {share:>5.1} %", speed(seconds)));
            }
            text.push('\n');
        }
    }
    for file in &FILES {
        if let Some(cycles) = prefill_cycles(file, figures, 2048.0, 0) {
            let parts: Vec<String> =
                PARTS.iter().zip(cycles).map(|(part, n)| format!("{part} {:.1}", n / 1e6)).collect();
            let name = file.name;
            text.push_str(&format!("{name}, M cycles of an A76 per token of 2048: {}\n", parts.join(", ")));
        }
    }
    text.push_str(&goals(figures));
    text.push_str(&assumptions());
    text
}

/// The goals of the whole, for Q4_0.
fn goals(figures: Figures<'_>) -> String {
    let file = &FILES[0];
    let said = |what: &str, found: Option<f64>, goal: f64, unit: &str| match found {
        None => format!("{what}: not modelled, a loop is missing\n"),
        Some(x) if x >= goal => format!("{what}: {x:.1} {unit}, the goal of {goal} is reached\n"),
        Some(x) => format!("{what}: {x:.1} {unit}, the goal of {goal} is MISSED\n"),
    };
    let rate = |kinds| prefill(file, figures, 2048.0, kinds).map(|s| 1.0 / s);
    let share = decode(file, figures, 2048.0, MEMORY[0], 1)
        .map(|s| 100.0 * memory_limit(file, 2048.0, MEMORY[0]) / s);
    said("prefill of 2048, Q4_0, 4 A76", rate(1), 100.0, "tokens/s")
        + &said("prefill of 2048, Q4_0, with the A55", rate(2), 100.0, "tokens/s")
        + &said("decode at 2048, Q4_0, 4 A76", share, 90.0, "% of the memory's limit")
}

fn assumptions() -> String {
    format!(
        "Assumed: {} A76 at {} GHz, {} A55 at {} GHz, work divided without loss;\n\
         data of inner loops in the first-level cache; one type for all matrices;\n\
         {:.0} M multiply-adds per token in the layers ({:.0} M of them fine), {:.0} M in the output\n\
         matrix; a token of a prompt sees half of it on average; decode reads weights and {:.1} KB of\n\
         KV per position, and reading and computing overlap within a phase;\n\
         a panel of weights is unpacked for {} tokens; outside of the loops {} instructions per\n\
         activation ({:.0} K a token), {} per row of a matrix (decode), {} per head and position\n\
         (softmax), at {} per cycle (A76) and {} (A55);\n\
         {} waits of {:.0} us per token of decode.\n",
        CORES[0].0,
        CORES[0].1 / 1e9,
        CORES[1].0,
        CORES[1].1 / 1e9,
        (COARSE + FINE) / 1e6,
        FINE / 1e6,
        OUTPUT / 1e6,
        KV_BYTES / 1e3,
        PANEL_TOKENS,
        PER_VALUE,
        VALUES / 1e3,
        PER_ROW,
        PER_SCORE,
        IPC[0],
        IPC[1],
        WAITS,
        WAIT * 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round figures for all loops.
    fn round(label: &str) -> Option<[f64; 2]> {
        match label {
            l if l.starts_with("GEMM") => Some([16.0, 4.0]),
            l if l.starts_with("GEMV") => Some([0.25, 1.0]),
            l if l.starts_with("attention") => Some([16.0, 4.0]),
            l if l.starts_with("unpack") => Some([0.5, 1.0]),
            _ => None,
        }
    }

    #[test]
    fn the_model_has_the_size_it_is_said_to_have() {
        assert!(((COARSE + FINE) / 1e9 - 1.409).abs() < 1e-3);
        assert_eq!(KV_BYTES, 28.0 * 2112.0);
        let limit = memory_limit(&FILES[0], 0.0, 22e9);
        assert!((limit - 1.7205e9 * 0.5625 / 22e9).abs() < 1e-4, "{limit}");
    }

    #[test]
    fn more_cores_help_and_longer_contexts_cost() {
        let rate = |n, kinds| 1.0 / prefill(&FILES[0], &round, n, kinds).unwrap();
        // Products alone would give 4 * 2.3 G * 16 / 1.409 G.
        assert!(rate(1024.0, 1) < 104.5 && rate(1024.0, 1) > 80.0, "{}", rate(1024.0, 1));
        assert!(rate(1024.0, 2) > rate(1024.0, 1) && rate(8192.0, 1) < rate(1024.0, 1));
    }

    #[test]
    fn decode_is_never_faster_than_the_memory() {
        for file in &FILES {
            for depth in [0.0, 1024.0, 8192.0] {
                let seconds = decode(file, &round, depth, MEMORY[0], 2).unwrap();
                assert!(seconds > memory_limit(file, depth, MEMORY[0]), "{}", file.name);
            }
        }
    }

    #[test]
    fn a_loop_that_is_missing_is_no_zero() {
        let without = |label: &str| round(label).filter(|_| label != labels::SCORES);
        assert_eq!(prefill(&FILES[0], &without, 1024.0, 1), None);
        let text = text(&without);
        assert!(text.contains("not modelled") && text.contains("Assumed:"), "{text}");
    }
}
