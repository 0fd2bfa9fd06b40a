//! Which runs do the right rules survive? Which rules look right, and what breaks?

use super::machine::Violation;
use super::scenario::{Mistake, Scenario};
use crate::objects::explore::WrongVariant;

/// Returns runs that keep every rule; the long ones have millions of states.
#[must_use]
pub fn right(are_long: bool) -> Vec<(&'static str, Scenario)> {
    if are_long {
        return vec![
            (
                "a reader whose pin ends, and three checkpoints",
                Scenario::new().with(|run| run.pins_end = true),
            ),
            (
                "two unknown outcomes and three checkpoints",
                Scenario::new().with(|run| (run.reads, run.lost_replies) = (false, 2)),
            ),
        ];
    }
    vec![
        ("a reader and two checkpoints of one writer", Scenario::new().with(|run| run.rounds = [2, 0])),
        (
            "two unknown outcomes",
            Scenario::new().with(|run| (run.reads, run.rounds, run.lost_replies) = (false, [1, 1], 2)),
        ),
        ("a reader whose pin ends", Scenario::new().with(|run| (run.rounds, run.pins_end) = ([1, 1], true))),
        (
            "a reader and unknown outcomes",
            Scenario::new().with(|run| (run.rounds, run.lost_replies) = ([1, 1], 1)),
        ),
    ]
}

/// Returns runs with one mistake each.
#[must_use]
pub fn variants() -> Vec<WrongVariant<Scenario>> {
    use Mistake as M;
    use Violation as V;
    let without_reader = || Scenario::new().with(|run| run.reads = false);
    let all = [
        (M::NamesRepeat, without_reader(), V::NamedExtentLost),
        (M::VersionsRepeat, without_reader(), V::NamedExtentLost),
        (M::PutTakenForFailed, without_reader().with(|run| run.lost_replies = 1), V::NamedExtentLost),
        (M::DeletedBeforeConfirmed, without_reader(), V::NamedExtentLost),
        (M::NamedBeforeUploaded, without_reader(), V::NamedExtentLost),
        (M::OwnOrphansCollected, without_reader(), V::NamedExtentLost),
        (M::OrphansCollectedUnclaimed, without_reader(), V::NamedExtentLost),
        (M::DroppedNamedAgain, without_reader(), V::NamedExtentLost),
        (M::PinNotChecked, Scenario::new(), V::PinnedExtentLost),
        (M::PinsListedEarly, Scenario::new(), V::PinnedExtentLost),
        (M::PinListKept, Scenario::new(), V::PinnedExtentLost),
        (M::PinsIgnored, Scenario::new(), V::PinnedExtentLost),
        (M::OrphansIgnorePins, Scenario::new(), V::PinnedExtentLost),
        (M::EndedPinIgnored, Scenario::new().with(|run| run.pins_end = true), V::PinnedExtentLost),
        (M::KeptForgotten, Scenario::new(), V::Leaked),
        (
            M::NamesRepeat,
            Scenario::new().with(|run| (run.rounds, run.pins_end) = ([3, 0], true)),
            V::OtherContent,
        ),
    ];
    let planted = |(mistake, scenario, breaks): (Mistake, Scenario, Violation)| WrongVariant {
        name: format!("{mistake:?}"),
        scenario: scenario.with(|run| run.mistake = Some(mistake)),
        breaks,
    };
    all.into_iter().map(planted).collect()
}
