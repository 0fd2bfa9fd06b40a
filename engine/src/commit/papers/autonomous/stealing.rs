//! How does one write take the bytes of several logs? (Autonomous commit, SIGMOD 2025.)
//!
//! A worker that writes its log takes along what its neighbours have waiting. So one write, and on
//! a disk with a volatile cache one flush, serves them all, and a worker that is off the CPU or
//! gone is served by those that run.
//!
//! ```text
//!   log 0 (helper)   own block 41 | carried: block 17 of log 1 | carried: block 8 of log 3      one write, in log 0's segment
//!   log 1 (owner)    ... 15   16                                18 ...                          its blocks, in its own segment
//! ```
//!
//! The helper turns stolen bytes into a block of their owner: the owner's next sequence, its own
//! header and checksums. Only its place is the helper's. So a torn write loses whole blocks, CSNs
//! rise with position in each log (I3), and recovery, which orders blocks by log and sequence
//! wherever they lie, needs no rule for stealing.
//!
//! # When
//! With *u* the flush unit and *b* the bits of the group's size, a worker with *d* waiting bytes at
//! the end of a transaction writes
//! * its log alone if *d* >= *u*: the write is large enough;
//! * its log with its neighbours' if *u / b* <= *d* < *u* and together they reach *u*;
//! * them along as well whenever it writes less than *u* for another reason: the interval has
//!   passed, or it is idle.
//!
//! The helper leaves alone a neighbour with a unit or more, which is about to be written; bytes
//! that nothing requires (lazy), or whose committer waits and writes; a log with sealed blocks; and
//! a log whose latch is taken.
//!
//! # Why it is sound
//! 1. **Two helpers never take the same bytes.** They are taken under the owner's latch, which is
//!    only tried, so that two helpers of each other do not wait. See
//!    `docs/internals/decisions/0011-stealing-whole-blocks.md`.
//! 2. **The owner is not idle while its bytes are in flight** (rule 3). They stay in its slot: its
//!    first volatile CSN is in its parking lot until the write has completed.
//! 3. **Durable is the owner's gap-free prefix**, not the helper's: a hole in the helper's log
//!    hides nothing from recovery, which looks at every sector.
//! 4. **A segment stays** until a checkpoint covers every block in it, those of other logs too.
//! 5. **A waiter finds the helper.** It waits for the helper's write as for one of its own log: it
//!    becomes the leader of the helper's log and reaps, or sleeps on that log's event.
//! 6. **A failed write poisons**, whichever log it was of.

use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, LogId};
use crate::commit::core::environment::Environment;
use crate::commit::core::levels::NEVER;
use crate::commit::core::log_writer::LogWriter;
use crate::device::AlignedBuffer;
use crate::device::topology::CacheGroups;
use crate::log::{LogGuard, SealedBlock};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Most logs of a group whose size is not set.
const GROUP_MOST: usize = 8;

/// Which logs steal from each other.
#[derive(Debug)]
pub struct Neighbours {
    /// Logs of a group: those whose numbers, divided by it, are equal. 1: no worker steals.
    group: usize,
    /// Where the machine has several caches and the group is not set: the cache at which each log's
    /// worker was last seen. Only logs at the same one are neighbours.
    homes: Box<[AtomicU32]>,
    /// Waiting bytes at which a worker writes its log, alone.
    unit: usize,
    /// Waiting bytes at which it looks whether its neighbours have the rest.
    least: usize,
}

/// A block of another log in a write.
#[derive(Debug)]
pub struct Carried {
    pub log: LogId,
    pub sequence: u64,
    pub first_csn: Csn,
    /// Its owner's buffer, if it could not be given back at once.
    pub buffer: Option<AlignedBuffer>,
}

impl Neighbours {
    /// `said` is the size of a group, if the protocol says it; `unit` a flush unit in bytes.
    pub fn new(said: Option<usize>, unit: usize, logs: usize) -> Neighbours {
        Neighbours::on(CacheGroups::of_machine(), said, unit, logs)
    }

    fn on(caches: &CacheGroups, said: Option<usize>, unit: usize, logs: usize) -> Neighbours {
        let chosen = || caches.largest().min(GROUP_MOST);
        let group = said.unwrap_or_else(chosen).clamp(1, logs);
        let several = group > 1 && said.is_none() && caches.count() > 1;
        let homes = if several { (0..logs).map(|_| AtomicU32::new(0)).collect() } else { Box::default() };
        let bits = (usize::BITS - group.leading_zeros()) as usize;
        Neighbours { group, homes, unit, least: unit / bits }
    }

    /// Returns the logs of a group; 1 if no worker steals.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Remembers at which cache a worker runs. To be called now and then: threads move.
    pub fn seen(&self, log: LogId) {
        if let Some(home) = self.homes.get(log.0 as usize) {
            home.store(
                CacheGroups::of_machine().group_of(crate::sync::thread::current_cpu()),
                Ordering::Relaxed,
            );
        }
    }

    /// The logs that `log` may steal from.
    fn of<'a>(&'a self, writers: &'a [LogWriter], log: LogId) -> impl Iterator<Item = &'a LogWriter> {
        let own = log.0 as usize;
        let first = own / self.group * self.group;
        let group = &writers[first..writers.len().min(first + self.group)];
        let home = |at: usize| self.homes.get(at).map(|home| home.load(Ordering::Relaxed));
        group.iter().filter(move |writer| writer.id != log && home(writer.id.0 as usize) == home(own))
    }

    /// Returns whether `log` and its neighbours together have enough for a write, although none has
    /// alone.
    pub fn reach_unit_together(&self, logs: &[LogWriter], log: &LogWriter) -> bool {
        if self.group == 1 {
            return false;
        }
        let own = stealable(log, self.unit);
        if own < self.least.max(1) {
            return false;
        }
        let others = self.of(logs, log.id).map(|other| stealable(other, self.unit));
        own + others.sum::<usize>() >= self.unit
    }

    /// Takes what the neighbours of `helper` have waiting, if the write of `block` is small.
    /// `block` was just sealed under `latch`, and the caller leads. Calls `will_carry` with the
    /// first CSN of each block, under the latch of its owner.
    pub fn steal(
        &self,
        logs: &[LogWriter],
        helper: &LogWriter,
        latch: &mut LogGuard<'_>,
        block: &SealedBlock,
        will_carry: impl Fn(Csn),
    ) -> Vec<SealedBlock> {
        let mut stolen = Vec::new();
        if self.group == 1 || block.payload_bytes() >= self.unit {
            return stolen;
        }
        let mut room = block.buffer.len() - block.len;
        for owner in self.of(logs, helper.id) {
            if stealable(owner, self.unit) == 0 {
                continue;
            }
            let Some(mut theirs) = owner.log.try_lock() else { continue };
            if owner.has_sealed() || owner.unflushed.count() > 0 {
                // Since that look. Stealing what lies behind a sealed block would take its due time
                // away.
                continue;
            }
            if let Some(carried) = latch.carry(block, &mut theirs, room) {
                room -= carried.len;
                debug_assert!(carried.log() == owner.id, "a carried block is of its owner");
                will_carry(carried.first_csn);
                owner.is_carried(&theirs);
                stolen.push(carried);
            }
        }
        stolen
    }
}

/// Returns how many bytes of `log` may be stolen: none if nothing requires them, or if its worker
/// is about to write.
fn stealable(log: &LogWriter, unit: usize) -> usize {
    let bytes = log.log.unsealed_bytes();
    let wanted = bytes > 0
        && bytes < unit
        && !log.has_sealed()
        && log.unflushed.count() == 0
        && log.flush_request.due() != NEVER;
    if wanted { bytes } else { 0 }
}

/// Puts the bytes of stolen blocks behind those of `block`, where their places are, and gives their
/// buffers back.
pub fn attach_stolen(
    environment: &Environment,
    logs: &[LogWriter],
    block: &mut SealedBlock,
    stolen: Vec<SealedBlock>,
    now: Nanos,
) -> Vec<Carried> {
    let load = stolen.into_iter().map(|stolen| {
        let stolen = stolen.finish();
        debug_assert_eq!(stolen.offset, block.offset + block.len as u64, "places are side by side");
        let end = block.len + stolen.len;
        debug_assert!(end <= block.buffer.len(), "stolen bytes fit in the buffer of the helper");
        if !planted::is(Bug::StolenRangeLost) {
            block.buffer[block.len..end].copy_from_slice(&stolen.buffer[..stolen.len]);
        }
        block.buffer.wrote_up_to(end);
        block.len = end;
        let owner = &logs[stolen.log().0 as usize];
        owner.carrier_begins(now);
        let mut buffer = Some(stolen.buffer);
        if let Some(mut latch) = owner.log.try_lock() {
            buffer.take().into_iter().for_each(|buffer| latch.give_back(buffer));
        }
        // A waiter that sleeps there until its cohort is complete has to look for the helper.
        owner.event.notify_all();
        environment.metrics.stolen_blocks.add(1);
        environment.metrics.stolen_bytes.add(stolen.len as u64);
        Carried { log: owner.id, sequence: stolen.sequence, first_csn: stolen.first_csn, buffer }
    });
    load.collect()
}
