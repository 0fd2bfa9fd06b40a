//! A simulated store of objects: the store of crash and fault tests of databases in a bucket.
//!
//! Several machines share a store, each through a client of its own. A request takes effect at one
//! moment, and its reply arrives at another; in between, and before, the machine may die:
//!
//! ```text
//!   start ──▶ in flight ──▶ effect ──▶ in flight ──▶ done
//!                 │            │
//!                 │            └─ the reply is lost: `Unknown`, although the request took effect
//!                 └─ the machine dies, or is answered `Unknown`: the request takes effect late or never
//! ```
//!
//! 1. Requests in flight overtake each other, also those of one client.
//! 2. All choices follow from the seed and from the order of the calls. Under the scheduler of
//!    `sync::simulation` that order follows from a seed, too.
//! 3. A journal keeps every request and every change, so the store can be seen as it was after any
//!    number of changes: one run of a workload gives thousands of crashes.
//! 4. A crashed or forked store begins with the requests that were in flight. A test that wants
//!    none of them calls `lose_late`.

mod options;
mod bucket;
mod streams;
mod faults;
mod journal;
mod network;
mod client;
mod store;

pub use super::super::fault_counts::FaultCounts;
pub use bucket::{Bucket, Change, SimulatedObject};
pub use client::SimulatedClient;
pub use faults::{Fault, FaultKind};
pub use journal::{Event, Record};
pub use options::{BrokenPromises, Delivery, StoreOptions};
pub use store::SimulatedStore;

#[cfg(test)]
mod tests;
