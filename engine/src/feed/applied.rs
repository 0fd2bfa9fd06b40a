//! Which bytes of a log of another process have been returned as transactions, so that a recovery
//! need not read them.
//!
//! ```text
//!   part of a segment   [ 41 42 ][ 43 ][ 45 ][ 46 ]      44 is in another part, and missing
//!   applied up to             43 ────▲                   a recovery reads what comes after
//! ```
//!
//! 1. What precedes the position of a part has only blocks whose last CSN is at or below the CSN
//!    up to which everything was returned, chunks included.
//! 2. Only blocks of epochs that the manifest knows are passed over.

use crate::base::{Csn, Epoch, LogId, SegmentId};
use crate::device::LogPosition;
use crate::log::{FollowedBlock, ReadLog};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Bytes that were found together.
#[derive(Debug)]
struct Piece {
    segment: SegmentId,
    /// The position behind it.
    at: u64,
    last_csn: Csn,
    last_epoch: Epoch,
    /// The last block of each log.
    ends: Vec<(Epoch, LogId, u64)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Those that were not passed over, by part, in their order.
    pieces: HashMap<String, VecDeque<Piece>>,
    positions: BTreeMap<String, u64>,
    segments: BTreeMap<SegmentId, Csn>,
    ends: BTreeMap<(Epoch, LogId), u64>,
}

impl Applied {
    /// Notes bytes that were found, with their blocks above `known`.
    pub fn note(&mut self, segment: SegmentId, position: LogPosition, known: Csn, blocks: &[FollowedBlock]) {
        let last_csn = blocks.iter().map(|found| found.block.last_csn()).fold(known, Csn::max);
        let last_epoch = blocks.iter().map(|found| found.block.epoch()).max().unwrap_or_default();
        let mut ends: BTreeMap<(Epoch, LogId), u64> = BTreeMap::new();
        for FollowedBlock { block, .. } in blocks {
            let end = ends.entry((block.epoch(), block.log())).or_default();
            *end = (*end).max(block.sequence());
        }
        let ends = ends.into_iter().map(|((epoch, log), end)| (epoch, log, end)).collect();
        let piece = Piece { segment, at: position.at, last_csn, last_epoch, ends };
        self.pieces.entry(position.part).or_default().push_back(piece);
    }

    /// Passes over what has only CSNs up to `csn`, of epochs up to `epoch`.
    pub fn advance(&mut self, csn: Csn, epoch: Epoch) {
        for (part, pieces) in &mut self.pieces {
            let is_known = |piece: &Piece| piece.last_csn <= csn && piece.last_epoch <= epoch;
            while pieces.front().is_some_and(is_known)
                && let Some(piece) = pieces.pop_front()
            {
                self.positions.insert(part.clone(), piece.at);
                let last = self.segments.entry(piece.segment).or_default();
                *last = (*last).max(piece.last_csn);
                for (epoch, log, end) in piece.ends {
                    let last = self.ends.entry((epoch, log)).or_default();
                    *last = (*last).max(end);
                }
            }
        }
        self.pieces.retain(|_, pieces| !pieces.is_empty());
    }

    /// Returns what was passed over.
    pub fn into_read_log(self, csn: Csn, covered: Csn, epoch: Epoch) -> ReadLog {
        let positions = self.positions.into_iter().map(|(part, at)| LogPosition { part, at }).collect();
        let of_epoch = self.ends.into_iter().filter(|((of, _), _)| *of == epoch);
        let ends = of_epoch.map(|((_, log), end)| (log, end)).collect();
        ReadLog { csn, covered, epoch, positions, segments: self.segments, ends }
    }
}
