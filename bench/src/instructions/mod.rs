//! Instructions of single operations, which any machine counts again: time differs from run to run,
//! instructions hardly.
//!
//! ```text
//!   operation   which there are        run      fill a table, run one of them
//!   meter       what is counted        report   a table, and its comparison with a recorded one
//! ```
//!
//! One thread runs one kind of operation in a process of its own. Callgrind counts the instructions
//! of that thread between begin and end of the operations: not those of the kernel, of other
//! threads, of the fill, or of the choice of rows before them. Without Callgrind the same process
//! measures time.

pub mod meter;
pub mod operation;
mod run;
pub mod report;
#[cfg(test)]
mod tests;

pub use meter::{Measured, TOGGLE};
pub use operation::Operation;
pub use report::{Instructions, Unit};
pub use run::{Rows, run, run_own};
