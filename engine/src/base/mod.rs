//! Rank 0: what every layer needs and no layer owns.
//!
//! Identifiers, errors, settings, checksums, encoding, clock, randomness, metrics and the memory
//! account. Imports no other layer, so every layer may import it.

pub mod checksum;
pub mod common_bytes;
pub mod encoding;
pub mod ids;
pub mod error;
pub mod table_types;
#[cfg(feature = "simulation")]
pub mod environment;
pub mod random;
pub mod similar;
#[cfg(any(test, feature = "internals"))]
pub mod depth;
// Tools and tests use more of it.
#[cfg_attr(not(feature = "internals"), allow(dead_code))]
pub mod clock;
pub mod allocation_failure;
pub mod account;
pub mod metrics;
pub mod planted;
// Tools and tests use more of it.
#[cfg_attr(not(feature = "internals"), allow(dead_code))]
pub mod axes;
pub mod settings;
pub mod scale;

pub use account::{Account, Charge, PooledCharge};
pub use error::{Error, ErrorKind, Location, Result};
pub use ids::{Csn, DatabaseId, Epoch, Gsn, LogId, PageId, SegmentId, TableId};
pub use table_types::{TableKind, TableTypes};
