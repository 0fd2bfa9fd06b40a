//! Views: which versions a transaction or snapshot sees, and which CSNs it then depends on.

use super::descriptor::{DescriptorId, Descriptors, Stamp, Status};
use super::versions::{Before, Undo, Version, VersionHandle, Versions};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::sync::epoch::Guard;
use crate::tree::Held;

/// The view of a transaction or snapshot.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Transactions with a CSN above this one are not visible.
    pub snapshot: Csn,
    /// The stamp of own changes, which are visible; `Stamp(0)`, which no version carries, for a
    /// snapshot.
    pub own: Stamp,
}

/// Whether a view sees a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// The version is visible; its CSN is a dependency (0 for own and settled versions).
    Visible(Csn),
    /// Committed after the snapshot.
    TooNew(Csn),
    /// The writer is in progress.
    InProgress(DescriptorId),
    /// The writer aborted and could not take its change back: the value before counts.
    Orphaned,
    /// The version was taken back, or its writer just finished: read the page again.
    Retry,
}

/// What a view sees of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The buffer holds the value.
    Value(Csn),
    /// The buffer holds the reference to a large value.
    Reference(Csn),
    /// The key is absent; the CSN of a deletion is a dependency.
    Absent(Csn),
    /// The entry must be read again.
    Retry,
}

impl View {
    /// Returns the newest visible CSN.
    #[inline]
    fn last_seen(&self) -> Csn {
        if planted::is(Bug::SnapshotTooHigh) {
            return self.snapshot.next();
        }
        if planted::is(Bug::SnapshotTooLow) { Csn(self.snapshot.0.saturating_sub(1)) } else { self.snapshot }
    }

    /// Returns whether this view sees the value with the stamp word `word`, and the version if
    /// there is one.
    pub fn visibility<'g>(
        &self,
        word: u64,
        versions: &'g Versions,
        descriptors: &Descriptors,
        guard: &'g Guard,
    ) -> (Visibility, Option<Version<'g>>) {
        let Some(version) = VersionHandle::from_word(word).and_then(|h| versions.read(h, guard)) else {
            return (Visibility::Visible(Csn::ZERO), None);
        };
        let visibility = if version.stamp == self.own {
            Visibility::Visible(Csn::ZERO)
        } else {
            match descriptors.status(version.stamp) {
                Status::Committed(csn) if csn <= self.last_seen() => Visibility::Visible(csn),
                Status::Committed(csn) => Visibility::TooNew(csn),
                Status::InProgress(id) => Visibility::InProgress(id),
                Status::Orphaned => Visibility::Orphaned,
                Status::Finished => Visibility::Retry,
            }
        };
        (visibility, Some(version))
    }

    /// Walks an entry's chain to the value that this view sees.
    ///
    /// `value` holds the page's value on entry and the visible value on return. `guard` was pinned
    /// before the page was read.
    pub fn resolve(
        &self,
        mut word: u64,
        mut held: Held,
        value: &mut Vec<u8>,
        versions: &Versions,
        descriptors: &Descriptors,
        guard: &Guard,
    ) -> Outcome {
        loop {
            let (visibility, version) = self.visibility(word, versions, descriptors, guard);
            match (visibility, version) {
                (Visibility::Visible(csn), _) => {
                    return match held {
                        Held::Value => Outcome::Value(csn),
                        Held::Reference => Outcome::Reference(csn),
                        Held::Nothing if planted::is(Bug::AbsenceIsNoRead) => Outcome::Absent(Csn::ZERO),
                        Held::Nothing => Outcome::Absent(csn),
                    };
                }
                (Visibility::TooNew(_) | Visibility::InProgress(_) | Visibility::Orphaned, Some(version)) => {
                    if !step_back(&version.undo, &mut held, value) {
                        return Outcome::Absent(Csn::ZERO);
                    }
                    word = version.undo.prior;
                }
                _ => return Outcome::Retry,
            }
        }
    }
}

/// Applies a before-image. Returns false if there was no entry before.
fn step_back(undo: &Undo<'_>, held: &mut Held, value: &mut Vec<u8>) -> bool {
    match &undo.before {
        Before::Absent => return false,
        Before::Tombstone => {
            *held = Held::Nothing;
            value.clear();
        }
        Before::Value(image) => {
            *held = Held::Value;
            value.clear();
            value.extend_from_slice(image);
        }
        Before::Reference(reference) => {
            *held = Held::Reference;
            value.clear();
            value.extend_from_slice(&reference.encode());
        }
        Before::Unchanged => {}
    }
    true
}
