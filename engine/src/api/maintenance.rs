//! The maintenance thread: makes a checkpoint when one is due, collects what commits and snapshots
//! left, and asks a full disk for space.

use super::engine::{Engine, Owner, Writing};
use crate::base::clock::Nanos;
use crate::base::{Error, Result};
use crate::checkpoint::pace::{Meter, Pacer};
use crate::checkpoint::space;
use crate::log::SegmentPool;
use crate::store::PageStore;
use crate::sync::thread;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A full disk is asked for space this often...
const ASK_EVERY: Duration = Duration::from_secs(1);
/// ... but only while a request was refused this recently.
const ASK_WHILE: Duration = Duration::from_secs(5);
/// The part of `recovery_seconds` that the growing work of recovery may take. The rest is for fixed
/// work: opening files, and reading empty segments.
const REPLAY_PART: f64 = 0.8;

/// Starts the thread for a database that is open for writing. The thread sleeps while nothing is
/// due.
pub(super) fn start(owner: &Owner) -> Result<()> {
    let Some(writing) = &owner.writing else { return Ok(()) };
    let (engine, segments) = (Arc::downgrade(&owner.engine), writing.segments.clone());
    let wakened = segments.clone();
    let wake = move || {
        wakened.filled().notify_all();
    };
    owner.engine.system.versions.set_collector(Box::new(wake));
    let handle = thread::spawn("quench-maintain", move || {
        let _alive = Alive(engine.clone());
        run(&engine, &segments);
    })
    .map_err(|error| Error::io("cannot start the maintenance thread", error))?;
    *owner.threads.maintenance.lock() = Some(handle);
    Ok(())
}

/// Poisons the database if the maintenance thread panics: without checkpoints the log would fill
/// up.
struct Alive(Weak<Engine>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(engine) = self.0.upgrade()
        {
            engine.system.committed.panicked("the thread that makes checkpoints");
        }
    }
}

/// Makes a checkpoint whenever the log has grown enough, a committer waits for space, or too many
/// images have been replaced. Collects versions when that is requested. Asks a full disk for space
/// while requests are refused.
fn run(engine: &Weak<Engine>, segments: &SegmentPool) {
    let mut shorten: Option<(Nanos, Duration)> = None;
    loop {
        let ticket = segments.filled().ticket();
        let again;
        {
            let Some(engine) = engine.upgrade() else { return };
            let Ok(Writing { checkpointer, .. }) = engine.check_writable() else { return };
            let left =
                |(since, after): (Nanos, Duration)| after.saturating_sub(engine.clock.now().since(since));
            let shortens = shorten.is_some_and(|shorten| left(shorten).is_zero());
            if shortens || engine.is_checkpoint_due() {
                engine.share_full_disk(segments);
                if let Err(error) = checkpointer.checkpoint_paced(&engine.pacer()) {
                    tracing::warn!(%error, "an automatic checkpoint failed; the log is kept");
                    segments.checkpoint_failed(&error);
                    shorten = None;
                } else {
                    if segments.is_cramped() {
                        segments.give_up();
                    }
                    shorten = checkpointer.shortens_in().map(|after| (engine.clock.now(), after));
                }
            }
            let collect = engine.system.versions.collect_backlog();
            let others = ask_again(&engine.store, segments).or(shorten.map(left));
            again = [collect, others].into_iter().flatten().min();
        }
        segments.filled().wait(ticket, again);
    }
}

/// Asks a full disk for space. Returns when to ask again.
fn ask_again(store: &PageStore, segments: &SegmentPool) -> Option<Duration> {
    if !store.disk_space().has_refused(ASK_WHILE) && !segments.has_refused(ASK_WHILE) {
        return None;
    }
    store.disk_space().ask_again();
    segments.ask_again();
    (store.disk_space().is_disk_full() || segments.is_disk_full()).then_some(ASK_EVERY)
}

impl Engine {
    /// Before a checkpoint on a full disk: the log gives up segments that no recovery needs, and
    /// the checkpoint what pages do not need if the log needs it.
    fn share_full_disk(&self, segments: &SegmentPool) {
        if !segments.is_pressed() || !segments.is_cramped() {
            return;
        }
        if segments.is_disk_full() {
            self.store.disk_space().spare_for_log();
        }
        self.system.commit().space().give_up_log();
    }

    /// Returns how long recovery would take for what a checkpoint can remove from the log, and how
    /// long it may take, in microseconds.
    fn replay_us(&self, writing: &Writing) -> (u64, u64) {
        let estimate = writing.replay.estimate();
        let scan = writing.segments.bytes_to_free() as f64 / estimate.rates.scan_bytes_per_second;
        let seconds = scan + estimate.redo_seconds + estimate.read_seconds;
        let allowed = f64::from(self.settings.recovery_seconds) * REPLAY_PART;
        ((seconds * 1e6) as u64, (allowed * 1e6) as u64)
    }

    /// At three quarters of the allowed time the checkpoint can still be made slowly. Earlier is of
    /// no use where most of the work is to read pages that change all the time: the next checkpoint
    /// would be due as soon as this one ends.
    fn is_checkpoint_due(&self) -> bool {
        let Some(writing) = &self.writing else { return false };
        let (segments, wanted) = (&writing.segments, self.settings.checkpoint_log_bytes());
        if segments.is_pressed() || wanted > 0 && segments.bytes_to_free() >= wanted {
            return true;
        }
        let checkpointer = &writing.checkpointer;
        if wanted > 0 && (checkpointer.is_due_for_space() || checkpointer.has_adopted()) {
            return true;
        }
        let (replay, allowed) = self.replay_us(writing);
        wanted > 0 && replay >= allowed / 4 * 3
    }

    /// Returns the pace of a checkpoint that begins now.
    pub(super) fn pacer(&self) -> Pacer<'_> {
        let mut meters: Vec<Meter<'_>> = Vec::new();
        if let Some(writing) = &self.writing {
            meters.push(Box::new(|| self.replay_us(writing)));
            let metrics = self.system.commit().inspect().metrics();
            let most = self.settings.log_bytes_max / 4 * 3;
            let log_most = metrics.log_bytes.get() + most.saturating_sub(writing.segments.bytes_in_use());
            meters.push(Box::new(move || (metrics.log_bytes.get(), log_most)));
        }
        // Above half of their memory versions are pruned, which costs more than a faster
        // checkpoint.
        meters.push(Box::new(|| {
            let (bytes, most) = self.system.versions.bytes();
            (bytes, most / 2)
        }));
        let space_most = space::most_twice(self.store.disk_space().measure());
        meters.push(Box::new(move || (self.store.disk_space().measure().twice(), space_most)));
        // A thread that waits for memory or log space may wait for the checkpoint.
        let hurry = || {
            let is_hindered = self.pool.eviction().has_error();
            let is_pressed = self.writing.as_ref().is_some_and(|writing| writing.segments.is_pressed());
            is_hindered || self.is_closed() || is_pressed
        };
        Pacer::new(self.clock.clone(), self.pool.page_count(), meters, hurry)
    }
}
