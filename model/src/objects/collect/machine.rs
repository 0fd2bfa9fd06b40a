//! Which steps are possible, and what must never happen?

use super::read::newest;
use super::scenario::{Mistake, Scenario};
use super::state::{Extent, Name, Phase, Reader, Request, State};
use crate::objects::explore::{self, sound};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Violation {
    /// The manifest names an extent that is missing, or that holds something else.
    NamedExtentLost,
    /// A pinned manifest names such an extent.
    PinnedExtentLost,
    /// An object has another content than the manifest of a reader says, with or without a pin.
    OtherContent,
    /// The holder has nothing more to delete, and an object of its own stays that nothing names.
    Leaked,
}

/// A pin keeps an object that was dropped.
pub const REACHED_KEPT: &str = "reached: a pin keeps a dropped extent";
/// A reader begins again.
pub const REACHED_RESTART: &str = "reached: a reader finds another manifest";
/// Nothing is left but what the manifest names.
pub const REACHED_CLEAN: &str = "reached: all checkpoints are made, and nothing else is left";

/// A step of a machine, or of a request in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A writer reads the manifest and claims it.
    Claim(u8),
    /// A writer uploads an extent.
    Upload(u8),
    /// A writer puts a manifest with its extent.
    Checkpoint(u8),
    /// A writer looks what became of its put.
    LookAtManifest(u8),
    /// A writer lists objects of earlier writers.
    LookForOrphans(u8),
    /// A writer lists the pins.
    ListPins(u8),
    /// A writer deletes what was dropped.
    Delete(u8),
    /// The time of the pins passes, although the reader may continue.
    EndPinTime,
    /// A writer's request to remove the pins takes effect.
    RemovePins,
    /// The reader's next step.
    Read,
    /// A request takes effect; whether its sender hears of it.
    TakeEffect(Request, bool),
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in state.in_flight.iter().enumerate() {
            // Equal requests do the same.
            if index > 0 && state.in_flight[index - 1] == *request {
                continue;
            }
            actions.push(Action::TakeEffect(request.clone(), true));
            if state.lost_replies > 0 && matches!(request, Request::Put { .. }) {
                actions.push(Action::TakeEffect(request.clone(), false));
            }
        }
        if state.reader != Reader::Ended {
            actions.push(Action::Read);
        }
        if self.pins_end && !state.is_pin_time_over {
            actions.push(Action::EndPinTime);
        }
        if state.is_pin_time_over && !state.pins.is_empty() {
            actions.push(Action::RemovePins);
        }
        (0..state.writers.len()).for_each(|writer| self.writer_actions(state, writer, actions));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let index = usize::from;
        match action {
            Action::Claim(writer) => self.claim(&mut next, index(writer)),
            Action::Upload(writer) => self.upload(&mut next, index(writer)),
            Action::Checkpoint(writer) => self.checkpoint(&mut next, index(writer)),
            Action::LookAtManifest(writer) => {
                next.lost_replies -= u8::from(is_put_in_flight(state, index(writer)));
                self.look_at_manifest(&mut next, index(writer));
            }
            Action::LookForOrphans(writer) => self.look_for_orphans(&mut next, index(writer)),
            Action::ListPins(writer) => self.list_pins(&mut next, index(writer)),
            Action::Delete(writer) => self.delete(&mut next, index(writer)),
            Action::EndPinTime => next.is_pin_time_over = true,
            Action::RemovePins => next.pins.clear(),
            Action::Read => self.read(&mut next),
            Action::TakeEffect(request, is_replied) => self.take_effect(&mut next, &request, is_replied),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            sound(),
            Property::sometimes(REACHED_KEPT, |_, state: &State| state.was_kept),
            Property::sometimes(REACHED_RESTART, |_, state: &State| state.has_restarted),
            Property::sometimes(REACHED_CLEAN, |_, state: &State| {
                let is_done = state.in_flight.is_empty() && state.writers.iter().all(|own| own.rounds == 0);
                is_done && state.objects.len() == state.manifest.extents.len()
            }),
        ]
    }
}

fn is_put_in_flight(state: &State, writer: usize) -> bool {
    let put = state.writers[writer].put.as_ref();
    state.in_flight.iter().any(|request| matches!(request, Request::Put { body, .. } if Some(body) == put))
}

impl Scenario {
    fn writer_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let (own, writer) = (&state.writers[index], index as u8);
        if own.phase == Phase::Absent {
            actions.push(Action::Claim(writer));
            if self.makes(Mistake::OrphansCollectedUnclaimed) && !own.has_looked {
                actions.push(Action::LookForOrphans(writer));
            }
        }
        let is_unclaimed = own.phase == Phase::Absent && self.makes(Mistake::OrphansCollectedUnclaimed);
        if own.put.is_some() {
            let may_look = state.lost_replies > 0 || !is_put_in_flight(state, index);
            if may_look && own.phase != Phase::Ended {
                actions.push(Action::LookAtManifest(writer));
            }
        } else if own.phase == Phase::Working {
            match own.upload {
                None if own.rounds > 0 => actions.push(Action::Upload(writer)),
                Some(upload) if upload.is_confirmed || self.makes(Mistake::NamedBeforeUploaded) => {
                    actions.push(Action::Checkpoint(writer));
                }
                _ => {}
            }
        }
        // An ended writer may send deletes, too: a confirmed put has dropped the objects.
        if own.phase == Phase::Absent && !is_unclaimed || own.phase == Phase::Claiming {
            return;
        }
        if own.phase == Phase::Working && !own.has_looked {
            actions.push(Action::LookForOrphans(writer));
        }
        if !own.dropped.is_empty() {
            let needs_list = !self.makes(Mistake::PinsIgnored);
            match own.pins {
                None if needs_list => actions.push(Action::ListPins(writer)),
                _ => actions.push(Action::Delete(writer)),
            }
        }
    }
}

impl explore::Scenario for Scenario {
    type Violation = Violation;

    fn violation(state: &State) -> Option<Violation> {
        let content = |extent: &Extent| state.objects.get(&extent.name);
        let is_lost = |extent: &Extent| content(extent) != Some(&extent.content);
        let is_other = |extent: &Extent| content(extent).is_some_and(|found| *found != extent.content);
        if state.manifest.extents.iter().any(is_lost) {
            return Some(Violation::NamedExtentLost);
        }
        if let Reader::Pinned(manifest) = &state.reader {
            // Without its pin the reader may miss an object, and fails then (O28).
            let has_pin = newest(manifest).is_some_and(|newest| state.pins.contains(&newest));
            if manifest.extents.iter().any(is_other) {
                return Some(Violation::OtherContent);
            }
            if has_pin && manifest.extents.iter().any(is_lost) {
                return Some(Violation::PinnedExtentLost);
            }
        }
        has_leaked(state).then_some(Violation::Leaked)
    }
}

/// Returns true if the holder has deleted all that it will, and an object of its own is too many.
///
/// Objects of earlier writers may stay: a late upload is an orphan for the next holder.
fn has_leaked(state: &State) -> bool {
    let holder = state.manifest.claimed;
    let own = &state.writers[usize::from(holder)];
    let is_idle = own.phase == Phase::Working && own.put.is_none() && own.upload.is_none();
    let has_deleted = own.dropped.is_empty() && own.kept.is_empty() && state.in_flight.is_empty();
    let named: BTreeSet<Name> = state.manifest.extents.iter().map(|extent| extent.name).collect();
    let is_unnamed = |name: &Name| name.0 == holder && !named.contains(name);
    is_idle && has_deleted && state.objects.keys().any(is_unnamed)
}
