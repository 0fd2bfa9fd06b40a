//! What a standby has applied before it is promoted: recovery begins there, and not at the
//! checkpoint.
//!
//! ```text
//!   checkpoint C        the standby, S             end of the log
//!   ──────┼──────────────────┼──────────────────────────▶
//!         │ pages of the copy│ scanned, decided, replayed
//! ```
//!
//! *Why that is the recovery from C.* A standby shows the prefix of CSNs without a gap, of blocks
//! that every later recovery finds. So F is above S: the recovery from C replays everything up to S
//! that is not void, and this is what the pages of the copy contain. Above S both decide alike,
//! because no rule looks at a record at or below S, except:
//!
//! 1. The accepted end of a log without a block above S is its last block that was passed over.
//! 2. Void CSNs between C and S stay void: the entry of the epoch names them, too.
//! 3. Segments that were passed over stay until a checkpoint covers them. Until then the manifest
//!    names C, so the next recovery reads them.
//! 4. Nothing up to S is appended again. In a store of objects what was found is durable.

use super::select::{Decided, Selection};
use crate::base::planted::{self, Bug};
use crate::base::{PageId, Result};
use crate::checkpoint::{AdoptedPages, StoredCatalog, decode_catalog};
use crate::log::{ReadLog, ScannedSegment, Segment};
use crate::store::{AcceptedEnd, EpochEntry, Manifest, PageStore};
use std::collections::HashSet;
use std::sync::Arc;

/// A state that was applied, over the checkpoint of the newest manifest.
#[derive(Debug)]
pub struct Applied {
    /// What was read of the log.
    pub log: ReadLog,
    /// All pages, ascending.
    pub pages: Vec<PageId>,
    /// Those that differ from the checkpoint.
    pub adopted: Arc<AdoptedPages>,
    /// The catalog. Its tables are those of the checkpoint.
    pub catalog: Vec<u8>,
}

impl Applied {
    /// Returns the manifest by which the rest of the log is judged: as if there were a checkpoint.
    pub(super) fn seen_from(&self, manifest: &Manifest) -> Manifest {
        let (checkpoint, covered) = (self.log.csn, self.log.covered);
        Manifest { checkpoint, covered, ..manifest.clone() }
    }

    /// Returns the catalog of the applied state; only the former tables are those of `stored`, the
    /// catalog of the checkpoint.
    pub(super) fn catalog(&self, stored: StoredCatalog) -> Result<StoredCatalog> {
        Ok(StoredCatalog { former: stored.former, ..decode_catalog(&self.catalog)? })
    }

    /// Lets the store forget pages of the checkpoint that are not there any more.
    pub(super) fn forget_freed(&self, store: &PageStore) {
        let pages: HashSet<PageId> = self.pages.iter().copied().collect();
        let freed: Vec<PageId> = store.page_ids().filter(|page| !pages.contains(page)).collect();
        freed.into_iter().for_each(|page| store.freed(page, 0));
    }

    /// Rules 1 and 2: returns the entry of the epoch that was running.
    pub(super) fn entry(&self, selection: &Selection, manifest: &Manifest) -> EpochEntry {
        let mut entry = selection.entry(&Decided::of(manifest));
        for (log, sequence) in self.log.ends.iter().filter(|_| !planted::is(Bug::PromotedEndForgotten)) {
            match entry.accepted.iter_mut().find(|end| end.log == *log) {
                Some(end) => end.sequence = end.sequence.max(*sequence),
                None => entry.accepted.push(AcceptedEnd { log: *log, sequence: *sequence }),
            }
        }
        entry.accepted.sort_by_key(|end| end.log);
        if !planted::is(Bug::PromotedVoidForgotten) {
            entry.voids = entry.voids.union(&manifest.voids().above(manifest.checkpoint));
        }
        entry
    }

    /// Rule 3: returns the segment with its whole file, and the highest CSN in it, if something in
    /// it was passed over. `own` are all segments.
    pub(super) fn passed_over(&self, found: &ScannedSegment, own: &[Segment]) -> Option<ScannedSegment> {
        let known = *self.log.segments.get(&found.segment.id)?;
        let segment = own.iter().find(|own| own.id == found.segment.id)?.clone();
        Some(ScannedSegment { segment, max_csn: found.max_csn.max(known), ..found.clone() })
    }
}
