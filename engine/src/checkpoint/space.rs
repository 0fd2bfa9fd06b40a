//! When a checkpoint is due for the sake of space.
//!
//! An image that is replaced keeps its block until the next checkpoint is durable (I8), and what is dirty has a block in reserve. So the file
//! is as long as what is live and what changes from one checkpoint to the next, and a checkpoint is due when that is a
//! certain part of what is live. It costs little where each page changes once or twice before it has to leave memory anyway: then a
//! checkpoint writes what would have been written a little later. It costs much where the same pages change all the time. So it must
//! also be worth it:
//!
//! ```text
//!   due:   replaced + changed >= live / 16     and   replaced + changed >= 4 MiB
//!   and    replaced >= the pages that the last checkpoint wrote and the one before had written, too
//!   and    replaced >= an eighth of both: where all changed pages are in memory a checkpoint gives nothing back
//! ```

use crate::store::Space;

/// The part of what is live that may have changed before a checkpoint is due, and the part that may change while it is made.
const DUE_PART: u64 = 16;
/// Less than this is let be: a small database would have checkpoints all the time.
const DUE_BYTES_MIN: u64 = 4 << 20;
/// Of what has changed so much at least must have left memory.
const LEFT_PART: u64 = 8;

fn allowed(space: Space) -> u64 {
    (space.live / DUE_PART).max(DUE_BYTES_MIN / space.block_bytes.max(1))
}

/// Whether a checkpoint is due, if the last one wrote `rewritten` images of pages of which the one before had written images, too.
#[must_use]
pub fn is_due(space: Space, rewritten: u64) -> bool {
    let twice = space.twice();
    twice >= allowed(space) && space.replaced >= (twice / LEFT_PART).max(rewritten)
}

/// For a checkpoint that begins now: how much the file may have to hold twice when it ends.
#[must_use]
pub fn most_twice(begun: Space) -> u64 {
    begun.twice() + allowed(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: u64 = 100_000;

    fn space(replaced: u64, changed: u64) -> Space {
        Space { live: LIVE, replaced, in_round: 0, changed, block_bytes: 4096 }
    }

    #[test]
    fn a_checkpoint_is_due_when_a_part_of_what_is_live_has_been_replaced_or_will_be() {
        assert!(is_due(space(LIVE / 16 + 1, 0), 0));
        assert!(is_due(space(1000, 5300), 0));
        assert!(!is_due(space(1000, 5000), 0));
        assert!(!is_due(space(0, 0), 0));
    }

    #[test]
    fn small_databases_are_let_be() {
        let small = |replaced| Space { live: 500, replaced, in_round: 0, changed: 0, block_bytes: 4096 };
        assert!(!is_due(small(1000), 0), "all of it, twice");
        assert!(is_due(small(1024), 0));
    }

    #[test]
    fn what_changes_in_memory_alone_makes_none_due() {
        assert!(!is_due(space(0, LIVE), 0), "a checkpoint would give nothing back");
        assert!(!is_due(space(LIVE / 16, LIVE), 0));
    }

    #[test]
    fn pages_that_each_checkpoint_writes_again_put_it_off() {
        assert!(!is_due(space(7000, 9000), 8000));
        assert!(is_due(space(8000, 9000), 8000), "until it gives back as much as it writes for nothing");
    }

    #[test]
    fn while_it_is_made_as_much_again_may_change() {
        assert_eq!(most_twice(space(1000, 5000)), 6000 + LIVE / 16);
    }
}
