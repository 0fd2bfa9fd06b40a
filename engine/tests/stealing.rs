//! Two workers that write each other's records: the effects of a crash, a lost block and a flipped
//! bit.

use crate::support::beside_others;
use crate::support::configurations::stealing;
use crate::support::processes::in_own_process;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::commit::presets;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{CommitHandle, Database, Dependency, ErrorKind, Result, Settings, Table};
use std::sync::{Mutex, mpsc};

const SECTOR: usize = 4096;
const ROUNDS: u32 = 120;

/// Returns the key of row `n` of a thread. The row's value is the number of the other thread's
/// newest row, which was read before.
fn key(thread: u8, n: u32) -> Vec<u8> {
    [&[thread][..], &n.to_be_bytes()].concat()
}

fn one(db: &Database, table: &Table, thread: u8, n: u32) -> Result<CommitHandle> {
    let mut tx = db.begin()?;
    let seen =
        tx.get(table, [1 - thread])?.map_or(0, |v| u32::from_le_bytes(v.try_into().expect("four bytes")));
    let mut row = seen.to_le_bytes().to_vec();
    row.resize(600 + (n as usize * 37) % 700, thread);
    tx.insert(table, key(thread, n), row)?;
    tx.insert(table, [thread], n.to_le_bytes())?;
    tx.commit_async()
}

/// Acknowledged rows: thread, row, and disk operations at that time.
type Acknowledged = Vec<(u8, u32, usize)>;

/// Runs two threads in turn, so that each has unwritten records when the other's transaction ends.
fn work(db: &Database, disk: &SimulatedStorage, checkpoint_at: Option<u32>) -> Acknowledged {
    let table = db.create_table("rows").expect("new");
    let (acknowledged, handles) =
        (Mutex::new(Acknowledged::new()), Mutex::new(Vec::<(u8, u32, CommitHandle)>::new()));
    let note = || {
        let mut acknowledged = acknowledged.lock().expect("no panic");
        handles.lock().expect("no panic").retain(|(thread, n, handle)| {
            let open = !handle.is_committed();
            if !open {
                acknowledged.push((*thread, *n, disk.operations()));
            }
            open
        });
    };
    let (ping, pong) = (mpsc::sync_channel::<()>(0), mpsc::sync_channel::<()>(0));
    std::thread::scope(|scope| {
        let turns = [(ping.1, pong.0.clone()), (pong.1, ping.0.clone())];
        for (thread, (mine, theirs)) in (0..2).zip(turns) {
            let (table, handles, note) = (&table, &handles, &note);
            scope.spawn(move || {
                for n in 1..=ROUNDS {
                    if mine.recv().is_err() {
                        return;
                    }
                    let handle = one(db, table, thread, n).expect("a whole disk");
                    handles.lock().expect("no panic").push((thread, n, handle));
                    note();
                    if thread == 0 && checkpoint_at == Some(n) {
                        db.checkpoint().expect("a whole disk");
                    }
                    if theirs.send(()).is_err() {
                        return;
                    }
                }
            });
        }
        ping.0.send(()).expect("a thread waits");
        drop((ping.0, pong.0));
    });
    note();
    acknowledged.into_inner().expect("no panic")
}

/// Checks that acknowledged rows are there, and that every row's predecessor is.
fn judge(db: &Database, must: impl Iterator<Item = (u8, u32)>, context: &str) {
    let Ok(table) = db.table("rows") else {
        assert_eq!(must.count(), 0, "{context}: the table is lost");
        return;
    };
    let snapshot = db.begin_read().expect("free");
    let get = |key: &[u8]| snapshot.get(&table, key).expect("readable");
    for (thread, n) in must {
        assert!(get(&key(thread, n)).is_some(), "{context}: row {n} of {thread} was acknowledged");
    }
    for thread in 0..2u8 {
        let newest = get(&[thread]).map_or(0, |v| u32::from_le_bytes(v.try_into().expect("four bytes")));
        for n in 1..=newest {
            let row =
                get(&key(thread, n)).unwrap_or_else(|| panic!("{context}: row {n} of {thread}, of {newest}"));
            let seen = u32::from_le_bytes(row[..4].try_into().expect("four bytes"));
            assert!(
                seen == 0 || get(&key(1 - thread, seen)).is_some(),
                "{context}: {thread} {n} read {seen}"
            );
        }
        assert!(get(&key(thread, newest + 1)).is_none(), "{context}: {thread} after {newest}");
    }
    let report = db.verify(None).expect("runs");
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
}

/// Returns the blocks in a segment: offset, owner, and whether another log's worker wrote it.
fn blocks(segment: &[u8]) -> Vec<(usize, u32, bool)> {
    let word = |at: usize| u32::from_le_bytes(segment[at..at + 4].try_into().expect("four bytes"));
    let is_block = |at: &usize| &segment[at + 4..at + 8] == b"QLOG";
    (0..segment.len())
        .step_by(SECTOR)
        .filter(is_block)
        .map(|at| (at, word(at + 12), word(at + 72) != 0))
        .collect()
}

fn segments(disk: &SimulatedStorage) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter().filter(|path| path.starts_with("log/"));
    files.map(|path| (path.clone(), disk.read_file(&path).expect("listed"))).collect()
}

/// Returns a stopped disk on which many records were stolen.
fn sample(settings: &Settings, seed: u64, checkpoint_at: Option<u32>) -> (SimulatedStorage, Acknowledged) {
    let mut most = 0;
    for attempt in 0..400 {
        let (disk, db) = settings.create(seed);
        let acknowledged = beside_others(attempt % 4, &db, || work(&db, &disk, checkpoint_at));
        let stolen = db.statistics().stolen_blocks;
        disk.stop();
        drop(db);
        most = most.max(stolen);
        // Both threads may have had the same log, or the flusher wrote records before they could be
        // stolen: on a busy machine in nearly all attempts.
        if stolen > 20 && acknowledged.len() > 100 {
            return (disk, acknowledged);
        }
    }
    panic!("too little is ever stolen: {most} blocks at most");
}

/// Returns the crashes for each dependency rule; more with `QUENCH_CRASHES`.
fn crashes_wanted() -> u64 {
    let all = if is_deep() { 400 } else { 60 };
    std::env::var("QUENCH_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(all)
}

/// Uses a process of its own: beside threads of other tests, both threads might get the same log.
#[test]
fn stolen_records_survive_crashes_and_their_rot_is_found() {
    in_own_process(module_path!(), "stolen_records_survive_crashes_and_their_rot_is_found", || {
        stolen_records_survive();
        rot_is_found();
    });
}

fn stolen_records_survive() {
    for dependency in Dependency::ALL {
        let settings = stealing(dependency);
        if presets::check(&settings, 2).is_err() {
            assert_eq!(dependency, Dependency::LogOrder);
            continue;
        }
        let (mut random, mut crashes, mut carried) = (Random::from_seed(dependency as u64), 0, 0);
        while crashes < crashes_wanted() || carried <= 20 && crashes < crashes_wanted() + 2000 {
            let (disk, acknowledged) =
                sample(&settings, random.next_u64(), Some(1 + random.below(ROUNDS.into()) as u32));
            let end = disk.operations();
            for _ in 0..crashes_wanted().min(200) {
                let at = random.below(end as u64 + 1) as usize;
                let kind = if random.chance(3, 4) { CrashKind::PowerCut } else { CrashKind::Kill };
                let context = format!("{dependency}, {kind:?} after {at} of {end}");
                let crashed = disk.crash(kind, at, random.next_u64());
                let blocks = segments(&crashed).iter().flat_map(|(_, s)| blocks(s)).filter(|b| b.2).count();
                carried = carried.max(blocks);
                let db = settings.try_open(&crashed).unwrap_or_else(|error| panic!("{context}: {error}"));
                let must = acknowledged.iter().filter(|row| row.2 <= at).map(|(thread, n, _)| (*thread, *n));
                judge(&db, must, &context);
                crashed.stop();
                drop(db);
                crashes += 1;
            }
        }
        println!("{dependency}: {crashes} crashes, up to {carried} carried blocks found");
        assert!(carried > 20, "{carried}");
    }
}

/// Flips a bit in a piggybacked block, or in its writer's block before it. The open is refused with
/// the segment and, if the header is readable, the log of the lost block. The newest blocks may
/// count as a torn tail. If a newer record of the other log proves them, the error names the
/// missing transactions.
fn rot_is_found() {
    let settings = stealing(Dependency::Dsn);
    let (disk, acknowledged) = sample(&settings, 4, None);
    let whole = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let (mut refused, mut harmless, mut unplaced) = (0, 0, 0);
    for (path, bytes) in segments(&whole) {
        let blocks = blocks(&bytes);
        for pair in blocks.windows(2).filter(|pair| pair[1].2).step_by(if is_deep() { 1 } else { 4 }) {
            for (at, log, carried) in pair {
                // In the payload, and in the header.
                for offset in [at + 200, at + 33] {
                    let damaged = whole.duplicate();
                    let mut rotten = bytes.clone();
                    rotten[offset] ^= 4;
                    damaged.write_file(&path, &rotten);
                    let context = format!("{path}, byte {offset}, block of log {log}, carried: {carried}");
                    match settings.try_open(&damaged) {
                        Err(error) => {
                            refused += 1;
                            assert_eq!(error.kind(), ErrorKind::Corruption, "{context}: {error}");
                            let report = settings.on(&damaged);
                            let problems =
                                report.verify("simulated", None).expect("runs").problems.join("\n");
                            let is_placed = problems.contains(&format!("log {log}, epoch"));
                            if !is_placed && problems.contains("are in no whole block of the log") {
                                unplaced += 1;
                                continue;
                            }
                            assert!(is_placed, "{context}: {problems}");
                            if offset == at + 200 {
                                let place = format!("{path} at byte {at}");
                                let short = path.trim_start_matches("log/");
                                assert!(problems.contains(short), "{context}: {place}: {problems}");
                            }
                        }
                        Ok(db) => {
                            harmless += 1;
                            judge(&db, std::iter::empty(), &context);
                        }
                    }
                }
            }
        }
    }
    let figures = format!(
        "{refused} refused, {unplaced} of them without a place, {harmless} not, {} acknowledged",
        acknowledged.len()
    );
    assert!(refused > if is_deep() { 50 } else { 12 } && harmless < 20 && unplaced <= 4, "{figures}");
}
