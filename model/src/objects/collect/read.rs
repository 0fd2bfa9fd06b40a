//! How does a reader pin a manifest?

use super::scenario::{Mistake, Scenario};
use super::state::{Manifest, Name, Reader, State};

pub(super) fn newest(manifest: &Manifest) -> Option<Name> {
    manifest.extents.iter().map(|extent| extent.name).max()
}

impl Scenario {
    /// Performs the next step of the reader.
    pub(super) fn read(&self, state: &mut State) {
        state.reader = match std::mem::replace(&mut state.reader, Reader::Absent) {
            Reader::Absent => Reader::HasRead(state.manifest.clone()),
            Reader::HasRead(manifest) => {
                state.pins.extend(newest(&manifest));
                Reader::HasPin(manifest)
            }
            Reader::HasPin(manifest) => self.check(state, manifest),
            Reader::Pinned(manifest) => {
                state.pins.retain(|pin| Some(*pin) != newest(&manifest));
                Reader::Ended
            }
            Reader::Ended => Reader::Ended,
        };
    }

    /// Reads the manifest again: the pin holds if it still names every extent.
    fn check(&self, state: &mut State, first: Manifest) -> Reader {
        let now = state.manifest.clone();
        let is_named = first.extents.is_subset(&now.extents);
        if is_named || self.makes(Mistake::PinNotChecked) {
            return Reader::Pinned(first);
        }
        state.has_restarted = true;
        state.pins.retain(|pin| Some(*pin) != newest(&first));
        Reader::HasRead(now)
    }
}
