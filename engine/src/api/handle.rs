//! A commit that was asked for and not waited for.

use crate::base::{Csn, ErrorKind, Result};
use crate::commit::{Commit, Ticket, WakerPlace};
use crate::transaction::Submitted;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A transaction on its way to the device. At level durable it becomes durable soon, at bounded loss before the loss window has passed, whether
/// or not anybody waits; at level lazy only with another write of its log, a flush, a checkpoint, [`CommitHandle::wait`], or when the database is
/// closed. Dropping the handle changes nothing. May be sent to and waited on by any thread, and polled as a `Future`.
///
/// Wakers are called by a thread of the database that does nothing else, one after the other, so one that blocks holds up other wakers only. It may
/// wait for a commit, but not for a future of this database, which nobody would wake. When the database has been closed some may not have been
/// called yet.
#[derive(Clone, Debug)]
pub struct CommitHandle {
    commit: Arc<Commit>,
    /// Of a transaction that wrote; none of others.
    csn: Csn,
    /// What has to be committed: the transaction, or what it read. No allocation for one or none.
    first: Option<Ticket>,
    others: Box<[Ticket]>,
    waker: WakerPlace,
}

impl CommitHandle {
    pub(super) fn new(commit: Arc<Commit>, submitted: Submitted) -> CommitHandle {
        let waker = WakerPlace::default();
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

    /// The commit sequence number; 0 for a transaction that wrote nothing.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// True once the transaction, and everything it depends on, survives a power cut (with the log in mapped memory: what
    /// `Statistics::log_memory` says).
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.tickets().all(|ticket| self.commit.is_committed_ticket(ticket))
    }

    /// Waits until it is committed. Causes the device writes it needs.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait(&self) -> Result<()> {
        self.commit.wait(self.tickets(), None)
    }

    /// Waits at most `timeout`; `Ok(false)` means not yet.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        match self.commit.wait(self.tickets(), Some(timeout)) {
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
        // One after the other: the waker is with the first that is not committed.
        for ticket in first.iter().chain(&*others) {
            match commit.poll(*ticket, context.waker(), waker) {
                Some(Ok(())) => {}
                Some(failed) => return Poll::Ready(failed),
                None => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}
