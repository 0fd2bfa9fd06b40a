//! The tests of the simulation, in one program.

#[path = "../../engine/tests/support/mod.rs"]
mod support;

mod bounded_loss;
mod creation;
mod no_thread;
mod panics;
mod planted;
mod promises;
mod scorecard;
mod traces;
mod waiting;
