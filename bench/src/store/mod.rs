//! The interface between workloads and engines.
//!
//! ```text
//!   Workload ──▶ Worker ──▶ Transaction: get, scan, insert, remove, commit   ◀── one implementation an engine
//!   driver   ──▶ Store ──▶ Session (one a thread) ──▶ Transaction
//! ```
//!
//! All of it is generic, so a call compiles to the engine's own. Guarantees that every implementation gives:
//!
//! 1. A transaction reads one consistent state and its own writes; two that read and write the same row do not both commit
//!    unless the second saw what the first wrote. So increments are not lost.
//! 2. [`Error::Conflict`] leaves nothing behind: the transaction can be run again from its beginning.
//! 3. A session is used by one thread and has one transaction at a time; after a commit its next transaction sees it.
//! 4. `scan` gives each key of the range once, ascending; `scan_back` descending.

mod figures;
mod interface;
mod noted;
mod quench;

pub use figures::{Checkpoints, Figures, Gauges, Total};
pub use interface::{Error, Handle, Level, Reader, Result, Session, Step, Store, Transaction, Waited};
pub use noted::Noted;
pub use quench::QuenchSession;
