//! When a checkpoint is due for the sake of space.
//!
//! A replaced image keeps its block until the next checkpoint is durable (I8), and a dirty page has
//! a block in reserve. So the file is as long as the live content and the changes between two
//! checkpoints, and a checkpoint is due when these changes reach a certain part of the live
//! content. A checkpoint costs little where each page changes once or twice before it leaves memory
//! anyway: it writes a little earlier what would have been written later. It costs much where pages
//! stay in memory and change again and again. So it must also be worth its cost:
//!
//! ```text
//!   due:   replaced + changed >= live / 32     and   replaced + changed >= 4 MiB
//!   and    pages evicted since the last one began >= half of that: changed pages would soon be written anyway
//!   and    replaced >= half the pages that the last two checkpoints both wrote: these change all the time
//!   and    replaced >= a 64th of replaced + changed: it frees something
//! ```
//!
//! So it writes at most twice as many pages as were read because they were not in memory.

use crate::store::SpaceUse;

/// The part of the live content that may have changed before a checkpoint is due...
const DUE_PART: u64 = 32;
/// ... and the part that may change while it is made.
const MEANWHILE_PART: u64 = 64;
/// Fewer changed bytes make none due: a small database would have checkpoints all the time.
const DUE_BYTES_MIN: u64 = 4 << 20;
/// At least this part of the changes must be replaced images.
const REPLACED_PART: u64 = 64;
fn part_of(space: SpaceUse, part: u64, least_bytes: u64) -> u64 {
    (space.live / part).max(least_bytes / space.block_bytes.max(1))
}

/// What happened since and in the last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Since {
    /// Pages evicted since it began.
    pub left: u64,
    /// Pages that the last two checkpoints both wrote.
    pub rewritten: u64,
}

/// Returns whether a checkpoint is due.
#[must_use]
pub fn is_due(space: SpaceUse, since: Since) -> bool {
    let twice = space.twice();
    twice >= part_of(space, DUE_PART, DUE_BYTES_MIN)
        && since.left >= twice / 2
        && space.replaced >= (twice / REPLACED_PART).max(since.rewritten / 2)
}

/// Returns how much the file may have to hold twice when a checkpoint that begins now ends.
#[must_use]
pub fn most_twice(begun: SpaceUse) -> u64 {
    begun.twice() + part_of(begun, MEANWHILE_PART, DUE_BYTES_MIN / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: u64 = 100_000;

    fn space(replaced: u64, changed: u64) -> SpaceUse {
        SpaceUse { live: LIVE, replaced, in_checkpoint: 0, changed, block_bytes: 4096 }
    }

    /// Every changed page has left memory.
    fn seen(rewritten: u64) -> Since {
        Since { left: LIVE, rewritten }
    }

    #[test]
    fn due_when_a_part_of_the_live_pages_is_replaced() {
        assert!(is_due(space(LIVE / 32, 0), seen(0)));
        assert!(is_due(space(1000, 2125), seen(0)));
        assert!(!is_due(space(1000, 2124), seen(0)));
        assert!(!is_due(space(0, 0), seen(0)));
    }

    #[test]
    fn small_database_is_not_due() {
        let small =
            |replaced| SpaceUse { live: 500, replaced, in_checkpoint: 0, changed: 0, block_bytes: 4096 };
        assert!(!is_due(small(1000), seen(0)), "all of it, twice");
        assert!(is_due(small(1024), seen(0)));
    }

    #[test]
    fn changes_in_memory_alone_make_no_checkpoint_due() {
        let left = |left| Since { left, rewritten: 0 };
        assert!(!is_due(space(0, LIVE), left(0)));
        assert!(!is_due(space(2000, 40_000), left(4000)), "few pages leave");
        assert!(is_due(space(2000, 40_000), left(21_000)));
        assert!(!is_due(space(100, 40_000), left(LIVE)), "only pages that had not changed left");
    }

    #[test]
    fn pages_rewritten_by_each_checkpoint_delay_the_next() {
        assert!(!is_due(space(3900, 9000), seen(8000)));
        assert!(
            is_due(space(4000, 9000), seen(8000)),
            "until it gives back half of what it writes for nothing"
        );
    }

    #[test]
    fn running_checkpoint_allows_little_more_change() {
        assert_eq!(most_twice(space(1000, 5000)), 6000 + LIVE / 64);
    }
}
