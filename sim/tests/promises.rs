//! A device that breaks its promises, one write at a time: each write of a small life is lost, torn, misdirected, done twice or not flushed although
//! the device said so, and each read of what is left finds a flipped bit. Each time it is told what was struck (a log block, a page's image, a part of
//! the mapping, the manifest), and what the engine finds of it when it opens, reads, and verifies. What cannot be found out is named here.

#[path = "../../engine/tests/support/mod.rs"]
mod support;

use quenchdb::base::random::Random;
use quenchdb::device::simulated::{CrashKind, Mishap, MishapKind, OperationKind, SimulatedStorage};
use quenchdb::sync::simulation::{self, Plan};
use quenchdb::{Compression, Database, ErrorKind, Preset, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::small;

const SEED: u64 = 1;
const TRANSACTIONS: u32 = 40;
/// Two checkpoints; what follows the second is in the log only.
const CHECKPOINTS: [u32; 2] = [15, 30];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn settings() -> Settings {
    Settings {
        // A block of the store for each page.
        compression: Compression::None,
        page_bytes: 4096,
        memory_bytes: 4 << 20,
        log_bytes_max: 8 << 20,
        ..small(Preset::PerTransaction, 1)
    }
}

fn open(disk: &SimulatedStorage) -> quenchdb::Result<Database> {
    Database::builder().settings(settings()).storage(Arc::new(disk.clone())).open("simulated")
}

/// What was acknowledged: the content after each transaction. Ends where something failed.
fn live(disk: &SimulatedStorage) -> Vec<Content> {
    let (mut random, mut content, mut history) =
        (Random::from_seed(SEED), Content::new(), vec![Content::new()]);
    let mut work = || -> quenchdb::Result<()> {
        let db = open(disk)?;
        let table = db.create_table("t")?;
        for n in 0..TRANSACTIONS {
            if CHECKPOINTS.contains(&n) {
                db.checkpoint()?;
            }
            let mut tx = db.begin()?;
            for _ in 0..4 {
                let key = format!("key {:03}", random.below(120)).into_bytes();
                let value = format!("value {n} {}", "x".repeat(random.below(300) as usize)).into_bytes();
                tx.insert(&table, &key, &value)?;
                content.insert(key, value);
            }
            tx.commit()?;
            history.push(content.clone());
        }
        disk.stop();
        Ok(())
    };
    // A read in the same life may have found it: then that is the end.
    let _ = work();
    disk.stop();
    history
}

/// How the database answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Answer {
    /// Everything acknowledged is there, and `verify` finds nothing.
    Whole,
    /// The same, but `verify` finds something.
    FoundByVerify,
    /// The newest transactions are gone without a word; what is there is as it was before them.
    Prefix,
    /// It does not open, and says where the damage is.
    Refused,
    /// It opens; what is damaged is refused when it is read, and found by `verify`. The rest is right.
    FoundByReading,
}

fn judge(left: &SimulatedStorage, history: &[Content], context: &str) -> Answer {
    let is_damage = |error: &quenchdb::Error| {
        let kinds =
            [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
        assert!(kinds.contains(&error.kind()), "{context}: {error}");
    };
    let db = match open(left) {
        Ok(db) => db,
        Err(error) => {
            is_damage(&error);
            return Answer::Refused;
        }
    };
    let mut content = Content::new();
    let mut refused = false;
    match db.table("t") {
        Ok(table) => {
            let snapshot = db.begin_read().expect("free");
            for row in snapshot.range::<&[u8]>(&table, ..) {
                match row {
                    Ok((key, value)) => drop(content.insert(key, value)),
                    Err(error) => {
                        is_damage(&error);
                        refused = true;
                    }
                }
            }
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{context}"),
    }
    let report = db.verify(None).expect("it runs");
    let last = history.last().expect("not empty");
    let answer = if refused {
        assert!(!report.problems.is_empty(), "{context}: reads fail, and verify finds nothing");
        let right = content.iter().all(|(key, value)| last.get(key) == Some(value));
        assert!(right, "{context}: wrong rows beside the damage");
        Answer::FoundByReading
    } else if content == *last {
        if report.problems.is_empty() { Answer::Whole } else { Answer::FoundByVerify }
    } else {
        assert!(report.problems.is_empty(), "{context}: an older state, and {:?}", report.problems);
        assert!(history.contains(&content), "{context}: a state that never was");
        Answer::Prefix
    };
    left.stop();
    answer
}

/// What a place on the disk holds, as of so many operations of a life in which all went well.
fn class_of(well: &SimulatedStorage, operations: usize, path: &str, offset: u64) -> &'static str {
    if path == "MANIFEST" {
        return "manifest";
    }
    if path.starts_with("log/") {
        return "log block";
    }
    assert!(path.starts_with("pages"), "{path}");
    let bytes = well.crash(CrashKind::Kill, operations, SEED).read_file(path).expect("it was written to");
    // Byte 6 of a block says what it is.
    match bytes[offset as usize / 4096 * 4096 + 6] {
        1 => "header of the store",
        2 | 6 => "page",
        3 | 4 => "mapping",
        5 => "list",
        other => panic!("a block of kind {other}"),
    }
}

/// Path and offset of a line of the journal.
fn place_of(line: &str) -> Option<(String, u64)> {
    let (head, rest) = line.split_once(" at ")?;
    let path = head.rsplit(' ').next()?.to_string();
    let offset = rest.split(',').next()?.trim().parse().ok()?;
    Some((path, offset))
}

/// What the write held that did not become what it should have, by the journal of the life in which it was struck; `lines` are those of the
/// life in which all went well.
fn struck_in(well: &SimulatedStorage, lines: &[String], struck: &[String]) -> &'static str {
    let marked = |line: &String| {
        line.starts_with("will ") || line.starts_with("write log/") || line.starts_with("write MANIFEST")
    };
    // A flush that was not done has left no line.
    let Some(at) = struck.iter().position(marked) else { return "flush" };
    let place = place_of(&struck[at]).expect("it says its place");
    let is_there = |line: &&String| {
        let starts = ["durable write ", "write ", "will never "].iter().any(|how| line.starts_with(how));
        starts && place_of(line).as_ref() == Some(&place)
    };
    let earlier = struck[..at].iter().filter(is_there).count() - usize::from(struck[at].contains("again"));
    let same = lines.iter().enumerate().filter(|(_, line)| is_there(line)).nth(earlier);
    let (operation, _) = same.expect("the same life until then");
    let later = |what: &str| {
        lines[operation + 1..].iter().any(|line| line.starts_with("durable write ") && line.contains(what))
    };
    match class_of(well, operation + 1, &place.0, place.1) {
        "log block" if later("MANIFEST") => "log block below the checkpoint",
        "log block" if !later("log/") => "newest log block",
        class => class,
    }
}

/// What was struck and what became of it, with how often, over all writes of the life.
fn strike_each(kind: MishapKind, crash: CrashKind) -> BTreeMap<(&'static str, Answer), u64> {
    let _alone = support::alone();
    let well = SimulatedStorage::new(SEED);
    simulation::run(Plan::of(SEED), || live(&well));
    let lines = well.describe(0);
    let mut found = BTreeMap::new();
    for operation in [OperationKind::DurableWrite, OperationKind::Write, OperationKind::Flush] {
        for after in 0.. {
            let disk = SimulatedStorage::new(SEED);
            disk.inject_mishap(Mishap { operation, after, kind });
            let (history, _) = simulation::run(Plan::of(SEED), || live(&disk));
            if disk.faults_struck() == 0 {
                break;
            }
            let class = struck_in(&well, &lines, &disk.describe(0));
            let left = disk.crash(crash, disk.operations(), after);
            let context = format!("{kind:?} of {operation:?} {after} ({class})");
            let (answer, _) = simulation::run(Plan::of(SEED), || judge(&left, &history, &context));
            *found.entry((class, answer)).or_default() += 1;
        }
    }
    println!("{}: {found:?}", kind.name());
    found
}

fn answers(found: &BTreeMap<(&'static str, Answer), u64>, class: &str) -> BTreeSet<Answer> {
    found.keys().filter(|(of, _)| *of == class).map(|(_, answer)| *answer).collect()
}

/// Asserts what became of all that was struck of a class, and, of what is `found` at all, that something was.
fn assert_answers(found: &BTreeMap<(&'static str, Answer), u64>, class: &str, allowed: &[Answer]) {
    let answers = answers(found, class);
    assert!(!answers.is_empty(), "no {class} was struck: {found:?}");
    assert!(answers.iter().all(|answer| allowed.contains(answer)), "{class}: {answers:?}, not {allowed:?}");
}

/// What is damaged in the store is found by whoever opens, reads or verifies; what the next checkpoint replaced is missed by nobody.
const FOUND_OR_REPLACED: [Answer; 4] =
    [Answer::Whole, Answer::Refused, Answer::FoundByReading, Answer::FoundByVerify];

/// The store and the manifest, as for each kind of mishap that harms them.
fn assert_store(found: &BTreeMap<(&'static str, Answer), u64>) {
    for class in ["page", "mapping", "list"] {
        assert_answers(found, class, &FOUND_OR_REPLACED);
    }
    let detected = |class| answers(found, class).iter().any(|answer| *answer != Answer::Whole);
    assert!(
        detected("page") || detected("mapping"),
        "nothing of the newest checkpoint was struck: {found:?}"
    );
}

#[test]
fn a_lost_write_is_found_but_of_the_newest_log_block() {
    let found = strike_each(MishapKind::Lost, CrashKind::Kill);
    assert_store(&found);
    assert_answers(&found, "header of the store", &[Answer::Refused]);
    // There is another slot.
    assert_answers(&found, "manifest", &[Answer::Whole]);
    assert_answers(&found, "log block below the checkpoint", &[Answer::Whole]);
    assert_answers(&found, "log block", &[Answer::Refused]);
    // It looks like a block that was never written: a torn tail.
    assert_answers(&found, "newest log block", &[Answer::Prefix]);
}

#[test]
fn a_torn_write_is_found_but_of_the_newest_log_block() {
    let found = strike_each(MishapKind::Torn, CrashKind::Kill);
    assert_store(&found);
    assert_answers(&found, "header of the store", &[Answer::Refused, Answer::Whole]);
    assert_answers(&found, "manifest", &[Answer::Whole]);
    assert_answers(&found, "log block below the checkpoint", &[Answer::Whole]);
    // Whole if all that was not written is padding.
    assert_answers(&found, "log block", &[Answer::Refused, Answer::Whole]);
    assert_answers(&found, "newest log block", &[Answer::Prefix, Answer::Whole]);
}

/// It is not where it belongs, and damages another place.
#[test]
fn a_misdirected_write_is_found_but_of_the_newest_log_block() {
    let found = strike_each(MishapKind::Misdirected, CrashKind::Kill);
    assert_store(&found);
    assert_answers(&found, "manifest", &FOUND_OR_REPLACED);
    assert_answers(&found, "log block below the checkpoint", &FOUND_OR_REPLACED);
    // Recovery goes by what a block says of itself: it finds one that landed elsewhere in the log.
    assert_answers(&found, "log block", &[Answer::Refused, Answer::Whole]);
    assert_answers(&found, "newest log block", &[Answer::Prefix, Answer::Refused, Answer::Whole]);
}

/// Nothing that is in use is written to, so most are harmless; a block that was used again meanwhile is found.
#[test]
fn a_write_that_is_done_twice_is_harmless_or_found() {
    let found = strike_each(MishapKind::Duplicated, CrashKind::Kill);
    for class in ["page", "mapping", "list", "manifest", "log block", "newest log block"] {
        assert_answers(&found, class, &FOUND_OR_REPLACED);
    }
}

/// Then the power goes. What was told to be durable and was not is gone, in part or all; a flush that came later has done its work.
#[test]
fn a_flush_that_lies_is_found_but_of_the_newest_log_block() {
    let found = strike_each(MishapKind::LyingFlush, CrashKind::PowerCut);
    assert_answers(&found, "manifest", &[Answer::Whole]);
    assert_answers(&found, "log block below the checkpoint", &[Answer::Whole]);
    assert_answers(&found, "log block", &[Answer::Refused, Answer::Whole]);
    assert_answers(&found, "newest log block", &[Answer::Prefix, Answer::Whole]);
    assert_answers(&found, "flush", &FOUND_OR_REPLACED);
}

/// Every read of an open finds a bit of what it reads flipped, for good: in the log, the manifest, the mapping, a page.
#[test]
fn rot_is_found_but_in_the_newest_log_block() {
    let _alone = support::alone();
    let well = SimulatedStorage::new(SEED);
    let (history, _) = simulation::run(Plan::of(SEED), || live(&well));
    let mut found: BTreeMap<Answer, u64> = BTreeMap::new();
    for after in 0.. {
        let left = well.crash(CrashKind::Kill, well.operations(), SEED);
        left.inject_mishap(Mishap { operation: OperationKind::Read, after, kind: MishapKind::Rot });
        let context = format!("rot in read {after}");
        let (answer, _) = simulation::run(Plan::of(SEED), || judge(&left, &history, &context));
        if left.fault_counts().of("bit rot") == 0 {
            break;
        }
        *found.entry(answer).or_default() += 1;
    }
    println!("bit rot: {found:?}");
    assert!(found.contains_key(&Answer::Refused), "{found:?}");
}
