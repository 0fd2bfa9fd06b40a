//! The emulator, as QuenchDB's client sees it through the SDK of AWS.

mod database;
mod faults;
mod probe;
mod rapid;
mod rapid_contention;
mod rapid_ends;
mod requests;
mod restart;
mod support;
