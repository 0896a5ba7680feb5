//! Eight rows of blocks of 32 and a token's activations, read block by block through pointers that the
//! loads themselves move on: slices take an addition and a check for every block of every row. Must not
//! know what the bytes of a block mean.
#![allow(unsafe_code)]

use super::panel::ROWS;
use super::vec::*;
use crate::ops::BlockQ32;
use core::arch::asm;
use core::marker::PhantomData;
use core::slice;

/// Rows and activations from the present block on. `R`: the bytes of a block.
pub(super) struct Walk<'a, R> {
    /// Where the rows go on, with at least as many blocks each as there are of `x`.
    rows: [[*const u8; 4]; 2],
    x: slice::Iter<'a, BlockQ32>,
    blocks: PhantomData<&'a [R]>,
}

/// The present block of each of four rows.
pub(super) struct Ahead<'w, R> {
    rows: &'w mut [*const u8; 4],
    blocks: PhantomData<&'w R>,
}

/// The same with the first bytes loaded, and the rows where the next ones begin.
pub(super) struct Four<'w, R, H> {
    pub heads: H,
    rows: &'w [*const u8; 4],
    blocks: PhantomData<&'w R>,
}

/// First bytes of blocks of four rows.
pub(super) trait Heads: Copy {
    /// Loads them, and moves the rows on to their next blocks.
    ///
    /// # Safety
    /// Each must point to an `R`.
    unsafe fn load<R>(rows: &mut [*const u8; 4]) -> Self;
}

impl<'a, R> Walk<'a, R> {
    /// The first eight rows in `w`, `stride` bytes from one to the next.
    ///
    /// # Panics
    /// If there are not as many, or if they have fewer blocks than `x`.
    #[inline(always)]
    pub(super) fn new(w: &'a [u8], stride: usize, x: &'a [BlockQ32]) -> Self {
        assert!(size_of::<R>() * x.len() <= stride && stride <= w.len() / ROWS);
        let row = |r: usize| w.as_ptr().wrapping_add(r * stride);
        let rows = [[row(0), row(1), row(2), row(3)], [row(4), row(5), row(6), row(7)]];
        Walk { rows, x: x.iter(), blocks: PhantomData }
    }

    /// The next block of activations, if there is one, and those of all rows.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<(&'a BlockQ32, [Ahead<'_, R>; 2])> {
        let x = self.x.next()?;
        // Not more often than there are blocks of `x`, and so of rows.
        let [low, high] = &mut self.rows;
        Some((x, [Ahead { rows: low, blocks: PhantomData }, Ahead { rows: high, blocks: PhantomData }]))
    }
}

impl<'w, R> Ahead<'w, R> {
    /// The same, but the compiler cannot use it before `v` is known, nor `v` before that. Left to itself
    /// it begins with all rows at once, for which there are not registers enough.
    #[inline(always)]
    pub(super) fn after(self, v: &mut float32x4_t) -> Self {
        let [a, b, c, d] = &mut *self.rows;
        // SAFETY: changes nothing.
        unsafe {
            asm!(
                "/* {0:v} {1} {2} {3} {4} */",
                inout(vreg) * v,
                inout(reg) * a,
                inout(reg) * b,
                inout(reg) * c,
                inout(reg) * d,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        self
    }

    /// Loads the first bytes.
    #[inline(always)]
    pub(super) fn load<H: Heads>(self) -> Four<'w, R, H> {
        // SAFETY: a walk has one `Ahead` of these rows for each block, used up here.
        let heads = unsafe { H::load::<R>(self.rows) };
        Four { heads, rows: self.rows, blocks: PhantomData }
    }
}

impl<R, H: Heads> Four<'_, R, H> {
    /// The last registers of row `r`'s block.
    #[inline(always)]
    pub(super) fn last<const N: usize>(&self, r: usize) -> [uint8x16_t; N] {
        const { assert!(16 * N <= size_of::<R>()) }
        // SAFETY: inside the block that ends where the row goes on, by the assertion.
        let bytes: &[[u8; 16]; N] = unsafe { &*self.rows[r].sub(16 * N).cast() };
        bytes.each_ref().map(load_u8)
    }
}

/// The first two bytes of each row.
#[derive(Clone, Copy)]
pub(super) struct Twos(pub uint16x4_t);

impl Heads for Twos {
    #[inline(always)]
    unsafe fn load<R>(rows: &mut [*const u8; 4]) -> Self {
        const { assert!(2 <= size_of::<R>()) }
        let [a, b, c, d] = rows;
        let twos: uint16x4_t;
        // SAFETY: reads in each row within a block, and goes on to the next or to the end; NEON as in
        // `vec`.
        unsafe {
            asm!(
                "ldr {twos:h}, [{a}], #{size}",
                "ld1 {{ {twos:v}.h }}[1], [{b}], {step}",
                "ld1 {{ {twos:v}.h }}[2], [{c}], {step}",
                "ld1 {{ {twos:v}.h }}[3], [{d}], {step}",
                twos = out(vreg) twos,
                a = inout(reg) *a,
                b = inout(reg) *b,
                c = inout(reg) *c,
                d = inout(reg) *d,
                size = const size_of::<R>(),
                step = in(reg) size_of::<R>(),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        Twos(twos)
    }
}

/// The first eight bytes of two rows each, two bytes of each row in turns.
#[derive(Clone, Copy)]
pub(super) struct Eights(pub [uint16x8_t; 2]);

impl Heads for Eights {
    #[inline(always)]
    unsafe fn load<R>(rows: &mut [*const u8; 4]) -> Self {
        const { assert!(8 <= size_of::<R>()) }
        let both = |[a, b]: &mut [*const u8; 2]| {
            let (first, second): (uint16x8_t, uint16x8_t);
            // SAFETY: as above.
            unsafe {
                asm!(
                    "ldr {first:d}, [{a}], #{size}",
                    "ldr {second:d}, [{b}], #{size}",
                    first = out(vreg) first,
                    second = out(vreg) second,
                    a = inout(reg) *a,
                    b = inout(reg) *b,
                    size = const size_of::<R>(),
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            vzip1q_u16(first, second)
        };
        let pairs = rows.as_chunks_mut().0;
        Eights([both(&mut pairs[0]), both(&mut pairs[1])])
    }
}
