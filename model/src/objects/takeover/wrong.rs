//! Which runs do the right rules survive? Which rules look right, and what breaks?

use super::judge::Violation;
use super::scenario::{Mistake, Scenario, Store};
use crate::objects::explore::WrongVariant;

/// Returns runs that keep every rule.
#[must_use]
pub fn right() -> Vec<(&'static str, Scenario)> {
    let appends = || Scenario::new(Store::Appends);
    let creates = || Scenario::new(Store::Creates);
    let looks = || Scenario::new(Store::CreatesWithLooks);
    vec![
        ("appends to one lane", appends().with(|run| (run.blocks, run.lost_replies) = (vec![3, 2], 2))),
        ("appends to two lanes", appends().with(|run| (run.blocks, run.lanes) = (vec![3, 2], 2))),
        (
            "two lanes and unknown outcomes",
            appends().with(|run| (run.lanes, run.lost_replies, run.checkpoints) = (2, 1, 0b11)),
        ),
        ("a second segment of two lanes", appends().with(|run| (run.second_segment, run.lanes) = (true, 2))),
        (
            "full objects, a second segment and a checkpoint",
            appends().with(|run| {
                (run.parts, run.second_segment) = (2, true);
                (run.lost_replies, run.checkpoints) = (1, 0b10);
            }),
        ),
        ("a second segment and unknown outcomes", second_segment_unknown()),
        (
            "a close, unknown outcomes and checkpoints",
            appends().with(|run| (run.closes, run.lost_replies, run.checkpoints) = (true, 1, 0b11)),
        ),
        (
            "three writers and unknown outcomes",
            appends().with(|run| (run.blocks, run.lost_replies) = (vec![1, 1, 1], 1)),
        ),
        ("three writers and a checkpoint", three_with_checkpoint(Store::Appends)),
        ("three creations", creates().with(|run| (run.blocks, run.in_flight) = (vec![3, 2], 3))),
        (
            "creations, unknown outcomes and checkpoints",
            creates().with(|run| (run.lost_replies, run.checkpoints) = (1, 0b11)),
        ),
        ("creations of three writers", three_with_checkpoint(Store::Creates)),
        (
            "creations, a close and unknown outcomes",
            creates().with(|run| (run.closes, run.lost_replies) = (true, 1)),
        ),
        ("three creations with looks", looks().with(|run| (run.blocks, run.in_flight) = (vec![3, 2], 3))),
        (
            "creations with looks, unknown outcomes and checkpoints",
            looks().with(|run| (run.lost_replies, run.checkpoints) = (1, 0b11)),
        ),
        ("creations with looks of three writers", three_with_checkpoint(Store::CreatesWithLooks)),
        (
            "creations with looks, a close and unknown outcomes",
            looks().with(|run| (run.closes, run.lost_replies) = (true, 1)),
        ),
    ]
}

fn second_segment_unknown() -> Scenario {
    Scenario::new(Store::Appends).with(|run| (run.second_segment, run.lost_replies) = (true, 1))
}

fn three_with_checkpoint(store: Store) -> Scenario {
    Scenario::new(store).with(|run| (run.blocks, run.checkpoints) = (vec![2, 1, 0], 0b10))
}

/// Returns runs with one mistake each.
#[must_use]
pub fn variants() -> Vec<WrongVariant<Scenario>> {
    use Mistake as M;
    use Violation as V;
    let appends = || Scenario::new(Store::Appends);
    let creates = || Scenario::new(Store::Creates);
    let looks = || Scenario::new(Store::CreatesWithLooks);
    let all = [
        (M::NothingFenced, appends(), V::ReportedLost),
        (M::ReadBeforeFences, appends(), V::ReportedLost),
        (M::FencedBeforeClaim, appends(), V::HealthyWriterEnded),
        (M::OneLaneFenced, appends().with(|run| run.lanes = 2), V::ReportedLost),
        (M::OldSegmentNotFenced, appends().with(|run| run.second_segment = true), V::ReportedLost),
        (M::ClaimOfAnOldCopy, appends().with(|run| run.second_segment = true), V::ReportedLost),
        (M::ClaimWithoutCondition, appends().with(|run| run.second_segment = true), V::ReportedLost),
        (M::PutsWithoutCondition, appends().with(|run| run.second_segment = true), V::EarlierWriterPublished),
        (M::AppendedAtNewEnd, appends(), V::ReportedLost),
        (M::RefusedTakenForOwn, appends(), V::ReportedLost),
        (M::UnregisteredSegment, appends().with(|run| run.second_segment = true), V::ReportedLost),
        (M::CreatedWithBlock, appends().with(|run| run.checkpoints = 0b10), V::ReportedLost),
        (M::CreationRepeated, appends().with(|run| run.checkpoints = 0b10), V::ReportedLost),
        (M::ResentUnseen, appends().with(|run| run.lost_replies = 1), V::BlockTwice),
        (M::FullTooEarly, appends().with(|run| run.parts = 3), V::ReportedLost),
        (M::ReportedWithGap, appends().with(|run| run.lanes = 2), V::ReportedLost),
        (M::ServedBeforePublished, three_with_checkpoint(Store::Appends), V::ReportedLost),
        (M::LogDroppedAtPublication, three_with_checkpoint(Store::Appends), V::ObjectMissing),
        (M::DeletedBeforeConfirmed, three_with_checkpoint(Store::Appends), V::ObjectMissing),
        (
            M::DiscardedAccepted,
            appends().with(|run| (run.lanes, run.blocks) = (2, vec![2, 0, 0])),
            V::DiscardedCameBack,
        ),
        (M::ClosedTooEarly, appends().with(|run| run.closes = true), V::ReportedLost),
        (M::NothingFenced, creates(), V::ReportedLost),
        (M::ReadBeforeFences, creates(), V::ReportedLost),
        (M::FencedBehindHighest, creates().with(|run| run.blocks = vec![3, 1]), V::ReportedLost),
        (M::FenceDeleted, creates().with(|run| run.checkpoints = 0b10), V::ReportedLost),
        (M::RefusedTakenForOwn, creates(), V::ReportedLost),
        (M::ReportedWithGap, creates(), V::ReportedLost),
        (M::ClaimWithoutCondition, three_with_checkpoint(Store::Creates), V::EarlierWriterPublished),
        (M::LogDroppedAtPublication, three_with_checkpoint(Store::Creates), V::ObjectMissing),
        (M::ServedBeforePublished, three_with_checkpoint(Store::Creates), V::ReportedLost),
        (M::ClosedTooEarly, creates().with(|run| run.closes = true), V::ReportedLost),
        (M::LookedTooEarly, looks().with(|run| run.checkpoints = 0b10), V::ReportedLost),
        (M::LookIgnored, looks().with(|run| run.checkpoints = 0b10), V::ReportedLost),
        (M::ReportedWithGap, looks(), V::ReportedLost),
    ];
    let planted = |(mistake, scenario, breaks): (Mistake, Scenario, Violation)| WrongVariant {
        name: format!("{mistake:?}, {:?}", scenario.store),
        scenario: scenario.with(|run| run.mistake = Some(mistake)),
        breaks,
    };
    all.into_iter().map(planted).collect()
}
