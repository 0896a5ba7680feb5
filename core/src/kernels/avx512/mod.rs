//! The innermost functions of `avx2` again, for AVX-512 VNNI: dot products of bytes in one instruction,
//! twice the registers. Matrices in vectors of 256 bits, attention in those of 512. All else is the code of
//! `avx2`.
#![allow(unsafe_code)]

mod attention;
mod block256;
mod block32;
mod dot;
mod vec;

use super::avx2::block32::BLOCKS;
use super::avx2::four32::Operands;
use super::avx2::inner::Inner;
use super::avx2::panel::{GROUP, PANEL, Panel};
use super::avx2::unpack256::{IQ4_XS, Q5_K, Q6_K};
use crate::kv::HeadQ8;
use crate::ops::attention::{Group, QUERIES};
use crate::ops::isa::Avx512;
use crate::ops::{BlockQ32, BlockQ256};

impl Inner for Avx512 {
    #[inline]
    fn sign(_: bool) -> u8 {
        128
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
        unsafe { block32::four::<TY, L>(fine, operands, results) }
    }

    #[inline]
    fn group32(
        self,
        _: bool,
        panel: &Panel,
        x: [&[BlockQ32]; GROUP],
        starts: &[[i32; BLOCKS]; GROUP],
        how: (bool, bool),
        results: &mut [[f32; PANEL]; GROUP],
    ) {
        // SAFETY: `self`: the CPU has the features.
        unsafe { block32::group(panel, x, starts, how, results) }
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
                IQ4_XS | Q6_K => block256::group::<false>(panel, x, how, results),
                Q5_K if !fine => block256::group::<false>(panel, x, how, results),
                _ => block256::group::<true>(panel, x, how, results),
            }
        }
    }
}

/// Adds a KV block of type `q8` to the attention of a group's queries.
pub(crate) fn attend_q8(
    _: Avx512,
    group: &mut Group,
    seen: &[usize; QUERIES],
    reference: &[f32],
    head: &HeadQ8<'_>,
) {
    // SAFETY: the token: this CPU has the features.
    unsafe { attention::block_q8(group, seen, reference, head) }
}
