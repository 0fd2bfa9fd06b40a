//! History: full segments that no recovery needs, retained for change feeds.
//!
//! ```text
//!   RETIRED ──checkpoint──▶ RETAINED ──no longer needed, or beyond the bound──▶ READY or removed
//!                           the oldest one goes first, and history begins later
//! ```
//!
//! 1. History is **whole** above its beginning: every record of every transaction with a higher CSN
//!    is in a RETAINED, RETIRED or ACTIVE segment. It begins at the CSN of a checkpoint.
//! 2. A segment is **safe to drop** for a reader at the checkpoint that first covered all its
//!    blocks, or later. A transaction above that checkpoint has no record in the segment, and no
//!    chunk either, because a checkpoint does not cover chunks of transactions in progress.
//! 3. Retained segments do not count as log in use, and delay no commit. Without feeds they are the
//!    newest `kept_bytes` at least, and less than a segment more; with running feeds at most the
//!    larger of that and `feed_bytes`. On a full disk none is retained.
//! 4. A feed at a CSN below the beginning of history has *fallen behind*: its next step fails.

use super::file::Segment;
use crate::base::Csn;
use std::collections::BTreeMap;

/// Checkpoints that are remembered. Forgetting one between others only makes segments stay longer.
const CHECKPOINTS_MAX: usize = 64;

/// The CSNs of a checkpoint: up to where it covers the log, and its own.
pub type Covering = (Csn, Csn);

/// A full segment that is retained.
#[derive(Debug)]
pub(super) struct Retained {
    pub segment: Segment,
    pub max_csn: Csn,
    /// False for a segment of a closed database. A process that was killed before may have written
    /// it, so it is removed and not written again (rule 3 of the segments).
    pub is_own: bool,
}

/// A feed that holds history back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FeedId(u64);

/// See the module's text.
#[derive(Debug)]
pub(super) struct History {
    kept_bytes: u64,
    feed_bytes: u64,
    /// By highest CSN.
    retained: Vec<Retained>,
    /// Ascending, at least one. History begins at the first one.
    checkpoints: Vec<Covering>,
    /// The CSN up to which each feed has read.
    feeds: BTreeMap<FeedId, Csn>,
    last_feed: u64,
}

impl Default for History {
    fn default() -> Self {
        History {
            kept_bytes: 0,
            feed_bytes: 0,
            retained: Vec::new(),
            checkpoints: vec![(Csn::ZERO, Csn::ZERO)],
            feeds: BTreeMap::new(),
            last_feed: 0,
        }
    }
}

impl History {
    pub fn new(kept_bytes: u64, feed_bytes: u64, checkpoints: Vec<Covering>) -> History {
        let checkpoints = if checkpoints.is_empty() { vec![(Csn::ZERO, Csn::ZERO)] } else { checkpoints };
        History { kept_bytes, feed_bytes, checkpoints, ..History::default() }
    }

    /// Returns true if history is retained without feeds.
    pub fn is_kept(&self) -> bool {
        self.kept_bytes > 0
    }

    /// History is whole above this CSN.
    pub fn begins(&self) -> Csn {
        self.checkpoints.first().map_or(Csn::ZERO, |(_, checkpoint)| *checkpoint)
    }

    pub fn newest_checkpoint(&self) -> Covering {
        self.checkpoints.last().copied().unwrap_or_default()
    }

    /// Returns the checkpoints with one that comes now; none if no history is kept.
    pub fn with(&self, covered: Csn, checkpoint: Csn) -> Vec<Covering> {
        if !self.is_kept() {
            return Vec::new();
        }
        let mut with = History { checkpoints: self.checkpoints.clone(), ..History::default() };
        with.checkpointed(covered, checkpoint);
        with.checkpoints
    }

    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.retained.iter().map(|retained| &retained.segment)
    }

    /// Returns the retained segments that a reader at `position` needs.
    pub fn readable(&self, position: Csn) -> impl Iterator<Item = &Segment> {
        let needed = self.retained.iter().filter(move |retained| self.safe_at(retained.max_csn) > position);
        needed.map(|retained| &retained.segment)
    }

    pub fn bytes(&self) -> u64 {
        self.retained.iter().map(|retained| retained.segment.len).sum()
    }

    /// Notes a durable checkpoint.
    pub fn checkpointed(&mut self, covered: Csn, checkpoint: Csn) {
        let covered = covered.min(checkpoint);
        let newest = self.checkpoints.last().map_or(Csn::ZERO, |(_, newest)| *newest);
        if checkpoint > newest {
            self.checkpoints.push((covered, checkpoint));
        } else if let Some(last) = self.checkpoints.last_mut() {
            // The same state again: more of the log may be covered now.
            last.0 = last.0.max(covered);
        }
        if self.checkpoints.len() > CHECKPOINTS_MAX {
            let last = self.checkpoints.len() - 1;
            let all = std::mem::take(&mut self.checkpoints).into_iter().enumerate();
            let stay = all.filter(|(at, _)| at % 2 == 0 || *at == last);
            self.checkpoints = stay.map(|(_, checkpoint)| checkpoint).collect();
            debug_assert!(self.checkpoints.len() <= CHECKPOINTS_MAX, "about half stay");
        }
    }

    /// The first checkpoint that covers a segment up to `max_csn`: readers from there on do not
    /// need the segment.
    fn safe_at(&self, max_csn: Csn) -> Csn {
        let covering = self.checkpoints.iter().find(|(covered, _)| *covered >= max_csn);
        covering.or(self.checkpoints.last()).map_or(max_csn, |(_, checkpoint)| *checkpoint)
    }

    /// Retains a segment until [`History::take_excess`] returns it.
    pub fn retain(&mut self, segment: Segment, max_csn: Csn, is_own: bool) {
        let at = self.retained.partition_point(|other| other.max_csn <= max_csn);
        debug_assert!(self.retained.is_sorted_by_key(|other| other.max_csn), "the oldest is first");
        self.retained.insert(at, Retained { segment, max_csn, is_own });
    }

    /// Returns the oldest segment if it is not to be retained any longer, and begins history behind
    /// it.
    pub fn take_excess(&mut self, disk_full: bool) -> Option<Retained> {
        let oldest = self.retained.first()?;
        let safe = self.safe_at(oldest.max_csn);
        if safe <= self.begins() {
            return Some(self.retained.remove(0));
        }
        let is_needed = self.feeds.values().any(|position| *position < safe);
        let newer = self.bytes() - oldest.segment.len;
        let is_kept = newer < self.kept_bytes || is_needed && self.bytes() <= self.feed_bytes;
        if is_kept && !disk_full {
            return None;
        }
        self.begin_at(safe);
        Some(self.retained.remove(0))
    }

    /// Segments up to `max_csn` are gone.
    pub fn lost(&mut self, max_csn: Csn) {
        self.begin_at(self.safe_at(max_csn));
    }

    fn begin_at(&mut self, csn: Csn) {
        let last = self.checkpoints.last().copied();
        self.checkpoints.retain(|(_, checkpoint)| *checkpoint >= csn);
        if self.checkpoints.is_empty() {
            self.checkpoints.extend(last);
        }
    }

    /// Registers a feed that has read up to `position`. Returns where history begins if that is
    /// later.
    pub fn add_feed(&mut self, position: Csn) -> Result<FeedId, Csn> {
        let begins = self.begins();
        if position < begins {
            return Err(begins);
        }
        self.last_feed += 1;
        let id = FeedId(self.last_feed);
        self.feeds.insert(id, position);
        Ok(id)
    }

    /// Notes that a feed has read up to `position`. Returns where history begins if the feed has
    /// fallen behind.
    pub fn advance_feed(&mut self, id: FeedId, position: Csn) -> Result<(), Csn> {
        self.feeds.insert(id, position);
        let begins = self.begins();
        if position < begins { Err(begins) } else { Ok(()) }
    }

    pub fn remove_feed(&mut self, id: FeedId) {
        self.feeds.remove(&id);
    }
}
