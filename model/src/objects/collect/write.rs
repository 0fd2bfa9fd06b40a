//! How does a writer put manifests, and what does it delete?

use super::scenario::{Mistake, Scenario};
use super::state::{Extent, Manifest, Name, Phase, Request, State, Uploading};
use std::collections::BTreeSet;

impl Scenario {
    /// Returns the version of a new manifest.
    pub(super) fn version(&self, next: &mut u8, extents: &BTreeSet<Extent>) -> u16 {
        *next += 1;
        if self.makes(Mistake::VersionsRepeat) {
            extents.iter().map(|extent| 1 << extent.content).sum()
        } else {
            u16::from(*next)
        }
    }

    /// Reads the manifest and claims it. A writer whose claim comes after that of a later writer
    /// ends.
    pub(super) fn claim(&self, state: &mut State, writer: usize) {
        let manifest = state.manifest.clone();
        if usize::from(manifest.claimed) > writer {
            state.writers[writer].phase = Phase::Ended;
            return;
        }
        let own = &mut state.writers[writer];
        (own.phase, own.manifest) = (Phase::Claiming, manifest.clone());
        self.put(state, writer, Manifest { claimed: writer as u8, ..manifest });
    }

    fn put(&self, state: &mut State, writer: usize, body: Manifest) {
        let version = self.version(&mut state.next, &body.extents);
        let body = Manifest { version, ..body };
        let own = &mut state.writers[writer];
        own.put = Some(body.clone());
        let expected = own.manifest.version;
        state.send(Request::Put { writer: writer as u8, expected, body });
    }

    /// Uploads another extent.
    pub(super) fn upload(&self, state: &mut State, writer: usize) {
        state.next += 1;
        let content = state.next;
        let own = &mut state.writers[writer];
        let mut name = (writer as u8, own.next);
        if self.makes(Mistake::NamesRepeat) {
            let is_free = |number: &u8| !state.objects.contains_key(&(0, *number));
            name = (0, (0..).find(is_free).unwrap_or(0));
        }
        own.next += 1;
        own.rounds -= 1;
        let extent = Extent { name, content };
        own.upload = Some(Uploading { extent, is_confirmed: false });
        state.send(Request::Upload(writer as u8, extent));
    }

    /// Puts a manifest with the new extent and without the oldest one.
    pub(super) fn checkpoint(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        let Some(upload) = own.upload else { return };
        let mut body = own.manifest.clone();
        let oldest = body.extents.pop_first();
        body.extents.insert(upload.extent);
        if self.makes(Mistake::DroppedNamedAgain) {
            body.extents.extend(own.first_dropped);
        }
        own.first_dropped = own.first_dropped.or(oldest);
        if self.makes(Mistake::PinsListedEarly) {
            own.pins = Some(state.pins.clone());
        }
        if self.makes(Mistake::DeletedBeforeConfirmed) {
            oldest.into_iter().for_each(|extent| state.send(Request::Delete(extent.name)));
        }
        self.put(state, writer, body);
    }

    /// A request of a writer takes effect, or is refused.
    pub(super) fn take_effect(&self, state: &mut State, request: &Request, is_replied: bool) {
        let Some(at) = state.in_flight.iter().position(|other| other == request) else { return };
        state.in_flight.remove(at);
        state.lost_replies -= u8::from(!is_replied);
        match request {
            Request::Upload(writer, extent) => {
                state.objects.insert(extent.name, extent.content);
                let own = &mut state.writers[usize::from(*writer)];
                let waits = own.upload.as_mut().filter(|upload| upload.extent == *extent && is_replied);
                waits.into_iter().for_each(|upload| upload.is_confirmed = true);
            }
            Request::Put { writer, expected, body } => {
                let writer = usize::from(*writer);
                if state.manifest.version == *expected {
                    state.manifest = body.clone();
                }
                if is_replied && state.writers[writer].put.as_ref() == Some(body) {
                    let is_there = state.manifest == *body;
                    self.hear_of_put(state, writer, is_there);
                }
            }
            Request::Delete(name) => drop(state.objects.remove(name)),
        }
    }

    /// The writer reads the manifest because a put has no reply (O3).
    pub(super) fn look_at_manifest(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        let Some(body) = own.put.clone() else { return };
        let expected = own.manifest.version;
        if state.manifest == body {
            self.hear_of_put(state, writer, true);
        } else if state.manifest.version != expected {
            self.hear_of_put(state, writer, false);
        } else if self.makes(Mistake::PutTakenForFailed) {
            own.put = None;
            let upload = own.upload.take();
            own.dropped.extend(upload.map(|upload| upload.extent.name));
        } else {
            state.send(Request::Put { writer: writer as u8, expected, body });
        }
    }

    fn hear_of_put(&self, state: &mut State, writer: usize, is_taken: bool) {
        let own = &mut state.writers[writer];
        let Some(body) = own.put.take() else { return };
        match own.phase {
            Phase::Claiming if is_taken => (own.phase, own.manifest) = (Phase::Working, body),
            Phase::Claiming => self.claim(state, writer),
            _ if is_taken => {
                own.upload = None;
                // A list of pins is for what was dropped before it was requested.
                if !self.makes(Mistake::PinsListedEarly) && !self.makes(Mistake::PinListKept) {
                    own.pins = None;
                }
                let before = std::mem::replace(&mut own.manifest, body);
                let dropped = before.extents.difference(&own.manifest.extents).map(|extent| extent.name);
                own.dropped.extend(dropped.collect::<Vec<_>>());
                own.dropped.append(&mut own.kept);
            }
            _ => own.phase = Phase::Ended,
        }
    }

    /// Lists objects, and takes those that no manifest will ever name as dropped (O25).
    pub(super) fn look_for_orphans(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        own.has_looked = true;
        let named: BTreeSet<Name> = own.manifest.extents.iter().map(|extent| extent.name).collect();
        let own_too = self.makes(Mistake::OwnOrphansCollected)
            || self.makes(Mistake::OrphansCollectedUnclaimed)
            || self.makes(Mistake::NamesRepeat);
        let is_orphan = |name: &Name| !named.contains(name) && (usize::from(name.0) < writer || own_too);
        let orphans: Vec<Name> = state.objects.keys().copied().filter(is_orphan).collect();
        if self.makes(Mistake::OrphansIgnorePins) {
            orphans.into_iter().for_each(|name| state.send(Request::Delete(name)));
        } else {
            let own = &mut state.writers[writer];
            own.dropped.extend(orphans);
            own.dropped.append(&mut own.kept);
        }
    }

    /// Lists the pins, for the next deletes.
    pub(super) fn list_pins(&self, state: &mut State, writer: usize) {
        let ignores = state.is_pin_time_over && self.makes(Mistake::EndedPinIgnored);
        let listed = if ignores { BTreeSet::new() } else { state.pins.clone() };
        state.writers[writer].pins = Some(listed);
    }

    /// Deletes what was dropped and no pin keeps.
    pub(super) fn delete(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        let pins = match self.mistake {
            Some(Mistake::PinListKept) => own.pins.clone(),
            _ => own.pins.take(),
        };
        let newest = pins.and_then(|pins| pins.last().copied());
        let is_kept =
            |name: &Name| !self.makes(Mistake::PinsIgnored) && newest.is_some_and(|newest| *name <= newest);
        let dropped = std::mem::take(&mut own.dropped);
        let (kept, free): (BTreeSet<Name>, BTreeSet<Name>) = dropped.into_iter().partition(is_kept);
        state.was_kept |= !kept.is_empty();
        if !self.makes(Mistake::KeptForgotten) {
            own.kept.extend(kept);
        }
        free.into_iter().for_each(|name| state.send(Request::Delete(name)));
    }
}
