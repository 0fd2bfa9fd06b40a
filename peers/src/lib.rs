//! Other engines for the workloads of `quench-bench`, for comparison with QuenchDB.

pub mod durability;
mod engines;

pub use engines::BuiltIn;
