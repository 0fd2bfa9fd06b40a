//! The totals of what runs did.

use quenchdb::internals::device::simulated::CrashKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of successive crashes whose kinds and places make an order.
const DEEP: usize = 3;
/// Number of possible orders. Only the first crash of a history is never inside a recovery.
pub const DEEP_ORDERS: u64 = (3 * 2_u64).pow(DEEP as u32);

/// The place of a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Running,
    Recovery,
    Checkpoint,
}

/// A crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    pub place: Place,
    pub kind: CrashKind,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            CrashKind::PowerCut => "power cut",
            CrashKind::Kill => "kill",
        };
        let place = match self.place {
            Place::Running => "",
            Place::Recovery => " in recovery",
            Place::Checkpoint => " in a checkpoint",
        };
        write!(f, "{kind}{place}")
    }
}

/// Figures of one seed, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub seeds: u64,
    pub power_cuts: u64,
    pub kills: u64,
    /// Crashes inside recovery, by the number of crashes in a row inside a recovery or a
    /// checkpoint.
    #[serde(default)]
    pub in_recovery: BTreeMap<u64, u64>,
    /// Crashes inside a checkpoint, by the same number.
    #[serde(default)]
    pub in_checkpoint: BTreeMap<u64, u64>,
    /// Crashes by place and kind of the crash and of the two before it, the oldest first.
    #[serde(default)]
    pub orders: BTreeMap<String, u64>,
    /// Crashes around runs on a device that breaks its promises; these are in no other figure.
    #[serde(default)]
    pub crashes_unjudged: u64,
    /// Crashes by their number in a row, each inside the run after the previous crash.
    pub crashes_by_depth: BTreeMap<u64, u64>,
    pub runs: u64,
    pub transactions: u64,
    pub acknowledged: u64,
    /// Transactions on lists and ranges of rows whose isolation was judged.
    pub judged: u64,
    /// Number of times that each kind of fault fired.
    pub happenings: BTreeMap<String, u64>,
    /// Pairs of kinds of faults of which the second fired in a later run of the same database.
    pub pairs: BTreeSet<(String, String)>,
    /// Number of times that runs took each code path.
    pub paths: BTreeMap<String, u64>,
    /// Crashes by preset and dependency rule of the first run.
    pub protocols: BTreeMap<String, u64>,
    pub decisions: u64,
    pub switches: u64,
    /// A hash over all schedules and disks.
    pub fingerprint: u64,
    /// The number of operations of all disks, or of requests to all stores.
    #[serde(default)]
    pub operations: u64,
    /// A hash over these operations with their bytes, without the schedules.
    #[serde(default)]
    pub trace: u64,
}

fn mixed(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Figures {
    pub fn merge(&mut self, other: &Figures) {
        fn add<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            from.iter().for_each(|(key, count)| *into.entry(key.clone()).or_default() += count);
        }
        self.seeds += other.seeds;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.crashes_unjudged += other.crashes_unjudged;
        self.runs += other.runs;
        self.transactions += other.transactions;
        self.acknowledged += other.acknowledged;
        self.judged += other.judged;
        self.decisions += other.decisions;
        self.switches += other.switches;
        add(&mut self.in_recovery, &other.in_recovery);
        add(&mut self.in_checkpoint, &other.in_checkpoint);
        add(&mut self.orders, &other.orders);
        add(&mut self.crashes_by_depth, &other.crashes_by_depth);
        add(&mut self.happenings, &other.happenings);
        self.pairs.extend(other.pairs.iter().cloned());
        add(&mut self.paths, &other.paths);
        add(&mut self.protocols, &other.protocols);
        self.operations += other.operations;
        self.mix(other.fingerprint);
        self.trace = mixed(self.trace, other.trace);
    }

    pub fn mix(&mut self, number: u64) {
        self.fingerprint = mixed(self.fingerprint, number);
    }

    /// Mixes in the journal of a run: its checksum, above the number of its operations.
    pub fn mix_journal(&mut self, journal: u64) {
        self.operations += journal & u64::from(u32::MAX);
        self.mix(journal);
        self.trace = mixed(self.trace, journal);
    }

    /// Counts a judged crash: the last of `chain`.
    pub fn note_crash(&mut self, chain: &[Crash]) {
        let Some(crash) = chain.last() else { return };
        match crash.kind {
            CrashKind::PowerCut => self.power_cuts += 1,
            CrashKind::Kill => self.kills += 1,
        }
        let in_a_row = chain.iter().rev().take_while(|crash| crash.place != Place::Running).count() as u64;
        match crash.place {
            Place::Running => {}
            Place::Recovery => *self.in_recovery.entry(in_a_row).or_default() += 1,
            Place::Checkpoint => *self.in_checkpoint.entry(in_a_row).or_default() += 1,
        }
        let last: Vec<String> =
            chain[chain.len().saturating_sub(DEEP)..].iter().map(Crash::to_string).collect();
        *self.orders.entry(last.join(", ")).or_default() += 1;
        *self.crashes_by_depth.entry(chain.len() as u64).or_default() += 1;
    }

    /// Returns the number of orders of place and kind that came up, three crashes deep.
    pub fn deep_orders(&self) -> u64 {
        self.orders.keys().filter(|order| order.split(", ").count() == DEEP).count() as u64
    }

    /// Counts faults that fired after faults of earlier runs.
    pub fn note_pairs(&mut self, before: &BTreeSet<String>, after: &BTreeSet<String>) {
        let pairs =
            before.iter().flat_map(|first| after.iter().map(move |then| (first.clone(), then.clone())));
        self.pairs.extend(pairs);
    }

    pub fn happened(&mut self, what: &str, times: u64) {
        if times > 0 {
            *self.happenings.entry(what.into()).or_default() += times;
        }
    }

    pub fn passed(&mut self, what: &str, times: u64) {
        if times > 0 {
            *self.paths.entry(what.into()).or_default() += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_in_recovery_and_checkpoints_are_counted_by_depth() {
        let crash = |place| Crash { place, kind: CrashKind::PowerCut };
        let chain = [Place::Checkpoint, Place::Recovery, Place::Recovery, Place::Running, Place::Checkpoint];
        let chain = chain.map(crash);
        let mut figures = Figures::default();
        (1..=chain.len()).for_each(|depth| figures.note_crash(&chain[..depth]));
        assert_eq!(figures.in_recovery, [(2, 1), (3, 1)].into());
        assert_eq!(figures.in_checkpoint, [(1, 2)].into());
        assert_eq!((figures.power_cuts, figures.kills), (5, 0));
    }

    #[test]
    fn orders_are_of_the_last_three_crashes_by_place_and_kind() {
        let mut figures = Figures::default();
        let mut all = Vec::new();
        for place in [Place::Running, Place::Recovery, Place::Checkpoint] {
            all.extend([CrashKind::PowerCut, CrashKind::Kill].map(|kind| Crash { place, kind }));
        }
        for first in &all {
            figures.note_crash(&[*first]);
            for second in &all {
                figures.note_crash(&[*first, *second]);
            }
        }
        assert_eq!(figures.deep_orders(), 0, "none is three deep");
        for first in &all {
            for second in &all {
                all.iter().for_each(|third| figures.note_crash(&[*first, *second, *third]));
            }
        }
        assert_eq!(figures.deep_orders(), DEEP_ORDERS);
        // Only the last three crashes count.
        figures.note_crash(&[all[0], all[1], all[2], all[3]]);
        assert_eq!(figures.deep_orders(), DEEP_ORDERS);
        assert_eq!(figures.orders["kill, power cut in recovery, kill in recovery"], 2);
    }
}
