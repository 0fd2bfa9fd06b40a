//! Committing a transaction, from the check for room to the acknowledgment.
//!
//! 1. What can fail comes first: log space, memory, dropped tables. After PREPARING nothing can
//!    fail (invariant I2).
//! 2. A serializable optimistic transaction validates what it read (`validate`). `Commit` draws the
//!    CSN and copies the redo record into the log buffer.
//! 3. READY publishes the CSN, the versions are stamped, the garbage is queued, and the descriptor
//!    is released.
//! 4. Locks end (*early lock release*). At level durable the thread waits until the record and
//!    everything it depends on is durable. With `LockRelease::Commit` the locks end only then.
//! 5. Garbage is collected last, when no thread waits for anything of the transaction.

use super::active::{ActiveTransaction, NO_SNAPSHOT};
use super::committed::USER;
use super::counters::LOG_INSERTS_TIMED_ONE_IN;
use super::descriptor::{DescriptorId, Descriptors, Stamp};
use super::garbage::ToCollect;
use super::lock_set::LockSet;
use super::options::LockRelease;
use super::snapshot::remember_commit;
use super::system::{TransactionSystem, record_of};
use super::validate::Marks;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability;
use crate::base::{Csn, Error, Gsn, LogId, Result};
use crate::commit::{Pending, Record, Ticket};
use crate::log::{Fragments, RecordKind};
use std::sync::Arc;

/// A transaction that is visible to others and that may not be durable yet.
enum Precommitted {
    /// The transaction wrote: its record is in a log buffer. It may keep its locks.
    Written(Ticket, Pending, ToCollect, Option<Box<LateLocks>>),
    /// The transaction wrote nothing; what it read is its DSN.
    ReadOnly(Pending),
}

/// What has to become durable for a transaction that committed without waiting.
#[derive(Debug)]
pub enum Submitted {
    /// The record of the transaction.
    Written(Ticket),
    /// What the transaction read; it wrote nothing.
    ReadOnly(Vec<Ticket>),
}

/// The locks of a transaction that keeps them until it is durable.
struct LateLocks {
    system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
    locks: LockSet,
    since: Option<Nanos>,
}

impl LateLocks {
    /// Ends the locks, once the transaction is durable. After a failure they stay: no transaction
    /// may get what may be lost.
    fn release(mut self) {
        self.locks.release(self.id);
        self.system.locks.late.release(self.csn);
        self.system.locks.waiters.released(self.id);
        if let Some(since) = self.since {
            self.system.count_lock_hold(since);
        }
    }
}

impl ActiveTransaction {
    /// Commits. At levels durable and written, returns once the transaction and everything it
    /// depends on is durable, or written. Returns the CSN, or 0 if the transaction changed nothing.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the device fails after the CSN is drawn. Before: `Poisoned`,
    /// `OutOfSpace`, `OutOfMemory`, `InvalidArgument`, and then the transaction is aborted.
    pub fn commit(self: Box<Self>) -> Result<Csn> {
        let _span = tracing::debug_span!("commit", waits = true).entered();
        let system = self.system.clone();
        let commit = system.commit();
        let _inside = commit.failure().guard(USER);
        let waits = self.options.durability == Durability::Durable;
        match self.precommit(&system, waits)? {
            Precommitted::Written(ticket, pending, to_collect, late) => {
                let committed = match pending.durability {
                    _ if pending.waits => Some(commit.waits().finish(ticket, &pending)?),
                    Durability::Written => Some(commit.waits().finish_written(ticket)?),
                    _ => None,
                };
                if let Some(late) = late {
                    late.release();
                }
                commit.end_of_transaction(ticket.log, pending.begun, pending.ready, committed);
                system.versions.collect_after(to_collect);
                commit.worked(pending.begun);
                tracing::debug!(csn = ticket.csn.0, "committed");
                Ok(ticket.csn)
            }
            Precommitted::ReadOnly(pending) => {
                commit.waits().finish_read_only(&pending)?;
                commit.worked(pending.begun);
                Ok(Csn::ZERO)
            }
        }
    }

    /// Commits without waiting for the device: the changes are visible when this returns.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `OutOfMemory`, `InvalidArgument`: then the transaction is aborted.
    pub fn commit_async(self: Box<Self>) -> Result<Submitted> {
        let _span = tracing::debug_span!("commit", waits = false).entered();
        if self.options.lock_release == LockRelease::Commit {
            let what = "locks that end when the commit is durable need `commit`, which waits for it";
            return Err(Error::invalid(what));
        }
        let system = self.system.clone();
        let commit = system.commit();
        let _inside = commit.failure().guard(USER);
        Ok(match self.precommit(&system, false)? {
            Precommitted::Written(ticket, pending, to_collect, _) => {
                commit.end_of_transaction(ticket.log, pending.begun, pending.ready, None);
                system.versions.collect_after(to_collect);
                commit.worked(pending.begun);
                Submitted::Written(ticket)
            }
            Precommitted::ReadOnly(pending) => {
                let log = system.log_of_thread();
                commit.enqueue_read_only(log, &pending)?;
                commit.worked(pending.begun);
                Submitted::ReadOnly(commit.waits().tickets_of_reader(log, &pending))
            }
        })
    }

    /// Commits as far as visibility. `waits` says whether the caller waits for durability.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `OutOfMemory`, `InvalidArgument`: then the transaction is aborted
    /// and nothing was changed.
    fn precommit(mut self: Box<Self>, system: &TransactionSystem, waits: bool) -> Result<Precommitted> {
        if self.inside.get() {
            drop(self);
            return Err(system
                .committed
                .check_whole()
                .expect_err("dropping reports that a call has panicked"));
        }
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if self.writes.only_locks() {
            self.take_back(0, 0)?;
            let pending = self.pending(true);
            self.end();
            return Ok(Precommitted::ReadOnly(pending));
        }
        let commit = system.commit();
        let mut divided = self.writes.redo.divide()?;
        let log = self.writes.whole_log(system, self.chunks.is_some());
        let (gsn, alone) = self.dependencies.clock(divided.is_none().then_some(log));
        let alone = alone && self.chunks.is_none();
        let mut pending = Pending { alone, ..self.pending(waits) };
        if !pending.predecessors.is_empty() {
            pending.predecessors.retain(|csn| commit.listing().is_to_be_listed(csn));
        }
        if let Some(predecessors) = commit.listing().listed_in(&pending) {
            match &mut divided {
                None => self.writes.redo.list_predecessors(predecessors),
                Some(fragments) => fragments.list_predecessors(predecessors),
            }
        }
        if planted::is(Bug::StampedBeforeRecord) {
            system.descriptors.set_ready(self.id, commit.progress().newest_drawn());
        }
        if planted::is(Bug::LocksReleasedEarly) {
            self.release_locks();
            system.locks.waiters.released(self.id);
            planted::linger(Bug::LocksReleasedEarly);
        }
        let ticket = self.append_validated(system, log, gsn, divided.as_ref(), &pending)?;
        // From here on nothing can fail (invariant I2).
        self.dependencies.raise_changed(system, ticket);
        debug_assert!(
            self.snapshot.get() == NO_SNAPSHOT || self.snapshot.get() < ticket.csn,
            "a transaction's CSN is above its snapshot"
        );
        let late = pending.holds_locks.then(|| self.hold_late(ticket.csn));
        system.descriptors.set_ready(self.id, ticket.csn);
        if ticket.csn.0.is_multiple_of(LOG_INSERTS_TIMED_ONE_IN) {
            system.counters.log_inserts_timed.add(1);
            system.counters.log_insert_ns.add(system.clock.now().0.saturating_sub(pending.ready.0));
        }
        let (stamp, versions) = (Stamp::committed(ticket.csn), &system.versions.slots);
        self.writes.changes.iter().for_each(|change| versions.set_stamp(change.version, stamp));
        self.writes.values.iter().for_each(|value| versions.set_stamp(value.owner, stamp));
        self.writes.count_changes();
        self.writes.dead_ranges.get_mut().end(self.own, Some(ticket.csn));
        remember_commit(system, ticket.csn);
        let (shard, added) = (Descriptors::slot(self.id), self.writes.changes.len());
        let worth_collecting = self.writes.queue_garbage(system, shard, ticket.csn);
        let replaced = !self.writes.replaced.is_empty();
        self.end();
        let to_collect = match (worth_collecting, replaced) {
            (true, _) => ToCollect::Shard(shard, added),
            (false, true) => ToCollect::LargeValues,
            (false, false) => ToCollect::Nothing,
        };
        Ok(Precommitted::Written(ticket, pending, to_collect, late))
    }

    /// Keeps the locks, and the rows that were changed, until the transaction is durable.
    #[cold]
    fn hold_late(&mut self, csn: Csn) -> Box<LateLocks> {
        self.system.locks.late.hold(csn);
        let locks = self.writes.locks.take();
        let since = self.locked_since.take();
        Box::new(LateLocks { system: self.system.clone(), id: self.id, csn, locks, since })
    }

    pub(super) fn pending(&self, waits: bool) -> Pending {
        Pending {
            dsn: self.dependencies.dsn(),
            predecessors: self.dependencies.predecessors(),
            alone: false,
            durability: self.options.durability,
            begun: self.begun,
            ready: self.system.clock.now(),
            waits,
            holds_locks: self.options.lock_release == LockRelease::Commit,
        }
    }

    /// Validates what was read, if that is needed, and appends the record.
    #[inline]
    fn append_validated(
        &mut self,
        system: &TransactionSystem,
        log: LogId,
        gsn: Gsn,
        divided: Option<&Fragments>,
        pending: &Pending,
    ) -> Result<Ticket> {
        if self.chunks.is_some() {
            self.writes.redo.seal_part();
        }
        if !self.must_validate()
            && let Some(ticket) = self.append(log, gsn, divided, pending, None)?
        {
            return Ok(ticket);
        }
        self.append_marked(system, log, gsn, divided, pending)
    }

    /// Marks and validates what was read, and appends the record once no other transaction
    /// validates a read of a row that this one has changed.
    #[cold]
    fn append_marked(
        &self,
        system: &TransactionSystem,
        log: LogId,
        gsn: Gsn,
        divided: Option<&Fragments>,
        pending: &Pending,
    ) -> Result<Ticket> {
        let validates = self.must_validate();
        let mut turn = None;
        loop {
            let marks = if validates { Some(self.mark_and_validate(system)?) } else { None };
            loop {
                if let Some(ticket) = self.append(log, gsn, divided, pending, marks.as_ref())? {
                    return Ok(ticket);
                }
                if validates && turn.is_none() {
                    break;
                }
                self.await_marks(marks.as_ref())?;
            }
            drop(marks);
            turn = Some(system.locks.validation_turn.lock());
        }
    }

    /// Draws the CSN and appends the record, or all fragments, to the log. Returns none if another
    /// transaction validates a read of a row that this one has changed.
    #[inline]
    fn append(
        &self,
        log: LogId,
        gsn: Gsn,
        divided: Option<&Fragments>,
        pending: &Pending,
        own: Option<&Marks<'_>>,
    ) -> Result<Option<Ticket>> {
        let (commit, id) = (self.system.commit(), self.id);
        let (descriptors, changed) = (&self.system.descriptors, self.changed_rows());
        let mut preparing = || {
            descriptors.set_preparing(id);
            let are_marked = changed.are_marked(own);
            if are_marked {
                descriptors.set_active_again(id);
            }
            !are_marked
        };
        if let Some(fragments) = divided {
            let record = |(log, body, body_crc, operations)| {
                (log, Record { body, body_crc, operations, gsn, kind: RecordKind::Fragment })
            };
            let records: Vec<(LogId, Record<'_>)> = fragments.bodies().map(record).collect();
            return commit.precommit_fragments(&records, pending, preparing);
        }
        let Some(chunks) = &self.chunks else {
            let record = Record { gsn, ..record_of(&self.writes.redo) };
            return commit.precommit(log, record, pending, preparing);
        };
        let record = Record { gsn, ..record_of(&self.writes.redo) };
        commit.chunks().precommit_last(chunks, record, pending, &mut preparing)
    }
}
