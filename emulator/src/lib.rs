//! A server that behaves like S3 and its directory buckets, for tests and trials on one machine.
//!
//! ```text
//!   SDK ──HTTP──▶ Server ──▶ Signature ──▶ s3s ──▶ Service ──▶ Store ──▶ simulated buckets
//!                                                    │            └────▶ Log (a directory)
//!                                                    ├─ Latency    how long a request takes
//!                                                    └─ Faults     what goes wrong with it
//! ```
//!
//! Objects, conditions, appends and their faults are those of the simulated store of QuenchDB's own
//! tests. Here are S3's names for them, connections, times and a directory.
//!
//! It has what a database needs of S3: conditional puts and deletes, appends at an offset with a
//! limit of parts, ranged reads, lists, multipart uploads, checksums, sessions of directory
//! buckets. Whatever it does not have, it refuses with `NotImplemented`. Nothing about it is meant
//! to be safe against power cuts or intruders.
//!
//! ```
//! use quench_emulator::{Emulator, Options};
//!
//! let emulator = Emulator::start(Options::default())?;
//! for (name, value) in emulator.environment() {
//!     println!("export {name}={value}");
//! }
//! # std::io::Result::Ok(())
//! ```

mod refusal;
mod ending;
mod faults;
mod latency;
mod mistakes;
mod options;
mod log;
mod store;
mod uploads;
mod checksums;
mod sessions;
mod signature;
mod counts;
mod fate;
mod service;
mod server;
mod emulator;
mod rapid;

pub use counts::Counts;
pub use emulator::Emulator;
pub use faults::Faults;
pub use latency::Latency;
pub use mistakes::Mistake;
pub use options::{Options, Place};
pub use rapid::{
    RapidEmulator, RapidFault, RapidFaults, RapidLatency, RapidMistake, RapidOptions, RapidStep,
};
