//! An entry of a queue, and how it is written to cache lines.

use super::super::super::predecessors::{PREDECESSORS, Predecessors};
use crate::base::Csn;
use crate::base::clock::Nanos;

/// Words of a cache line.
pub(super) const LINE_WORDS: usize = 8;
/// Memory for an entry of the queue, unless it names many predecessors.
pub const ENTRY_BYTES: u64 = (LINE_WORDS * size_of::<u64>()) as u64;
/// Words of an entry besides its predecessors.
const FIXED_WORDS: usize = 5;
/// Lines of the longest entry.
pub(super) const ENTRY_LINES_MAX: usize = (FIXED_WORDS + PREDECESSORS).div_ceil(LINE_WORDS);
/// A pre-committed transaction that no thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its own CSN; zero for a read-only transaction, which has no record.
    pub csn: Csn,
    /// The highest CSN that the transaction depends on.
    pub dsn: Csn,
    /// When it began.
    pub begun: Nanos,
    /// When it asked to commit.
    pub ready: Nanos,
    /// Direct predecessors that may not be committed yet.
    pub predecessors: Predecessors,
}

/// Storage of an entry, written and read word by word.
pub(super) trait Words {
    fn put(&mut self, at: usize, word: u64);
    fn get(&self, at: usize) -> u64;
}

impl Entry {
    fn known(&self) -> usize {
        self.predecessors.all().map_or(0, <[Csn]>::len)
    }

    /// Cache lines that it takes.
    pub(super) fn lines(&self) -> u64 {
        debug_assert!(
            FIXED_WORDS + self.known() <= ENTRY_LINES_MAX * LINE_WORDS,
            "room is asked for the longest entry"
        );
        (FIXED_WORDS + self.known()).div_ceil(LINE_WORDS) as u64
    }

    pub(super) fn write(&self, words: &mut impl Words) {
        let fixed = [self.predecessors.len() as u64, self.csn.0, self.dsn.0, self.begun.0, self.ready.0];
        for (at, word) in fixed.into_iter().enumerate() {
            words.put(at, word);
        }
        for (at, csn) in self.predecessors.all().unwrap_or_default().iter().enumerate() {
            words.put(FIXED_WORDS + at, csn.0);
        }
    }

    pub(super) fn read(words: &impl Words) -> Entry {
        let mut predecessors = Predecessors::default();
        match words.get(0) as usize {
            count if count > PREDECESSORS => {
                debug_assert!(count == PREDECESSORS + 1, "an entry is read where one was written");
                predecessors.overflow();
            }
            count => (0..count).for_each(|at| predecessors.add(Csn(words.get(FIXED_WORDS + at)))),
        }
        Entry {
            csn: Csn(words.get(1)),
            dsn: Csn(words.get(2)),
            begun: Nanos(words.get(3)),
            ready: Nanos(words.get(4)),
            predecessors,
        }
    }
}

/// The result of `pop_while`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Popped {
    pub count: u64,
    /// An entry is left at the front that was not accepted.
    pub refused: bool,
}
