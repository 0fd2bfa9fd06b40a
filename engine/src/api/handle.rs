//! The handle of a commit that was submitted without waiting.

use crate::base::{Csn, ErrorKind, Result};
use crate::commit::{Commit, Ticket, WakerPlace};
use crate::sync::Ours;
use crate::transaction::Submitted;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A transaction on its way to the device. At level durable it becomes durable soon, at bounded
/// loss before the loss window has passed, even if no thread waits. At level lazy it becomes
/// durable with another write of its log, a flush, a checkpoint, [`CommitHandle::wait`], or when
/// the database is closed. Dropping the handle changes nothing. Any thread may wait for it, or poll
/// it as a `Future`.
///
/// A thread of the database that does nothing else calls the wakers, one after the other, so a
/// waker that blocks delays only other wakers. A waker may wait for a commit, but not for a future
/// of this database, which would not be woken. When the database is closed, some wakers may not
/// have been called yet.
///
/// A handle may outlive the database: after [`close`](crate::Database::close) the outcome is known.
#[derive(Clone, Debug)]
#[must_use = "the commit may not be durable yet: wait for the handle, or drop it explicitly"]
pub struct CommitHandle {
    commit: Ours<Arc<Commit>>,
    /// 0 for a transaction that wrote nothing.
    csn: Csn,
    /// What has to be committed: the transaction, or what it read. Needs no allocation for one
    /// ticket.
    first: Option<Ticket>,
    others: Box<[Ticket]>,
    waker: WakerPlace,
}

impl CommitHandle {
    pub(super) fn new(commit: Arc<Commit>, submitted: Submitted) -> CommitHandle {
        let (commit, waker) = (Ours::new(commit), WakerPlace::default());
        match submitted {
            Submitted::Written(ticket) => {
                CommitHandle { commit, csn: ticket.csn, first: Some(ticket), others: Box::default(), waker }
            }
            Submitted::ReadOnly(read) => {
                let mut read = read.into_iter();
                CommitHandle { commit, csn: Csn::ZERO, first: read.next(), others: read.collect(), waker }
            }
        }
    }

    fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.first.iter().chain(&self.others).copied()
    }

    /// Returns the commit sequence number; 0 for a transaction that wrote nothing.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Returns whether the transaction, and everything it depends on, survives a power cut (with
    /// the log in mapped memory: what [`Statistics::log_memory`](crate::Statistics::log_memory)
    /// says).
    #[must_use]
    pub fn is_committed(&self) -> bool {
        !self.commit.process().is_forked()
            && self.tickets().all(|ticket| self.commit.progress().is_committed_ticket(ticket))
    }

    /// Waits until the transaction is committed, and causes the device writes that this needs.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait(&self) -> Result<()> {
        self.commit.process().check()?;
        self.commit.waits().wait(self.tickets(), None)
    }

    /// Waits at most `timeout` until the transaction is committed. `Ok(false)` means not yet.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.commit.process().check()?;
        match self.commit.waits().wait(self.tickets(), Some(timeout)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Future for CommitHandle {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CommitHandle { commit, first, others, waker, .. } = self.get_mut();
        if let Err(error) = commit.process().check() {
            return Poll::Ready(Err(error));
        }
        // In turn: the waker waits at the first ticket that is not committed.
        for ticket in first.iter().chain(&*others) {
            match commit.waits().poll(*ticket, context.waker(), waker) {
                Some(Ok(())) => {}
                Some(failed) => return Poll::Ready(failed),
                None => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}
