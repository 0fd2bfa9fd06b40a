//! The mapped buffers of one log, while it is filled. Everything here happens under the log's
//! latch.
//!
//! ```text
//!   free ──take: entry fenced──▶ filled ──sealed──▶ in flight ──block durable in segment──▶ free
//! ```
//!
//! **Dirty.** From an insertion to the next fence the log is *dirty*. It has a slot for each dirty
//! thread, with the first record that the thread has not fenced. A thread may fence beside the
//! latch, and clear its slot under the latch afterwards. A fence covers what its own thread has
//! stored; where another thread left something unfenced a barrier covers all. With durable caches a
//! stored record is durable, and the log is never dirty.

use super::super::medium::{Fenced, Medium, Place};
use super::super::stream::Log;
use super::layout::{Entry, LogMemory};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Epoch, LogId};
use crate::sync::thread;
use std::sync::Arc;

/// Mapped buffers of one log.
#[derive(Debug)]
pub struct MemoryBuffers {
    shared: Arc<LogMemory>,
    log: LogId,
    epoch: Epoch,
    count: usize,
    free: Vec<u32>,
    /// By thread. Has memory for [`THREADS`] and one more, because an insertion must not allocate.
    unfenced: Vec<Unfenced>,
    /// A stored record is durable without a fence.
    needs_no_fence: bool,
}

/// Threads whose unfenced records are kept apart. Those of further threads count as if several
/// threads had stored them.
const THREADS: usize = 16;

/// The records that a thread inserted and did not fence.
#[derive(Clone, Copy, Debug)]
struct Unfenced {
    /// At or below the first of them, above everything fenced.
    first: Csn,
    /// `first` is that of a record.
    is_known: bool,
    last: Csn,
    /// The thread that stored them; 0 for several threads.
    by: u64,
}

impl LogMemory {
    /// The share of `log`, one of `logs`.
    #[must_use]
    pub fn buffers_of(self: &Arc<Self>, log: LogId, logs: usize, epoch: Epoch) -> MemoryBuffers {
        let each = self.layout.buffers / logs as u32;
        let first = log.0 * each;
        let free: Vec<u32> = (first..first + each).rev().collect();
        let needs_no_fence = self.memory.is_durable_when_stored();
        MemoryBuffers {
            shared: self.clone(),
            log,
            epoch,
            count: free.len(),
            free,
            unfenced: Vec::with_capacity(THREADS + 1),
            needs_no_fence,
        }
    }

    /// Asks for the share of `log`, one of `logs`, to be kept in the memory of a NUMA node.
    pub fn place(&self, log: LogId, logs: usize, node: u32) {
        let each = self.layout.buffers / logs as u32;
        let bytes = u64::from(each) * u64::from(self.layout.buffer_bytes);
        self.memory.place(self.layout.buffer_offset(log.0 * each), bytes, node);
    }

    /// Bytes of a buffer.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.layout.buffer_bytes as usize
    }
}

impl MemoryBuffers {
    /// From now on the records of `log` go to these buffers, too. To be called before anything is
    /// shared, and after what recovery appends again.
    pub fn attach_to(self, log: &Log) {
        log.attach_medium(Box::new(self));
    }

    fn note_unfenced(&mut self, csn: Csn) {
        let own = thread::number();
        let is_full = self.unfenced.len() >= THREADS;
        let by = if is_full && self.unfenced.iter().all(|unfenced| unfenced.by != own) { 0 } else { own };
        match self.unfenced.iter_mut().find(|unfenced| unfenced.by == by) {
            Some(before) => before.last = csn,
            None => self.unfenced.push(Unfenced { first: csn, is_known: true, last: csn, by }),
        }
    }

    fn oldest(&self) -> Option<&Unfenced> {
        self.unfenced.iter().min_by_key(|unfenced| unfenced.first)
    }
}

impl Medium for MemoryBuffers {
    fn holds_records(&self) -> bool {
        true
    }

    fn buffers(&self) -> Option<usize> {
        Some(self.count)
    }

    fn take(&mut self, sequence: u64, previous_csn: Csn) -> Option<Place> {
        let buffer = self.free.pop()?;
        let entry = Entry { log: self.log, epoch: self.epoch, sequence, previous_csn };
        let memory = &self.shared;
        memory.memory.store(memory.layout.entry_offset(buffer), &memory.encode_entry(&entry));
        // Before the first record: a crash that keeps some of the new records must not find the old
        // entry.
        if !planted::is(Bug::BufferEntryNotFenced) {
            memory.memory.fence();
        }
        Some(Place::Buffer(buffer))
    }

    fn give_back(&mut self, buffer: u32) {
        debug_assert!(!self.free.contains(&buffer), "buffer {buffer} is given back twice");
        debug_assert!(buffer as usize / self.count == self.log.0 as usize, "a log has its own buffers");
        self.free.push(buffer);
    }

    fn insert(&mut self, buffer: u32, at: usize, record: &[u8], csn: Csn) {
        debug_assert!(at + record.len() <= self.shared.buffer_bytes(), "a record fits in its buffer");
        debug_assert!(at.is_multiple_of(8) && record.len().is_multiple_of(8), "records are whole words");
        debug_assert!(!self.free.contains(&buffer), "buffer {buffer} is filled by nobody");
        if !self.needs_no_fence {
            // Before the store, which may panic.
            self.note_unfenced(csn);
        }
        let memory = &self.shared;
        memory.memory.store(memory.layout.buffer_offset(buffer) + at as u64, record);
    }

    fn first_unfenced(&self) -> Option<Csn> {
        self.oldest().map(|unfenced| unfenced.first)
    }

    fn knows_first_unfenced(&self) -> bool {
        self.oldest().is_none_or(|unfenced| unfenced.is_known)
    }

    fn last_unfenced(&self) -> Option<Csn> {
        self.unfenced.iter().map(|unfenced| unfenced.last).max()
    }

    fn fence(&mut self) -> Fenced {
        if self.needs_no_fence {
            return Fenced::WhenStored;
        }
        let Some(last) = self.unfenced.last() else { return Fenced::Nothing };
        let own = self.unfenced.len() == 1 && last.by == thread::number();
        if !own {
            self.shared.memory.barrier();
        } else if !planted::is(Bug::FenceSkipped) {
            self.shared.memory.fence();
        }
        // Not before: a fence that panics was none.
        self.unfenced.clear();
        if own { Fenced::ByFence } else { Fenced::ByBarrier }
    }

    /// If the records of the thread are not kept apart from those of others, a barrier fences them
    /// all.
    fn fenced_own(&mut self) -> Fenced {
        let own = thread::number();
        if self.unfenced.iter().any(|unfenced| unfenced.by == own) {
            self.unfenced.retain(|left| left.by != own && !planted::is(Bug::FenceCoversOthers));
            return Fenced::ByFence;
        }
        // A barrier of another thread may have come first.
        let are_mixed = self.unfenced.iter().any(|unfenced| unfenced.by == 0);
        if are_mixed { self.fence() } else { Fenced::Nothing }
    }

    /// By a barrier that began after it was inserted, or in a segment.
    fn fenced_up_to(&mut self, csn: Csn) {
        self.unfenced.retain_mut(|left| {
            if left.last > csn && left.first <= csn {
                (left.first, left.is_known) = (csn.next(), false);
                debug_assert!(left.first <= left.last, "the first unfenced record is not behind the last");
            }
            left.last > csn
        });
    }
}
