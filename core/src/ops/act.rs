//! Activations in the forms that weight types ask for: f32, blocks of 32 integers, blocks of 256.

use crate::quant::WeightType;

/// 32 activations with one scale (form Q32 of the contract): value = d * (128 * hi + lo).
///
/// Two planes of i8, since dot products of i8 are what CPUs are fast at. Where activations are
/// [`Precision::Coarse`], `hi` is zero and kernels may leave it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ32 {
    /// Scale.
    pub d: f32,
    /// `d * (f32)` sum of the quantised values, for weight types with a minimum.
    pub s: f32,
    /// Low plane.
    pub lo: [i8; 32],
    /// High plane.
    pub hi: [i8; 32],
}

/// 256 activations with one scale (form Q256 of the contract), in planes as [`BlockQ32`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ256 {
    /// Scale.
    pub d: f32,
    /// Sums of the quantised values over runs of 16.
    pub sums: [i16; 16],
    /// Coarse: the largest sum of magnitudes of a run of 16, which bounds the products with it.
    pub most_of_16: u32,
    /// Coarse: the sums over runs of 32 in planes as [`planes`] makes them, eight low ones, then the high.
    pub sums_of_32: [i8; 16],
    /// Low plane.
    pub lo: [i8; 256],
    /// High plane.
    pub hi: [i8; 256],
}

impl BlockQ256 {
    /// Fills what follows from the low plane and the sums; zeros where activations are fine.
    pub(crate) fn summarize(&mut self, precision: Precision) {
        (self.most_of_16, self.sums_of_32) = (0, [0; 16]);
        if precision == Precision::Fine {
            return;
        }
        for run in self.lo.as_chunks::<16>().0 {
            let magnitudes = run.iter().map(|q| u32::from(q.unsigned_abs())).sum();
            self.most_of_16 = self.most_of_16.max(magnitudes);
        }
        let (low, high) = self.sums_of_32.split_at_mut(8);
        for ((pair, low), high) in self.sums.as_chunks::<2>().0.iter().zip(low).zip(high) {
            (*low, *high) = planes(pair[0] + pair[1], Precision::Fine);
        }
    }
}

/// The planes of a quantised value: `q = 128 * hi + lo`. Up to 127 in magnitude it is all `lo`.
#[inline(always)]
pub const fn planes(q: i16, precision: Precision) -> (i8, i8) {
    match precision {
        Precision::Coarse => (q as i8, 0),
        Precision::Fine => {
            let hi = (q + 64) >> 7;
            ((q - (hi << 7)) as i8, hi as i8)
        }
    }
}

/// How finely activations are quantised.
///
/// The integer sums stay within i32 either way. Kernels may rely on the magnitudes that
/// [`planes`] gives: `lo` up to 127 of coarse values; of fine ones, `lo` up to 64 and `hi` up to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// To -127..=127.
    Coarse,
    /// To -2047..=2047: for inputs whose rounding would cost most (`core/NUMERICS.md`, section 4).
    Fine,
}

impl Precision {
    /// Largest magnitude of a quantised value.
    pub const fn most(self) -> f32 {
        match self {
            Precision::Coarse => 127.0,
            Precision::Fine => 2047.0,
        }
    }
}

/// Which quantised forms are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Forms {
    /// [`BlockQ32`].
    pub q32: bool,
    /// [`BlockQ256`].
    pub q256: bool,
}

impl Forms {
    /// What weights of type `ty` need besides f32.
    pub const fn of(ty: WeightType) -> Self {
        Forms { q32: ty.block_len() == 32, q256: ty.block_len() == 256 }
    }

    /// What either needs.
    pub const fn and(self, other: Self) -> Self {
        Forms { q32: self.q32 | other.q32, q256: self.q256 | other.q256 }
    }
}

/// The vectors that a matrix is multiplied with: `tokens` rows of `k` values.
///
/// A form that the matrix does not need may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Input<'x> {
    /// Number of vectors.
    pub tokens: usize,
    /// Elements of a vector.
    pub k: usize,
    /// How finely the quantised forms were made.
    pub precision: Precision,
    /// `[tokens, k]`
    pub x: &'x [f32],
    /// `[tokens, k / 32]`
    pub q32: &'x [BlockQ32],
    /// `[tokens, k / 256]`
    pub q256: &'x [BlockQ256],
}

impl<'x> Input<'x> {
    /// The first `tokens` rows of `k` values in `x`, with the quantised `forms` of them.
    ///
    /// # Panics
    /// If a slice is shorter than that.
    pub fn of(
        tokens: usize,
        k: usize,
        (forms, precision): (Forms, Precision),
        x: &'x [f32],
        q32: &'x [BlockQ32],
        q256: &'x [BlockQ256],
    ) -> Self {
        let blocks = |needed: bool, len: usize| if needed { tokens * (k / len) } else { 0 };
        Input {
            tokens,
            k,
            precision,
            x: &x[..tokens * k],
            q32: &q32[..blocks(forms.q32, 32)],
            q256: &q256[..blocks(forms.q256, 256)],
        }
    }
}
