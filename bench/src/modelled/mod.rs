//! Modelled devices: the speed of another device, around memory or a directory.
//!
//! ```text
//!   read, write, flush ─▶ [Device]: completion time ─▶ memory or directory ─▶ [wait] until then
//!                          slots, shared rate, noise
//! ```
//!
//! - [`figures`]: the figures of each device, and their sources (`docs/guide/benchmark.md`);
//!   [`chosen`]: devices with other figures.
//! - [`schedule`]: when an access completes on a device with these figures. It does not wait, so
//!   tests can ask it.
//! - [`storage`]: a [`quenchdb::internals::device::Storage`] that takes that long; [`queue`]: its
//!   asynchronous writes.
//! - [`split`]: a storage whose log is on a modelled device of its own.
//! - [`wait`]: how a thread waits, and what that costs.
//!
//! The storage inside decides what is durable; the model adds only time. The device `simulated` of
//! the engine is different: it has faults and power cuts, but no time.
//!
//! Left out on purpose: wear, garbage collection, heat, burst credits, seeks that depend on the
//! distance, requests that an object store refuses, and files: opening, removing, listing and
//! allocating cost nothing.

pub mod figures;
pub mod chosen;
pub mod schedule;
pub mod wait;
mod shared;
pub mod queue;
pub mod storage;
pub mod split;

pub use figures::{FIGURES, Figures};
pub use schedule::{Access, Device};
pub use split::SplitStorage;
pub use storage::ModelledStorage;
