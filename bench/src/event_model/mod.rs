//! A discrete-event model of the commit path, for more workers than this machine has processors.
//!
//! ```text
//!   workers ─▶ processors ─▶ row locks ─▶ log latch ─▶ device ─▶ watermark ─▶ acknowledgment
//! ```
//! Every step has a cost ([`Costs`]), measured on the engine or chosen. The model runs the
//! protocols on the axes of the engine: which thread writes and which acknowledges, the dependency
//! rule, the number of logs. It has no threads and no clock: the same input gives the same figures.
//!
//! Caches and memory bandwidth are one factor of all computation, for cores that compute beside
//! each other, and one time after a switch. Left out on purpose: checkpoints, reads of pages,
//! deadlocks (a transaction has one lock), and preemption within a step.

mod costs;
mod input;
mod record;
mod queue;
mod log;
mod rows;
mod tally;
mod world;
mod writing;
mod flusher;
mod worker;
mod report;
mod simulate;
mod limits;
pub mod series;
mod engine_run;
mod calibrate;
mod against;
#[cfg(test)]
mod tests;

pub use against::{Against, DEVICES, Devices, Line, Pair, against};
pub use calibrate::{Calibration, calibrate};
pub use costs::Costs;
pub use input::{ModelInput, Protocol, RowLocks};
pub use limits::{Gain, Limits, limits};
pub use report::{ModelReport, Utilization};
pub use simulate::run;
