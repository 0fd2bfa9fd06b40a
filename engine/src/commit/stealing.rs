//! How does one write take the bytes of several logs?
//!
//! A worker that writes its log takes along what its neighbours have waiting, so that one write, and on a disk with a volatile cache one
//! flush, serves them all, and a worker that is off the CPU or gone is served by those that run.
//!
//! ```text
//!   log 0 (helper)    own block 41 │ piggybacked: block 17 of log 1 │ piggybacked: block 8 of log 3        one write, in log 0's segment
//!   log 1 (owner)   ... 15   16                                 18 ...                           its blocks, in its own segment
//! ```
//!
//! What is stolen becomes a block of its owner: the owner's next sequence, its own header and checksums. Only its place is the helper's. So a
//! torn write loses whole blocks, CSNs rise with position in each log (I3), and recovery, which finds blocks wherever they lie and orders
//! them by log and sequence, needs no rule for stealing.
//!
//! # When
//! With *u* the flush unit and *b* the bits of the group's size, a worker with *d* waiting bytes at the end of a transaction
//! * writes its log if *d* >= *u*, alone: the write is large enough;
//! * writes its log with its neighbours' if *u / b* <= *d* < *u* and together they reach *u*;
//! * takes them along as well whenever it writes less than *u* for another reason: the interval has passed, or it is idle.
//!
//! Left alone are a neighbour with a unit or more, who is about to write it; one whose bytes nobody wants (lazy), or whose committer waits and
//! writes; one that has sealed blocks waiting; and one whose latch is taken.
//!
//! # Why it is sound
//! 1. **Nobody else takes them.** Under the owner's latch, and only tried, so that two helpers of each other do not wait. A cursor that is moved by
//!    compare-and-swap would do the same without a latch, if appends took none: see `docs/decisions/0011-stealing-whole-blocks.md`.
//! 2. **The owner is not idle while its bytes fly** (rule 3). They stay in its slot: its first volatile CSN is in its parking lot until the
//!    write has completed.
//! 3. **Durable is the owner's gap-free prefix**, not the helper's: a hole in the helper's log hides nothing from recovery, which looks at
//!    every sector. A piggybacked block that completes before an earlier one of its owner is parked (`log/parking.rs`).
//! 4. **A segment stays** until a checkpoint covers every block in it, piggybacked ones too.
//! 5. **A waiter finds who carries.** It waits for the helper's write as for one of its own log: it leads the helper's log and reaps, or sleeps on the
//!    helper's event, which happens whenever that lead is free.
//! 6. **A failure poisons**, whoever's write it was.

use super::Core;
use super::levels::{NEVER, NOW};
use super::presets::Axes;
use super::writer::LogWriter;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, LogId, Result};
use crate::device::AlignedBuffer;
use crate::device::topology::CacheGroups;
use crate::log::{LogGuard, SealedBlock};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Most logs of a group that nobody has said the size of.
const GROUP_MOST: usize = 8;

/// Which logs steal from each other.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Logs of a group: those whose numbers, divided by it, are equal. 1: nobody steals.
    group: usize,
    /// Where the machine has several caches and nobody has said the group: the cache that each log's worker was last seen at. Only logs at the
    /// same one are neighbours.
    homes: Box<[AtomicU32]>,
    /// Waiting bytes at which a worker writes its log, alone.
    unit: usize,
    /// At so many it looks whether its neighbours have the rest.
    least: usize,
}

impl Neighbours {
    pub(super) fn new(axes: &Axes, logs: usize) -> Neighbours {
        Neighbours::on(CacheGroups::of_machine(), axes, logs)
    }

    fn on(caches: &CacheGroups, axes: &Axes, logs: usize) -> Neighbours {
        let chosen = || caches.largest().min(GROUP_MOST);
        let group = if axes.steals() { axes.stealing_group.unwrap_or_else(chosen).clamp(1, logs) } else { 1 };
        let several = group > 1 && axes.stealing_group.is_none() && caches.count() > 1;
        let homes = if several { (0..logs).map(|_| AtomicU32::new(0)).collect() } else { Box::default() };
        let bits = (usize::BITS - group.leading_zeros()) as usize;
        Neighbours { group, homes, unit: axes.flush_unit_bytes, least: axes.flush_unit_bytes / bits }
    }

    /// Logs of a group; 1 if nobody steals.
    pub(super) fn group(&self) -> usize {
        self.group
    }

    /// Remembers where a worker runs. To be called now and then: threads move.
    pub(super) fn seen(&self, log: LogId) {
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
}

/// A block of another log in a write.
#[derive(Debug)]
pub(super) struct Piggybacked {
    log: LogId,
    sequence: u64,
    first_csn: Csn,
    /// Its owner's, if that could not be given back at once.
    buffer: Option<AlignedBuffer>,
}

impl Piggybacked {
    pub(super) fn first_csn(&self) -> Csn {
        self.first_csn
    }
}

/// Bytes of `writer` that may be stolen: none if nobody wants them, or if it is about to write them itself.
fn stealable(writer: &LogWriter, unit: usize) -> usize {
    let bytes = writer.log.unsealed_bytes();
    let wanted = bytes > 0 && bytes < unit && !writer.has_sealed() && writer.flush_request.due() != NEVER;
    if wanted { bytes } else { 0 }
}

impl Core {
    /// True if `writer`'s log and its neighbours' together have enough for a write, although none has alone.
    pub(super) fn reach_unit_together(&self, writer: &LogWriter) -> bool {
        let Neighbours { group, unit, least, .. } = self.neighbours;
        if group == 1 {
            return false;
        }
        let own = stealable(writer, unit);
        if own < least.max(1) {
            return false;
        }
        let others = self.neighbours.of(&self.writers, writer.id).map(|other| stealable(other, unit));
        own + others.sum::<usize>() >= unit
    }

    /// With `block`, which was just sealed under `latch`: takes what neighbours have, if that write is small. The caller leads.
    pub(super) fn steal(
        &self,
        helper: &LogWriter,
        latch: &mut LogGuard<'_>,
        block: &SealedBlock,
    ) -> Vec<SealedBlock> {
        let mut stolen = Vec::new();
        let unit = self.neighbours.unit;
        if self.neighbours.group == 1 || block.payload_bytes() >= unit {
            return stolen;
        }
        let mut room = block.buffer.len() - block.len;
        for owner in self.neighbours.of(&self.writers, helper.id) {
            if stealable(owner, unit) == 0 {
                continue;
            }
            let Some(mut theirs) = owner.log.try_lock() else { continue };
            if owner.has_sealed() {
                // Since that look. What is stolen behind a sealed block would take its due time away.
                continue;
            }
            if let Some(piggybacked) = latch.carry(block, &mut theirs, room) {
                room -= piggybacked.len;
                helper.will_piggyback(piggybacked.first_csn);
                owner.stolen_from(&theirs);
                stolen.push(piggybacked);
            }
        }
        stolen
    }

    /// Puts the bytes of stolen blocks behind those of `block`, where their places are, and gives their buffers back.
    pub(super) fn attach_stolen(
        &self,
        block: &mut SealedBlock,
        stolen: Vec<SealedBlock>,
        now: Nanos,
    ) -> Vec<Piggybacked> {
        let load = stolen.into_iter().map(|stolen| {
            let stolen = stolen.finish();
            debug_assert_eq!(stolen.offset, block.offset + block.len as u64, "places are side by side");
            let end = block.len + stolen.len;
            if !planted::is(Bug::StolenRangeLost) {
                block.buffer[block.len..end].copy_from_slice(&stolen.buffer[..stolen.len]);
            }
            block.len = end;
            let owner = self.writer(stolen.log());
            owner.piggyback_begins(now);
            let mut buffer = Some(stolen.buffer);
            if let Some(mut latch) = owner.log.try_lock() {
                buffer.take().into_iter().for_each(|buffer| latch.give_back(buffer));
            }
            // Whoever waits there for others to come has to look for who carries it now.
            owner.event.notify_all();
            self.metrics.stolen_blocks.add(1);
            self.metrics.stolen_bytes.add(stolen.len as u64);
            Piggybacked { log: owner.id, sequence: stolen.sequence, first_csn: stolen.first_csn, buffer }
        });
        load.collect()
    }

    /// The write of `helper` called `token` is durable, hence also what it carries. Wakes the owners' waiters. The caller leads.
    pub(super) fn complete_piggybacked(&self, helper: &LogWriter, token: u64) {
        if helper.lowest_piggybacked() == Csn::MAX {
            return;
        }
        for Piggybacked { log, sequence, buffer, .. } in helper.unload(token) {
            let owner = self.writer(log);
            if !self.poison.is_raised() {
                let now = self.clock.now();
                self.complete_block(owner, sequence, buffer, helper.last_write().0, now);
                owner.piggyback_ended(now);
            }
            owner.stolen_ended();
            owner.event.notify_all();
        }
        helper.landed();
    }

    /// Where all that `writer`'s log has under way is piggybacked by others: has a write of theirs complete, or sleeps until somebody who is
    /// at it lets go. False if it has something of its own to be written or reaped. The caller looks again whether `csn` is durable.
    ///
    /// # Errors
    /// `Timeout`.
    pub(super) fn await_helper(&self, writer: &LogWriter, csn: Csn, deadline: Option<Nanos>) -> Result<bool> {
        let Some(helper) = self.helper_of(writer) else { return Ok(false) };
        // The ticket first: if the helper's lead is taken then, it is let go after that.
        let woken = helper.event.ticket();
        if self.helper_of(writer).is_some_and(|still| still.id == helper.id)
            && csn > writer.log.durable_csn()
            && !self.poison.is_raised()
            && !self.complete_write_of(helper)
        {
            self.sleep(&helper.event, woken, deadline)?;
        }
        Ok(true)
    }

    /// Where all that `writer`'s log has under way is piggybacked by others: has a write of theirs complete. False if others are at it.
    pub(super) fn complete_helper_write_of(&self, writer: &LogWriter) -> bool {
        self.helper_of(writer).is_some_and(|helper| self.complete_write_of(helper))
    }

    /// Has a write complete that carries a CSN at or below `csn`. False if there is none, or others are at it.
    pub(super) fn complete_helper_write_below(&self, csn: Csn) -> bool {
        let carrier = self.helpers().find(|helper| helper.lowest_piggybacked() <= csn);
        carrier.is_some_and(|helper| self.complete_write_of(helper))
    }

    /// Makes every log due that carries a CSN at or below `csn`. True if there is one.
    pub(super) fn hasten_helpers(&self, csn: Csn) -> bool {
        let mut any = false;
        for helper in self.helpers().filter(|helper| helper.lowest_piggybacked() <= csn) {
            helper.flush_request.lower_due(NOW);
            any = true;
        }
        any
    }

    fn helper_of(&self, writer: &LogWriter) -> Option<&LogWriter> {
        if writer.is_only_piggybacked() { self.helpers().find(|helper| helper.id != writer.id) } else { None }
    }

    /// Who writes blocks of others at the moment.
    fn helpers(&self) -> impl Iterator<Item = &LogWriter> {
        let writers = if self.neighbours.group == 1 { &[] } else { &self.writers[..] };
        writers.iter().filter(|writer| writer.lowest_piggybacked() < Csn::MAX)
    }

    /// Waits for a write of `helper`. False if somebody else leads it.
    fn complete_write_of(&self, helper: &LogWriter) -> bool {
        let Some(_lead) = helper.try_become_leader(self) else { return false };
        if helper.in_flight() > 0 && self.reap(helper, true) {
            self.publish();
        }
        true
    }
}
