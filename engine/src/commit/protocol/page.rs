//! The trait that every protocol page implements, and the constants that it declares.

use super::super::axes::Axes;
use super::super::log_writer::LogWriter;
use super::super::mapped::MappedLogs;
use super::super::pending::Ticket;
use super::super::sharing::Sharing;
use super::super::writes::Writes;
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, LogId, Result};
use std::sync::Arc;

/// How committed transactions become durable.
pub(in super::super) trait Protocol: Send + Sync {
    /// A record was appended that no thread waits for, and its log is due at `due`. The transaction
    /// was ready at `ready`. Called without the latch, and only if the flusher may not know.
    fn appended(&self, log: &LogWriter, due: Nanos, ready: Nanos);

    /// Waits until the record of `ticket` is durable. `is_committer`: the caller has just appended
    /// it.
    ///
    /// # Errors
    /// `OutcomeUnknown` if commits have stopped; `Timeout` at `deadline`.
    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()>;

    /// Does one step towards making `csn` of `log` durable, for any thread that waits for it; where
    /// waiters do not write, has it written at `by`. Returns false if another thread is at it: then
    /// the caller sleeps.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool;

    /// A worker of `log` is between two transactions; the last one began at `begun` and is over
    /// `now`.
    fn end_of_transaction(&self, _log: LogId, _begun: Nanos, _now: Nanos) {}
}

/// The point on the axes that a page implements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Choices {
    pub layout: Layout,
    pub writer: Writer,
    pub acknowledger: Acknowledger,
}

/// The components that a page is built from.
pub(in super::super) struct Parts<'a> {
    pub writes: Arc<Writes>,
    pub mapped: Arc<MappedLogs>,
    pub sharing: Arc<Sharing>,
    pub axes: &'a Axes,
}

/// A page: its point on the axes and its constructor.
pub(in super::super) struct Page {
    pub choices: Choices,
    pub start: fn(Parts<'_>) -> Arc<dyn Protocol>,
}
