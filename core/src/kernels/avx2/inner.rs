//! The innermost functions, in which instruction sets with 256-bit vectors differ.
#![allow(unsafe_code)]

use super::block32::BLOCKS;
use super::four32::{self, Operands};
use super::panel::{GROUP, PANEL, Panel};
use super::unpack256::{IQ4_XS, Q6_K};
use super::{block32, block256};
use crate::ops::isa::Avx2;
use crate::ops::{BlockQ32, BlockQ256};

/// What loops over blocks, panels and queries call. The values are tokens: having one proves that
/// the CPU has the instructions, those of [`Avx2`] among them.
pub(crate) trait Inner: Copy + Into<Avx2> {
    /// What panels add to weights with a sign, so that they have none: 128, or 0 to leave them. It may
    /// depend on whether activations are fine; blocks of 256, which have one panel for both, take that of
    /// coarse ones.
    fn sign(fine: bool) -> u8;

    /// Eight rows of blocks of 32 times one token.
    fn one32<const TY: u8, const L: usize>(
        self,
        rows: &[&[u8]; PANEL],
        x: &[BlockQ32],
        fine: bool,
    ) -> [f32; PANEL];

    /// Eight rows of blocks of 256 times one token.
    fn one256<const TY: u8, const L: usize>(
        self,
        rows: &[&[u8]; PANEL],
        x: &[BlockQ256],
        fine: bool,
    ) -> [f32; PANEL];

    /// Adds to `results` the products of eight rows of blocks of 32 with four tokens, straight from the
    /// blocks.
    fn four32<const TY: u8, const L: usize>(
        self,
        fine: bool,
        operands: Operands<'_>,
        results: &mut [[f32; PANEL]; GROUP],
    );

    /// Adds to `results` the products of a panel of blocks of 32, whose type has a sign if `signed`, with
    /// four tokens. The integer sums begin with `starts`. `how`: whether weights have
    /// a minimum, whether activations are fine.
    fn group32(
        self,
        signed: bool,
        panel: &Panel,
        x: [&[BlockQ32]; GROUP],
        starts: &[[i32; BLOCKS]; GROUP],
        how: (bool, bool),
        results: &mut [[f32; PANEL]; GROUP],
    );

    /// Adds to `results` the products of a panel of blocks of 256, of type `ty`, with four tokens;
    /// `how` as of [`block256::apply`].
    fn group256(
        self,
        ty: u8,
        panel: &Panel,
        x: [&BlockQ256; GROUP],
        how: (bool, i32, bool),
        results: &mut [[f32; PANEL]; GROUP],
    );
}

impl Inner for Avx2 {
    /// With the planes of fine activations, whose magnitudes are up to 64, sums of two fit i16 for
    /// weights of up to 255 (255 * 64 * 2 = 32,640).
    #[inline]
    fn sign(fine: bool) -> u8 {
        if fine { 128 } else { 0 }
    }

    #[inline]
    fn one32<const TY: u8, const L: usize>(
        self,
        rows: &[&[u8]; PANEL],
        x: &[BlockQ32],
        fine: bool,
    ) -> [f32; PANEL] {
        // SAFETY: `self`: the CPU has the features.
        unsafe { block32::one::<TY, L>(rows, x, fine) }
    }

    #[inline]
    fn one256<const TY: u8, const L: usize>(
        self,
        rows: &[&[u8]; PANEL],
        x: &[BlockQ256],
        fine: bool,
    ) -> [f32; PANEL] {
        // SAFETY: `self`: the CPU has the features.
        unsafe { block256::one::<TY, L>(rows, x, fine) }
    }

    #[inline]
    fn four32<const TY: u8, const L: usize>(
        self,
        fine: bool,
        operands: Operands<'_>,
        results: &mut [[f32; PANEL]; GROUP],
    ) {
        // SAFETY: `self`: the CPU has the features.
        unsafe { four32::either::<TY, L>(fine, operands, results) }
    }

    #[inline]
    fn group32(
        self,
        signed: bool,
        panel: &Panel,
        x: [&[BlockQ32]; GROUP],
        starts: &[[i32; BLOCKS]; GROUP],
        how: (bool, bool),
        results: &mut [[f32; PANEL]; GROUP],
    ) {
        let (_, fine) = how;
        // SAFETY: `self`: the CPU has the features.
        unsafe {
            match (signed, fine) {
                (false, _) => block32::group::<4, false>(panel, x, starts, how, results),
                (true, true) => block32::group::<1, false>(panel, x, starts, how, results),
                (true, false) => block32::group::<1, true>(panel, x, starts, how, results),
            }
        }
    }

    #[inline]
    fn group256(
        self,
        ty: u8,
        panel: &Panel,
        x: [&BlockQ256; GROUP],
        how: (bool, i32, bool),
        results: &mut [[f32; PANEL]; GROUP],
    ) {
        let (_, _, fine) = how;
        // SAFETY: `self`: the CPU has the features.
        unsafe {
            match ty {
                IQ4_XS => block256::group::<1, true>(panel, x, how, results),
                // The planes of fine activations have magnitudes up to 64.
                Q6_K if !fine => block256::group::<2, false>(panel, x, how, results),
                _ => block256::group::<4, false>(panel, x, how, results),
            }
        }
    }
}
