//! Asynchronous commits of a worker that are not yet acknowledged.
//!
//! ```text
//!   commit_async ─▶ [ oldest … newest ] ─▶ acknowledged: latency from the begin
//!                      ▲ checked after each transaction, and while the worker is idle
//! ```
//! So the latency of a type of transaction is too long by at most one transaction of its worker,
//! never too short.

use crate::store::{Error, Handle, Result};
use std::collections::VecDeque;
use std::time::Duration;

/// Most pending commits of a worker; then it waits for the oldest, as a server with bounded queues
/// does.
const MOST: usize = 1 << 16;
/// Initial capacity. The ring stays small, and in the cache, as long as commits are fast.
const FEW: usize = 1 << 10;
/// A commit takes less than this unless the device has failed without an error.
const LONG: Duration = Duration::from_secs(60);

struct Commit<H> {
    handle: H,
    kind: usize,
    begun: u64,
    /// Number in the ledger, if given and the transaction wrote.
    number: Option<u64>,
}

/// An acknowledged commit.
pub(super) struct Acknowledged {
    pub kind: usize,
    pub begun: u64,
    pub number: Option<u64>,
}

/// See the module.
pub(super) struct Pending<H> {
    commits: VecDeque<Commit<H>>,
}

impl<H: Handle> Pending<H> {
    pub(super) fn new(asynchronous: bool) -> Pending<H> {
        Pending { commits: VecDeque::with_capacity(if asynchronous { FEW } else { 0 }) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Adds an asynchronous commit.
    pub(super) fn push(&mut self, handle: H, commit: Acknowledged) -> Result<()> {
        let Acknowledged { kind, begun, number } = commit;
        if self.commits.len() == MOST
            && let Some(oldest) = self.commits.front()
        {
            oldest.handle.wait(LONG)?;
        }
        self.commits.push_back(Commit { handle, kind, begun, number });
        Ok(())
    }

    /// Calls `acknowledged` for each commit that was acknowledged since the last call.
    #[inline]
    pub(super) fn collect(&mut self, mut acknowledged: impl FnMut(Acknowledged)) {
        while let Some(oldest) = self.commits.front()
            && oldest.handle.is_done()
        {
            acknowledged(Acknowledged { kind: oldest.kind, begun: oldest.begun, number: oldest.number });
            self.commits.pop_front();
        }
    }

    /// Waits at most `timeout` for the oldest commit. Returns false without commits.
    pub(super) fn wait(&self, timeout: Duration) -> Result<bool> {
        let Some(oldest) = self.commits.front() else { return Ok(false) };
        oldest.handle.wait(timeout)?;
        Ok(true)
    }

    /// Waits for all commits.
    pub(super) fn finish(&mut self, mut acknowledged: impl FnMut(Acknowledged)) -> Result<()> {
        while let Some(oldest) = self.commits.front() {
            if !oldest.handle.wait(LONG)? {
                return Err(Error::wrong(format!("a commit was not acknowledged for {LONG:?}")));
            }
            self.collect(&mut acknowledged);
        }
        Ok(())
    }
}
