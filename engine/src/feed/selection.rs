//! Which records count? Rule 3 of the module.

use super::merge::FoundRecord;
use crate::base::{Csn, Epoch};
use crate::store::{CsnSet, Manifest};

/// The CSNs that an epoch could draw.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    epoch: Epoch,
    first: Csn,
    last: Csn,
}

/// The epochs whose records count, and the CSNs that recoveries have discarded.
#[derive(Clone, Debug)]
pub struct CountedEpochs {
    epochs: Vec<Drawn>,
    discarded: CsnSet,
}

impl CountedEpochs {
    /// What the manifest says with which a database was opened.
    #[must_use]
    pub fn of(manifest: &Manifest) -> CountedEpochs {
        let earlier = manifest.epochs.iter();
        let earlier = earlier.map(|e| Drawn { epoch: e.epoch, first: e.first_csn, last: e.last_csn });
        let running = Drawn { epoch: manifest.epoch, first: manifest.first_csn, last: Csn::MAX };
        CountedEpochs { epochs: earlier.chain([running]).collect(), discarded: manifest.voids() }
    }

    /// Returns whether a record counts.
    pub(super) fn count(&self, record: &FoundRecord) -> bool {
        let could_draw =
            |drawn: &Drawn| drawn.epoch == record.epoch && (drawn.first..=drawn.last).contains(&record.csn);
        self.epochs.iter().any(could_draw) && !self.discarded.contains(record.csn)
    }

    /// Returns whether a recovery has discarded the CSN.
    pub(super) fn is_discarded(&self, csn: Csn) -> bool {
        self.discarded.contains(csn)
    }

    /// Returns the first CSN at or above `csn` that was not discarded.
    pub(super) fn first_counted(&self, csn: Csn) -> Csn {
        self.discarded.first_absent(csn)
    }
}
