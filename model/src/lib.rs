//! A model of when QuenchDB may say "committed", and of what is true after a crash.
//!
//! The engine's rules for acknowledgment and recovery were found by attacking an earlier wording
//! with a model checker. This crate keeps them attacked: a small machine with two or three logs, a
//! handful of transactions, writes that complete in any order, and crashes at any point, explored
//! exhaustively with [stateright]. Each rule is a choice in [`Rules`]; the tests check that the
//! engine's choice passes, and that each wrong choice that looks right has a counterexample, so
//! that the engine does not make this choice later.
//!
//! Read in this order:
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | which transactions run, and by which rules? |
//! | [`state`] | what is in memory, and what on the disk? |
//! | [`acknowledgment`] | what is durable, how far is the watermark, what may be acknowledged? |
//! | [`clocks`] | what do the rules wait for that go by Lamport clocks? |
//! | [`recovery`] | what is true after a crash? |
//! | [`machine`] | what can happen next, and what must never happen? |
//! | [`snapshot`] | a second, smaller model: what does a reader see of a commit in progress? |
//! | [`locks`] | a third model: what do serializable transactions and early release need? |
//! | [`objects`] | two models of stores of objects: may a writer be replaced at any moment? |
//!
//! Left out on purpose: checkpoints and segment reuse (random histories in the engine's
//! `recovery/select` have them), large and page-partitioned transactions, the catalog, records of
//! both rules side by side (in those histories, too), several concurrent watermark scans, failing
//! devices, and liveness: the model shows that nothing wrong happens, not that something happens.

pub mod acknowledgment;
pub mod clocks;
pub mod locks;
pub mod machine;
pub mod objects;
pub mod recovery;
pub mod scenario;
pub mod snapshot;
pub mod state;

pub use scenario::{
    ClockScan, Dependencies, Durable, Judged, Kind, Listed, ReadersClock, RecoveryDurability, Rules,
    Scenario, Stealing, StoredWatermark, Tombstones, Transaction, Voids, WatermarkScan,
};
