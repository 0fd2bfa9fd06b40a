//! QuenchDB: an embeddable transactional storage engine.

#![deny(unsafe_code)]

pub mod base;
#[allow(unsafe_code)]
pub mod device;
#[allow(unsafe_code)]
pub mod sync;
