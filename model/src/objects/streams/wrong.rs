//! Which runs do the right rules survive? Which rules look right, and what breaks?

use super::judge::Violation;
use super::scenario::{Mistake, Scenario};
use crate::objects::explore::WrongVariant;

/// Returns runs that keep every rule, with a service that revokes streams and with one that does
/// not.
#[must_use]
pub fn right() -> Vec<(&'static str, Scenario)> {
    let both = |names: [&'static str; 2], change: fn(&mut Scenario)| {
        [true, false].map(|revokes| (names[usize::from(!revokes)], Scenario::new(revokes).with(change)))
    };
    let runs = [
        both(["three blocks, lost streams", "three blocks, lost streams, no revocation"], |run| {
            (run.blocks, run.in_flight, run.cuts) = (vec![3, 1], 3, 2)
        }),
        both(["handles that expire", "handles that expire, no revocation"], |run| {
            (run.cuts, run.expiries) = (2, 2)
        }),
        both(
            ["a zombie that takes its lane back", "a zombie that takes its lane back, no revocation"],
            |run| (run.cuts, run.expiries, run.reopens_blindly) = (2, 2, true),
        ),
        both(["a lane that is left", "a lane that is left, no revocation"], |run| {
            (run.cuts, run.leaves) = (1, true)
        }),
        both(["three writers", "three writers, no revocation"], |run| {
            (run.blocks, run.cuts, run.expiries) = (vec![2, 1, 1], 1, 1)
        }),
    ];
    runs.into_iter().flatten().collect()
}

/// Returns runs with one mistake each.
#[must_use]
pub fn variants() -> Vec<WrongVariant<Scenario>> {
    use Mistake as M;
    use Violation as V;
    let revoking = || Scenario::new(true);
    let lenient = || Scenario::new(false);
    let all = [
        (M::FencedAtLookup, lenient(), V::ReportedLost),
        (M::FencedAtTakeover, lenient(), V::ReportedLost),
        (M::FencedLikeBlock, lenient(), V::ReportedLost),
        (M::TakeoverAlone, lenient(), V::ReportedLost),
        (M::ReadBeforeFinalize, lenient(), V::ReportedLost),
        (M::LengthFromLookup, revoking(), V::ReportedLost),
        (M::TornBlockRefused, revoking().with(|run| run.cuts = 1), V::SoundLogRefused),
        (M::ResentWhole, revoking().with(|run| run.cuts = 1), V::ReportedLost),
        (M::FinalizedTooEarly, revoking().with(|run| run.leaves = true), V::ReportedLost),
        (M::ReportedUnflushed, revoking(), V::ReportedLost),
        (M::AppendedToSuccessor, revoking(), V::ReportedLost),
        (M::ManifestEmptied, revoking(), V::ManifestEmpty),
    ];
    let planted = |(mistake, scenario, breaks): (Mistake, Scenario, Violation)| WrongVariant {
        name: format!("{mistake:?}, {}", if scenario.revokes { "revoking" } else { "lenient" }),
        scenario: scenario.with(|run| run.mistake = Some(mistake)),
        breaks,
    };
    all.into_iter().map(planted).collect()
}
