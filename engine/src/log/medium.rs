//! What holds the records of a log until their blocks are written.
//!
//! In ordinary memory a record is durable when its block is. Another medium may make it durable
//! earlier: then the durable frontier of the log passes records, not blocks. Such a medium holds a
//! second copy of each record; blocks are always written from ordinary memory.

use crate::base::Csn;

/// Where the records of a block are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In ordinary memory.
    Ordinary,
    /// In this buffer of the medium, too.
    Buffer(u32),
}

impl Place {
    /// Returns the buffer of the medium.
    pub(super) fn buffer(self) -> Option<u32> {
        match self {
            Place::Ordinary => None,
            Place::Buffer(buffer) => Some(buffer),
        }
    }
}

/// The way in which a log became clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fenced {
    /// The log was clean.
    Nothing,
    /// By a fence of the thread that had stored.
    ByFence,
    /// By a barrier in all threads.
    ByBarrier,
    /// What is stored is durable.
    WhenStored,
}

/// The medium of one log, used under its latch. Each method has the answer of ordinary memory.
pub(super) trait Medium: std::fmt::Debug + Send {
    /// Returns whether a record may be durable before its block is written.
    fn holds_records(&self) -> bool {
        false
    }

    /// Returns how many buffers a log has; `None`: the medium does not say.
    fn buffers(&self) -> Option<usize> {
        None
    }

    /// Returns the place of the next block, `sequence`; none if the medium has no room. Nothing of
    /// the block that was there before is believed any more.
    fn take(&mut self, _sequence: u64, _previous_csn: Csn) -> Option<Place> {
        Some(Place::Ordinary)
    }

    /// The block of `buffer` is durable in a segment, or there is none.
    fn give_back(&mut self, _buffer: u32) {}

    /// Copies the record `csn`, whole words, to byte `at` of `buffer`.
    fn insert(&mut self, _buffer: u32, _at: usize, _record: &[u8], _csn: Csn) {}

    /// Makes everything inserted durable.
    fn fence(&mut self) -> Fenced {
        Fenced::Nothing
    }

    /// The calling thread has fenced after its last insertion.
    fn fenced_own(&mut self) -> Fenced {
        Fenced::Nothing
    }

    /// Every record up to `csn` is durable.
    fn fenced_up_to(&mut self, _csn: Csn) {}

    /// At or below the first record that was inserted and is not durable.
    fn first_unfenced(&self) -> Option<Csn> {
        None
    }

    /// Returns true if that is a record's own.
    fn knows_first_unfenced(&self) -> bool {
        true
    }

    /// The last record that was inserted and is not durable.
    fn last_unfenced(&self) -> Option<Csn> {
        None
    }
}

/// Ordinary memory.
#[derive(Debug)]
pub(super) struct Ordinary;

impl Medium for Ordinary {}
