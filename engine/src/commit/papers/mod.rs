//! Mechanisms of single papers, and baselines. Each folder can be read alone.

pub mod exact;
pub mod clocks;
pub mod by_page;
pub mod consolidated;
pub mod passive;
pub mod autonomous;
pub mod floor;
