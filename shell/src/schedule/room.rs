//! Who gets the blocks of the pool when there are not enough for all. Must not know what is in them.
//!
//! Nothing waits for ever: the oldest job never gives way, so it goes on to its end, and then the next is
//! the oldest. A job that gave way comes back, with all its tokens, once there is room for these and some
//! more.

use super::leave::End;
use super::run::common;
use super::worker::Worker;
use crate::generate::Stop;
use kinglet_core::kv::BLOCK_TOKENS;

/// Blocks that every sequence can grow by before anybody has to give way.
const HEADROOM: usize = 2;

impl Worker {
    /// Whether there is room for the job that is next, beside those that have a place.
    pub fn has_room(&self) -> bool {
        let Some(run) = self.parked.front() else { return false };
        let others = || self.slots.iter().flatten();
        let places = others().count();
        if places == 0 {
            return true;
        }
        let alike = others().filter(|other| run.reuse && other.root == run.root);
        let shared = alike.map(|other| common(&other.tokens, &run.tokens) / BLOCK_TOKENS).max().unwrap_or(0);
        let mut needed = run.tokens.len().div_ceil(BLOCK_TOKENS).saturating_sub(shared);
        for other in others() {
            needed += match (other.seq, other.behind) {
                (Some(seq), _) => self.engine.pool().blocks_to_extend(seq, other.pending()).unwrap_or(0),
                (None, behind) => {
                    let shared = behind.map_or(0, |(_, tokens)| tokens / BLOCK_TOKENS);
                    other.tokens.len().div_ceil(BLOCK_TOKENS).saturating_sub(shared)
                }
            };
        }
        self.engine.pool().has_free(needed + HEADROOM * (places + 1))
    }

    /// Decides what the next step computes, for which there are blocks; whether there is anything.
    pub fn make_plan(&mut self) -> bool {
        loop {
            self.fill_plan();
            if self.plan.is_empty() {
                return false;
            }
            if self.plan_fits() {
                return true;
            }
            if self.release_tails() {
                continue;
            }
            if self.shrink_plan() {
                return true;
            }
            if !self.wait_leaving() {
                self.give_way();
            }
        }
    }

    fn plan_fits(&self) -> bool {
        let pool = self.engine.pool();
        let needed = self.plan.iter().map(|share| {
            let run = self.slots.get(share.slot).and_then(Option::as_deref);
            let seq = run.and_then(|run| run.seq);
            seq.map_or(0, |seq| pool.blocks_to_extend(seq, share.tokens).unwrap_or(0))
        });
        pool.has_free(needed.sum())
    }

    /// Has prompts wait, and computes less of the last, so that replies go on; whether that is enough.
    fn shrink_plan(&mut self) -> bool {
        while !self.plan_fits() {
            let alone = self.plan.len() == 1;
            match self.plan.last_mut() {
                Some(share) if alone && share.tokens > BLOCK_TOKENS => share.tokens /= 2,
                Some(share) if !alone && share.tokens > 1 => drop(self.plan.pop()),
                _ => return false,
            }
        }
        true
    }

    /// The youngest sequence gives its blocks back. If there is only one, it has all there are, and ends.
    fn give_way(&mut self) {
        let held = self.slots.iter().enumerate().filter_map(|(slot, run)| {
            let run = run.as_deref().filter(|run| run.seq.is_some())?;
            Some((run.serial, slot))
        });
        let (count, youngest) = held.fold((0, (0, 0)), |(n, max), this| (n + 1, this.max(max)));
        let slot = youngest.1;
        if count < 2 {
            return self.end(slot, End::Stop(Stop::ContextFull));
        }
        let Some(mut run) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if let Some(seq) = run.seq.take() {
            self.close(seq);
        }
        run.fed = 0;
        let place = self.parked.partition_point(|other| other.serial < run.serial);
        self.parked.insert(place, run);
        self.desk.state().totals.preempted += 1;
        self.tell_active();
    }
}
