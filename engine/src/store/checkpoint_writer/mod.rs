//! Writes a checkpoint: page images, the catalog, the changed parts of the mapping.

pub mod writer;
pub mod checkpoint;

pub use checkpoint::{FinishedCheckpoint, OpenCheckpoint};
pub use writer::{Heat, ImageWriter, Written};
