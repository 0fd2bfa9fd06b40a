//! What runs did, added up.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Figures of one seed, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub seeds: u64,
    pub power_cuts: u64,
    pub kills: u64,
    pub crashes_in_recovery: u64,
    pub crashes_in_checkpoint: u64,
    /// Those before a life on a device that breaks its promises, and in one; in none of the other figures.
    #[serde(default)]
    pub crashes_unjudged: u64,
    /// By how many crashes there were one inside the life after the other.
    pub crashes_by_depth: BTreeMap<u64, u64>,
    pub lives: u64,
    pub transactions: u64,
    pub acknowledged: u64,
    /// Transactions on lists and on ranges of rows whose isolation was judged.
    pub judged: u64,
    /// How often each kind of fault fired.
    pub happenings: BTreeMap<String, u64>,
    /// Kinds of faults of which the second fired in a later life of the same database than the first.
    pub pairs: BTreeSet<(String, String)>,
    /// What the runs went through.
    pub paths: BTreeMap<String, u64>,
    /// Crashes by preset and rule of the first life.
    pub protocols: BTreeMap<String, u64>,
    pub decisions: u64,
    pub switches: u64,
    /// Of all schedules and disks.
    pub fingerprint: u64,
}

impl Figures {
    pub fn merge(&mut self, other: &Figures) {
        fn add<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            from.iter().for_each(|(key, count)| *into.entry(key.clone()).or_default() += count);
        }
        self.seeds += other.seeds;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.crashes_in_checkpoint += other.crashes_in_checkpoint;
        self.crashes_unjudged += other.crashes_unjudged;
        self.lives += other.lives;
        self.transactions += other.transactions;
        self.acknowledged += other.acknowledged;
        self.judged += other.judged;
        self.decisions += other.decisions;
        self.switches += other.switches;
        add(&mut self.crashes_by_depth, &other.crashes_by_depth);
        add(&mut self.happenings, &other.happenings);
        self.pairs.extend(other.pairs.iter().cloned());
        add(&mut self.paths, &other.paths);
        add(&mut self.protocols, &other.protocols);
        self.mix(other.fingerprint);
    }

    pub fn mix(&mut self, number: u64) {
        self.fingerprint = (self.fingerprint ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Faults that fired after faults of lives before.
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
