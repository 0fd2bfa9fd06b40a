//! QuenchDB: an embeddable transactional storage engine.

#![deny(unsafe_code)]

pub mod base;
#[allow(unsafe_code)]
pub mod device;
pub mod log;
#[allow(unsafe_code)]
pub mod sync;
