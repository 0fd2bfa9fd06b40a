//! Rank 8: what is true after a crash?

pub mod select;
