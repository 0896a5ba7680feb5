//! Which loops are looked at, how their work is counted, and what they should reach.
//!
//! Functions are found by a piece of their name. A name that no longer exists is an error, so that a
//! kernel under a new name cannot drop out of sight.

use crate::requantized::WeightType;
use core::ops::RangeInclusive;

/// Where a kernel runs, so that it can be traced: a small model of the tests, or the real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A fixture of `tests/fixtures/gguf`.
    Fixture(&'static str),
    /// The real model.
    Real(WeightType),
}

/// What is cut out of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A turn of the outermost loop with dot products: a block of some rows times one or some tokens.
    Turn,
    /// A whole call.
    Call,
}

/// How the work is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Multiply-adds: a dot product does 16, which count as many times less as there are planes, rounded
    /// down to a multiple of `unit` (what is left are corrections: offsets, minima).
    MultiplyAdds {
        /// Planes of i8 that one operand is in.
        planes: u64,
        /// Multiply-adds of a block of the fewest rows.
        unit: u64,
    },
    /// The same, counted as bytes of the weights that are read: `(bytes, weights)` of a block.
    WeightBytes {
        /// As there.
        planes: u64,
        /// As there.
        unit: u64,
        /// Bytes of a block, and its weights.
        block: (u64, u64),
    },
    /// So many weights.
    Weights(u64),
}

/// A loop.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// For the table.
    pub label: &'static str,
    /// A piece of the function's name.
    pub function: &'static str,
    /// Where it runs.
    pub source: Source,
    /// What is cut out.
    pub cut: Cut,
    /// Dot products in it: what tells coarse from fine activations, which share their code.
    pub dots: RangeInclusive<u64>,
    /// How its work is counted.
    pub work: Work,
    /// Multiply-adds per cycle at least, or cycles per byte at most.
    pub goal: Option<f64>,
}

const Q4_0: Source = Source::Fixture("qwen2-tiny.Q4_0.gguf");
const Q8_0: Source = Source::Fixture("qwen2-tiny.Q8_0.gguf");
const Q4_K: Source = Source::Fixture("qwen3-tiny.Q4_K_M.gguf");
/// In the file above fine activations meet Q6_K in the last block only, which few rows go through.
const Q6_K: Source = Source::Fixture("qwen3-tiny.Q6_K.gguf");
const Q5_0: Source = Source::Real(WeightType::Q4KM);

/// A call: the loop over tokens and what is around it. `dots`: those with one plane, surplus and minima not
/// counted.
const fn gemm(
    label: &'static str,
    function: &'static str,
    source: Source,
    planes: u64,
    (dots, unit): (u64, u64),
) -> Kernel {
    let work = Work::MultiplyAdds { planes, unit };
    Kernel { label, function, source, cut: Cut::Call, dots: about(planes * dots), work, goal: None }
}

/// `block`: its bytes and weights; `rows` are read side by side.
const fn gemv(
    label: &'static str,
    function: &'static str,
    source: Source,
    planes: u64,
    (rows, block): (u64, (u64, u64)),
) -> Kernel {
    let work = Work::WeightBytes { planes, unit: rows * block.1, block };
    let dots = about(planes * rows * block.1 / 16);
    Kernel { label, function, source, cut: Cut::Turn, dots, work, goal: None }
}

/// So many, and up to an eighth more for corrections.
const fn about(dots: u64) -> RangeInclusive<u64> {
    dots..=dots + dots / 8
}

/// Any number.
const ANY: RangeInclusive<u64> = 0..=u64::MAX;

const fn attention(label: &'static str, function: &'static str, planes: u64) -> Kernel {
    let work = Work::MultiplyAdds { planes, unit: 1 };
    Kernel { label, function, source: Q4_K, cut: Cut::Call, dots: ANY, work, goal: None }
}

/// Eight rows of a block of so many weights.
const fn unpack(label: &'static str, function: &'static str, source: Source, block: u64) -> Kernel {
    let work = Work::Weights(8 * block);
    Kernel { label, function, source, cut: Cut::Call, dots: ANY, work, goal: None }
}

const fn least(goal: f64, mut kernel: Kernel) -> Kernel {
    kernel.goal = Some(goal);
    kernel
}

/// Bytes and weights of blocks.
const BLOCK_Q4_0: (u64, u64) = (18, 32);
const BLOCK_Q5_0: (u64, u64) = (22, 32);
const BLOCK_Q8_0: (u64, u64) = (34, 32);
const BLOCK_Q4_K: (u64, u64) = (144, 256);
const BLOCK_Q6_K: (u64, u64) = (210, 256);

/// Tokens that the small models read, all in one call of a kernel.
pub const TOKENS: u64 = 64;
/// Dot products of a call, and multiply-adds of a block of eight rows.
const TILE_32: (u64, u64) = (TOKENS * 8 * 32 / 16, 8 * 32);
const TILE_256: (u64, u64) = (TOKENS * 8 * 256 / 16, 8 * 256);

/// Multiply-adds per cycle that a GEMM of blocks of 32 should reach, of blocks of 256, and attention.
const GEMM_32: f64 = 18.0;
const GEMM_256: f64 = 22.0;
/// See [`GEMM_32`].
pub const ATTENTION: f64 = 16.0;
/// Cycles per byte and core that the memory leaves: 22 GB/s for four cores at 2.3 GHz.
const GEMV: f64 = 0.42;

/// Labels that the model of a board looks up.
pub mod labels {
    pub const GEMM_32: &str = "GEMM Q4_0 Q5_0 Q8_0";
    pub const GEMM_32_FINE: &str = "GEMM Q4_0 Q5_0 Q8_0 fine";
    pub const GEMM_Q4_K: &str = "GEMM Q4_K";
    pub const GEMM_Q4_K_FINE: &str = "GEMM Q4_K fine";
    pub const GEMV_Q4_0: &str = "GEMV Q4_0";
    pub const GEMV_Q4_0_FINE: &str = "GEMV Q4_0 fine";
    pub const GEMV_Q8_0: &str = "GEMV Q8_0";
    pub const GEMV_Q8_0_FINE: &str = "GEMV Q8_0 fine";
    pub const GEMV_Q4_K: &str = "GEMV Q4_K";
    pub const GEMV_Q4_K_FINE: &str = "GEMV Q4_K fine";
    pub const UNPACK_Q4_0: &str = "unpack Q4_0";
    pub const UNPACK_Q8_0: &str = "unpack Q8_0";
    pub const UNPACK_Q4_K: &str = "unpack Q4_K";
    pub const SCORES: &str = "attention Q.K";
    pub const VALUES: &str = "attention P.V";
    pub const SCORES_FEW: &str = "attention Q.K decode";
    pub const VALUES_FEW: &str = "attention P.V decode";
}

/// All loops.
pub const KERNELS: &[Kernel] = &[
    least(GEMM_32, gemm(labels::GEMM_32, "block32::add_block::<DotProd, 8, false>", Q8_0, 1, TILE_32)),
    gemm(labels::GEMM_32_FINE, "block32::add_block::<DotProd, 8, true>", Q8_0, 2, TILE_32),
    least(GEMM_256, gemm(labels::GEMM_Q4_K, "panel256::add_block::<DotProd, 4, 8, true>", Q4_K, 1, TILE_256)),
    gemm(labels::GEMM_Q4_K_FINE, "panel256::add_block::<DotProd, 4, 8, true>", Q4_K, 2, TILE_256),
    least(GEMM_256, gemm("GEMM Q6_K", "panel256::add_block::<DotProd, 4, 16, true>", Q4_K, 1, TILE_256)),
    gemm("GEMM Q6_K fine", "panel256::add_block::<DotProd, 4, 16, true>", Q6_K, 2, TILE_256),
    unpack(labels::UNPACK_Q4_0, "<Panel>::unpack::<Q4_0>", Q4_0, 32),
    unpack(labels::UNPACK_Q8_0, "<Panel>::unpack::<Q8_0>", Q8_0, 32),
    unpack(labels::UNPACK_Q4_K, "<Panel>::unpack::<Q4K>", Q4_K, 256),
    unpack("unpack Q6_K", "<Panel>::unpack::<Q6K>", Q4_K, 256),
    least(GEMV, gemv(labels::GEMV_Q4_0, "few32::few::<Q4_0, DotProd, false>", Q4_0, 1, (8, BLOCK_Q4_0))),
    gemv(labels::GEMV_Q4_0_FINE, "few32::few::<Q4_0, DotProd, true>", Q4_0, 2, (8, BLOCK_Q4_0)),
    gemv("GEMV Q5_0", "few32::few::<Q5_0, DotProd, false>", Q5_0, 1, (8, BLOCK_Q5_0)),
    least(GEMV, gemv(labels::GEMV_Q8_0, "few32::few::<Q8_0, DotProd, false>", Q8_0, 1, (8, BLOCK_Q8_0))),
    gemv(labels::GEMV_Q8_0_FINE, "few32::few::<Q8_0, DotProd, true>", Q8_0, 2, (8, BLOCK_Q8_0)),
    least(
        GEMV,
        gemv(labels::GEMV_Q4_K, "few256::few_wide::<Q4K, DotProd, 144, false>", Q4_K, 1, (4, BLOCK_Q4_K)),
    ),
    gemv(labels::GEMV_Q4_K_FINE, "few256::few_wide::<Q4K, DotProd, 144, true>", Q4_K, 2, (4, BLOCK_Q4_K)),
    gemv("GEMV Q6_K", "few256::few_narrow::<Q6K, DotProd, false>", Q4_K, 1, (4, BLOCK_Q6_K)),
    gemv("GEMV Q6_K fine", "few256::few_narrow::<Q6K, DotProd, true>", Q4_K, 2, (4, BLOCK_Q6_K)),
    attention(labels::SCORES, "neon::attention::products::<DotProd, 4>", 2),
    attention(labels::VALUES, "neon::attention::add_values::<DotProd, 4>", 1),
    attention(labels::SCORES_FEW, "neon::attention::products::<DotProd, 2>", 2),
    attention(labels::VALUES_FEW, "neon::attention::add_values::<DotProd, 2>", 1),
];

impl Work {
    /// The work in units of the goal, for so many dot products.
    pub fn done(self, dots: u64) -> f64 {
        let macs = |planes: u64, unit: u64| dots * 16 / planes / unit * unit;
        match self {
            Work::MultiplyAdds { planes, unit } => macs(planes, unit) as f64,
            Work::WeightBytes { planes, unit, block: (bytes, weights) } => {
                (macs(planes, unit) / weights * bytes) as f64
            }
            Work::Weights(n) => n as f64,
        }
    }

    /// The figure of merit, and its unit.
    pub fn figure(self, work: f64, cycles: f64) -> (f64, &'static str) {
        match self {
            Work::MultiplyAdds { .. } => (work / cycles, "MAC/cycle"),
            Work::WeightBytes { .. } => (cycles / work, "cycles/byte"),
            Work::Weights(_) => (cycles / work, "cycles/weight"),
        }
    }

    /// Whether a figure reaches a goal.
    pub fn reaches(self, figure: f64, goal: f64) -> bool {
        match self {
            Work::MultiplyAdds { .. } => figure >= goal,
            Work::WeightBytes { .. } | Work::Weights(_) => figure <= goal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_are_no_work() {
        // Eight tokens and rows of a block of 32: 128 dot products.
        assert_eq!(Work::MultiplyAdds { planes: 1, unit: 256 }.done(128), 2048.0);
        assert_eq!(Work::MultiplyAdds { planes: 2, unit: 256 }.done(256), 2048.0);
        // Four tokens, eight rows of Q4_K, and 32 more for the minima.
        assert_eq!(Work::MultiplyAdds { planes: 1, unit: 2048 }.done(512 + 32), 8192.0);
        // Eight rows of Q4_0, and two more for the offset: 8 blocks of 18 bytes.
        assert_eq!(Work::WeightBytes { planes: 1, unit: 128, block: (18, 32) }.done(18), 144.0);
        assert_eq!(Work::WeightBytes { planes: 2, unit: 128, block: (18, 32) }.done(36), 144.0);
    }

    #[test]
    fn figures_are_better_above_or_below() {
        let gemm = Work::MultiplyAdds { planes: 1, unit: 256 };
        assert_eq!(gemm.figure(2048.0, 128.0), (16.0, "MAC/cycle"));
        assert!(gemm.reaches(18.0, 18.0) && !gemm.reaches(17.9, 18.0));
        let gemv = Work::WeightBytes { planes: 1, unit: 128, block: (18, 32) };
        assert_eq!(gemv.figure(144.0, 72.0), (0.5, "cycles/byte"));
        assert!(gemv.reaches(0.42, 0.42) && !gemv.reaches(0.43, 0.42));
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<&str> = KERNELS.iter().map(|k| k.label).collect();
        labels.sort_unstable();
        assert!(labels.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
