//! Rank 0: what every room needs and no room owns.
//!
//! Identifiers, errors, settings, checksums, encoding, clock, randomness, metrics and the memory account. Imports nothing of ours, so
//! that everything may import it.

pub mod account;
pub mod allocation_failure;
pub mod axes;
pub mod checksum;
pub mod clock;
pub mod encoding;
pub mod error;
pub mod ids;
pub mod metrics;
pub mod planted;
pub mod random;
pub mod settings;
#[cfg(feature = "simulation")]
pub mod environment;

pub use account::{Account, Charge, PooledCharge};
pub use error::{Error, ErrorKind, Location, Result};
pub use ids::{Csn, DatabaseId, Epoch, Gsn, LogId, PageId, SegmentId, TableId};
