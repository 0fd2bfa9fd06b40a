//! The loop of one worker.
//!
//! ```text
//!   rest, or await an arrival ─▶ prepare ─▶ attempt, retry ─▶ count ─▶ collect acknowledgments
//! ```
//! It allocates nothing, reads one relaxed flag and the clock once per transaction, and counts in
//! its own cache lines. It times each wait for a durable commit, and one transaction in sixteen
//! stage by stage.

use super::notes::Notes;
use super::pending::{Acknowledged, Pending};
use super::run::{Run, Shared};
use crate::activity::STAGES_OF_ONE_IN;
use crate::arrivals::{Arrivals, Clients};
use crate::plan::CommitMode;
use crate::store::{Error, Noted, Result, Session, Store, Transaction};
use crate::workload::{Ending, Intent, Worker};
use quenchdb::Durability;
use std::time::Duration;

/// Interval at which a resting worker checks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A sleeping thread wakes up late by about this time; so a worker spends the last part of a wait
/// awake.
const SLEEP_SLACK: Duration = Duration::from_micros(80);
/// Interval at which an idle worker looks whether its commits are durable, if it is to cause no
/// write.
const TOLD_WITHIN: Duration = Duration::from_micros(20);

/// How an attempt ended.
enum Outcome<H> {
    /// Committed and acknowledged, or rolled back.
    Ended(Ending),
    /// Committed, not yet acknowledged: the handle, and the number in the ledger.
    HandedOver(Ending, H, Option<u64>),
}

/// One worker.
pub(super) struct Work<'r, 's, S: Store + 's> {
    run: &'r Run<'r, S>,
    shared: &'r Shared,
    index: usize,
    session: S::Session<'s>,
    pending: Pending<<S::Session<'s> as Session>::Handle>,
    keeps_handles: bool,
    notes: Option<Notes<'r, <S::Session<'s> as Session>::Handle>>,
    attempts: u64,
}

impl<'r, 's, S: Store> Work<'r, 's, S> {
    pub(super) fn new(
        run: &'r Run<'r, S>,
        shared: &'r Shared,
        index: usize,
        session: S::Session<'s>,
    ) -> Result<Work<'r, 's, S>> {
        // Below the level `durable` a commit is acknowledged when it returns.
        let keeps_handles = run.plan.commit == CommitMode::Async && run.plan.level == Durability::Durable;
        let pending = Pending::new(keeps_handles);
        let notes = run.ledger.map(|ledger| ledger.writer().map(Notes::new)).transpose();
        let notes = notes.map_err(Error::Failed)?;
        Ok(Work { run, shared, index, session, pending, keeps_handles, notes, attempts: 0 })
    }

    /// Works until the run stops; then waits for pending commits.
    pub(super) fn work(&mut self, mut worker: impl Worker<S::Table>) -> Result<()> {
        let (shared, plan, index) = (self.shared, self.run.plan, self.index);
        let activity = &shared.activity;
        let now = activity.now();
        let mut arrivals = plan.rate.map(|rate| Arrivals::new(rate, index, plan.threads, plan.seed, now));
        let mut begun = now;
        while !shared.stops() {
            if let Some(arrivals) = &mut arrivals {
                begun = arrivals.take();
                self.wait_until(begun)?;
            }
            let intent = worker.prepare();
            let rest = worker.rest();
            if !rest.is_zero() {
                begun = activity.now() + rest.as_nanos() as u64;
                self.wait_until(begun)?;
            }
            let Some(outcome) = self.insist(&mut worker, intent, begun)? else { break };
            let now = match outcome {
                Outcome::Ended(ending) => {
                    let now = activity.finished(index, begun, intent, ending);
                    if ending != Ending::RollBack {
                        worker.committed();
                        activity.acknowledged(index, intent.kind, begun, now);
                    }
                    now
                }
                Outcome::HandedOver(ending, handle, number) => {
                    worker.committed();
                    self.pending.push(handle, Acknowledged { kind: intent.kind, begun, number })?;
                    activity.finished(index, begun, intent, ending)
                }
            };
            self.collect(now);
            begun = now;
        }
        let notes = &mut self.notes;
        self.pending.finish(|commit| {
            activity.acknowledged(index, commit.kind, commit.begun, activity.now());
            notes.iter_mut().for_each(|notes| notes.acknowledged(commit.number));
        })?;
        notes.as_mut().map_or(Ok(()), Notes::finish)
    }

    /// Counts the commits acknowledged until `now`.
    #[inline]
    fn collect(&mut self, now: u64) {
        let (activity, index, notes) = (&self.shared.activity, self.index, &mut self.notes);
        self.pending.collect(|commit| {
            activity.acknowledged(index, commit.kind, commit.begun, now);
            notes.iter_mut().for_each(|notes| notes.acknowledged(commit.number));
        });
        notes.iter_mut().for_each(Notes::collect);
    }

    /// Attempts a transaction until it has no conflict. Returns `None` if the run stops first.
    fn insist(
        &mut self,
        worker: &mut impl Worker<S::Table>,
        intent: Intent,
        mut begun: u64,
    ) -> Result<Option<Outcome<<S::Session<'s> as Session>::Handle>>> {
        loop {
            match self.attempt(worker, intent) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(Error::Conflict) => {
                    begun = self.shared.activity.conflicted(self.index, intent.kind, begun);
                    if self.shared.stops() {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    #[inline]
    fn attempt(
        &mut self,
        worker: &mut impl Worker<S::Table>,
        intent: Intent,
    ) -> Result<Outcome<<S::Session<'s> as Session>::Handle>> {
        let plan = self.run.plan;
        if intent.reads_only && plan.snapshots {
            let mut snapshot = Noted::new(self.session.begin_read()?, None);
            worker.read(&mut snapshot)?;
            self.shared.activity.touched(self.index, snapshot.rows);
            return Ok(Outcome::Ended(Ending::READ));
        }
        self.attempts += 1;
        let timed = self.attempts.is_multiple_of(STAGES_OF_ONE_IN);
        let activity = &self.shared.activity;
        let clock = || if timed { activity.now() } else { 0 };
        let begun = clock();
        self.notes.iter_mut().for_each(|notes| notes.entry.clear());
        let entry = self.notes.as_mut().map(|notes| &mut notes.entry);
        let mut transaction = Noted::new(self.session.begin()?, entry);
        let ending = worker.run(&mut transaction)?;
        activity.touched(self.index, transaction.rows);
        let transaction = transaction.into_inner();
        let executed = clock();
        let number = match &mut self.notes {
            Some(notes) if ending != Ending::RollBack => notes.about_to_commit()?,
            _ => None,
        };
        let durable = plan.level == Durability::Durable;
        let outcome = match (ending, plan.commit) {
            (Ending::RollBack, _) => {
                transaction.abort();
                Outcome::Ended(ending)
            }
            // Below the level `written` neither call waits; only a handle shows when the commit is
            // durable.
            (_, CommitMode::Blocking) if durable || number.is_none() => {
                let waits = (durable || plan.level == Durability::Written) && ending != Ending::READ;
                let called = if waits { activity.now() } else { 0 };
                transaction.commit()?;
                if waits {
                    activity.waited_for_log(self.index, called);
                }
                self.notes.iter_mut().for_each(|notes| notes.acknowledged(number));
                Outcome::Ended(ending)
            }
            _ => {
                let handle = transaction.commit_async()?;
                if self.keeps_handles {
                    Outcome::HandedOver(ending, handle, number)
                } else {
                    if let Some(notes) = &mut self.notes {
                        notes.ask(handle, number);
                    }
                    Outcome::Ended(ending)
                }
            }
        };
        if timed {
            activity.sampled(self.index, executed - begun, activity.now() - executed);
        }
        Ok(outcome)
    }

    /// Waits until `until`, or until the run stops. Meanwhile a worker looks whether its pending
    /// commits are durable. With [`Clients::Wait`] it waits for the oldest, which causes its
    /// write.
    fn wait_until(&mut self, until: u64) -> Result<()> {
        let shared = self.shared;
        let activity = &shared.activity;
        let waits = self.run.plan.rate.is_none_or(|rate| rate.clients == Clients::Wait);
        loop {
            let now = activity.now();
            if now >= until || shared.stops() {
                return Ok(());
            }
            let left = Duration::from_nanos(until - now).min(LOOK_EVERY);
            if waits && self.pending.wait(left)? {
                self.collect(activity.now());
            } else if !waits && !self.pending.is_empty() {
                std::thread::sleep(left.min(TOLD_WITHIN));
                self.collect(activity.now());
            } else if let Some(sleep) = left.checked_sub(SLEEP_SLACK) {
                std::thread::sleep(sleep);
            } else {
                // Leaves the core to another worker or the flusher.
                std::thread::yield_now();
            }
        }
    }
}
