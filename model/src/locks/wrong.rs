//! Which rules look right, and which program breaks each?

use super::judge::{
    ABORTS_STAY, ACKNOWLEDGED, CLOSED, CSN_ORDER, NO_CASCADE, RECOVERED_SERIALIZABLE, SERIALIZABLE,
};
use super::scenario::Mode::{Optimistic, Pessimistic, ReadOnly};
use super::scenario::Operation::{Delete, Read, RollBack, Scan, Write};
use super::scenario::{
    CommitPath, Dependencies, LockNames, Mistake, Mode, Operation, Release, Rules, Scenario, Transaction,
};

/// Rules with one mistake, and a program that shows it.
#[derive(Clone, Debug)]
pub struct WrongVariant {
    /// The name of the variant.
    pub name: &'static str,
    /// What is wrong.
    pub description: &'static str,
    /// The rules and the program.
    pub scenario: Scenario,
    /// The property that fails.
    pub breaks: &'static str,
}

impl WrongVariant {
    fn new(
        name: &'static str,
        description: &'static str,
        scenario: Scenario,
        breaks: &'static str,
    ) -> WrongVariant {
        WrongVariant { name, description, scenario, breaks }
    }

    /// Returns the scenario with another dependency rule.
    #[must_use]
    pub fn by(&self, dependencies: Dependencies) -> Scenario {
        self.scenario.clone().with(|rules| rules.dependencies = dependencies)
    }

    /// Returns true if the variant breaks with `dependencies`.
    ///
    /// With exact lists recovery does not look for missing CSNs, so a void record cannot hide
    /// others.
    #[must_use]
    pub fn breaks_with(&self, dependencies: Dependencies) -> bool {
        let is_about_missing = self.scenario.rules.mistake == Some(Mistake::VoidIsMissing);
        !(is_about_missing && dependencies == Dependencies::Exact)
    }
}

fn one(mode: Mode, operations: &[Operation]) -> Transaction {
    Transaction::new(0, mode, operations)
}

fn two(mode: Mode, operations: &[Operation]) -> Transaction {
    Transaction::new(1, mode, operations)
}

/// Returns two transactions, each of which overwrites what the other read.
fn write_skew(first: Mode, second: Mode) -> Scenario {
    Scenario::new(vec![one(first, &[Read(0), Write(1)]), two(second, &[Read(1), Write(0)])])
}

/// Returns two transactions, the second of which overwrites what the first read, and a reader that
/// may see the second without the first.
fn observed(mode: Mode) -> Scenario {
    Scenario::new(vec![
        one(mode, &[Read(0), Write(1)]),
        two(mode, &[Write(0)]),
        one(ReadOnly, &[Read(0), Read(1)]),
    ])
}

/// Returns a transaction that overwrites, or deletes, what the other one then reads.
fn chain(first: Mode, change: Operation, second: Mode) -> Scenario {
    Scenario::new(vec![one(first, &[change]), two(second, &[Read(0), Write(1)])])
}

/// Returns a transaction that scans and one that inserts.
fn phantom(mode: Mode) -> Scenario {
    Scenario::new(vec![one(mode, &[Scan(0, 3), Write(0)]), two(mode, &[Read(0), Write(2)])])
}

/// Returns a transaction that rolls back what it wrote, and one that overwrites what it read.
fn savepoint(mode: Mode) -> Scenario {
    Scenario::new(vec![
        one(mode, &[Read(0), Write(0), RollBack(0), Write(1)]),
        two(mode, &[Read(1), Write(0)]),
    ])
}

/// Returns a transaction that removes the entry of key 2, one that scans below it, and one that
/// inserts there.
fn vanishing_entry(first: &[Operation]) -> Scenario {
    Scenario::new(vec![
        one(Pessimistic, first),
        two(Pessimistic, &[Scan(1, 2), Write(0)]),
        one(Pessimistic, &[Read(0), Write(1)]),
    ])
}

fn mistake(mistake: Mistake) -> impl FnOnce(&mut Rules) {
    move |rules| rules.mistake = Some(mistake)
}

/// Returns all wrong variants.
#[must_use]
pub fn variants() -> Vec<WrongVariant> {
    [recovery(), pessimistic(), next_keys(), optimistic(), draw_first()].into_iter().flatten().collect()
}

/// Returns variants with wrong dependencies, acknowledgments or savepoints.
fn recovery() -> Vec<WrongVariant> {
    vec![
        WrongVariant::new(
            "tombstones-not-observed",
            "a reader depends on writers, not on the delete that it found",
            chain(Pessimistic, Delete(0), Pessimistic).with(mistake(Mistake::TombstonesNotObserved)),
            CLOSED,
        ),
        WrongVariant::new(
            "purge-before-durable",
            "a tombstone is purged before it is durable",
            chain(Pessimistic, Delete(0), Pessimistic).with(mistake(Mistake::PurgeBeforeDurable)),
            CLOSED,
        ),
        WrongVariant::new(
            "overwritten-not-observed",
            "a writer does not depend on what it overwrites",
            Scenario::new(vec![one(Pessimistic, &[Write(0)]), two(Pessimistic, &[Write(0)])])
                .with(mistake(Mistake::OverwrittenNotObserved)),
            CLOSED,
        ),
        WrongVariant::new(
            "late-release-replaces-dependencies",
            "late release replaces dependencies, and an optimistic reader needs no lock",
            chain(Pessimistic, Write(0), Optimistic).with(|rules| {
                rules.mistake = Some(Mistake::LateReleaseReplacesDependencies);
                rules.release = Release::Late;
            }),
            CLOSED,
        ),
        WrongVariant::new(
            "own-record-suffices",
            "a transaction is acknowledged when its own record is durable",
            chain(Pessimistic, Write(0), Pessimistic).with(mistake(Mistake::OwnRecordSuffices)),
            ACKNOWLEDGED,
        ),
        WrongVariant::new(
            "reads-do-not-acknowledge",
            "a reported result does not raise the newest acknowledged CSN",
            Scenario::new(vec![
                one(Pessimistic, &[Write(0)]),
                two(Pessimistic, &[Read(0)]),
                one(ReadOnly, &[Read(0)]),
            ])
            .with(mistake(Mistake::ReadsDoNotAcknowledge)),
            RECOVERED_SERIALIZABLE,
        ),
        WrongVariant::new(
            "readers-do-not-wait",
            "a transaction that wrote nothing returns at once",
            Scenario::new(vec![one(Pessimistic, &[Write(0)]), two(Pessimistic, &[Read(0)])])
                .with(mistake(Mistake::ReadersDoNotWait)),
            CLOSED,
        ),
        WrongVariant::new(
            "savepoint-releases-read-locks",
            "a rollback to a savepoint releases locks of what was read",
            savepoint(Pessimistic).with(mistake(Mistake::SavepointForgetsReads)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "savepoint-forgets-reads",
            "a rollback to a savepoint forgets what was read",
            savepoint(Optimistic).with(mistake(Mistake::SavepointForgetsReads)),
            SERIALIZABLE,
        ),
    ]
}

/// Returns variants with wrong locks.
fn pessimistic() -> Vec<WrongVariant> {
    vec![
        WrongVariant::new(
            "shared-released-before-draw",
            "shared locks are released before the draw",
            observed(Pessimistic).with(mistake(Mistake::SharedReleasedBeforeDraw)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "all-released-before-append",
            "all locks are released before the append, which can fail",
            chain(Pessimistic, Write(0), Pessimistic).with(mistake(Mistake::AllReleasedBeforeAppend)),
            NO_CASCADE,
        ),
        WrongVariant::new(
            "pessimistic-reads-snapshot",
            "pessimistic reads go to a snapshot from the begin",
            write_skew(Pessimistic, Pessimistic).with(mistake(Mistake::PessimisticReadsSnapshot)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "optimistic-ignores-shared",
            "optimistic writers do not look at shared locks",
            write_skew(Pessimistic, Optimistic).with(mistake(Mistake::OptimisticIgnoresShared)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "pessimistic-ignores-writers",
            "pessimistic readers ignore what an optimistic writer has in progress",
            write_skew(Pessimistic, Optimistic).with(mistake(Mistake::PessimisticIgnoresWriters)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "scan-reads-then-locks",
            "a scan reads, then locks",
            phantom(Pessimistic).with(mistake(Mistake::ScanReadsThenLocks)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "checked-outside-latch",
            "a writer looks at shared locks before it has latched the leaf",
            write_skew(Pessimistic, Optimistic).with(mistake(Mistake::CheckedOutsideLatch)),
            SERIALIZABLE,
        ),
    ]
}

/// Returns variants whose locks leave gaps.
fn next_keys() -> Vec<WrongVariant> {
    vec![
        WrongVariant::new(
            "scan-locks-rows-only",
            "scans lock the rows that are present",
            phantom(Pessimistic).with(|rules| rules.names = LockNames::RowsOnly),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "next-keys-not-transferred",
            "next keys: purges and inserts transfer no lock",
            vanishing_entry(&[Delete(2)])
                .with_absent(&[1])
                .with(|rules| rules.names = LockNames::NextKeysNotTransferred),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "next-keys-not-transferred-on-abort",
            "next keys: the abort of an insert transfers no lock",
            vanishing_entry(&[Write(2), Write(0)])
                .with_absent(&[1, 2])
                .with(|rules| rules.names = LockNames::NextKeysNotTransferredOnAbort),
            SERIALIZABLE,
        ),
    ]
}

/// Returns variants with wrong validation.
fn optimistic() -> Vec<WrongVariant> {
    let absent = vec![one(Optimistic, &[Read(2), Write(0)]), two(Optimistic, &[Read(0), Write(2)])];
    let pinned = vec![one(Optimistic, &[Read(1), Write(0)]), two(Optimistic, &[Read(0), Delete(1)])];
    let hidden = vec![
        one(Optimistic, &[Read(0), Write(1)]),
        two(Optimistic, &[Read(1), Write(0)]),
        two(Pessimistic, &[Write(0)]),
    ];
    let unobserved = vec![one(Optimistic, &[Read(0), Write(1)]), two(Optimistic, &[Write(0)])];
    vec![
        WrongVariant::new(
            "validate-then-draw",
            "validates, then draws, with other transactions in between",
            write_skew(Optimistic, Optimistic).with(|rules| rules.commit = CommitPath::ValidateFirst),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "announce-then-draw",
            "announces, validates, then draws, as Silo does; a snapshot sees half of the order",
            observed(Optimistic).with(|rules| rules.commit = CommitPath::AnnounceFirst),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "announce-then-draw-order",
            "the same without a snapshot: only the order of CSNs is wrong",
            Scenario::new(unobserved).with(|rules| rules.commit = CommitPath::AnnounceFirst),
            CSN_ORDER,
        ),
        WrongVariant::new(
            "absent-keys-not-validated",
            "reads of absent keys are not validated",
            Scenario::new(absent).with(mistake(Mistake::AbsentKeysNotValidated)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "gaps-not-validated",
            "the gaps of a scan are not validated",
            phantom(Optimistic).with(mistake(Mistake::GapsNotValidated)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "leaf-version-suffices",
            "an unchanged leaf version suffices",
            write_skew(Optimistic, Optimistic).with(|rules| {
                rules.mistake = Some(Mistake::LeafVersionSuffices);
                rules.uses_leaf_versions = true;
            }),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "purge-ignores-pins",
            "a durable tombstone is purged although a snapshot from before it exists",
            Scenario::new(pinned).with(mistake(Mistake::PurgeIgnoresPins)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "only-newest-stamp-validated",
            "validation looks at the newest stamp of an entry only",
            Scenario::new(hidden).with(mistake(Mistake::OnlyNewestStampValidated)),
            SERIALIZABLE,
        ),
    ]
}

/// Returns variants of the commit path that draws first.
fn draw_first() -> Vec<WrongVariant> {
    let skew = || write_skew(Optimistic, Optimistic);
    let half = vec![one(Optimistic, &[Write(0), Write(1)]), two(Optimistic, &[Read(0), Read(1), Write(2)])];
    let void = vec![
        one(Optimistic, &[Read(0), Write(1)]),
        two(Optimistic, &[Write(0)]),
        one(Pessimistic, &[Write(2)]),
        two(Pessimistic, &[Read(2), Write(2)]),
    ];
    vec![
        WrongVariant::new(
            "undecided-flushed",
            "an undecided record can become durable",
            skew().with(mistake(Mistake::UndecidedIsFlushed)),
            ABORTS_STAY,
        ),
        WrongVariant::new(
            "lower-undecided-not-awaited",
            "validation does not wait for an undecided transaction with a lower CSN",
            skew().with(mistake(Mistake::LowerUndecidedNotAwaited)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "undecided-invisible",
            "readers take an undecided version in their snapshot for nonexistent",
            Scenario::new(half).with(mistake(Mistake::UndecidedIsInvisible)),
            SERIALIZABLE,
        ),
        WrongVariant::new(
            "void-counts-as-missing",
            "recovery takes a void record for a missing one",
            Scenario::new(void).with(mistake(Mistake::VoidIsMissing)),
            ACKNOWLEDGED,
        ),
        WrongVariant::new(
            "void-forgotten",
            "a failed validation leaves its record valid",
            skew().with(mistake(Mistake::VoidIsForgotten)),
            ABORTS_STAY,
        ),
    ]
}
