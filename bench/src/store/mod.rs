//! The interface between workloads and engines.
//!
//! ```text
//!   Workload ──▶ Worker ──▶ Transaction: get, scan, insert, remove, commit (one per engine)
//!   driver   ──▶ Store ──▶ Session (one a thread) ──▶ Transaction
//! ```
//!
//! Everything is generic, so a call compiles to the call of the engine. Guarantees of every
//! implementation:
//!
//! 1. A transaction reads one consistent state and its own writes (not at read committed, where
//!    only `get_for_update` prevents that a change is lost); two that read and write the same row
//!    do not both commit unless the second saw what the first wrote. So increments are not lost.
//! 2. [`Error::Conflict`] has no effect: the transaction can run again from its beginning.
//! 3. One thread uses a session, with one transaction at a time. The next transaction of a session
//!    sees its previous commit.
//! 4. `scan` gives each key of the range once, ascending; `scan_back` descending.

mod concurrency;
mod figures;
mod interface;
mod noted;
mod quench;

pub use concurrency::{Concurrency, Granularity, Release};
pub use figures::{Checkpoints, Figures, Gauges, LockFigures, Total};
pub use interface::{Error, Handle, Level, Reader, Result, Session, Step, Store, Transaction, Waited};
pub use noted::Noted;
pub use quench::{Configured, QuenchSession, QuenchTransaction};
