//! Other engines for the workloads of `quench-bench`, for comparison with QuenchDB.

mod engines;

pub use engines::BuiltIn;
