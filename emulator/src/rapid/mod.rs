//! A server that behaves like a zonal bucket of Google (class Rapid), through gRPC.
//!
//! ```text
//!   client ──HTTP/2──▶ server ──▶ service ──▶ appends ──▶ objects
//!                                    │  reads   │
//!                                    └──────────┴─ faults, latency
//! ```
//!
//! It has what a log needs: streams of appends with flushes, takeover and finalize; streams of
//! reads; lists; deletes. It is as strict as the service, as far as that is known; a switch makes
//! it behave as Google's own server for tests, where that differs.

mod faults;
mod options;
mod objects;
mod timer;
mod shared;
mod appends;
mod reads;
mod service;
mod emulator;

pub use emulator::RapidEmulator;
pub use faults::{RapidFault, RapidFaults, RapidStep};
pub use options::{RapidLatency, RapidMistake, RapidOptions};
