//! The protocols of general use, one page each.

mod lead;
pub mod group;
pub mod auto;
pub mod flushed;

pub use lead::Lead;
