//! Which programs do the right rules survive?

use super::scenario::Mode::{Optimistic, Pessimistic, ReadOnly};
use super::scenario::Operation::{Delete, Read, RollBack, Scan, Write};
use super::scenario::{
    CommitPath, Dependencies, Key, LockNames, Mode, Operation, Release, Rules, Scenario, Transaction,
};

/// Returns all combinations of right rules.
///
/// Leaf versions and next keys are combined with DSN only: the dependency rule has no influence on
/// what they find.
#[must_use]
pub fn rules() -> Vec<Rules> {
    let mut all = Vec::new();
    for commit in [CommitPath::DrawFirst, CommitPath::Atomic, CommitPath::Marks] {
        for release in [Release::Early, Release::Late, Release::Mixed] {
            for dependencies in [Dependencies::Dsn, Dependencies::Exact] {
                let rules = Rules { commit, release, dependencies, ..Rules::CHOSEN };
                all.push(rules);
                if dependencies == Dependencies::Dsn {
                    all.push(Rules { uses_leaf_versions: true, ..rules });
                    all.push(Rules { names: LockNames::NextKeys, ..rules });
                }
            }
        }
    }
    all
}

/// Returns the pairs of modes in which `rules` differ from [the chosen ones](Rules::CHOSEN).
#[must_use]
pub fn modes(rules: &Rules) -> Vec<(Mode, Mode)> {
    let needs_optimistic = rules.commit != CommitPath::DrawFirst || rules.uses_leaf_versions;
    let needs_pessimistic = rules.names != LockNames::Intervals;
    let all = [
        (Optimistic, Optimistic),
        (Pessimistic, Pessimistic),
        (Optimistic, Pessimistic),
        (Pessimistic, Optimistic),
    ];
    let fits = |pair: &(Mode, Mode)| match pair {
        (Optimistic, Optimistic) => !needs_pessimistic,
        (Pessimistic, Pessimistic) => !needs_optimistic,
        _ => true,
    };
    all.into_iter().filter(fits).collect()
}

/// Returns programs by name. Their read-write transactions alternate between two modes.
#[must_use]
pub fn programs(first: Mode, second: Mode) -> Vec<(&'static str, Scenario)> {
    let one = |operations: &[Operation]| Transaction::new(0, first, operations);
    let two = |operations: &[Operation]| Transaction::new(1, second, operations);
    let reader = |operations: &[Operation]| Transaction::new(0, ReadOnly, operations);
    let scenario = Scenario::new;
    vec![
        (
            "a purge beside a scan",
            scenario(vec![one(&[Delete(2)]), two(&[Scan(1, 2), Write(0)]), one(&[Read(0), Write(1)])])
                .with_absent(&[1]),
        ),
        (
            "an abort beside a scan",
            scenario(vec![
                one(&[Write(2), Write(0)]),
                two(&[Scan(1, 2), Write(0)]),
                one(&[Read(0), Write(1)]),
            ])
            .with_absent(&[1, 2]),
        ),
        (
            "write skew and a reader",
            scenario(vec![one(&[Read(0), Write(1)]), two(&[Read(1), Write(0)]), reader(&[Read(0), Read(1)])]),
        ),
        (
            "phantoms",
            scenario(vec![one(&[Scan(0, 3), Write(0)]), two(&[Scan(0, 3), Write(2)]), reader(&[Scan(0, 3)])]),
        ),
        (
            "absent keys",
            scenario(vec![
                one(&[Delete(1), Write(0)]),
                two(&[Read(1), Read(2), Write(0)]),
                Transaction::new(0, second, &[Read(0), Write(2)]),
            ]),
        ),
        (
            "a delete and an insert",
            scenario(vec![one(&[Delete(1)]), two(&[Scan(0, 2), Write(2)]), one(&[Read(2), Write(1)])]),
        ),
        (
            "a chain over both logs",
            scenario(vec![
                one(&[Write(0)]),
                two(&[Read(0), Write(1)]),
                one(&[Read(1), Write(2)]),
                two(&[Read(2)]),
            ]),
        ),
        (
            "savepoints",
            scenario(vec![
                one(&[Read(0), Write(0), RollBack(0), Write(1)]),
                two(&[Read(1), Write(0)]),
                reader(&[Read(0), Read(1)]),
            ]),
        ),
        (
            "the read-only anomaly",
            scenario(vec![
                one(&[Read(0), Write(1)]),
                two(&[Write(0)]),
                reader(&[Read(0), Read(1)]),
                Transaction::new(1, first, &[Read(1)]),
            ]),
        ),
    ]
}

/// Returns the programs under `rules` in all modes that matter, with their names.
#[must_use]
pub fn scenarios(rules: Rules) -> Vec<(String, Scenario)> {
    let named = |(first, second): (Mode, Mode)| {
        programs(first, second).into_iter().map(move |(name, scenario)| {
            (format!("{name}, {first:?} and {second:?}"), Scenario { rules, ..scenario })
        })
    };
    modes(&rules).into_iter().flat_map(named).collect()
}

/// Returns the rules under which [`pairs`] run.
#[must_use]
pub fn rules_of_pairs() -> Vec<Rules> {
    let chosen = Rules::CHOSEN;
    let base = [
        chosen,
        Rules { release: Release::Late, uses_leaf_versions: true, ..chosen },
        Rules { commit: CommitPath::Marks, uses_leaf_versions: true, ..chosen },
        Rules { names: LockNames::NextKeys, ..chosen },
    ];
    let both = |rules: Rules| {
        [Dependencies::Dsn, Dependencies::Exact].map(|dependencies| Rules { dependencies, ..rules })
    };
    base.into_iter().flat_map(both).collect()
}

/// Returns all pairs of two-operation programs in all modes that matter, with a reader beside them.
pub fn pairs(rules: Rules) -> impl Iterator<Item = Scenario> {
    let programs = two_operations();
    let count = programs.len();
    let modes = modes(&rules).into_iter().filter(|modes| *modes != (Pessimistic, Optimistic));
    let all =
        modes.flat_map(move |modes| (0..count).flat_map(move |i| (0..count).map(move |j| (modes, i, j))));
    // The same modes in the other order are the same pair.
    let all = all.filter(|((first, second), i, j)| first != second || i <= j);
    all.map(move |((first, second), i, j)| {
        let scenario = Scenario::new(vec![
            Transaction::new(0, first, &programs[i]),
            Transaction::new(1, second, &programs[j]),
            Transaction::new(0, ReadOnly, &[Scan(0, 3)]),
        ]);
        Scenario { rules, ..scenario }
    })
}

/// Returns all programs of two operations, at least one of which writes.
///
/// The model does not cover a read of the transaction's own write, nor two writes of one key.
fn two_operations() -> Vec<[Operation; 2]> {
    let operations =
        [Read(0), Read(1), Read(2), Write(0), Write(1), Write(2), Delete(0), Delete(1), Scan(0, 3)];
    let key = |operation| -> Option<Key> {
        match operation {
            Read(key) | Write(key) | Delete(key) => Some(key),
            Scan(..) | RollBack(_) => None,
        }
    };
    let reads = |operation| matches!(operation, Read(_) | Scan(..));
    let all = operations.into_iter().flat_map(|first| operations.map(|second| [first, second]));
    let fits = |[first, second]: &[Operation; 2]| match (reads(*first), reads(*second)) {
        (true, true) => false,
        (true, false) => true,
        (false, true) => key(*second).is_some() && key(*first) != key(*second),
        (false, false) => key(*first) != key(*second),
    };
    all.filter(fits).collect()
}
