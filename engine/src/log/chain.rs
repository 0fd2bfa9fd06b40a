//! The chains that the blocks of a scan make: rules 2 and 3 of `reader`.

use super::scanned::{LeftOut, ScannedBlock, leave_out};
use crate::base::{Csn, Epoch, Error, LogId, Result, SegmentId};

/// The blocks of one log and epoch above what the checkpoint covers.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The log.
    pub log: LogId,
    /// The epoch.
    pub epoch: Epoch,
    /// All whole blocks, by sequence.
    pub blocks: Vec<ScannedBlock>,
    accepted: usize,
}

impl Chain {
    /// The gap-free run, in order. Recovery has a rule of its own.
    #[must_use]
    pub fn accepted(&self) -> &[ScannedBlock] {
        &self.blocks[..self.accepted]
    }

    /// Whole blocks behind a hole.
    #[must_use]
    pub fn beyond(&self) -> &[ScannedBlock] {
        &self.blocks[self.accepted..]
    }
}

/// Sorts blocks into chains (rules 2 and 3 of `reader`). Of equal ones those of the segment `last`
/// are left out, and of two that begin alike the shorter one in it: after a crash of the machine a
/// mapped file may hold an earlier state of a block that was written since.
pub(super) fn chains(
    mut blocks: Vec<ScannedBlock>,
    covered: Csn,
    last: Option<SegmentId>,
    left_out: LeftOut<'_>,
) -> Result<Vec<Chain>> {
    blocks.sort_unstable_by_key(|block| {
        (block.epoch(), block.log(), block.sequence(), Some(block.segment()) == last)
    });
    blocks.dedup_by(|b, a| Some(b.segment()) == last && is_earlier_state(b, a));
    for pair in blocks.windows(2) {
        let [a, b] = pair else { continue };
        if (a.epoch(), a.log()) != (b.epoch(), b.log()) || a.header == b.header {
            continue;
        }
        let place = format!("number {} of log {} in epoch {}", b.sequence(), b.log(), b.epoch());
        let what = if a.sequence() == b.sequence() {
            format!("two different blocks are {place}")
        } else if a.last_csn() >= b.first_csn() {
            format!("the CSNs of block {place} are not above those of the block before it")
        } else {
            continue;
        };
        leave_out(left_out, Error::corruption(what).at(b.location(0)))?;
    }
    blocks.dedup_by(|a, b| a.header == b.header);
    let chains = blocks.chunk_by(|a, b| (a.epoch(), a.log()) == (b.epoch(), b.log()));
    Ok(chains.map(|blocks| chain(blocks.to_vec(), covered)).collect())
}

/// Returns true if `block` has only some of the records of `whole`, from the first on.
fn is_earlier_state(block: &ScannedBlock, whole: &ScannedBlock) -> bool {
    let place = |block: &ScannedBlock| {
        let header = &block.header;
        (block.epoch(), block.log(), block.sequence(), header.first_csn, header.previous_csn)
    };
    place(block) == place(whole) && block.header.record_count < whole.header.record_count
}

/// `blocks` has at least one.
fn chain(blocks: Vec<ScannedBlock>, covered: Csn) -> Chain {
    let begins = blocks[0].header.previous_csn <= covered;
    let run = blocks.windows(2).take_while(|pair| pair[1].sequence() == pair[0].sequence() + 1).count();
    let accepted = if begins { run + 1 } else { 0 };
    Chain { log: blocks[0].log(), epoch: blocks[0].epoch(), blocks, accepted }
}
