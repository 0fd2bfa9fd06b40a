//! Random histories: commits, block writes that complete in any order, acknowledgments,
//! checkpoints, kills, power cuts and interrupted recoveries, and after each crash what the rules
//! promise, checked against what really happened.
//!
//! The history knows which transaction read from which; the selection knows only DSNs, and of
//! transactions that are judged by the exact rule the predecessors that were not committed yet.
//! Both rules come up side by side.

use super::tests::{Decision, ScannedLog, bounds, is_closed, select_listed};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LOGS: usize = 3;
const KEYS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// Read one key, write another, in a log.
    Commit { log: usize, reads: usize, writes: usize, exact: bool },
    /// Everything that a log has buffered becomes a block in flight.
    Write { log: usize },
    /// One of the writes in flight completes.
    Complete { which: usize },
    /// Every transaction that may be acknowledged is.
    Acknowledge,
    /// As far up as the watermark; recycles blocks where a bit is set.
    Checkpoint { recycle: u64 },
    /// Writes in flight survive, or land late after a kill, where a bit is set.
    Crash { kill: bool, survive: u64, interrupted: bool },
    /// What was in flight at a kill reaches the disk.
    LandLate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..LOGS, 0..KEYS, 0..KEYS, any::<bool>())
            .prop_map(|(log, reads, writes, exact)| Step::Commit { log, reads, writes, exact }),
        8 => (0..LOGS).prop_map(|log| Step::Write { log }),
        8 => (0..8usize).prop_map(|which| Step::Complete { which }),
        4 => Just(Step::Acknowledge),
        1 => any::<u64>().prop_map(|recycle| Step::Checkpoint { recycle }),
        1 => (any::<bool>(), any::<u64>(), any::<bool>())
            .prop_map(|(kill, survive, interrupted)| Step::Crash { kill, survive, interrupted }),
        1 => Just(Step::LandLate),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Durable,
    /// Written before a kill, still only in a cache.
    Cached,
    /// In flight at a kill; may land later.
    Late,
}

#[derive(Clone, Debug)]
struct Block {
    log: usize,
    epoch: Epoch,
    sequence: u64,
    transactions: Vec<usize>,
    state: State,
}

#[derive(Clone, Debug)]
struct Transaction {
    record: FoundRecord,
    log: usize,
    writes: usize,
    predecessors: Vec<usize>,
    /// Of them, those that were not committed when it began.
    listed: Vec<usize>,
    acknowledged: bool,
}

#[derive(Debug)]
struct History {
    transactions: Vec<Transaction>,
    /// Transactions that the running database shows, ascending by CSN.
    alive: Vec<usize>,
    /// Served, and then lost at a crash: allowed unless acknowledged, but for ever.
    discarded: Vec<usize>,
    /// Alive when the running epoch began: no later crash may take them.
    served: Vec<usize>,
    buffers: Vec<Vec<usize>>,
    blocks: Vec<Block>,
    sequences: [u64; LOGS],
    manifest: Manifest,
    next_csn: Csn,
}

impl History {
    fn new() -> History {
        History {
            transactions: Vec::new(),
            alive: Vec::new(),
            discarded: Vec::new(),
            served: Vec::new(),
            buffers: vec![Vec::new(); LOGS],
            blocks: Vec::new(),
            sequences: [0; LOGS],
            manifest: Manifest::new(crate::base::DatabaseId(1), 4096),
            next_csn: Csn(1),
        }
    }

    /// In the gap-free prefix of its log in the running epoch.
    fn is_durable(&self, transaction: usize) -> bool {
        let log = self.transactions[transaction].log;
        let running = self.blocks.iter().filter(|b| b.log == log && b.epoch == self.manifest.epoch);
        let mut prefix = running.take_while(|block| block.state == State::Durable);
        prefix.any(|block| block.transactions.contains(&transaction))
    }

    /// W.
    fn watermark(&self) -> Csn {
        let running = |t: &&Transaction| t.record.epoch == self.manifest.epoch;
        let numbered = self.transactions.iter().enumerate().filter(|(_, t)| running(t));
        let above = numbered.filter(|(_, t)| t.record.csn > self.manifest.checkpoint);
        above.filter(|(at, _)| !self.is_durable(*at)).map(|(_, t)| t.record.csn).fold(self.next_csn, Csn::min)
    }

    fn last_writer(&self, key: usize) -> Option<usize> {
        self.alive.iter().rev().copied().find(|at| self.transactions[*at].writes == key)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Commit { log, reads, writes, exact } => self.commit(log, reads, writes, exact),
            Step::Write { log } => self.write(log),
            Step::Complete { which } => {
                let mut in_flight = self.blocks.iter_mut().filter(|b| b.state == State::InFlight);
                if let Some(block) = in_flight.nth(which) {
                    block.state = State::Durable;
                }
            }
            Step::Acknowledge => {
                for at in 0..self.transactions.len() {
                    let running = self.transactions[at].record.epoch == self.manifest.epoch;
                    if running && self.is_durable(at) && self.is_committed(at) {
                        self.transactions[at].acknowledged = true;
                    }
                }
            }
            Step::Checkpoint { recycle } => self.checkpoint(recycle),
            Step::Crash { kill, survive, interrupted } => self.crash(kill, survive, interrupted),
            Step::LandLate => {
                let late = self.blocks.iter_mut().filter(|block| block.state == State::Late);
                late.for_each(|block| block.state = State::Durable);
            }
        }
    }

    /// By the rule that its record names.
    fn is_committed(&self, at: usize) -> bool {
        let Transaction { record, listed, .. } = &self.transactions[at];
        let watermark = self.watermark();
        let content = match record.rule {
            DependencyRule::Dsn => record.dsn < watermark,
            DependencyRule::Exact { .. } => listed.iter().all(|at| self.is_committed(*at)),
        };
        record.csn < watermark || self.is_durable(at) && content
    }

    /// What a record lists.
    fn lists(&self, record: &FoundRecord) -> Vec<Csn> {
        let listed = &self.transactions[record.position as usize].listed;
        listed.iter().map(|at| self.transactions[*at].record.csn).collect()
    }

    fn commit(&mut self, log: usize, reads: usize, writes: usize, exact: bool) {
        let predecessors: Vec<usize> =
            [reads, writes].into_iter().filter_map(|key| self.last_writer(key)).collect();
        let dsn = predecessors.iter().map(|at| self.transactions[*at].record.csn).fold(Csn::ZERO, Csn::max);
        let open = predecessors.iter().copied().filter(|at| !self.is_committed(*at));
        let listed: Vec<usize> = if exact { open.collect() } else { Vec::new() };
        let rule =
            if exact { DependencyRule::Exact { listed: listed.len() as u8 } } else { DependencyRule::Dsn };
        let watermark = self.watermark();
        let csn = self.next_csn;
        self.next_csn = csn.next();
        let at = self.transactions.len();
        let record = FoundRecord {
            epoch: self.manifest.epoch,
            csn,
            dsn,
            watermark,
            log: LogId(log as u32),
            block_epoch: self.manifest.epoch,
            operations: 1,
            fragment: None,
            kind: RecordKind::Whole,
            rule,
            fingerprint: at as u64,
            position: at as u64,
        };
        self.transactions.push(Transaction {
            record,
            log,
            writes,
            predecessors,
            listed,
            acknowledged: false,
        });
        self.alive.push(at);
        self.buffers[log].push(at);
    }

    fn write(&mut self, log: usize) {
        let transactions = std::mem::take(&mut self.buffers[log]);
        if !transactions.is_empty() {
            self.append(log, self.manifest.epoch, transactions, State::InFlight);
        }
    }

    fn append(&mut self, log: usize, epoch: Epoch, transactions: Vec<usize>, state: State) {
        self.sequences[log] += 1;
        let sequence = self.sequences[log];
        self.blocks.push(Block { log, epoch, sequence, transactions, state });
    }

    fn checkpoint(&mut self, recycle: u64) {
        let checkpoint = Csn(self.watermark().0 - 1).max(self.manifest.checkpoint);
        (self.manifest.checkpoint, self.manifest.covered) = (checkpoint, checkpoint);
        self.manifest.next_csn = self.next_csn;
        self.manifest.forget_covered();
        let (transactions, mut number) = (&self.transactions, 0);
        self.blocks.retain(|block| {
            number += 1;
            let covered = block.transactions.iter().all(|at| transactions[*at].record.csn <= checkpoint);
            !(covered && block.state == State::Durable && recycle >> (number % 64) & 1 == 1)
        });
    }

    fn crash(&mut self, kill: bool, survive: u64, interrupted: bool) {
        let mut number = 0;
        self.blocks.retain_mut(|block| {
            number += 1;
            let bit = survive >> (number % 64) & 1 == 1;
            block.state = match (block.state, kill, bit) {
                (State::InFlight, true, true) => State::Cached,
                (State::InFlight, true, false) => State::Late,
                (State::InFlight | State::Late, false, true) => State::Durable,
                (State::InFlight | State::Late, false, false) => return false,
                (state, ..) => state,
            };
            true
        });
        self.buffers.iter_mut().for_each(Vec::clear);
        self.recover(interrupted);
        if interrupted {
            self.recover(false);
        }
    }

    /// What the log reader would say.
    fn scan(&self) -> Vec<ScannedLog> {
        let mut scans = BTreeMap::new();
        for block in self.blocks.iter().filter(|b| matches!(b.state, State::Durable | State::Cached)) {
            let (log, epoch) = (LogId(block.log as u32), block.epoch);
            let new = || ScannedLog { log, epoch, records: Vec::new() };
            let scan = scans.entry((epoch, log)).or_insert_with(new);
            let records = block.transactions.iter().map(|at| self.transactions[*at].record);
            scan.records.extend(records.map(|record| (block.sequence, record)));
        }
        scans.into_values().collect()
    }

    fn recover(&mut self, interrupted: bool) {
        let scans = self.scan();
        let manifest = self.manifest.clone();
        let decided = Decided::of(&manifest);
        let lists = |record: &FoundRecord| Ok(self.lists(record));
        let selection = select_listed(&decided, &scans, &lists).expect("a healthy database opens");
        self.check(&selection, &decided);
        check_that_loss_is_found(&selection, &decided, &scans, &lists);
        // Recovery flushes first (rule 14).
        let cached = self.blocks.iter_mut().filter(|block| block.state == State::Cached);
        cached.for_each(|block| block.state = State::Durable);
        self.manifest.reserved_epoch = Epoch(manifest.reserved_epoch.0 + 1);
        let epoch = self.manifest.reserved_epoch;
        self.sequences = [0; LOGS];
        let again: Vec<usize> =
            selection.replay[selection.reappend_from..].iter().map(|r| r.position as usize).collect();
        if !again.is_empty() {
            self.append(0, epoch, again, State::Durable);
        }
        if interrupted {
            return;
        }
        let entry = selection.entry(&decided);
        let before = decided.voids().above(decided.checkpoint);
        assert_eq!(entry.voids.union(&before), entry.voids, "what was void stays so");
        self.manifest.add_epoch(entry);
        self.manifest.epoch = epoch;
        self.manifest.first_csn = selection.last_csn.next();
        self.manifest.next_csn = self.manifest.first_csn;
        self.manifest.forget_covered();
        self.manifest.encode().expect("a manifest without contradictions");
        self.next_csn = self.manifest.first_csn;
        let (alive, discarded): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.alive).into_iter().partition(|at| {
                let csn = self.transactions[*at].record.csn;
                csn <= manifest.checkpoint || selection.replay.iter().any(|r| r.position as usize == *at)
            });
        self.alive = alive;
        self.served = self.alive.clone();
        self.discarded.extend(discarded);
    }

    fn check(&self, selection: &Decision, decided: &Decided<'_>) {
        let covered = |at: &usize| self.transactions[*at].record.csn <= decided.checkpoint;
        let replayed: Vec<usize> = selection.replay.iter().map(|r| r.position as usize).collect();
        let there = |at: &usize| self.alive.contains(at) && covered(at) || replayed.contains(at);
        for (at, transaction) in self.transactions.iter().enumerate() {
            assert!(!transaction.acknowledged || there(&at), "acknowledged {at} is lost");
        }
        for at in &replayed {
            assert!(!self.discarded.contains(at), "discarded {at} is back");
            let predecessors = &self.transactions[*at].predecessors;
            assert!(predecessors.iter().all(there), "{at} without what it read");
        }
        assert!(self.served.iter().all(there), "what the epoch served is lost");
        let records = replayed.iter().map(|at| self.transactions[*at].record);
        let by_dsn = |r: &FoundRecord| r.rule == DependencyRule::Dsn;
        let set: Vec<_> = records.map(|r| (r.csn, if by_dsn(&r) { r.dsn } else { Csn::ZERO })).collect();
        assert!(is_closed(decided.checkpoint, &decided.voids(), &set));
        assert!(selection.replay.is_sorted_by(|a, b| a.csn < b.csn));
    }
}

/// Takes away each transaction that was certainly durable: opening must be refused while a
/// watermark proves it.
fn check_that_loss_is_found(
    selection: &Decision,
    decided: &Decided<'_>,
    scans: &[ScannedLog],
    lists: super::tests::Listed<'_>,
) {
    for lost in &selection.replay[..selection.reappend_from] {
        let mut damaged = scans.to_vec();
        for scan in &mut damaged {
            scan.records.retain(|(_, record)| record.csn != lost.csn);
        }
        if !bounds(decided, &damaged).is_to_append_again(lost.csn) {
            select_listed(decided, &damaged, lists).expect_err("committed data is missing");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn every_history_recovers_to_what_was_promised(steps in prop::collection::vec(step(), 1..120)) {
        let mut history = History::new();
        for step in &steps {
            history.apply(step);
        }
        history.crash(false, 0, false);
        history.crash(true, u64::MAX, true);
    }
}
