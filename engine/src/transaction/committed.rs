//! How far transactions are committed: what the running `Commit` says, or the newest CSN of a
//! database that is only read.
//!
//! A database that is open for writing has a [`Commit`] once recovery knows the next CSN and epoch.
//! One that is open read-only has none: it starts no log and no flusher, and everything up to the
//! newest recovered CSN is committed.
//!
//! Every call of a user begins with [`Committed::enter`], which refuses it after the database was
//! closed, and in a forked child.

use crate::base::{Csn, Error, ErrorKind, Result};
use crate::commit::{Commit, PoisonOnPanic};
use crate::sync::Process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Clone)]
enum State {
    Running(Arc<Commit>),
    /// Nothing commits any more; the newest CSN that was recovered.
    AtRest(Csn),
}

/// The commit state that transactions and snapshots ask. Set once, by open.
#[derive(Default)]
pub struct Committed {
    state: OnceLock<State>,
    /// The process that opened the database.
    process: Process,
    /// The database was closed; never lowered.
    closed: AtomicBool,
}

impl std::fmt::Debug for Committed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committed").field("newest", &self.newest_drawn()).finish()
    }
}

impl Committed {
    /// Uses `commit` from now on.
    pub(super) fn run(&self, commit: Arc<Commit>) {
        assert!(self.state.set(State::Running(commit)).is_ok(), "set once, by open");
    }

    /// Serves what was recovered up to `newest`, and no more.
    pub(super) fn rest_at(&self, newest: Csn) {
        assert!(self.state.set(State::AtRest(newest)).is_ok(), "set once, by open");
    }

    /// The running `Commit`; `None` during recovery and in a database that is open read-only.
    #[inline]
    #[must_use]
    pub fn running(&self) -> Option<&Arc<Commit>> {
        match self.state.get() {
            Some(State::Running(commit)) => Some(commit),
            _ => None,
        }
    }

    /// The running `Commit` of a database that is open for writing.
    ///
    /// # Panics
    /// During recovery and in a read-only database, which no caller reaches.
    #[inline]
    #[must_use]
    pub fn commit(&self) -> &Arc<Commit> {
        self.running().expect("only a database that is open for writing commits")
    }

    fn newest_at_rest(&self) -> Csn {
        match self.state.get() {
            Some(State::AtRest(newest)) => *newest,
            _ => Csn::ZERO,
        }
    }

    /// Refuses all further calls of users.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Returns whether the calling process is a forked child of the one that opened the database.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// Refuses a call of a user if the database was closed, and in a forked child.
    ///
    /// # Errors
    /// `InvalidArgument`.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        self.process.check()?;
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { Ok(()) }
    }

    /// Begins a call of a user: [`Committed::check_usable`], then [`Committed::inside`].
    ///
    /// # Errors
    /// `InvalidArgument`.
    #[inline]
    pub fn enter(&self) -> Result<Option<PoisonOnPanic<'_>>> {
        self.check_usable()?;
        Ok(self.inside(USER))
    }

    /// Returns a guard that poisons the database if the calling thread, called `thread` in the
    /// error, panics before the guard is dropped. A read-only database has nothing to protect.
    #[inline]
    #[must_use]
    pub fn inside(&self, thread: &'static str) -> Option<PoisonOnPanic<'_>> {
        self.running().map(|commit| commit.failure().guard(thread))
    }

    /// Poisons the database because `thread` panicked inside the engine: nothing is acknowledged
    /// after that.
    pub fn panicked(&self, thread: &str) {
        if let Some(commit) = self.running() {
            commit.failure().panicked(thread);
        }
    }

    /// Refuses what could wait for a transaction that stays in progress for good.
    ///
    /// # Errors
    /// `Poisoned` after a panic inside the engine.
    pub fn check_whole(&self) -> Result<()> {
        self.running().map_or(Ok(()), |commit| commit.failure().check_whole())
    }

    /// Fails if no transaction can commit any more.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_commits(&self) -> Result<()> {
        self.running().map_or(Ok(()), |commit| commit.failure().check_commits())
    }

    /// Returns the newest CSN that was drawn; 0 during recovery.
    #[inline]
    #[must_use]
    pub fn newest_drawn(&self) -> Csn {
        self.running().map_or_else(|| self.newest_at_rest(), |commit| commit.progress().newest_drawn())
    }

    /// Returns a CSN at or above every acknowledged one.
    #[inline]
    #[must_use]
    pub fn newest_acknowledged(&self) -> Csn {
        self.running().map_or_else(|| self.newest_at_rest(), |commit| commit.progress().newest_acknowledged())
    }

    /// Returns the newest CSN below the watermark, in one order with the pins of snapshots.
    #[must_use]
    pub(super) fn newest_settled(&self) -> Csn {
        self.running().map_or_else(|| self.newest_at_rest(), |commit| commit.progress().newest_settled())
    }

    /// Returns the CSN below which every transaction is durable; without a limit during recovery,
    /// when nothing has a version.
    #[must_use]
    pub fn watermark(&self) -> Csn {
        match self.state.get() {
            Some(State::Running(commit)) => commit.progress().watermark(),
            Some(State::AtRest(newest)) => newest.next(),
            None => Csn::MAX,
        }
    }

    /// Returns whether `csn` is committed.
    #[inline]
    pub(super) fn is_committed(&self, csn: Csn) -> bool {
        self.running()
            .map_or_else(|| csn <= self.newest_at_rest(), |commit| commit.progress().is_committed(csn))
    }

    /// Waits until `csn` is committed, and causes the writes that this needs.
    ///
    /// # Errors
    /// `Poisoned`; `InvalidArgument` if `csn` was never drawn.
    pub fn wait(&self, csn: Csn) -> Result<()> {
        match self.running() {
            Some(commit) => commit.waits().wait_committed(csn),
            None if csn <= self.newest_at_rest() => Ok(()),
            None => Err(never_drawn(csn)),
        }
    }

    /// Waits until everything up to `csn` is committed, and causes the writes that this needs.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn wait_up_to(&self, csn: Csn) -> Result<()> {
        self.running().map_or(Ok(()), |commit| commit.waits().wait_watermark(csn))
    }
}

/// What an error calls a thread of the user.
pub const USER: &str = "a thread";

/// Returns the error of every call after the database was closed.
#[cold]
fn closed() -> Error {
    Error::invalid("the database is closed").with_advice("open it again")
}

#[cold]
fn never_drawn(csn: Csn) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("CSN {csn} was never drawn"))
}
