//! Making the file of pages as short as what is in it.
//!
//! Images move out of packs that are half empty. Images at the end move to free blocks before them,
//! a checkpoint makes that count, and the file is cut; again, until there is nothing more to gain.
//! Transactions and checkpoints of other threads continue meanwhile.

use super::progress::ProgressFn;
use crate::base::Result;
use crate::checkpoint::Checkpointer;
use crate::store::PageStore;

/// Rounds at most: the first moves nearly everything, the others what the checkpoints in between
/// had to put at the end.
const ROUNDS_MAX: u32 = 12;
/// Rounds one after the other that gain nothing, before the rest is left where it is.
const ROUNDS_IN_VAIN: u32 = 3;
/// Images moved while no checkpoint can begin.
const STEP: usize = 1024;

/// The result of compacting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Length of the file of pages before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
    /// Used bytes of these.
    pub bytes_used: u64,
    /// Page images moved.
    pub pages_moved: u64,
    /// Time taken, in seconds.
    pub seconds: f64,
}

/// Compacts until the file is at most a twentieth longer than what is in use, or as much as the
/// next checkpoint and transactions in progress need, or until some rounds gain nothing: what
/// backups and readers of older checkpoints hold does not move. (`seconds` of the report is for the
/// caller.)
///
/// # Errors
/// Those of a checkpoint; `Corruption` if an image that should move is damaged. The database is as
/// it was.
pub fn compact(
    checkpointer: &Checkpointer,
    store: &PageStore,
    progress: ProgressFn<'_>,
) -> Result<CompactReport> {
    let bytes = |blocks: u64| blocks * store.page_bytes() as u64;
    let length = || store.usage().blocks;
    let before = length();
    let (mut pages_moved, mut in_vain) = (0, 0);
    // A checkpoint first, so that all free blocks are known.
    checkpointer.checkpoint()?;
    // Beside writers there are always new sparse packs, and new images at the end. Each image moves
    // about once.
    let pages = store.usage().pages;
    loop {
        let moved = checkpointer.repack(STEP)?;
        pages_moved += moved;
        progress("pages repacked", pages_moved, pages_moved + store.packs().sparse_packs);
        if moved == 0 || pages_moved > pages {
            break;
        }
    }
    if pages_moved > 0 {
        checkpointer.checkpoint()?;
    }
    store.disk_space().cut_free_end()?;
    let rounds_max = if store.disk_space().stores_extents() { 0 } else { ROUNDS_MAX };
    if rounds_max == 0 {
        pages_moved += empty_extents(checkpointer, store, progress)?;
    }
    let mut shortest = length();
    for _ in 0..rounds_max {
        let (start, bound) = (length(), store.disk_space().compact_blocks());
        if start <= bound {
            break;
        }
        let total = start - bound;
        let mut here = 0;
        loop {
            let moved = checkpointer.move_tail(bound, STEP)?;
            here += moved;
            progress("pages moved", here.min(total), total);
            if moved == 0 || here > pages {
                break;
            }
        }
        pages_moved += here;
        checkpointer.checkpoint()?;
        store.disk_space().cut_free_end()?;
        // An image that an eviction is writing can be at the end, and moves when it is known to be
        // one. Writers may need what was gained.
        in_vain = if length() >= shortest { in_vain + 1 } else { 0 };
        shortest = shortest.min(length());
        if in_vain == ROUNDS_IN_VAIN {
            break;
        }
    }
    let usage = store.usage();
    Ok(CompactReport {
        bytes_before: bytes(before),
        bytes_after: bytes(usage.blocks),
        bytes_used: bytes(usage.used_blocks()),
        pages_moved,
        seconds: 0.0,
    })
}

/// Empties extents of which at most half is in use, until a round finds none. Returns the number of
/// images moved.
fn empty_extents(checkpointer: &Checkpointer, store: &PageStore, progress: ProgressFn<'_>) -> Result<u64> {
    let mut pages_moved = 0;
    for _ in 0..ROUNDS_MAX {
        let mut here = 0;
        loop {
            let moved = checkpointer.empty_extents(STEP)?;
            here += moved;
            progress("pages moved", here, here + store.usage().dead_blocks);
            if moved == 0 {
                break;
            }
        }
        if here == 0 {
            break;
        }
        pages_moved += here;
        checkpointer.checkpoint()?;
        store.disk_space().cut_free_end()?;
    }
    Ok(pages_moved)
}
