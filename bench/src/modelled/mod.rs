//! Modelled devices: the speed of a device that is not there, around memory or a directory.
//!
//! ```text
//!   read, write, flush ─▶ [Device]: when would it be done? ─▶ done by memory, or by the directory ─▶ [wait] until then
//!                          slots, shared rate, noise
//! ```
//!
//! - [`figures`]: what is known of each device, and where from (`docs/benchmark.md`).
//! - [`schedule`]: when an access of a device with these figures completes. It does not wait, so tests ask it.
//! - [`storage`]: a [`quenchdb::internals::device::Storage`] that takes that long; [`queue`]: its asynchronous writes.
//! - [`wait`]: how a thread waits, and what that costs.
//!
//! What is durable is decided by what is inside, never by the model: it adds time and nothing else. The engine's device
//! `simulated` is another thing, with faults and power cuts but without time.
//!
//! Left out on purpose: wear, garbage collection, heat, burst credits, seeks that depend on the distance, requests that an
//! object store refuses, and files: opening, removing, listing and allocating cost nothing.

pub mod figures;
pub mod schedule;
pub mod wait;
mod shared;
pub mod queue;
pub mod storage;

pub use figures::{FIGURES, Figures};
pub use schedule::{Access, Device};
pub use storage::ModelledStorage;
