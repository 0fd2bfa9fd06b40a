//! The judges are judged: a small database of lists under snapshot isolation, with bugs to order,
//! whose histories our judge and `adya`, a checker by others, must both see through.

use adya::{Opts, Valid, Workload};
use quench_checker::{History, Kind, Level, Observed, Outcome, Verdict, versions};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// Commits do not check whether another transaction wrote the list.
    LostUpdate,
    /// A snapshot is older than what was acknowledged.
    StaleSnapshot,
    /// One read looks at what is newest.
    TornSnapshot,
    /// An abort leaves what was written.
    DirtyAbort,
    /// A reader sees half of a commit.
    HalfCommit,
    /// A commit is acknowledged and not kept.
    LostCommit,
    /// A transaction does not see its own append.
    BlindToOwn,
    /// A list is read with two elements exchanged.
    Disorder,
    /// A serializable commit does not look whether what it read has changed.
    ReadsNotValidated,
}

const BUGS: [Bug; 8] = [
    Bug::LostUpdate,
    Bug::StaleSnapshot,
    Bug::TornSnapshot,
    Bug::DirtyAbort,
    Bug::HalfCommit,
    Bug::LostCommit,
    Bug::BlindToOwn,
    Bug::Disorder,
];

const KEYS: u64 = 5;

struct Running {
    begun: u64,
    snapshot: u64,
    appended: Vec<(u32, u32)>,
    left: u64,
    observed: Observed,
    reads: BTreeSet<u32>,
}

/// What happened, for both judges; and how often the bug did.
struct Run {
    lists: History,
    rows: Vec<Observed>,
    happened: u64,
}

/// Lists with the CSN of each element.
#[derive(Default)]
struct Lists(BTreeMap<u32, Vec<(u64, u32)>>);

impl Lists {
    fn read(&self, key: u32, snapshot: u64) -> Vec<u32> {
        let list = self.0.get(&key).into_iter().flatten();
        list.filter(|(csn, _)| *csn <= snapshot).map(|(_, value)| *value).collect()
    }

    fn newest(&self, key: u32) -> u64 {
        self.0.get(&key).and_then(|list| list.last()).map_or(0, |(csn, _)| *csn)
    }
}

fn snapshot_run(seed: u64, transactions: usize, bug: Bug) -> Run {
    run(Level::Snapshot, seed, transactions, bug)
}

/// `transactions` of four sessions, interleaved at random. A row of the same name has the length of
/// its list, 0 as absent.
fn run(level: Level, seed: u64, transactions: usize, bug: Bug) -> Run {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut lists, mut now, mut csn, mut value) = (Lists::default(), 0, 0, 0);
    // The number between two halves of a commit.
    let mut half = u64::MAX;
    let mut history = Vec::new();
    let mut run = Run { lists: History::default(), rows: Vec::new(), happened: 0 };
    let mut sessions: Vec<(Option<Running>, History)> = (0..4).map(|_| (None, History::default())).collect();
    let mut done = 0;
    while done < transactions {
        now += 1;
        let at = random.below(4) as usize;
        let (session, record) = &mut sessions[at];
        let Some(mut tx) = session.take() else {
            let mut stale = if bug == Bug::StaleSnapshot && csn > 3 && random.chance(8) {
                1 + random.below(3)
            } else {
                0
            };
            if bug == Bug::HalfCommit && half == csn && random.chance(2) {
                stale = 1;
            }
            run.happened += u64::from(stale > 0);
            let observed = Observed { level, begun: now, ..Observed::default() };
            let left = 1 + random.below(4);
            let (appended, reads) = (Vec::new(), BTreeSet::new());
            *session = Some(Running { begun: now, snapshot: csn - stale, appended, left, observed, reads });
            continue;
        };
        if tx.left > 0 {
            tx.left -= 1;
            // After a while others, so that no list gets long.
            let key = (done / 200) as u32 * KEYS as u32 + random.below(KEYS) as u32;
            let own: Vec<u32> = tx.appended.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v).collect();
            if random.chance(2) {
                value += 1;
                tx.appended.push((key, value));
                record.append(key, value);
            } else {
                let torn = bug == Bug::TornSnapshot && random.chance(4);
                let mut list = lists.read(key, if torn { csn } else { tx.snapshot });
                run.happened += u64::from(torn && lists.newest(key) > tx.snapshot);
                if tx.reads.insert(key) {
                    tx.observed.reads.push((key.into(), length(&list)));
                }
                let blind = bug == Bug::BlindToOwn && !own.is_empty() && random.chance(4);
                if blind {
                    run.happened += 1;
                } else {
                    list.extend(own);
                }
                if bug == Bug::Disorder && list.len() > 2 && random.chance(8) {
                    list.swap(0, 1);
                    run.happened += 1;
                }
                record.read(key, list);
            }
            *session = Some(tx);
            continue;
        }
        done += 1;
        let keys: BTreeSet<u32> = tx.appended.iter().map(|(key, _)| *key).collect();
        let changed = |keys: &BTreeSet<u32>| keys.iter().any(|key| lists.newest(*key) > tx.snapshot);
        let is_invalid = level == Level::Serializable && !keys.is_empty() && changed(&tx.reads);
        let unnoticed = is_invalid && bug == Bug::ReadsNotValidated && random.chance(2);
        let conflict = changed(&keys) || is_invalid && !unnoticed;
        let overlooked = conflict && bug == Bug::LostUpdate && random.chance(2);
        run.happened += u64::from(overlooked) + u64::from(unnoticed && !conflict);
        let aborts = conflict && !overlooked || random.chance(10);
        let dirty = aborts && !tx.appended.is_empty() && bug == Bug::DirtyAbort && random.chance(4);
        let lost = !aborts && !keys.is_empty() && bug == Bug::LostCommit && random.chance(8);
        run.happened += u64::from(dirty) + u64::from(lost);
        if !aborts && !keys.is_empty() || dirty {
            csn += 1;
            let halves = bug == Bug::HalfCommit && tx.appended.len() > 1 && random.chance(2);
            for (n, (key, value)) in tx.appended.iter().enumerate() {
                // The second half has a number of its own: a snapshot that is one too old is
                // between.
                if halves && n == tx.appended.len() / 2 {
                    csn += 1;
                    half = csn;
                }
                if !lost {
                    lists.0.entry(*key).or_default().push((csn, *value));
                }
            }
        }
        if !aborts {
            tx.observed.ended = now;
            tx.observed.csn = (!keys.is_empty()).then_some(csn);
            tx.observed.writes = keys.iter().map(|k| (u64::from(*k), length(&lists.read(*k, csn)))).collect();
            history.push(tx.observed);
        }
        record.end_at(level, tx.begun, now, if aborts { Outcome::Aborted } else { Outcome::Committed });
    }
    // All lists, at the end.
    for (running, mut record) in sessions {
        if running.is_some() {
            record.forget();
        }
        run.lists.absorb(record);
    }
    now += 1;
    let mut last = Observed { begun: now, ended: now + 1, ..Observed::default() };
    for key in 0..(transactions / 200 + 1) as u32 * KEYS as u32 {
        let list = lists.read(key, csn);
        last.reads.push((key.into(), length(&list)));
        run.lists.read(key, list);
    }
    run.lists.end(now, now + 1, Outcome::Committed);
    history.push(last);
    run.rows = history;
    run
}

fn length(list: &[u32]) -> versions::Value {
    (!list.is_empty()).then_some(list.len() as u64)
}

fn adya_finds(history: &History, model: &str) -> Option<Vec<String>> {
    let theirs = adya::History::from_json(&history.to_json_lines()).expect("as they write it");
    let opts = Opts { models: vec![model.into()], ..Opts::default() };
    let report = adya::check(&theirs, Workload::ListAppend, &opts);
    assert_ne!(report.valid, Valid::Unknown, "{:?}", report.anomaly_types);
    (report.valid == Valid::False).then_some(report.anomaly_types)
}

#[test]
fn what_is_isolated_is_found_to_be() {
    for seed in 1..=300 {
        let run = snapshot_run(seed, 60, Bug::None);
        let verdict = run.lists.check(Level::Snapshot);
        assert!(verdict.is_valid() && verdict.judged > 20, "seed {seed}: {:?}", verdict.violations);
        assert_eq!(adya_finds(&run.lists, "strong-snapshot-isolation"), None, "seed {seed}");
        let verdict = versions::check(&run.rows);
        assert!(verdict.is_valid() && verdict.judged > 20, "seed {seed}: {:?}", verdict.violations);
    }
}

#[test]
fn judges_agree_on_every_history_with_and_without_bugs() {
    for bug in BUGS {
        let (mut histories, mut ours, mut theirs, mut rows) = (0, 0, 0, 0);
        for seed in 1..=150 {
            let run = snapshot_run(seed, 60, bug);
            let verdict = run.lists.check(Level::Snapshot);
            let other = adya_finds(&run.lists, "strong-snapshot-isolation");
            assert_eq!(
                verdict.is_valid(),
                other.is_none(),
                "{bug:?}, seed {seed}: we {:?}, adya {other:?}",
                verdict.violations
            );
            assert!(run.happened > 0 || verdict.is_valid(), "{bug:?}, seed {seed}: {:?}", verdict.violations);
            histories += u64::from(run.happened > 0);
            ours += u64::from(!verdict.is_valid());
            theirs += u64::from(other.is_some());
            rows += u64::from(!versions::check(&run.rows).is_valid());
        }
        println!("{bug:?}: in {histories} of 150, we find {ours}, adya {theirs}, the judge of rows {rows}");
        // Not every occurrence is visible.
        assert!(histories > 50 && ours * 3 > histories && ours == theirs, "{bug:?}: {ours} of {histories}");
    }
}

/// The outcome of every third commit and abort is unknown. Our judge trusts the reads of an
/// observed transaction; `adya` leaves them open.
#[test]
fn judges_agree_where_outcomes_are_unknown() {
    for bug in [&[Bug::None][..], &BUGS].concat() {
        let (mut ours, mut theirs, mut unknown) = (0, 0, 0);
        for seed in 1..=100 {
            let mut history = snapshot_run(seed, 60, bug).lists;
            let last = history.len() - 1;
            let mut random = Random(seed << 8 | 1);
            let untold: Vec<bool> = (0..last).map(|_| random.chance(3)).collect();
            history.revise(|at, outcome| if at < last && untold[at] { Outcome::Unknown } else { outcome });
            let verdict = history.check(Level::Snapshot);
            let other = adya_finds(&history, "strong-snapshot-isolation");
            assert!(
                other.is_none() || !verdict.is_valid(),
                "{bug:?}, seed {seed}: we find nothing, adya {other:?}"
            );
            ours += u64::from(!verdict.is_valid());
            theirs += u64::from(other.is_some());
            unknown += untold.iter().filter(|untold| **untold).count();
        }
        println!("{bug:?}, {unknown} of unknown outcome: of 100 we find {ours}, adya {theirs}");
        if bug == Bug::None {
            assert_eq!((ours, theirs), (0, 0));
        } else {
            assert!(theirs > 10 && theirs * 2 > ours, "{bug:?}: {ours}, {theirs}");
        }
    }
}

#[test]
fn serializability_is_judged_like_others_do() {
    let mut skewed = 0;
    for seed in 1..=200 {
        let run = snapshot_run(seed, 40, Bug::None);
        let verdict = run.lists.check(Level::Serializable);
        let other = adya_finds(&run.lists, "strict-serializable");
        assert_eq!(
            verdict.is_valid(),
            other.is_none(),
            "seed {seed}: we {:?}, adya {other:?}",
            verdict.violations
        );
        skewed += u64::from(!verdict.is_valid());
    }
    assert!(skewed > 50, "snapshot isolation is not serializable: {skewed}");
}

#[test]
fn what_is_serializable_is_found_to_be_and_bugs_are_found() {
    for (bug, least) in [(Bug::None, 0), (Bug::ReadsNotValidated, 40), (Bug::StaleSnapshot, 40)] {
        let (mut ours, mut rows, mut histories) = (0, 0, 0);
        for seed in 1..=150 {
            let run = run(Level::Serializable, seed, 60, bug);
            let verdict = run.lists.check(Level::Snapshot);
            let other = adya_finds(&run.lists, "strict-serializable");
            assert_eq!(
                verdict.is_valid(),
                other.is_none(),
                "{bug:?}, seed {seed}: we {:?}, adya {other:?}",
                verdict.violations
            );
            assert!(verdict.is_valid() || run.happened > 0, "seed {seed}: {:?}", verdict.violations);
            let of_rows = versions::check(&run.rows);
            assert!(of_rows.is_valid() || run.happened > 0, "seed {seed}: {:?}", of_rows.violations);
            ours += u64::from(!verdict.is_valid());
            rows += u64::from(!of_rows.is_valid());
            histories += u64::from(run.happened > 0);
        }
        println!("{bug:?}: in {histories} of 150, we find {ours}, the judge of rows {rows}");
        assert!(ours >= least && rows >= least, "{bug:?}: {ours} and {rows} of {histories}");
    }
}

/// Two transactions each read a list and append to the list that the other one read.
fn skew(levels: [Level; 2], begins: [u64; 2]) -> History {
    let mut history = History::default();
    for (n, level) in levels.into_iter().enumerate() {
        let n = n as u32;
        history.read(n, []);
        history.append(1 - n, 10 + n);
        history.end_at(level, begins[n as usize], 5 + u64::from(n), Outcome::Committed);
    }
    history.read(0, [11]);
    history.read(1, [10]);
    history.end(7, 8, Outcome::Committed);
    history
}

#[test]
fn write_skew_is_found_if_both_are_serializable() {
    use Level::{Serializable, Snapshot};
    for (levels, valid) in [
        ([Snapshot, Snapshot], true),
        ([Snapshot, Serializable], true),
        ([Serializable, Snapshot], true),
        ([Serializable, Serializable], false),
    ] {
        let verdict = skew(levels, [1, 2]).check(Snapshot);
        assert_eq!(verdict.is_valid(), valid, "{levels:?}: {:?}", verdict.violations);
        assert!(!skew(levels, [1, 2]).check(Serializable).is_valid(), "{levels:?}");
    }
}

#[test]
fn a_serial_order_against_real_time_is_found() {
    for (begun, valid) in [(1, true), (3, false)] {
        let mut history = History::default();
        history.append(1, 10);
        history.end_at(Level::Serializable, 0, 2, Outcome::Committed);
        // It reads the state before the append, which had ended if this one began at 3.
        history.read(1, []);
        history.append(2, 20);
        history.end_at(Level::Serializable, begun, 5, Outcome::Committed);
        let verdict = history.check(Level::Serializable);
        assert_eq!(verdict.is_valid(), valid, "begun at {begun}: {:?}", verdict.violations);
    }
}

fn kinds(verdict: &Verdict) -> Vec<Kind> {
    verdict.violations.iter().map(|violation| violation.kind).collect()
}

#[test]
fn unknown_outcomes_count_if_somebody_saw_them() {
    let mut history = History::default();
    history.append(1, 10);
    history.end(1, 2, Outcome::Unknown);
    history.append(2, 20);
    history.read(1, [10]);
    history.end(3, 4, Outcome::Unknown);
    let nobody = history.check(Level::Snapshot);
    assert!(nobody.is_valid() && nobody.judged == 0);
    // A reader of the second cannot miss the first, which the second had read.
    history.read(2, [20]);
    history.read(1, []);
    history.end(5, 6, Outcome::Committed);
    let verdict = history.check(Level::Snapshot);
    assert_eq!((kinds(&verdict), verdict.judged), (vec![Kind::Cycle], 3));
}

#[test]
fn phantoms_are_found() {
    let wrote = |begun, csn, writes| Observed {
        begun,
        ended: begun + 1,
        csn: Some(csn),
        writes,
        ..Observed::default()
    };
    let scanned = |begun, ended, rows| Observed {
        begun,
        ended,
        scans: vec![versions::Scan { first: 0, last: 9, rows }],
        ..Observed::default()
    };
    let history = |scan: Observed| {
        let first = wrote(1, 1, vec![(3, Some(30)), (5, Some(50))]);
        let second = wrote(3, 2, vec![(4, Some(40)), (5, None)]);
        versions::check(&[first, second, scan])
    };
    // While the second ran: before it, after it, and not between.
    for (rows, valid) in [
        (vec![(3, 30), (5, 50)], true),
        (vec![(3, 30), (4, 40)], true),
        (vec![(3, 30), (4, 40), (5, 50)], false),
        (vec![(3, 30)], false),
        (vec![(3, 30), (5, 51)], false),
        (vec![(3, 30), (4, 40), (6, 60)], false),
        (vec![], false),
        (vec![(4, 40), (3, 30)], false),
    ] {
        let verdict = history(scanned(3, 9, rows.clone()));
        assert_eq!(verdict.is_valid(), valid, "{rows:?}: {:?}", verdict.violations);
    }
    // After it what was before is too late, and so is a snapshot that says so.
    assert!(!history(scanned(5, 9, vec![(3, 30), (5, 50)])).is_valid());
    let told = Observed { snapshot: Some(1), ..scanned(3, 9, vec![(3, 30), (4, 40)]) };
    assert!(!history(told).is_valid(), "its snapshot has not seen the second");
    // Deciding by a scan, and writing a row that another has written since: the first updater wins.
    let late =
        Observed { csn: Some(3), writes: vec![(4, Some(41))], ..scanned(3, 9, vec![(3, 30), (5, 50)]) };
    assert!(!history(late.clone()).is_valid());
    assert!(history(Observed { writes: vec![(3, Some(31))], ..late }).is_valid(), "write skew");
}

#[test]
fn serializable_rows_are_read_at_the_commit() {
    let at = |level, csn, scan, writes| Observed {
        level,
        begun: 1,
        ended: 10 + csn,
        csn: Some(csn),
        scans: vec![scan],
        writes,
        ..Observed::default()
    };
    let empty = |first| versions::Scan { first, last: first + 9, rows: vec![] };
    // Each inserts a row into the range that the other one found empty.
    for (level, valid) in [(Level::Snapshot, true), (Level::Serializable, false)] {
        let first = at(level, 1, empty(0), vec![(12, Some(1))]);
        let second = at(level, 2, empty(10), vec![(2, Some(2))]);
        let verdict = versions::check(&[first, second]);
        assert_eq!(verdict.is_valid(), valid, "{level:?}: {:?}", verdict.violations);
    }
}

#[test]
fn time_does_not_go_backwards_between_two_readers() {
    let wrote =
        Observed { begun: 0, ended: 20, csn: Some(1), writes: vec![(1, Some(1))], ..Observed::default() };
    let reader =
        |begun, value| Observed { begun, ended: begun + 1, reads: vec![(1, value)], ..Observed::default() };
    for (second, valid) in [(2, true), (4, false)] {
        let verdict = versions::check(&[reader(second, None), wrote.clone(), reader(2, Some(1))]);
        assert_eq!(verdict.is_valid(), valid, "begun at {second}: {:?}", verdict.violations);
    }
}

#[test]
fn judging_takes_about_a_microsecond_a_transaction() {
    let run = snapshot_run(7, 100_000, Bug::None);
    let begun = std::time::Instant::now();
    let verdict = run.lists.check(Level::Snapshot);
    println!("{} of lists judged in {:?}", verdict.judged, begun.elapsed());
    assert!(verdict.is_valid());
    let begun = std::time::Instant::now();
    let verdict = versions::check(&run.rows);
    println!("{} of rows judged in {:?}", verdict.judged, begun.elapsed());
    assert!(verdict.is_valid());
}
