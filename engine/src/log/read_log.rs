//! What a process that followed a log knows of it already.

use crate::base::{Csn, Epoch, LogId, SegmentId};
use crate::device::LogPosition;
use std::collections::BTreeMap;

/// What a recovery need not read of the log, because its transactions are known.
#[derive(Clone, Debug)]
pub struct ReadLog {
    /// Every transaction up to this CSN is known.
    pub csn: Csn,
    /// Records above it may be needed: chunks of transactions that are not known.
    pub covered: Csn,
    /// The epoch that was running.
    pub epoch: Epoch,
    /// What precedes these positions need not be read.
    pub positions: Vec<LogPosition>,
    /// The highest CSN of what need not be read, for each segment.
    pub segments: BTreeMap<SegmentId, Csn>,
    /// The last block of each log of the running epoch that need not be read.
    pub ends: BTreeMap<LogId, u64>,
}
