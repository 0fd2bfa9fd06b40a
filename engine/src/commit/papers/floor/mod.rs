//! What the other protocols are compared with.

pub mod per_transaction;
pub mod queued;
pub mod collector;
