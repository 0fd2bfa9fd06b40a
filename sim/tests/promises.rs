//! A device that breaks its promises, one write at a time: each write of a small life is lost, torn, misdirected, done twice or not flushed although
//! the device said so, and each read of what is left finds a flipped bit. Each time it is told what was struck (a log block, a page's image, a part of
//! the mapping, the manifest), and what the engine finds of it when it opens, reads, and verifies. What cannot be found out is named here.

use quenchdb::base::random::Random;
use quenchdb::device::simulated::{CrashKind, Mishap, MishapKind, OperationKind, SimulatedStorage};
use quenchdb::sync::simulation::{self, Plan};
use quenchdb::{Compression, Database, ErrorKind, Preset, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEED: u64 = 1;
const TRANSACTIONS: u32 = 40;
/// Two checkpoints; what follows the second is in the log only.
const CHECKPOINTS: [u32; 2] = [15, 30];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn settings() -> Settings {
    Settings {
        preset: Preset::PerTransaction,
        logs: 1,
        // A block of the store for each page.
        compression: Compression::None,
        page_bytes: 4096,
        memory_bytes: 4 << 20,
        segment_bytes: 64 << 10,
        log_buffer_bytes: 64 << 10,
        log_bytes_max: 8 << 20,
        checkpoint_log_bytes: 0,
        ..Settings::default()
    }
}

fn open(disk: &SimulatedStorage) -> quenchdb::Result<Database> {
    Database::builder().settings(settings()).storage(Arc::new(disk.clone())).open("simulated")
}

/// What was acknowledged: the content after each transaction. Ends where something failed.
fn live(disk: &SimulatedStorage) -> Vec<Content> {
    let (mut random, mut content, mut history) =
        (Random::from_seed(SEED), Content::new(), vec![Content::new()]);
    let work = || -> quenchdb::Result<()> {
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
    let mut work = work;
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

/// What was struck and what became of it, with how often, over all writes of the life.
fn strike_each(kind: MishapKind, crash: CrashKind) -> BTreeMap<(&'static str, Answer), u64> {
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
            let struck = disk.describe(0);
            let at = (0..lines.len()).find(|at| struck.get(*at) != Some(&lines[*at]));
            println!(
                "{kind:?} {operation:?} {after}: {:?} / {:?}",
                at.map(|at| &lines[at]),
                at.map(|at| struck.get(at))
            );
            // A flush that was not done is missing; a write says its place.
            let class = at.and_then(|at| Some((at, place_of(&lines[at])?)));
            let class = class.map_or("flush", |(at, (path, offset))| class_of(&well, at + 1, &path, offset));
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

#[test]
fn explore() {
    for kind in [MishapKind::Lost, MishapKind::Torn, MishapKind::Misdirected, MishapKind::Duplicated] {
        strike_each(kind, CrashKind::Kill);
    }
    strike_each(MishapKind::LyingFlush, CrashKind::PowerCut);
}
