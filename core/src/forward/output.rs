//! The last norm and the output matrix, for the rows whose logits are wanted.

use super::operators::{Ctx, linear, normalize};
use super::trace::{Point, Trace};
use super::{Engine, ForwardError, LogitRow};
use crate::ops::{Forms, Input, Precision};
use crate::par::Workers;
use crate::weights::Vector;

impl Engine<'_> {
    /// Computes logits for the first `wanted` rows, `max_logits` at a time: all rows that are left.
    pub(super) fn logits(
        &mut self,
        workers: &dyn Workers,
        wanted: usize,
        sink: &mut dyn FnMut(LogitRow, &[f32]),
        trace: &mut dyn Trace,
    ) -> Result<(), ForwardError> {
        let (dim, vocab) = (self.config.dim, self.config.vocab);
        let output = self.weights.output;
        let s = &mut self.scratch;
        let forms = (Forms::of(output.ty()), Precision::Fine);
        for first in (0..wanted).step_by(self.limits.max_logits) {
            let n = self.limits.max_logits.min(wanted - first);
            let ctx = Ctx { workers, isa: self.isa, n };
            let x = &mut s.x[first * dim..(first + n) * dim];
            let room = (&mut *s.xn, &mut *s.q32, &mut *s.q256);
            normalize(&ctx, (x, None), &self.weights.output_norm, self.config.rms_eps, forms, room);
            trace.see(Point::FinalNorm, 0, &s.xn[..n * dim]);
            let input = Input::of(n, dim, forms, s.xn, s.q32, s.q256);
            linear(&ctx, &input, [(&output, &Vector::EMPTY, &mut *s.logits)]);
            for (i, logits) in s.logits[..n * vocab].chunks_exact(vocab).enumerate() {
                let row = first + i;
                let position = s.position[row] as usize;
                if !logits.iter().all(|v| v.is_finite()) {
                    return Err(ForwardError::NonFinite { position });
                }
                sink(LogitRow { chunk: s.chunk[row] as usize, position }, logits);
            }
        }
        Ok(())
    }
}
