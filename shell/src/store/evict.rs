//! Which files go first when there are too many. Must not know where they are.
//!
//! What is set aside goes first. Of the rest, whatever was not used for the longest time, where a block is
//! used whenever one of those that follow it is: a conversation that goes on in memory writes new blocks
//! and touches none of the old. So a block never goes before one that follows it and could not be found
//! without it.

use super::medium::Time;
use super::names::Kind;
use core::cmp::{Ordering, Reverse};
use kinglet_core::kv::BlockId;

/// A file that may go.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Index of its fingerprint's folder.
    pub folder: u32,
    /// What it is.
    pub kind: Kind,
    /// The id in its name.
    pub id: BlockId,
    /// Of a block, the one before it; `None` if its header cannot be read.
    pub parent: Option<BlockId>,
    /// Of a block, its index in its sequence.
    pub position: u32,
    /// Its size.
    pub bytes: u64,
    /// Its time; after [`order`], the latest one of those that follow it.
    pub used: Time,
}

impl File {
    /// Where it stands among files that were used at one time: those that nothing follows go first.
    fn depth(&self) -> u32 {
        if self.kind == Kind::Tail { u32::MAX } else { self.position }
    }

    fn is_bad(&self) -> bool {
        matches!(self.kind, Kind::BadBlock | Kind::BadTail)
    }

    fn key(&self) -> (u32, BlockId) {
        (self.folder, self.id)
    }

    /// The block it follows, by [`File::key`].
    fn before(&self) -> Option<(u32, BlockId)> {
        let parent = match self.kind {
            Kind::Tail => Some(self.id),
            Kind::Block => self.parent,
            _ => None,
        };
        parent.map(|parent| (self.folder, parent))
    }
}

/// Later than all times: of a file that is about to be written, and so of those it follows.
pub const NEVER: Time = Time { seconds: i64::MAX, nanos: u32::MAX };

/// Indices of `files` in the order in which they go.
pub fn order(files: &mut [File]) -> Vec<u32> {
    let by_id = |a: &File, b: &File| a.key().cmp(&b.key());
    let blocks = sorted(files, &mut |file| file.kind == Kind::Block, &by_id);
    // From the ends of the sequences to their beginnings, so that each block hands on what it was given.
    let deepest_first = sorted(files, &mut |file| !file.is_bad(), &|a, b| b.depth().cmp(&a.depth()));
    for i in deepest_first {
        let file = files[i as usize];
        let Some(before) = file.before() else { continue };
        let Ok(at) = blocks.binary_search_by(|block| files[*block as usize].key().cmp(&before)) else {
            continue;
        };
        let parent = &mut files[blocks[at] as usize];
        // A header that lies about its place must not turn the order around.
        if file.kind == Kind::Tail || parent.position < file.position {
            parent.used = parent.used.max(file.used);
        }
    }
    let key = |file: &File| (!file.is_bad(), file.used, Reverse(file.depth()));
    sorted(files, &mut |_| true, &|a, b| key(a).cmp(&key(b)))
}

/// Indices of the files that `takes` takes, sorted. One function for all orders, so that the code of sorting
/// is there once.
fn sorted(
    files: &[File],
    takes: &mut dyn FnMut(&File) -> bool,
    by: &dyn Fn(&File, &File) -> Ordering,
) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..files.len() as u32).filter(|i| takes(&files[*i as usize])).collect();
    indices.sort_unstable_by(|a, b| by(&files[*a as usize], &files[*b as usize]).then(a.cmp(b)));
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> BlockId {
        BlockId([n; 16])
    }

    fn file(kind: Kind, n: u8, parent: u8, position: u32, seconds: i64) -> File {
        let used = Time { seconds, nanos: 0 };
        File { folder: 0, kind, id: id(n), parent: Some(id(parent)), position, bytes: 1, used }
    }

    #[test]
    fn a_block_is_used_when_what_follows_it_is() {
        // 1 - 2 - 3 and its tail, used lately; 1 - 4, whose files are younger but for the tail.
        let mut files = [
            file(Kind::Block, 1, 0, 0, 10),
            file(Kind::Block, 2, 1, 1, 10),
            file(Kind::Block, 3, 2, 2, 10),
            file(Kind::Tail, 3, 0, 0, 99),
            file(Kind::Block, 4, 1, 1, 50),
            file(Kind::BadBlock, 5, 0, 0, 1000),
        ];
        let order = order(&mut files);
        assert_eq!(order, [5, 4, 3, 2, 1, 0]);
        assert_eq!(files[0].used.seconds, 99);
    }

    #[test]
    fn folders_are_apart_and_parents_may_be_missing() {
        let mut files =
            [file(Kind::Block, 2, 1, 1, 30), file(Kind::Block, 1, 0, 0, 10), file(Kind::Tail, 9, 0, 0, 20)];
        files[0].folder = 1;
        assert_eq!(order(&mut files), [1, 2, 0]);
        assert_eq!(files[1].used.seconds, 10);
    }

    #[test]
    fn headers_that_lie_are_harmless() {
        // Each says that it follows the other.
        let mut files = [file(Kind::Block, 1, 2, 5, 10), file(Kind::Block, 2, 1, 5, 20)];
        assert_eq!(order(&mut files), [0, 1]);
        let mut files = [file(Kind::Block, 1, 1, 5, 10)];
        assert_eq!(order(&mut files), [0]);
    }
}
