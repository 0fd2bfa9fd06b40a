//! Views: what a transaction or snapshot sees, and what it depends on for having seen it.

use super::descriptor::{DescriptorId, Descriptors, Stamp, Status};
use super::versions::{Before, Undo, Version, VersionHandle, Versions};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::sync::epoch::Guard;
use crate::tree::Held;

/// Who looks.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Transactions with a CSN above this are not there yet.
    pub snapshot: Csn,
    /// Own changes are seen; `Stamp(0)`, which no version carries, for a snapshot.
    pub own: Stamp,
}

/// Whether a version is there for a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// Yes; the CSN is a dependency (0 for own and settled ones).
    Seen(Csn),
    /// Committed after the snapshot.
    TooNew(Csn),
    /// Its transaction is in progress.
    InProgress(DescriptorId),
    /// Its transaction aborted and could not take it back: what was before counts.
    LeftBehind,
    /// It was taken back, or finished in this moment: look at the page again.
    Again,
}

/// What a view gets for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The buffer holds the value.
    Value(Csn),
    /// The buffer holds the reference to a large value.
    Reference(Csn),
    /// The key is not there; a deletion may be a dependency.
    Absent(Csn),
    /// Read the entry again.
    Again,
}

impl View {
    /// The newest transaction that is there.
    #[inline]
    fn last_seen(&self) -> Csn {
        if planted::is(Bug::SnapshotTooHigh) {
            return self.snapshot.next();
        }
        if planted::is(Bug::SnapshotTooLow) { Csn(self.snapshot.0.saturating_sub(1)) } else { self.snapshot }
    }

    /// How this view sees the stamp word of an entry. `Ok` carries the version when there is one.
    pub fn sight<'g>(
        &self,
        word: u64,
        versions: &'g Versions,
        descriptors: &Descriptors,
        guard: &'g Guard,
    ) -> (Sight, Option<Version<'g>>) {
        let Some(version) = VersionHandle::from_word(word).and_then(|h| versions.read(h, guard)) else {
            return (Sight::Seen(Csn::ZERO), None);
        };
        let sight = if version.stamp == self.own {
            Sight::Seen(Csn::ZERO)
        } else {
            match descriptors.status(version.stamp) {
                Status::Committed(csn) if csn <= self.last_seen() => Sight::Seen(csn),
                Status::Committed(csn) => Sight::TooNew(csn),
                Status::InProgress(id) => Sight::InProgress(id),
                Status::LeftBehind => Sight::LeftBehind,
                Status::Finished => Sight::Again,
            }
        };
        (sight, Some(version))
    }

    /// Walks an entry's chain to the value that this view sees.
    ///
    /// `value` holds the page's value on entry and the seen one on return. `guard` was pinned before the page was read.
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
            let (sight, version) = self.sight(word, versions, descriptors, guard);
            match (sight, version) {
                (Sight::Seen(csn), _) => {
                    return match held {
                        Held::Value => Outcome::Value(csn),
                        Held::Reference => Outcome::Reference(csn),
                        Held::Nothing if planted::is(Bug::AbsenceIsNoRead) => Outcome::Absent(Csn::ZERO),
                        Held::Nothing => Outcome::Absent(csn),
                    };
                }
                (Sight::TooNew(_) | Sight::InProgress(_) | Sight::LeftBehind, Some(version)) => {
                    if !step_back(version.undo, &mut held, value) {
                        return Outcome::Absent(Csn::ZERO);
                    }
                    word = version.undo.prior;
                }
                _ => return Outcome::Again,
            }
        }
    }
}

/// Applies a before-image; false if there was no entry before.
fn step_back(undo: &Undo, held: &mut Held, value: &mut Vec<u8>) -> bool {
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
