//! Which runs do the right rules survive? Which rules look right, and what breaks?

use super::scenario::{Again, Mistake, Scenario};
use super::state::Violation;
use crate::objects::explore::WrongVariant;

fn one_block() -> Scenario {
    Scenario::new().with(|run| run.blocks = 1)
}

fn two_writers_and_a_checkpoint() -> Scenario {
    Scenario::new().with(|run| (run.writers, run.checkpoint) = (2, true))
}

fn collecting() -> Scenario {
    one_block().with(|run| (run.checkpoint, run.collect, run.later_write) = (true, true, false))
}

/// Returns runs that keep every rule; with `is_deep` also those that take minutes.
#[must_use]
pub fn right(is_deep: bool) -> Vec<(&'static str, Scenario)> {
    let mut runs = vec![
        ("three writers of one block", one_block()),
        ("a checkpoint and a trimmed log", two_writers_and_a_checkpoint()),
    ];
    if is_deep {
        let again = |again| Scenario::new().with(|run| run.again = again);
        runs.extend([
            ("three writers, what is missing is put again", Scenario::new()),
            ("three writers, all from the watermark is put again", again(Again::FromWatermark)),
            ("three writers, all is put again", again(Again::All)),
            ("a checkpoint and orphans of three writers", collecting()),
            ("a bucket that came back old is not used", one_block().with(|run| run.one_is_old = true)),
        ]);
    }
    runs
}

/// Returns runs with a mistake, and what breaks first.
#[must_use]
pub fn variants() -> Vec<WrongVariant<Scenario>> {
    use Mistake::*;
    use Violation::*;
    let variant = |mistake, breaks, scenario: Scenario| WrongVariant {
        name: format!("{mistake:?}"),
        scenario: scenario.with(|run| run.mistake = Some(mistake)),
        breaks,
    };
    vec![
        variant(FirstRegisterTaken, AcknowledgedLost, Scenario::new()),
        variant(GenerationIgnored, AcknowledgedLost, two_writers_and_a_checkpoint()),
        variant(OneBucketFenced, AcknowledgedLost, Scenario::new()),
        variant(ReadBeforeFence, AcknowledgedLost, Scenario::new()),
        variant(NothingPutAgain, ObjectMissing, Scenario::new()),
        variant(PutAgainLate, ObjectMissing, Scenario::new()),
        variant(AcceptedIgnored, DiscardedBack, Scenario::new()),
        variant(PromiseNotChecked, AcknowledgedLost, Scenario::new()),
        variant(OneBucketPublishes, AcknowledgedLost, Scenario::new()),
        variant(OneBucketAcknowledges, AcknowledgedLost, Scenario::new()),
        variant(TrimmedEarly, AcknowledgedLost, two_writers_and_a_checkpoint()),
        variant(ExtentInOneBucket, ObjectMissing, two_writers_and_a_checkpoint()),
        variant(OldBucketCounted, AcknowledgedLost, one_block().with(|run| run.one_is_old = true)),
        variant(OrphansCollectedEarly, ObjectMissing, collecting()),
    ]
}
