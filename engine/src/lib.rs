//! QuenchDB: an embeddable transactional storage engine.

#![deny(unsafe_code)]

pub mod base;
#[allow(unsafe_code)]
pub mod buffer;
#[allow(unsafe_code)]
pub mod device;
pub mod log;
pub mod store;
#[allow(unsafe_code)]
pub mod sync;
pub mod tree;
