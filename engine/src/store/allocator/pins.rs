//! Pinned checkpoints: generations that a backup in this process or a reader in another one needs.

use super::super::manifest::READS_ANYTHING;
use super::creation::{Content, CreationTable};
use crate::base::planted::{self, Bug};
use std::collections::BTreeMap;

/// The generations in which some content existed.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// The creation generation; 0 if unknown.
    pub created: u64,
    /// The first generation without the content.
    pub gone: u64,
}

impl Lifetime {
    fn is_read_in(self, generation: u64) -> bool {
        generation < self.gone && (self.created <= generation || generation == READS_ANYTHING)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Pins {
    /// Generation of the last committed checkpoint.
    committed: u64,
    /// Checkpoints held in this process: generation, and number of holds.
    holds: BTreeMap<u64, usize>,
    /// Generations that readers in other processes had at the last look after a commit, ascending.
    /// A reader that came later has a newer generation.
    readers: Vec<u64>,
    /// Creation generations of content, recorded while anything is pinned.
    created: CreationTable,
}

impl Pins {
    /// Generation of the last committed checkpoint.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Sets the generation of the last committed checkpoint.
    pub fn set_committed(&mut self, generation: u64) {
        debug_assert!(generation >= self.committed);
        self.committed = generation;
    }

    /// Sets the generations that readers in other processes have now.
    pub fn set_readers(&mut self, readers: Vec<u64>) {
        self.readers = readers;
        self.readers.sort_unstable();
        self.readers.dedup();
    }

    /// Returns whether a reader in another process has a checkpoint.
    #[must_use]
    pub fn has_readers(&self) -> bool {
        !self.readers.is_empty()
    }

    /// The newest generation that a reader has.
    #[must_use]
    pub fn newest_reader(&self) -> Option<u64> {
        self.readers.last().copied()
    }

    /// Pins the last committed checkpoint; returns its generation.
    #[must_use = "to end it"]
    pub fn hold(&mut self) -> u64 {
        *self.holds.entry(self.committed).or_default() += 1;
        self.committed
    }

    /// Ends one [`Pins::hold`] of a generation.
    pub fn end_hold(&mut self, generation: u64) {
        let count = self.holds.get_mut(&generation).expect("every hold ends once");
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&generation);
        }
    }

    /// Returns a pinned generation that contains content of this lifetime.
    #[must_use]
    pub fn needing(&self, lifetime: Lifetime) -> Option<u64> {
        debug_assert!(lifetime.created <= lifetime.gone, "a block is created before it is replaced");
        debug_assert!(lifetime.created <= lifetime.gone, "a block is created before it is replaced");
        let mut holds = self
            .holds
            .range(lifetime.created..lifetime.gone)
            .filter(|_| !planted::is(Bug::BackupHoldsNothing));
        let by_holds = holds.next().map(|(generation, _)| *generation);
        let mut readers = self.readers.iter().filter(|_| !planted::is(Bug::ReadersNotAsked));
        by_holds.or_else(|| readers.find(|reader| lifetime.is_read_in(**reader)).copied())
    }

    /// Returns whether any checkpoint is pinned.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.holds.is_empty() || !self.readers.is_empty()
    }

    /// Returns whether `generation` is pinned.
    #[must_use]
    pub fn contains(&self, generation: u64) -> bool {
        self.holds.contains_key(&generation) || self.readers.contains(&generation)
    }

    /// Records that the checkpoint committed last is the first with this content.
    pub fn note_created(&mut self, content: Content) {
        if self.is_any() {
            self.created.note(content, self.committed);
        }
    }

    /// Returns the lifetime of content that the checkpoint committed last is the first not to have.
    pub fn end_life(&mut self, content: Content) -> Lifetime {
        Lifetime { created: self.created.take(content), gone: self.committed }
    }

    /// Forgets at most `most` parts of the creation table. Returns whether any entry is left.
    pub fn forget_created(&mut self, most: usize) -> bool {
        self.created.forget(most)
    }

    /// Bytes of memory of the creation table.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.created.memory_bytes()
    }
}
