//! A commit that was asked for and not waited for.

use crate::base::{Csn, Result};
use crate::commit::{Commit, Ticket};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A transaction on its way to the device. It becomes durable whether or not anybody waits; dropping the handle changes
/// nothing. May be sent to and waited on by any thread, and polled as a `Future`.
#[derive(Clone, Debug)]
pub struct CommitHandle {
    commit: Arc<Commit>,
    ticket: Ticket,
}

impl CommitHandle {
    pub(super) fn new(commit: Arc<Commit>, ticket: Ticket) -> CommitHandle {
        CommitHandle { commit, ticket }
    }

    /// The commit sequence number; 0 for a transaction that wrote nothing.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.ticket.csn
    }

    /// True once the transaction, and everything it depends on, survives a power cut.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.commit.is_committed_ticket(self.ticket)
    }

    /// Waits until it is committed. Causes the device writes it needs.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait(&self) -> Result<()> {
        self.commit.wait(self.ticket, None).map(drop)
    }

    /// Waits at most `timeout`; `Ok(false)` means not yet.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.commit.wait(self.ticket, Some(timeout))
    }
}

impl Future for CommitHandle {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.commit.poll(self.ticket, context.waker())
    }
}
