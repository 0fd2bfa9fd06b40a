//! Damaged files: flipped bits, and cut, missing, swapped and foreign pieces.
//!
//! Two small databases are built once: one crashed during its work, one closed. Each kind of damage
//! must have one of three results. It is harmless: the content is as before. Or it loses the newest
//! transactions, if no stored watermark proves that they existed. Or it is refused with an error
//! that names the place. A panic, a hang or wrong data is a failure.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::checksum::crc;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Database, Error, ErrorKind, Preset, Settings};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SECTOR: usize = 4096;
const SLOT: usize = 1 << 20;
/// The manifest version that this build writes.
const MANIFEST_VERSION: u32 = 1;
const LOG_VERSION: u16 = 4;
const TABLES: [&str; 2] = ["a", "b"];

type Content = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn settings(preset: Preset) -> Settings {
    tiny(1 << 20).with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Autonomous { 2 } else { 1 };
        s.log_bytes_max = 4 << 20;
        // The log of a closed sample is damaged, too.
        s.trim_log = false;
    })
}

/// A database on a disk, and its content after the checkpoint and after each later transaction.
struct Sample {
    disk: SimulatedStorage,
    preset: Preset,
    history: Vec<Content>,
}

const BEFORE: u32 = 30;
const AFTER: u32 = 60;

/// Commits 30 transactions of ten rows, a checkpoint, and 60 transactions that change, delete and
/// add rows. Then crashes or closes the database.
fn sample(preset: Preset, closed: bool) -> Sample {
    let (disk, db) = settings(preset).create(1);
    let tables = TABLES.map(|name| db.create_table(name).expect("new"));
    let mut content = Content::new();
    let mut history = Vec::new();
    for n in 0..BEFORE + AFTER {
        if n == BEFORE {
            db.checkpoint().expect("a whole disk");
            history.push(content.clone());
        }
        let mut tx = db.begin().expect("free");
        let rows = if n < BEFORE { 10 } else { 3 };
        for i in 0..rows {
            let table = (i % 2) as usize;
            let key = format!("key {:05}", (n * 10 + i * 37) % 400).into_bytes();
            if n > BEFORE && i == 2 {
                let there = tx.remove(&tables[table], &key).expect("free row");
                assert_eq!(there, content.remove(&(table, key)).is_some());
                continue;
            }
            // Some values have pages of their own.
            let large = if n % 9 == 0 && i == 0 { 9000 } else { 0 };
            let value =
                format!("value {n} {i} {}", "x".repeat(large + (n as usize * 13 + i as usize * 7) % 90));
            tx.insert(&tables[table], &key, &value).expect("free row");
            content.insert((table, key), value.into_bytes());
        }
        tx.commit().expect("commits");
        if n >= BEFORE {
            history.push(content.clone());
        }
    }
    if closed {
        db.close().expect("a whole disk");
    } else {
        disk.stop();
        drop(db);
    }
    Sample { disk: disk.duplicate(), preset, history }
}

/// The result of opening and reading a damaged database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// The content is as before.
    Whole,
    /// The content after this many transactions; the newest ones are lost.
    Prefix(usize),
    /// The open was refused.
    Refused(ErrorKind),
    /// The open succeeded, some reads are refused, and all others are right.
    Partly(ErrorKind),
}

impl Answer {
    fn is_refused(self) -> bool {
        matches!(self, Answer::Refused(_) | Answer::Partly(_))
    }
}

fn check_error(error: &Error, context: &str) -> ErrorKind {
    let kind = error.kind();
    let clean =
        [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::InvalidArgument, ErrorKind::NotFound];
    assert!(clean.contains(&kind), "{context}: {kind:?} is not what damage should be called: {error}");
    assert!(error.location().is_some(), "{context}: the error names no place: {error}");
    kind
}

/// Opens a copy of a damaged disk, reads everything in every way, and returns the result.
fn judge(disk: &SimulatedStorage, sample: &Sample, context: &str) -> Answer {
    let disk = disk.duplicate();
    let db = match settings(sample.preset).try_open(&disk) {
        Ok(db) => db,
        Err(error) => return Answer::Refused(check_error(&error, context)),
    };
    let answer = judge_open(&db, sample, context);
    disk.stop();
    drop(db);
    answer
}

fn judge_open(db: &Database, sample: &Sample, context: &str) -> Answer {
    let last = sample.history.last().expect("not empty");
    let snapshot = db.begin_read().expect("free");
    let mut refused = None;
    let mut content = Content::new();
    for (i, name) in TABLES.iter().enumerate() {
        let table = db.table(name).unwrap_or_else(|error| panic!("{context}: table {name} is gone: {error}"));
        for row in snapshot.range(&table, ..) {
            match row {
                Ok((key, value)) => drop(content.insert((i, key), value)),
                Err(error) => refused = Some(check_error(&error, context)),
            }
        }
        let mut backward = 0;
        for row in snapshot.range(&table, ..).rev() {
            match row {
                Ok((key, value)) => {
                    backward += 1;
                    let other = content.entry((i, key)).or_insert_with(|| value.clone());
                    assert_eq!(*other, value, "{context}: the two directions disagree");
                }
                Err(error) => refused = Some(check_error(&error, context)),
            }
        }
        let rows = content.keys().filter(|(table, _)| *table == i).count();
        assert!(refused.is_some() || backward == rows, "{context}: the two directions disagree");
    }
    let report = db.verify(None).unwrap_or_else(|error| panic!("{context}: verify cannot run: {error}"));
    let Some(kind) = refused else {
        assert!(report.problems.is_empty(), "{context}: reads well, but {:?}", report.problems);
        if content == *last {
            return Answer::Whole;
        }
        let found = sample.history.iter().position(|old| *old == content);
        return Answer::Prefix(found.unwrap_or_else(|| panic!("{context}: wrong data was served")));
    };
    assert!(!report.problems.is_empty(), "{context}: reads fail, but verify finds nothing");
    for ((i, key), value) in &content {
        assert_eq!(last.get(&(*i, key.clone())), Some(value), "{context}: wrong data beside the damage");
    }
    for (i, key) in last.keys() {
        let table = db.table(TABLES[*i]).expect("there");
        match snapshot.get(&table, key) {
            Ok(value) => assert_eq!(value.as_ref(), last.get(&(*i, key.clone())), "{context}: wrong data"),
            Err(error) => drop(check_error(&error, context)),
        }
    }
    Answer::Partly(kind)
}

/// Runs every job on two threads. A job that takes longer than 20 s is a hang.
fn all_in_time<J: Send + Sync + Clone + 'static>(
    jobs: Vec<J>,
    name: impl Fn(&J) -> String,
    run: impl Fn(&J) + Send + Sync + 'static,
) {
    let (jobs, run, next) = (Arc::new(jobs), Arc::new(run), Arc::new(AtomicUsize::new(0)));
    let (send, receive) = mpsc::channel();
    for _ in 0..2 {
        let (jobs, run, next, send) = (jobs.clone(), run.clone(), next.clone(), send.clone());
        std::thread::spawn(move || {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(job)));
                let _ = send.send((next.load(Ordering::Relaxed), ended.is_err()));
            }
        });
    }
    drop(send);
    for _ in 0..jobs.len() {
        match receive.recv_timeout(Duration::from_secs(120)) {
            Ok((_, panicked)) => assert!(!panicked, "a job failed: see above"),
            Err(_) => {
                let at = next.load(Ordering::Relaxed);
                let around: Vec<String> =
                    jobs[at.saturating_sub(3)..at.min(jobs.len())].iter().map(&name).collect();
                panic!("one of these hangs: {around:#?}");
            }
        }
    }
}

/// Returns the sectors of a file that are not all zero.
fn used_sectors(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() / SECTOR)
        .map(|i| i * SECTOR)
        .filter(|at| bytes[*at..at + SECTOR].iter().any(|byte| *byte != 0))
        .collect()
}

fn damaged(sample: &Sample, path: &str, damage: impl FnOnce(&mut Vec<u8>)) -> SimulatedStorage {
    let disk = sample.disk.duplicate();
    let mut bytes = disk.read_file(path).expect("a file of the sample");
    damage(&mut bytes);
    disk.write_file(path, &bytes);
    disk
}

fn is_log(path: &str) -> bool {
    path.starts_with("log/")
}

/// Returns the segments with blocks after the checkpoint, oldest first: path, first and last CSN.
fn segments_in_order(sample: &Sample) -> Vec<(String, u64, u64)> {
    let mut found = Vec::new();
    for path in sample.disk.files().into_iter().filter(|path| is_log(path)) {
        let bytes = sample.disk.read_file(&path).expect("listed");
        let csn = |at: usize| u64::from_le_bytes(bytes[at + 56..at + 64].try_into().expect("eight bytes"));
        let blocks: Vec<u64> = used_sectors(&bytes)
            .into_iter()
            .filter(|at| bytes[at + 4..at + 8] == *b"QLOG")
            .map(csn)
            .collect();
        if let (Some(first), Some(last)) = (blocks.first(), blocks.last()) {
            found.push((path, *first, *last));
        }
    }
    found.sort_by_key(|(_, first, _)| *first);
    found
}

pub fn the_samples_are_whole(preset: Preset) {
    for closed in [false, true] {
        let sample = sample(preset, closed);
        assert!(sample.history.last().expect("not empty").len() > 200);
        assert_eq!(judge(&sample.disk, &sample, "whole"), Answer::Whole);
        // With `passive` most of the log is in mapped memory.
        let segments = segments_in_order(&sample).len();
        assert!(segments >= 3 || preset == Preset::Passive, "{:?}", segments_in_order(&sample));
    }
}

#[test]
fn every_flipped_bit_is_harmless_or_refused_with_its_place() {
    for closed in [false, true] {
        let sample = Arc::new(sample(Preset::Group, closed));
        let mut flips: Vec<(String, usize, u8)> = Vec::new();
        for path in sample.disk.files() {
            let bytes = sample.disk.read_file(&path).expect("listed");
            for at in used_sectors(&bytes) {
                let slot_start = path == "MANIFEST" && at % SLOT == 0;
                let (head, stride) = if slot_start {
                    (160, 331)
                } else if is_log(&path) {
                    (96, 1499)
                } else {
                    (48, 811)
                };
                let step = if slot_start { 1 } else { 7 };
                // Damages different bytes of each block, so that together they cover a block well.
                let shift = at / SECTOR * 13;
                let head = (shift % step..head).step_by(step);
                for i in head.chain((100 + shift % 300..SECTOR).step_by(stride)) {
                    flips.push((path.clone(), at + i, 1 << ((at + i) % 8)));
                }
            }
        }
        if !closed {
            println!("{} flips", flips.len());
        } else {
            // An open after a close does not read the log; a few flips show that.
            flips = flips
                .into_iter()
                .enumerate()
                .filter(|(i, flip)| !is_log(&flip.0) || i % 20 == 0)
                .map(|(_, flip)| flip)
                .collect();
        }
        let flips: Vec<_> = flips.into_iter().step_by(if is_deep() { 1 } else { 9 }).collect();
        let newest = sample.history.len() - 1;
        all_in_time(
            flips,
            |flip| format!("closed {closed}, {flip:?}"),
            move |(path, at, bit)| {
                let context = format!("closed {closed}: {path}, byte {at}, bit {bit:#x}");
                let disk = damaged(&sample, path, |bytes| bytes[*at] ^= bit);
                match judge(&disk, &sample, &context) {
                    Answer::Whole => {}
                    Answer::Prefix(n) => {
                        assert!(is_log(path) && !closed && n + 1 == newest, "{context}: lost {}", newest - n)
                    }
                    Answer::Refused(_) => {
                        assert!(!closed || !is_log(path), "{context}: no open needs this log")
                    }
                    // The second slot is used instead.
                    Answer::Partly(_) => assert!(path == "pages/data" || path == "pages", "{context}"),
                }
                assert!(
                    path != "MANIFEST" || judge(&disk, &sample, &context) == Answer::Whole,
                    "{context}: one slot is enough"
                );
            },
        );
    }
}

#[test]
fn a_truncated_file_is_noticed_unless_only_its_tail_is_lost() {
    for closed in [false, true] {
        let sample = sample(Preset::Group, closed);
        for path in sample.disk.files() {
            let whole = sample.disk.read_file(&path).expect("listed").len();
            let lens = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 12_289, whole / 2, whole - 4096, whole - 1];
            for len in lens.into_iter().filter(|len| *len < whole) {
                let context = format!("closed {closed}: {path} cut from {whole} to {len}");
                let disk = damaged(&sample, &path, |bytes| bytes.truncate(len));
                let answer = judge(&disk, &sample, &context);
                match path.as_str() {
                    // The other slot may be enough, but must not give an older state.
                    "MANIFEST" => assert!(
                        answer == Answer::Whole || matches!(answer, Answer::Refused(_)),
                        "{context}: {answer:?}"
                    ),
                    path if is_log(path) && !closed => {}
                    path if is_log(path) => assert_eq!(answer, Answer::Whole, "{context}"),
                    _ => assert!(!matches!(answer, Answer::Prefix(_)), "{context}: {answer:?}"),
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_gone_is_missed() {
    for closed in [false, true] {
        let sample = sample(Preset::Group, closed);
        let segments = segments_in_order(&sample);
        for path in sample.disk.files() {
            let disk = sample.disk.duplicate();
            disk.remove_file(&path);
            let context = format!("closed {closed}: {path} removed");
            let answer = judge(&disk, &sample, &context);
            if !is_log(&path) {
                assert!(matches!(answer, Answer::Refused(_)), "{context}: {answer:?}");
            } else if closed {
                assert_eq!(answer, Answer::Whole, "{context}");
            } else {
                let place = segments.iter().position(|(segment, ..)| *segment == path);
                match place {
                    None => assert_eq!(answer, Answer::Whole, "{context}: it was empty"),
                    // The oldest may hold only what the checkpoint covers. No later record proves
                    // the newest.
                    Some(i) if i + 1 == segments.len() => {
                        assert!(
                            matches!(answer, Answer::Prefix(_) | Answer::Refused(_)),
                            "{context}: {answer:?}"
                        );
                    }
                    Some(0) => assert!(!matches!(answer, Answer::Prefix(_)), "{context}: {answer:?}"),
                    Some(_) => assert_eq!(answer, Answer::Refused(ErrorKind::Corruption), "{context}"),
                }
            }
        }
    }
}

/// Regression: without any segment there is neither a hole nor a watermark. So the database opened
/// as of its checkpoint, and all later commits were silently lost. A running epoch always has
/// segments.
pub fn a_crashed_database_without_any_log_is_refused(preset: Preset) {
    let sample = sample(preset, false);
    let disk = sample.disk.duplicate();
    for path in disk.files().iter().filter(|path| is_log(path)) {
        disk.remove_file(path);
    }
    let answer = judge(&disk, &sample, "all segments removed");
    assert_eq!(answer, Answer::Refused(ErrorKind::Corruption), "{preset:?}");
}

pub fn a_hole_in_the_log_is_refused_in_every_preset(preset: Preset) {
    // With `passive` all of this log is in mapped memory, and none in a segment.
    if preset == Preset::Passive {
        return;
    }
    let sample = sample(preset, false);
    let segments = segments_in_order(&sample);
    let checkpoint = {
        let disk = sample.disk.duplicate();
        settings(preset).open(&disk).statistics().checkpoint_csn.0
    };
    let middle = &segments[segments.len() / 2];
    assert!(middle.2 > checkpoint && segments.len() >= 3, "the middle one is needed");
    let disk = sample.disk.duplicate();
    disk.remove_file(&middle.0);
    let answer = judge(&disk, &sample, &format!("{preset:?}: {} removed", middle.0));
    assert_eq!(answer, Answer::Refused(ErrorKind::Corruption), "{preset:?}");
    let disk = damaged(&sample, &middle.0, |bytes| bytes.fill(0));
    let answer = judge(&disk, &sample, &format!("{preset:?}: {} zeroed", middle.0));
    assert_eq!(answer, Answer::Refused(ErrorKind::Corruption), "{preset:?}");
}

#[test]
fn zeroed_and_random_sectors_are_noticed() {
    let sample = Arc::new(sample(Preset::Group, false));
    let mut jobs = Vec::new();
    for path in sample.disk.files() {
        for at in used_sectors(&sample.disk.read_file(&path).expect("listed")) {
            for (len, byte) in [(512, 0), (SECTOR, 0), (SECTOR, 0xff), (4 * SECTOR, 0)] {
                jobs.push((path.clone(), at, len, byte));
            }
        }
    }
    let newest = sample.history.len() - 1;
    all_in_time(
        jobs,
        |job| format!("{job:?}"),
        move |(path, at, len, byte)| {
            let context = format!("{path}: {len} bytes of {byte} at {at}");
            let disk = damaged(&sample, path, |bytes| {
                let end = bytes.len().min(at + len);
                bytes[*at..end].fill(*byte);
            });
            let answer = judge(&disk, &sample, &context);
            match answer {
                Answer::Prefix(n) => {
                    assert!(is_log(path) && newest - n <= len.div_ceil(SECTOR), "{context}: {answer:?}")
                }
                Answer::Refused(_) => assert!(path != "MANIFEST", "{context}: one slot is enough"),
                _ => {}
            }
        },
    );
}

#[test]
fn blocks_in_the_wrong_place_are_recognised() {
    let sample = Arc::new(sample(Preset::Group, false));
    let mut jobs = Vec::new();
    for path in sample.disk.files() {
        let used = used_sectors(&sample.disk.read_file(&path).expect("listed"));
        for pair in used.windows(2) {
            jobs.push((path.clone(), pair[0], pair[1], true));
            jobs.push((path.clone(), pair[0], pair[1], false));
        }
        if let (Some(first), Some(last)) = (used.first(), used.last()) {
            jobs.push((path.clone(), *first, *last, true));
        }
    }
    let newest = sample.history.len() - 1;
    all_in_time(
        jobs,
        |job| format!("{job:?}"),
        move |(path, a, b, swap)| {
            let context = format!("{path}: {a} to {b}, swapped {swap}");
            let disk = damaged(&sample, path, |bytes| {
                let (one, two) = (bytes[*a..a + SECTOR].to_vec(), bytes[*b..b + SECTOR].to_vec());
                bytes[*b..b + SECTOR].copy_from_slice(&one);
                if *swap {
                    bytes[*a..a + SECTOR].copy_from_slice(&two);
                }
            });
            let answer = judge(&disk, &sample, &context);
            if let Answer::Prefix(n) = answer {
                assert!(is_log(path) && n + 1 == newest, "{context}: {answer:?}");
            }
        },
    );
}

#[test]
fn files_of_another_database_are_not_believed() {
    for closed in [false, true] {
        let (mine, other) = (sample(Preset::Group, closed), sample(Preset::Group, closed));
        let segments = segments_in_order(&mine);
        for path in mine.disk.files() {
            let Some(bytes) = other.disk.read_file(&path) else { continue };
            let disk = mine.disk.duplicate();
            disk.write_file(&path, &bytes);
            let context = format!("closed {closed}: {path} of another database");
            let answer = judge(&disk, &mine, &context);
            let needed = segments.iter().position(|(segment, ..)| *segment == path);
            match needed {
                _ if !is_log(&path) => assert!(answer.is_refused(), "{context}: {answer:?}"),
                Some(i) if !closed && i > 0 && i + 1 < segments.len() => {
                    assert!(answer.is_refused(), "{context}: {answer:?}")
                }
                _ => {}
            }
        }
        // Replaces blocks of this page file by those of another database, one by one.
        let pages =
            mine.disk.files().into_iter().find(|path| path.starts_with("pages")).expect("a page store");
        let foreign = other.disk.read_file(&pages).expect("a page store");
        for at in used_sectors(&foreign) {
            let disk = damaged(&mine, &pages, |bytes| {
                if at + SECTOR <= bytes.len() {
                    bytes[at..at + SECTOR].copy_from_slice(&foreign[at..at + SECTOR]);
                }
            });
            let answer = judge(&disk, &mine, &format!("closed {closed}: foreign block at {at}"));
            assert!(!matches!(answer, Answer::Prefix(_)), "{answer:?}");
        }
    }
}

/// Returns where the records of the first block in a segment end.
fn payload_end(segment: &[u8]) -> usize {
    80 + u32::from_le_bytes(segment[40..44].try_into().expect("four bytes")) as usize
}

#[test]
fn a_newer_format_is_unsupported() {
    let sample = sample(Preset::Group, false);
    let unsupported = Answer::Refused(ErrorKind::Unsupported);
    for slots in [vec![0], vec![1], vec![0, 1]] {
        let disk = damaged(&sample, "MANIFEST", |bytes| {
            for slot in &slots {
                let slot = &mut bytes[slot * SLOT..];
                slot[8..12].copy_from_slice(&(MANIFEST_VERSION + 1).to_le_bytes());
                let check = crc(&slot[..12]);
                slot[12..16].copy_from_slice(&check.to_le_bytes());
            }
        });
        assert_eq!(judge(&disk, &sample, "a newer manifest"), unsupported, "slots {slots:?}");
    }
    let (path, ..) = segments_in_order(&sample).pop().expect("has a log");
    let disk = damaged(&sample, &path, |bytes| {
        bytes[8..10].copy_from_slice(&(LOG_VERSION + 1).to_le_bytes());
        let check = crc(&bytes[4..80]);
        bytes[..4].copy_from_slice(&check.to_le_bytes());
    });
    assert_eq!(judge(&disk, &sample, "a newer log block"), unsupported);
    let disk = damaged(&sample, &path, |bytes| {
        // The dependency rule of the block's first record; then the checksums of record, payload
        // and block.
        bytes[80 + 20] = 9;
        for (crc_at, from, to) in [(80, 84, 136), (28, 80, payload_end(bytes)), (0, 4, 80)] {
            let check = crc(&bytes[from..to]);
            bytes[crc_at..crc_at + 4].copy_from_slice(&check.to_le_bytes());
        }
    });
    assert_eq!(judge(&disk, &sample, "an unknown dependency rule"), unsupported);
    let pages = sample.disk.files().into_iter().find(|path| path.starts_with("pages")).expect("a page store");
    for at in used_sectors(&sample.disk.read_file(&pages).expect("listed")) {
        let disk = damaged(&sample, &pages, |bytes| {
            bytes[at + 7] = 3;
            let check = crc(&bytes[at + 4..at + SECTOR]);
            bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
        });
        let answer = judge(&disk, &sample, "a newer block");
        let fine = [Answer::Whole, unsupported, Answer::Partly(ErrorKind::Unsupported)];
        assert!(fine.contains(&answer), "block at {at}: {answer:?}");
        assert!(at > 0 || answer == unsupported, "the header");
    }
}
