//! The thread of a standby: looks for new log, applies it, and takes a new base when the log that
//! it needs is gone.

use super::copy::{Copy, Failure, FollowingCopy, Published};
use super::options::CopyOptions;
use super::tables::View;
use crate::base::clock::{Clock, Nanos};
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::Storage;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The pauses between looks: after one that found something, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// The pauses after errors.
const ERROR_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Looks that find nothing before the next one is close, with the manifest.
const LOOKS_TO_CLOSE: u32 = 3;
/// From then on a look is close after so much time.
const CLOSE_EVERY: Duration = Duration::from_millis(200);
/// After this time a new base is taken at the next checkpoint, so that the pin of the old one keeps
/// no more than that.
const BASE_AGE: Duration = Duration::from_secs(3600);
/// A gap that does not close for so long is reported.
const GAP_MAX: Duration = Duration::from_secs(5);
/// A new base is taken, too, when the log has so many bytes above the newest checkpoint: a
/// promotion would have to replay them.
pub(super) const BASE_LOG_BYTES: u64 = 64 << 20;
/// The longest time that a new base may take to reach what the old one shows, without a find.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);

/// What snapshots see.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) copy: Arc<Copy>,
    pub(super) view: Arc<View>,
    pub(super) csn: Csn,
}

/// How the standby does.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) newest: Csn,
    pub(super) behind_since: Option<Nanos>,
    pub(super) transactions: u64,
    pub(super) bases: u64,
    pub(super) failure: Option<Error>,
}

/// What the thread and the handle share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Held while a transaction of the copy commits, so that a snapshot and its CSN fit together.
    pub(super) served: Mutex<Served>,
    /// Happens when `served` has changed.
    pub(super) changed: Event,
    pub(super) progress: Mutex<Applied>,
    /// What the thread has left, if the copy is whole.
    pub(super) left: Mutex<Option<FollowingCopy>>,
    pub(super) stopping: AtomicBool,
    /// Happens when the thread is to stop.
    pub(super) wake: Event,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn publish(&self, published: Published) -> Result<()> {
        let Published { transaction, csn, view, transactions } = published;
        let mut served = self.served.lock();
        if let Some(transaction) = transaction {
            transaction.commit()?;
        }
        // Before a snapshot shows it.
        let mut progress = self.progress.lock();
        (progress.transactions, progress.failure) = (transactions, None);
        drop(progress);
        served.csn = csn;
        if let Some(view) = view {
            served.view = view;
        }
        drop(served);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits, unless the thread is to stop.
    fn pause(&self, time: Duration) {
        let ticket = self.wake.ticket();
        if !self.is_stopping() {
            self.wake.wait(ticket, Some(time));
        }
    }
}

/// See the module's text.
pub(super) struct Applier {
    pub(super) shared: Arc<Shared>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: CopyOptions,
    pub(super) following: FollowingCopy,
    /// Looks in a row that found nothing.
    empty: u32,
    closely: Nanos,
    gap_since: Option<Nanos>,
    /// The last step failed.
    has_failed: bool,
    /// The copy may lack a part of a transaction: a new one is needed.
    is_torn: bool,
    /// The log no longer has what the copy lacks.
    is_behind: bool,
    /// A new base that another thread makes.
    coming: Option<Coming>,
}

/// A new base that is being made.
struct Coming {
    thread: thread::JoinHandle<()>,
    made: Arc<Mutex<Option<Result<FollowingCopy>>>>,
}

impl Applier {
    pub(super) fn new(
        shared: Arc<Shared>,
        storage: Arc<dyn Storage>,
        options: CopyOptions,
        following: FollowingCopy,
    ) -> Applier {
        let closely = options.clock.now();
        Applier {
            shared,
            storage,
            options,
            following,
            empty: 0,
            closely,
            gap_since: None,
            has_failed: false,
            is_torn: false,
            is_behind: false,
            coming: None,
        }
    }

    /// Runs until the standby is closed or promoted.
    pub(super) fn run(mut self) {
        let mut failures = 0;
        while !self.shared.is_stopping() {
            let pause = match self.step() {
                Ok(found) => {
                    (failures, self.has_failed) = (0, false);
                    self.report();
                    if found { PAUSES[0] } else { (PAUSES[0] * self.empty.max(1)).min(PAUSES[1]) }
                }
                Err(failure) => {
                    let longest = ERROR_PAUSES[1];
                    let pause = (ERROR_PAUSES[0] * 2u32.saturating_pow(failures)).min(longest);
                    failures = (failures + 1).min(8);
                    self.note_failure(failure);
                    pause
                }
            };
            self.shared.pause(pause);
        }
        if let Some(coming) = self.coming.take() {
            let _ = coming.thread.join();
        }
        if !self.is_torn {
            *self.shared.left.lock() = Some(self.following);
        }
    }

    /// Looks once, and applies what is there. Returns whether something came.
    fn step(&mut self) -> std::result::Result<bool, Failure> {
        if self.is_torn {
            self.begin_again().map_err(Failure::Copy)?;
            (self.is_torn, self.is_behind) = (false, false);
            return Ok(true);
        }
        let found = self.look().map_err(|error| match error.kind() {
            ErrorKind::FellBehind => Failure::Copy(error),
            _ => Failure::Look(error),
        })?;
        if found {
            self.following.note_arrival();
        }
        let shared = self.shared.clone();
        let applied = self.following.apply_found(&mut |published| shared.publish(published));
        let applied = applied?;
        self.empty = if found || applied { 0 } else { self.empty.saturating_add(1) };
        self.check_gap(applied)?;
        self.renew_base().map_err(Failure::Look)?;
        Ok(found || applied)
    }

    fn look(&mut self) -> Result<bool> {
        let now = self.options.clock.now();
        let has_gap = self.following.tail.has_gap();
        let is_close = match self.empty {
            _ if self.has_failed => true,
            0 => now.since(self.closely) >= CLOSE_EVERY,
            LOOKS_TO_CLOSE => true,
            _ => has_gap && self.empty % 2 == 1 || now.since(self.closely) >= CLOSE_EVERY,
        };
        if is_close {
            self.closely = now;
            return self.following.tail.look_closely();
        }
        self.following.tail.look(has_gap)
    }

    /// Reports a gap that does not close.
    fn check_gap(&mut self, applied: bool) -> std::result::Result<(), Failure> {
        if applied || !self.following.tail.has_gap() {
            self.gap_since = None;
            return Ok(());
        }
        let now = self.options.clock.now();
        if now.since(*self.gap_since.get_or_insert(now)) < GAP_MAX {
            return Ok(());
        }
        let (next, newest) = (self.following.csn.next(), self.following.tail.newest());
        let what = format!("the log has CSN {newest}, but CSN {next} is missing or damaged");
        Err(Failure::Look(Error::corruption(what).with_advice("`quench verify` says what is damaged")))
    }

    fn is_base_due(&self) -> bool {
        let (copy, tail) = (&self.following.copy, &self.following.tail);
        let is_old = || self.options.clock.now().since(copy.made) >= BASE_AGE;
        let is_newer = tail.manifest().checkpoint > copy.base.checkpoint;
        self.options.directory.is_none()
            && is_newer
            && (tail.log_bytes() >= self.options.base_log_bytes || is_old())
    }

    /// Replaces a copy to which nothing more can be applied.
    fn begin_again(&mut self) -> Result<()> {
        if self.options.directory.is_some() {
            let old = self.following.copy.db.clone();
            let mut close = || old.clone().close();
            // Snapshots that are open end here.
            match self.is_behind {
                true => FollowingCopy::copy_again(&self.storage, &self.options, &mut close)?,
                false => close()?,
            }
        }
        let following = FollowingCopy::open(&self.storage, &self.options)?;
        self.take_new_base(following)
    }

    /// Has a new base made in another thread when one is due, and shows it when it is there.
    fn renew_base(&mut self) -> Result<()> {
        let Some(coming) = &self.coming else {
            if self.is_base_due() {
                self.coming = Some(self.begin_base()?);
            }
            return Ok(());
        };
        let Some(made) = coming.made.lock().take() else { return Ok(()) };
        if let Some(coming) = self.coming.take() {
            let _ = coming.thread.join();
        }
        self.take_new_base(made?)
    }

    fn begin_base(&self) -> Result<Coming> {
        let made = Arc::new(Mutex::new(None));
        let (slot, shared) = (made.clone(), self.shared.clone());
        let (storage, options) = (self.storage.clone(), self.options.clone());
        let make = move || {
            let base = || {
                let mut following = FollowingCopy::open(&storage, &options)?;
                let shown = shared.served.lock().csn;
                catch_up(&mut following, shown, &shared, &options.clock)?;
                Ok(following)
            };
            let panicked = || Err(Error::new(ErrorKind::Poisoned, "the thread of a new base panicked"));
            let ended = catch_unwind(AssertUnwindSafe(base)).unwrap_or_else(|_| panicked());
            *slot.lock() = Some(ended);
        };
        let thread = thread::spawn("quench-base", make)
            .map_err(|error| Error::io("cannot start the thread of a new base", error))?;
        Ok(Coming { thread, made })
    }

    fn note_failure(&mut self, failure: Failure) {
        let (Failure::Look(error) | Failure::Copy(error)) = &failure;
        tracing::warn!(%error, "the standby cannot follow for now");
        self.has_failed = true;
        self.is_torn |= matches!(failure, Failure::Copy(_));
        self.is_behind |= error.kind() == ErrorKind::FellBehind;
        let (Failure::Look(error) | Failure::Copy(error)) = failure;
        self.shared.progress.lock().failure = Some(error);
    }

    /// Shows a new copy when it has what the present one shows.
    fn take_new_base(&mut self, mut following: FollowingCopy) -> Result<()> {
        catch_up(&mut following, self.following.csn, &self.shared, &self.options.clock)?;
        following.transactions += self.following.transactions;
        let (copy, view, csn) = (following.copy.clone(), following.view.clone(), following.csn);
        let mut served = self.shared.served.lock();
        let before = std::mem::replace(&mut *served, Served { copy, view, csn });
        self.shared.progress.lock().bases += 1;
        drop(served);
        let old = std::mem::replace(&mut self.following, following);
        self.shared.changed.notify_all();
        if Arc::strong_count(&old.copy) == 2 {
            old.copy.end_pin();
        }
        // Closing the old copy writes what nothing needs. Without a thread it ends here.
        let _ = thread::spawn("quench-end-copy", move || drop((before, old)));
        Ok(())
    }

    fn report(&self) {
        let mut progress = self.shared.progress.lock();
        progress.newest = self.following.tail.newest();
        progress.behind_since = self.following.behind_since();
        progress.transactions = self.following.transactions;
        progress.failure = None;
    }
}

/// Applies to a new copy what is there, until it has everything up to `shown`.
fn catch_up(following: &mut FollowingCopy, shown: Csn, shared: &Shared, clock: &Clock) -> Result<()> {
    let mut since = clock.now();
    loop {
        let publish = &mut |published: Published| {
            published.transaction.map_or(Ok(()), |transaction| transaction.commit().map(drop))
        };
        let applied = match following.apply_found(publish) {
            Ok(applied) => applied,
            Err(Failure::Look(error) | Failure::Copy(error)) => return Err(error),
        };
        if following.csn >= shown && !applied {
            return Ok(());
        }
        if shared.is_stopping() {
            return Err(Error::new(ErrorKind::Busy, "the standby is being closed"));
        }
        if following.tail.look(true)? || following.tail.look_closely()? || applied {
            since = clock.now();
        } else if clock.now().since(since) > CATCH_UP_MAX {
            let what = format!("the log does not reach CSN {shown}, which the standby has shown");
            return Err(Error::corruption(what));
        } else {
            shared.pause(PAUSES[1]);
        }
    }
}
