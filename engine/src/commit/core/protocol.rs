//! The trait that every page of a protocol implements.

use super::log_writer::LogWriter;
use super::medium::Medium;
use super::pending::Ticket;
use super::sharing::Sharing;
use super::writes::Writes;
use crate::base::clock::Nanos;
use crate::base::settings::Axes;
use crate::base::{Csn, LogId, Result};
use std::sync::Arc;

/// How committed transactions become durable.
pub trait Protocol: Send + Sync {
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

    /// The worker of `log` is about to give up its processor.
    fn yields(&self, _log: LogId) {}
}

/// The components that a page is built from.
pub struct Parts<'a> {
    pub writes: Arc<Writes>,
    pub medium: Arc<dyn Medium>,
    pub sharing: Arc<Sharing>,
    pub axes: &'a Axes,
}
