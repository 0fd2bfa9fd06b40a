//! One test per rule.

use super::*;
use crate::base::ErrorKind;

/// A log with its records: block sequence and record, in any order.
#[derive(Clone, Debug)]
pub(super) struct ScannedLog {
    pub log: LogId,
    pub epoch: Epoch,
    pub records: Vec<(u64, FoundRecord)>,
}

impl ScannedLog {
    fn found(&self) -> FoundLog {
        let mut blocks: Vec<FoundBlock> = Vec::new();
        let mut records = self.records.clone();
        records.sort_by_key(|(sequence, record)| (*sequence, record.csn));
        for block in records.chunk_by(|a, b| a.0 == b.0) {
            let csns = block.iter().map(|(_, record)| record.csn);
            let possible = block.iter().filter(|(_, record)| record.watermark <= record.csn);
            blocks.push(FoundBlock {
                sequence: block[0].0,
                first_csn: csns.clone().min().expect("not empty"),
                last_csn: csns.max().expect("not empty"),
                previous_csn: Csn::ZERO,
                watermark: possible.map(|(_, record)| record.watermark).max().unwrap_or(Csn::ZERO),
            });
        }
        FoundLog { log: self.log, epoch: self.epoch, blocks }
    }
}

pub(super) fn bounds<'a>(decided: &Decided<'a>, logs: &[ScannedLog]) -> Bounds<'a> {
    Bounds::new(*decided, logs.iter().map(ScannedLog::found).collect())
}

/// What a whole decision comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Decision {
    selection: Selection,
    pub replay: Vec<FoundRecord>,
    /// `replay[reappend_from..]` must be appended again.
    pub reappend_from: usize,
}

impl std::ops::Deref for Decision {
    type Target = Selection;

    fn deref(&self) -> &Selection {
        &self.selection
    }
}

/// What a record lists.
pub(super) type Listed<'a> = &'a dyn Fn(&FoundRecord) -> Result<Vec<Csn>>;

/// Decides about records that list nothing.
pub(super) fn select(decided: &Decided<'_>, logs: &[ScannedLog]) -> Result<Decision> {
    select_listed(decided, logs, &|_| Ok(Vec::new()))
}

/// Decides, with windows of some sizes, which must make no difference.
pub(super) fn select_listed(
    decided: &Decided<'_>,
    logs: &[ScannedLog],
    listed: Listed<'_>,
) -> Result<Decision> {
    let whole = select_by(decided, logs, listed, usize::MAX);
    for size in [1, 2, 5] {
        let same = match (&whole, &select_by(decided, logs, listed, size)) {
            (Ok(a), Ok(b)) => a == b,
            (Err(a), Err(b)) => a.location() == b.location(),
            _ => false,
        };
        assert!(same, "windows of {size} CSNs decide otherwise");
    }
    whole
}

fn select_by(
    decided: &Decided<'_>,
    logs: &[ScannedLog],
    listed: Listed<'_>,
    size: usize,
) -> Result<Decision> {
    let bounds = bounds(decided, logs);
    let mut records = Vec::new();
    for (index, log) in logs.iter().enumerate() {
        let counted = log.records.iter().filter(|(sequence, _)| bounds.counts(index, *sequence));
        let placed = |(_, r): &(u64, FoundRecord)| FoundRecord { log: log.log, block_epoch: log.epoch, ..*r };
        records.extend(counted.map(placed));
    }
    records.sort_by_key(|record| record.csn);
    let mut selector = Selector::new(&bounds);
    let mut replay = Vec::new();
    let of_one_csn: Vec<&[FoundRecord]> = records.chunk_by(|a, b| a.csn == b.csn).collect();
    let mut rest = &of_one_csn[..];
    while !rest.is_empty() {
        let mut count = size.min(rest.len());
        // As `Windows` do: all fragments of a transaction are in one.
        while let Some(next) = rest.get(count)
            && next[0].fragment.is_some_and(|fragment| fragment.first_of(next[0].csn) < next[0].csn)
        {
            count += 1;
        }
        let (window, after) = rest.split_at(count);
        rest = after;
        let mut window = window.concat();
        window.reverse();
        selector.select(&mut window, listed)?;
        replay.extend(window);
    }
    let selection = selector.finish()?;
    let is_first = |record: &&FoundRecord| record.fragment.is_none_or(|fragment| fragment.number == 0);
    assert_eq!(selection.replayed, replay.iter().filter(is_first).count() as u64);
    let reappend_from = replay.partition_point(|record| !bounds.is_to_append_again(record.csn));
    Ok(Decision { selection, replay, reappend_from })
}

fn record(epoch: u32, csn: u64, dsn: u64, watermark: u64) -> FoundRecord {
    FoundRecord {
        epoch: Epoch(epoch),
        log: LogId(0),
        block_epoch: Epoch(0),
        operations: 1,
        fragment: None,
        kind: RecordKind::Whole,
        rule: DependencyRule::Dsn,
        csn: Csn(csn),
        dsn: Csn(dsn),
        watermark: Csn(watermark),
        fingerprint: csn * 1000 + dsn,
        position: csn,
    }
}

/// A log in which each record has its own block, without a hole.
fn log(log: u32, epoch: u32, records: Vec<FoundRecord>) -> ScannedLog {
    ScannedLog { log: LogId(log), epoch: Epoch(epoch), records: (1..).zip(records).collect() }
}

/// `log` with more records behind a missing block.
fn with_hole(mut log: ScannedLog, behind: Vec<FoundRecord>) -> ScannedLog {
    let first = log.records.len() as u64 + 2;
    log.records.extend((first..).zip(behind));
    log
}

fn first_run(checkpoint: u64) -> Decided<'static> {
    Decided {
        checkpoint: Csn(checkpoint),
        covered: Csn(checkpoint),
        epoch: Epoch(1),
        first_csn: Csn(1),
        next_csn: Csn(1).max(Csn(checkpoint + 1)),
        epochs: &[],
    }
}

fn entry(epoch: u32, csns: (u64, u64), accepted: &[(u32, u64)], voids: &[u64]) -> EpochEntry {
    let voids: CsnSet = voids.iter().copied().map(Csn).collect();
    EpochEntry {
        epoch: Epoch(epoch),
        first_csn: Csn(csns.0),
        frontier: voids.ranges().first().map_or(Csn(csns.1 + 1), |(first, _)| *first),
        last_csn: Csn(csns.1),
        accepted: accepted
            .iter()
            .map(|(log, sequence)| AcceptedEnd { log: LogId(*log), sequence: *sequence })
            .collect(),
        voids,
    }
}

/// The second epoch, after one that was decided in `epochs`.
fn second_run(epochs: &[EpochEntry]) -> Decided<'_> {
    let first_csn = epochs.last().expect("an entry").last_csn.next();
    Decided {
        checkpoint: Csn::ZERO,
        covered: Csn::ZERO,
        epoch: Epoch(2),
        first_csn,
        next_csn: first_csn,
        epochs,
    }
}

fn replayed(selection: &Decision) -> Vec<u64> {
    selection.replay.iter().map(|replay| replay.csn.0).collect()
}

fn refused(decided: &Decided<'_>, logs: &[ScannedLog], csn: u64, says: &str) {
    let error = select(decided, logs).expect_err("must be refused");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.location(), Some(&Location::Transaction(Csn(csn))), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn an_empty_log_replays_nothing_and_draws_from_the_start() {
    let selection = select(&first_run(0), &[]).expect("fine");
    assert_eq!((selection.frontier, selection.last_csn), (Csn(1), Csn(0)));
    assert!(selection.replay.is_empty() && selection.voids.is_empty());
}

#[test]
fn a_torn_tail_above_all_watermarks_cuts_only_its_dependents() {
    // 3 is missing; 4 does not depend on it, 5 may.
    let logs = [
        log(0, 1, vec![record(1, 1, 0, 1), record(1, 4, 2, 3)]),
        log(1, 1, vec![record(1, 2, 1, 1), record(1, 5, 3, 3)]),
    ];
    let selection = select(&first_run(0), &logs).expect("normal");
    assert_eq!(replayed(&selection), [1, 2, 4]);
    assert_eq!(selection.frontier, Csn(3));
    assert_eq!(selection.voids.ranges(), [(Csn(3), Csn(3)), (Csn(5), Csn(5))]);
    assert_eq!((selection.last_csn, selection.discarded), (Csn(5), 1));
}

#[test]
fn dsn_decides_at_exactly_the_frontier() {
    let at = |dsn| [log(0, 1, vec![record(1, 1, 0, 1), record(1, 9, dsn, 2)])];
    assert_eq!(replayed(&select(&first_run(0), &at(1)).expect("fine")), [1, 9]);
    assert_eq!(replayed(&select(&first_run(0), &at(2)).expect("fine")), [1]);
}

#[test]
fn missing_strictly_below_a_stored_watermark_is_refused() {
    let logs = [log(0, 1, vec![record(1, 1, 0, 1), record(1, 4, 0, 3)])];
    refused(&first_run(0), &logs, 2, "everything below CSN 3");
    let logs = [log(0, 1, vec![record(1, 1, 0, 1), record(1, 4, 0, 2)])];
    assert_eq!(replayed(&select(&first_run(0), &logs).expect("2 was not durable")), [1, 4]);
}

#[test]
fn the_refusal_names_the_only_log_that_can_have_a_hole() {
    let holed = with_hole(log(7, 1, vec![record(1, 1, 0, 1)]), vec![record(1, 3, 0, 2)]);
    let whole = log(8, 1, vec![record(1, 4, 0, 3)]);
    refused(&first_run(0), &[holed, whole], 2, "log 7 of epoch 1 has a hole behind block 1");
}

#[test]
fn watermarks_behind_holes_count_but_their_transactions_do_not() {
    let mut holed = with_hole(log(0, 1, vec![record(1, 1, 0, 1)]), vec![record(1, 3, 0, 2)]);
    let selection = select(&first_run(0), &[holed.clone()]).expect("2 may be a torn tail");
    assert_eq!(replayed(&selection), [1]);
    assert_eq!(selection.voids.ranges(), [(Csn(2), Csn(3))], "rule 9: 3 has bytes on the disk");
    holed.records[1].1.watermark = Csn(3);
    refused(&first_run(0), &[holed], 2, "missing");
}

#[test]
fn covered_records_are_neither_replayed_nor_missing_nor_void() {
    let epochs = [entry(1, (1, 8), &[(0, 8)], &[3, 8])];
    let mut decided = second_run(&epochs);
    decided.checkpoint = Csn(5);
    // 1, 2 and 4 are gone with their segments; 3 was void and may be there.
    let logs =
        [log(0, 1, vec![record(1, 3, 0, 1), record(1, 6, 5, 5), record(1, 7, 4, 5), record(1, 8, 7, 5)])];
    let selection = select(&decided, &logs).expect("fine");
    assert_eq!(replayed(&selection), [6, 7]);
    assert_eq!(selection.voids.ranges(), [(Csn(8), Csn(8))]);
}

#[test]
fn voids_of_older_epochs_stay_discarded() {
    // Recovery 1 lost 2 and discarded 3, which depends on it. Now 2 is void and would not stop F.
    let epochs = [entry(1, (1, 3), &[(0, 3)], &[2, 3])];
    let logs = [
        log(0, 1, vec![record(1, 1, 0, 1), record(1, 3, 2, 1)]),
        log(0, 2, vec![record(2, 4, 1, 4), record(2, 5, 4, 4)]),
    ];
    let selection = select(&second_run(&epochs), &logs).expect("fine");
    assert_eq!(replayed(&selection), [1, 4, 5]);
    assert_eq!(selection.voids.ranges(), [(Csn(2), Csn(3))]);
    assert_eq!(selection.discarded, 0, "3 is not news");
    assert_eq!(selection.accepted, [AcceptedEnd { log: LogId(0), sequence: 2 }], "of the running epoch only");
}

#[test]
fn records_of_an_old_epoch_beyond_its_accepted_end_are_ignored() {
    // 2 landed after recovery 1, which accepted log 0 up to block 1; epoch 2 drew 2 again.
    let epochs = [entry(1, (1, 1), &[(0, 1)], &[])];
    let mut late = record(1, 2, 0, 1);
    late.fingerprint = 99;
    let logs = [
        log(0, 1, vec![record(1, 1, 0, 1), late]),
        log(1, 1, vec![record(1, 9, 0, 9)]),
        log(0, 2, vec![record(2, 2, 1, 2)]),
    ];
    let selection = select(&second_run(&epochs), &logs).expect("fine");
    assert_eq!(selection.replay.iter().map(|r| (r.epoch.0, r.csn.0)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
}

#[test]
fn epochs_without_entry_or_of_interrupted_recovery_do_not_count() {
    let logs = [log(0, 1, vec![record(1, 1, 0, 1)]), log(0, 3, vec![record(1, 1, 0, 1), record(3, 7, 0, 7)])];
    let decided = Decided { epoch: Epoch(2), first_csn: Csn(1), next_csn: Csn(1), ..first_run(0) };
    let selection = select(&decided, &logs).expect("fine");
    assert!(selection.replay.is_empty());
    assert_eq!(selection.last_csn, Csn(0));
}

#[test]
fn holes_left_by_segments_that_were_reused_do_not_matter() {
    // Blocks 1 and 2 are covered by the checkpoint; 2 was overwritten, 1 not yet.
    let mut decided = first_run(3);
    let running =
        with_hole(log(0, 1, vec![record(1, 1, 0, 1)]), vec![record(1, 4, 0, 1), record(1, 5, 4, 1)]);
    let selection = select(&decided, &[running]).expect("fine");
    assert_eq!(replayed(&selection), [4, 5]);
    assert_eq!(selection.accepted, [AcceptedEnd { log: LogId(0), sequence: 4 }]);
    let epochs = [entry(1, (1, 5), &[(0, 4)], &[])];
    decided = Decided { checkpoint: Csn(3), covered: Csn(3), ..second_run(&epochs) };
    let old = with_hole(log(0, 1, vec![record(1, 1, 0, 1)]), vec![record(1, 4, 0, 1), record(1, 5, 0, 1)]);
    assert_eq!(replayed(&select(&decided, &[old]).expect("fine")), [4, 5]);
}

#[test]
fn a_lost_accepted_transaction_of_an_old_epoch_is_refused() {
    let epochs = [entry(1, (1, 3), &[(0, 3)], &[2])];
    let logs = [log(0, 1, vec![record(1, 1, 0, 1)])];
    refused(&second_run(&epochs), &logs, 3, "log 0 of epoch 1 has a hole behind block 1");
}

#[test]
fn reappended_copies_are_taken_once_and_must_be_identical() {
    let epochs = [entry(1, (1, 2), &[(0, 2)], &[])];
    let original = log(0, 1, vec![record(1, 1, 0, 1), record(1, 2, 1, 1)]);
    let copies = log(0, 2, vec![record(1, 1, 0, 1), record(1, 2, 1, 1)]);
    let decided = second_run(&epochs);
    let selection = select(&decided, &[original.clone(), copies.clone()]).expect("fine");
    assert_eq!(replayed(&selection), [1, 2]);
    let selection = select(&decided, std::slice::from_ref(&copies)).expect("the copies are enough");
    assert_eq!(replayed(&selection), [1, 2]);
    let mut different = copies;
    different.records[1].1.fingerprint += 1;
    refused(&decided, &[original, different], 2, "two different records");
}

#[test]
fn only_transactions_from_the_watermark_on_are_appended_again() {
    let logs =
        [log(0, 1, vec![record(1, 1, 0, 1), record(1, 2, 0, 1), record(1, 3, 0, 3), record(1, 4, 0, 3)])];
    let selection = select(&first_run(0), &logs).expect("fine");
    assert_eq!(selection.watermark, Csn(3));
    assert_eq!(
        selection.replay[selection.reappend_from..].iter().map(|r| r.csn.0).collect::<Vec<_>>(),
        [3, 4]
    );
}

#[test]
fn csns_announced_in_the_manifest_are_never_drawn_again() {
    let decided = Decided { next_csn: Csn(10), ..first_run(0) };
    let selection = select(&decided, &[log(0, 1, vec![record(1, 1, 0, 1)])]).expect("fine");
    assert_eq!(selection.last_csn, Csn(9));
    assert_eq!(selection.voids.ranges(), [(Csn(2), Csn(9))]);
}

#[test]
fn records_that_no_writer_writes_are_corruption_not_a_panic() {
    let epochs = [entry(1, (5, 9), &[(0, 9)], &[])];
    let mut decided = second_run(&epochs);
    decided.checkpoint = Csn(9);
    for (wrong, says) in [
        (record(2, 9, 0, 1), "outside its epoch"),
        (record(1, 4, 0, 1), "outside its epoch"),
        (record(1, 10, 0, 1), "outside its epoch"),
        (FoundRecord { csn: Csn::MAX, ..record(2, 1, 0, 1) }, "outside its epoch"),
        (record(3, 12, 0, 1), "outside its epoch"),
        (record(2, 12, 12, 1), "depends on itself"),
        (record(2, 12, 0, 13), "above its own CSN"),
    ] {
        refused(&decided, &[log(0, 2, vec![wrong, record(2, 13, 0, 10)])], wrong.csn.0, says);
    }
    let whole = log(0, 2, vec![record(2, 10, 0, 10)]);
    let wild = with_hole(whole, vec![FoundRecord { csn: Csn::MAX, ..record(2, 1, 0, 1) }]);
    assert_eq!(select(&decided, &[wild]).expect("not believed").last_csn, Csn(10));
}

/// Returns true if a set of transactions, each with its DSN, is closed under reads-from: the
/// checkpoint, the void CSNs and the set together contain everything up to each DSN.
pub(super) fn is_closed(checkpoint: Csn, voids: &CsnSet, set: &[(Csn, Csn)]) -> bool {
    let members: CsnSet = set.iter().map(|(csn, _)| *csn).collect();
    let there = members.union(voids).union(&CsnSet::from_ranges([(Csn::ZERO, checkpoint)]));
    let first_absent = there.first_absent(Csn::ZERO);
    set.iter().all(|(_, dsn)| *dsn < first_absent)
}

#[test]
fn closed_means_that_everything_below_each_dsn_is_there() {
    let voids = CsnSet::from_ranges([(Csn(4), Csn(4))]);
    let set =
        |pairs: &[(u64, u64)]| pairs.iter().map(|(csn, dsn)| (Csn(*csn), Csn(*dsn))).collect::<Vec<_>>();
    assert!(is_closed(Csn(2), &voids, &set(&[(3, 2), (5, 4), (9, 5)])));
    assert!(!is_closed(Csn(2), &voids, &set(&[(3, 2), (7, 5)])), "5 is missing");
    assert!(is_closed(Csn(2), &CsnSet::default(), &[]));
}

/// Judged by the exact rule, with a list of `listed` predecessors.
fn exact(csn: u64, dsn: u64, watermark: u64, listed: u8) -> FoundRecord {
    FoundRecord { rule: DependencyRule::Exact { listed }, ..record(1, csn, dsn, watermark) }
}

#[test]
fn an_exact_record_is_judged_by_what_it_lists() {
    let lists = |record: &FoundRecord| {
        Ok(match record.csn.0 {
            5 => vec![Csn(4)],
            7 => vec![Csn(3), Csn(5)],
            8 => vec![Csn(6)],
            9 => vec![Csn(3), Csn(8)],
            _ => Vec::new(),
        })
    };
    // 2 and 6 are lost. 3 lists nothing; 4 is judged by its DSN.
    let first = log(0, 1, vec![record(1, 1, 0, 1), exact(3, 2, 1, 0), exact(5, 4, 1, 1), exact(8, 6, 1, 1)]);
    let second = log(1, 1, vec![record(1, 4, 1, 1), exact(7, 5, 1, 2), exact(9, 8, 1, 2)]);
    let decision = select_listed(&first_run(0), &[first.clone(), second], &lists).expect("nothing is lost");
    let replayed: Vec<u64> = decision.replay.iter().map(|record| record.csn.0).collect();
    assert_eq!(replayed, [1, 3, 4, 5, 7], "8 read what 6 wrote, 9 what 8 wrote");
    assert_eq!(decision.voids.ranges(), [(Csn(2), Csn(2)), (Csn(6), Csn(6)), (Csn(8), Csn(9))]);
    assert_eq!((decision.frontier, decision.discarded), (Csn(2), 2));
    // The same, if what 5 needs is judged by a DSN that is not below F.
    let second = log(1, 1, vec![record(1, 4, 2, 1), exact(7, 5, 1, 2), exact(9, 8, 1, 2)]);
    let decision = select_listed(&first_run(0), &[first, second], &lists).expect("nothing is lost");
    let replayed: Vec<u64> = decision.replay.iter().map(|record| record.csn.0).collect();
    assert_eq!(replayed, [1, 3], "4 is discarded, and whoever builds on it");
}

/// Fragment `number` of `count`.
fn fragment(record: FoundRecord, number: u32, count: u32) -> FoundRecord {
    FoundRecord { kind: RecordKind::Fragment, fragment: Some(Fragment { number, count }), ..record }
}

fn csns(decision: &Decision) -> Vec<u64> {
    decision.replay.iter().map(|record| record.csn.0).collect()
}

#[test]
fn a_transaction_with_a_lost_fragment_is_discarded_with_readers() {
    let of = |csn, dsn, number, count| fragment(record(1, csn, dsn, 1), number, count);
    // 1 to 3 are whole; of 4 to 6 the middle one is lost; 7 and 8 read nothing, 9 read 6.
    let first = log(0, 1, vec![of(1, 0, 0, 3), of(4, 3, 0, 3), of(7, 0, 0, 2)]);
    let second = log(1, 1, vec![of(2, 0, 1, 3), of(8, 0, 1, 2)]);
    let third = log(2, 1, vec![of(3, 0, 2, 3), of(6, 3, 2, 3), record(1, 9, 6, 1)]);
    let logs = [first, second, third];
    let decision = select(&first_run(0), &logs).expect("nothing is lost");
    assert_eq!(csns(&decision), [1, 2, 3, 7, 8]);
    assert_eq!((decision.frontier, decision.replayed, decision.discarded), (Csn(5), 2, 2));
    assert_eq!(decision.voids.ranges(), [(Csn(4), Csn(6)), (Csn(9), Csn(9))]);
}

#[test]
fn of_a_discarded_transaction_no_fragment_comes_back() {
    let of = |csn, number| fragment(record(1, csn, 0, 1), number, 2);
    let first = log(0, 1, vec![of(1, 0)]);
    let once = select(&first_run(0), std::slice::from_ref(&first)).expect("nothing is lost");
    assert_eq!((csns(&once), once.voids.ranges()), (vec![], &[(Csn(1), Csn(1))][..]));
    // The other fragment was on its way when the process was killed, and landed after the scan.
    let entries = [once.entry(&first_run(0))];
    let decided =
        Decided { epoch: Epoch(2), first_csn: Csn(2), next_csn: Csn(2), epochs: &entries, ..first_run(0) };
    let late = select(&decided, &[first, log(1, 1, vec![of(2, 1)])]).expect("nothing is lost");
    assert_eq!(csns(&late), Vec::<u64>::new());
}

#[test]
fn fragments_are_judged_by_what_the_first_one_lists() {
    let lists = |record: &FoundRecord| Ok(if record.csn == Csn(3) { vec![Csn(2)] } else { Vec::new() });
    let first = |lost: bool| {
        let mut records = vec![fragment(exact(3, 2, 1, 1), 0, 2)];
        if !lost {
            records.insert(0, record(1, 2, 1, 1));
        }
        log(0, 1, records)
    };
    let second = log(1, 1, vec![record(1, 1, 0, 1), fragment(exact(4, 2, 1, 0), 1, 2), exact(5, 0, 1, 0)]);
    let all = select_listed(&first_run(0), &[first(false), second.clone()], &lists).expect("whole");
    assert_eq!(csns(&all), [1, 2, 3, 4, 5]);
    let without = select_listed(&first_run(0), &[first(true), second], &lists).expect("nothing is lost");
    assert_eq!(csns(&without), [1, 5], "the second fragment lists nothing, and goes with the first");
}

#[test]
fn fragments_that_do_not_fit_together_are_none() {
    let of = |csn, number, count| fragment(record(1, csn, 0, 1), number, count);
    let first = log(0, 1, vec![of(1, 0, 2), of(3, 0, 3), of(6, 1, 2)]);
    let second = log(1, 1, vec![of(2, 1, 3), of(4, 1, 3), of(5, 0, 2)]);
    let decision = select(&first_run(0), &[first, second]).expect("nothing is lost");
    assert_eq!(csns(&decision), [5, 6]);
}

#[test]
fn a_record_that_lists_a_later_one_is_corrupt() {
    let found = log(0, 1, vec![record(1, 1, 0, 1), exact(3, 2, 1, 1)]);
    let error = select_listed(&first_run(0), &[found], &|_| Ok(vec![Csn(3)])).expect_err("itself");
    assert!(error.to_string().contains("lists itself"), "{error}");
}

/// The parts of a long transaction were written in any order, and only the last one arrived. It
/// lists nothing, and its chunks are lost.
#[test]
fn a_log_without_its_first_block_above_the_checkpoint_is_empty() {
    let block = |sequence, csn, previous| FoundBlock {
        sequence,
        first_csn: Csn(csn),
        last_csn: Csn(csn),
        previous_csn: Csn(previous),
        watermark: Csn(1),
    };
    let found = |blocks| FoundLog { log: LogId(0), epoch: Epoch(1), blocks };
    let counts = |blocks: Vec<FoundBlock>, sequence| {
        Bounds::new(first_run(10), vec![found(blocks)]).counts(0, sequence)
    };
    assert!(counts(vec![block(3, 14, 9), block(4, 15, 14)], 4), "what was before is covered");
    assert!(!counts(vec![block(3, 14, 13), block(4, 15, 14)], 3), "the block with 13 is missing");
    assert!(!counts(vec![block(1, 9, 0), block(3, 14, 13)], 3), "however far it was before");
}
