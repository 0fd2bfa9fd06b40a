//! Readers of checkpoints and a writer in separate processes, killed at any moment, on a real
//! directory.
//!
//! The processes run this binary again with `QUENCH_CHILD` set: see [`child`].
//! `QUENCH_READER_SECONDS` sets a longer duration.

use crate::support::processes::one_test;
use quenchdb::internals::base::random::Random;
use quenchdb::{BackupOptions, Csn, Database, RestoreOptions};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ACCOUNTS: u32 = 300;

fn builder() -> quenchdb::Builder {
    Database::builder()
        .memory_bytes(2 << 20)
        .segment_bytes(1 << 20)
        .log_bytes_max(64 << 20)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
}

/// A child process, killed when it is dropped.
struct Process(Child);

impl Process {
    /// Runs `role` of [`child`], and waits until it reports that it is ready.
    fn start(role: &str, path: &Path) -> Process {
        let mut command = one_test(module_path!(), "child");
        command
            .env("QUENCH_CHILD", role)
            .env("QUENCH_PATH", path)
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut said = lines.map_while(std::result::Result::ok);
        assert!(said.any(|line| line.contains("READY")), "{role} ended before it was ready");
        Process(child)
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the code that tests run in another process until it is killed.
#[test]
fn child() {
    let Ok(role) = std::env::var("QUENCH_CHILD") else { return };
    let path = PathBuf::from(std::env::var_os("QUENCH_PATH").expect("set with the role"));
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("linux");
    match role.as_str() {
        "writer" => write(&builder().open(&path).expect("opens")),
        "reader" => {
            let reader = builder().open_checkpoint(&path).expect("opens");
            println!("READY");
            loop {
                std::thread::sleep(Duration::from_secs(1));
                drop(reader.tables());
            }
        }
        other => panic!("no such role: {other}"),
    }
}

fn row(account: u32, balance: i64) -> Vec<u8> {
    let mut row = balance.to_le_bytes().to_vec();
    row.extend(account.to_be_bytes());
    row.resize(200 + account as usize, 5);
    row
}

fn balance(row: &[u8]) -> i64 {
    i64::from_le_bytes(row[..8].try_into().expect("eight bytes"))
}

/// Transfers money forever, with a checkpoint after every few transfers and occasional compactions.
fn write(db: &Database) {
    let table = db.table_or_create("accounts").expect("works");
    let mut random = Random::from_entropy();
    if db.begin_read().expect("free").get(&table, 0u32.to_be_bytes()).expect("readable").is_none() {
        db.transact(|tx| (0..ACCOUNTS).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), row(n, 0))))
            .expect("commits");
        db.checkpoint().expect("works");
    }
    println!("READY");
    for round in 1.. {
        db.transact(|tx| -> quenchdb::Result<()> {
            for _ in 0..20 {
                let amount = random.below(100) as i64;
                for (account, change) in
                    [(random.below(ACCOUNTS.into()), amount), (random.below(ACCOUNTS.into()), -amount)]
                {
                    let key = (account as u32).to_be_bytes();
                    let old = tx.get(&table, key)?.expect("never deleted");
                    tx.insert(&table, key, row(account as u32, balance(&old) + change))?;
                }
            }
            Ok(())
        })
        .expect("commits");
        if round % 3 == 0 {
            db.checkpoint().expect("works");
        }
        if round % 100 == 0 {
            db.compact(None).expect("works");
        }
    }
}

/// Checks that the checkpoint has the full sum.
fn expect_whole(reader: &Database) {
    let table = reader.table("accounts").expect("in every checkpoint but the first");
    let snapshot = reader.begin_read().expect("free");
    let (mut sum, mut count) = (0, 0);
    for (found, n) in snapshot.range(&table, ..).zip(0u32..) {
        let (key, value) = found.expect("readable");
        assert_eq!((key.as_slice(), &value[8..12]), (&n.to_be_bytes()[..], &n.to_be_bytes()[..]));
        (sum, count) = (sum + balance(&value), count + 1);
    }
    assert_eq!((sum, count), (0, ACCOUNTS), "checkpoint at {}", reader.checkpoint_csn());
}

fn seconds() -> Duration {
    let set = std::env::var("QUENCH_READER_SECONDS").ok().and_then(|n| n.parse().ok());
    Duration::from_secs(set.unwrap_or(4))
}

#[test]
fn readers_see_whole_checkpoints_of_a_writer_killed_repeatedly() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("space");
    let path = directory.path().join("db");
    let mut writer = Process::start("writer", &path);
    let (begun, mut last_kill) = (Instant::now(), Instant::now());
    let (mut seen, mut random, mut kills) = (BTreeSet::<Csn>::new(), Random::from_seed(1), 0);
    let mut open: Vec<Database> = Vec::new();
    while begun.elapsed() < seconds() || kills < 2 || seen.len() < 5 {
        assert!(begun.elapsed() < seconds() + Duration::from_secs(120), "no progress");
        let reader = builder().open_checkpoint(&path).expect("there is a checkpoint");
        expect_whole(&reader);
        assert!(seen.last().is_none_or(|newest| *newest <= reader.checkpoint_csn()), "the clock advances");
        seen.insert(reader.checkpoint_csn());
        open.push(reader);
        let chosen = &open[random.below(open.len() as u64) as usize];
        if random.chance(1, 8) {
            assert_eq!(chosen.verify(None).expect("runs").problems, Vec::<String>::new());
        } else {
            expect_whole(chosen);
        }
        if open.len() > 3 {
            open.swap_remove(random.below(3) as usize);
        }
        if last_kill.elapsed() > seconds() / 4 {
            writer.kill();
            open.iter().for_each(expect_whole);
            writer = Process::start("writer", &path);
            (kills, last_kill) = (kills + 1, Instant::now());
        }
    }
    writer.kill();
    let db = builder().open(&path).expect("recovers");
    open.iter().for_each(expect_whole);
    assert_eq!(db.checkpoint_readers().len(), open.len());
    drop(open);
    db.checkpoint().expect("works");
    assert_eq!((db.checkpoint_readers(), db.statistics().store_held_bytes), (Vec::new(), 0));
    expect_whole(&db);
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
    println!("{} checkpoints read, {kills} writers killed", seen.len());
}

#[test]
fn a_killed_reader_holds_nothing() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("space");
    let db = builder().open(directory.path()).expect("opens");
    let table = db.create_table("t").expect("new");
    let mut random = Random::from_seed(1);
    let mut change = || {
        // Incompressible values.
        let mut value = || (0..1000).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
        let change =
            |tx: &mut quenchdb::Transaction| (0..50u8).try_for_each(|n| tx.insert(&table, [n], value()));
        db.transact(change).expect("commits");
        db.checkpoint().expect("works").csn
    };
    let csn = change();
    let readers = [Process::start("reader", directory.path()), Process::start("reader", directory.path())];
    change();
    change();
    let (reading, statistics) = (db.checkpoint_readers(), db.statistics());
    assert_eq!((reading.len(), reading.iter().map(|reader| reader.csn).min()), (2, Some(csn)));
    assert!(statistics.store_held_bytes >= 50_000, "{statistics:?}");
    readers.into_iter().for_each(Process::kill);
    change();
    assert_eq!((db.checkpoint_readers(), db.statistics().store_held_bytes), (Vec::new(), 0));
}

#[test]
fn a_database_is_backed_up_while_another_process_writes() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("space");
    let path = directory.path().join("db");
    let writer = Process::start("writer", &path);
    let mut chain = Vec::new();
    for number in 0..4 {
        let target = directory.path().join(format!("backup {number}"));
        let source = builder().open_checkpoint(&path).expect("there is a checkpoint");
        let base = chain.last().map(quenchdb::Place::from);
        let report = source.backup(&target, BackupOptions::default().with(|s| s.base = base)).expect("whole");
        assert_eq!(report.csn, source.checkpoint_csn());
        chain.push(target);
        std::thread::sleep(Duration::from_millis(50));
    }
    writer.kill();
    for length in 1..=chain.len() {
        let target = directory.path().join(format!("restored {length}"));
        Database::restore(&chain[..length], &target, RestoreOptions::default()).expect("whole");
        let db = builder().open(&target).expect("opens");
        expect_whole(&db);
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
    }
}
