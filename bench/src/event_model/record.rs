//! A transaction that asked to commit, and a write that makes several durable.

/// A transaction that asked to commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub csn: u64,
    /// The newest CSN that it waits for; 0: none.
    pub need: u64,
    pub begun: u64,
    pub ready: u64,
    pub bytes: u64,
    /// A thread waits for it.
    pub waited_for: bool,
    /// The row that it locked.
    pub row: Option<u64>,
}

/// A write in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    pub log: usize,
    pub id: u64,
    pub done: u64,
}
