//! A checkpoint is a snapshot at one CSN, whatever happens to its pages while it is written: they
//! are evicted, split, merged, and changed by transactions whose records are not written yet.
//!
//! After a crash the replay of the log hides an image that is too new. Readers in other processes
//! and backups read only the checkpoint, so they would see the error. Therefore these tests read
//! only the checkpoint.
//!
//! Each transaction moves money between two rows of different pages, and inserts, changes or
//! removes one row in two tables at once. So a checkpoint with a page that is too new or too old
//! has another sum, or a row without its twin.

use crate::support::content;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Builder, Compression, Database, Durability, ErrorKind, Preset, Result, Settings, Table};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ACCOUNTS: u64 = 3000;
const TWINS: u64 = 3000;
const CHECKPOINTS: u64 = 40;
/// Memory for all pages.
const ROOMY: u64 = 16 << 20;

fn settings(preset: Preset, memory_bytes: u64) -> Settings {
    Settings::default().with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Autonomous { 2 } else { 1 };
        s.memory_bytes = memory_bytes;
        s.compression = Compression::None;
        s.segment_bytes = 256 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 32 << 20;
        s.lab.checkpoint_log_bytes = 0;
    })
}

fn value(balance: i64, random: &mut Random) -> Vec<u8> {
    let mut value = balance.to_le_bytes().to_vec();
    value.resize(100 + random.below(600) as usize, 7);
    value
}

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

/// Runs one transaction and does not wait for durability.
fn step(db: &Database, [accounts, left, right]: &[Table; 3], random: &mut Random) -> Result<()> {
    let mut tx = db.begin_with(Durability::BoundedLoss)?;
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let amount = random.below(100) as i64;
    for (account, amount) in [(from, -amount), (to, amount)] {
        let key = account.to_be_bytes();
        let before = tx.get(accounts, key)?.map_or(0, |value| balance(&value));
        tx.insert(accounts, key, value(before + amount, random))?;
    }
    let twin = random.below(TWINS).to_be_bytes();
    if random.chance(1, 2) {
        let value = value(0, random);
        tx.insert(left, twin, &value)?;
        tx.insert(right, twin, &value)?;
    } else {
        tx.remove(left, twin)?;
        tx.remove(right, twin)?;
    }
    tx.commit().map(drop)
}

fn builder(disk: &SimulatedStorage, preset: Preset, memory_bytes: u64) -> Builder {
    settings(preset, memory_bytes).on(disk)
}

/// Creates a database with all accounts and no twins.
fn filled(builder: Builder, seed: u64) -> (Database, [Table; 3]) {
    let db = builder.open("x").expect("opens");
    let tables = ["accounts", "left", "right"].map(|name| db.create_table(name).expect("new"));
    let mut random = Random::from_seed(seed);
    for account in 0..ACCOUNTS {
        let value = value(0, &mut random);
        db.transact(|tx| tx.insert(&tables[0], account.to_be_bytes(), &value)).expect("room");
    }
    (db, tables)
}

fn judge(checkpoint: &Database, context: &str) {
    let report = checkpoint.verify(None).expect("runs");
    assert_eq!(report.problems, Vec::<String>::new(), "{context}");
    let all = content(checkpoint);
    let of = |table: &str| -> BTreeMap<Vec<u8>, Vec<u8>> {
        all.iter()
            .filter(|((t, _), _)| t == table)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    };
    let (accounts, left, right) = (of("accounts"), of("left"), of("right"));
    assert_eq!(accounts.len() as u64, ACCOUNTS, "{context}: accounts");
    let sum: i64 = accounts.values().map(|value| balance(value)).sum();
    assert_eq!(sum, 0, "{context}: money was made or lost");
    assert!(left == right, "{context}: {} rows on the left, {} on the right", left.len(), right.len());
}

fn checkpoints_are_exact(preset: Preset, memory_bytes: u64, seed: u64) {
    let disk = SimulatedStorage::new(seed);
    let builder = || builder(&disk, preset, memory_bytes);
    let (db, tables) = filled(builder(), seed);
    // Slow writes, so that changes happen while the checkpoint is written.
    disk.set_delay(Duration::from_micros(200));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, tables, stop) = (&db, &tables, &stop);
            scope.spawn(move || {
                let mut random = Random::from_seed(seed << 8 | thread);
                while !stop.load(Ordering::Relaxed) {
                    match step(db, tables, &mut random) {
                        // Versions kept for the checkpoint sometimes fill their memory.
                        Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
                        Err(error) if !error.is_retryable() => panic!("{error}"),
                        _ => {}
                    }
                }
            });
        }
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for n in 0..depth(4 * CHECKPOINTS).min(CHECKPOINTS) {
                db.checkpoint().expect("a whole disk");
                let checkpoint = builder().open_checkpoint("x").expect("there is one");
                judge(&checkpoint, &format!("{preset}, {memory_bytes} bytes, seed {seed}, checkpoint {n}"));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let evicted = db.statistics().pages_evicted;
    assert!(
        memory_bytes >= ROOMY || evicted > if is_deep() { 1000 } else { 200 },
        "{evicted} pages left memory"
    );
}

#[test]
fn a_checkpoint_is_of_one_moment_while_its_pages_leave_memory() {
    for preset in [Preset::Group, Preset::Autonomous] {
        checkpoints_are_exact(preset, 1 << 20, 1);
        checkpoints_are_exact(preset, 3 << 19, 2);
    }
}

#[test]
fn a_checkpoint_is_of_one_moment_while_pages_split_and_merge() {
    for preset in [Preset::Group, Preset::Autonomous] {
        checkpoints_are_exact(preset, ROOMY, 3);
    }
}

/// Pages with uncommitted rows stay in memory, however little there is. The checkpoint has the rows
/// as they were before the transaction.
#[test]
fn a_checkpoint_has_nothing_of_a_transaction_that_is_open() {
    for preset in [Preset::Group, Preset::Autonomous] {
        let disk = SimulatedStorage::new(4);
        let builder = || builder(&disk, preset, 1 << 20);
        let (db, [accounts, ..]) = filled(builder(), 4);
        let mut open = db.begin().expect("begins");
        for account in (0..ACCOUNTS).step_by(ACCOUNTS as usize / 5) {
            let value = value(1, &mut Random::from_seed(account));
            open.insert(&accounts, account.to_be_bytes(), value).expect("room");
        }
        for n in 0..4 {
            // Reads rows one by one, so that all clean pages are evicted. A scan would only copy
            // them.
            let (evicted, snapshot) = (db.statistics().pages_evicted, db.begin_read().expect("free"));
            for account in 0..ACCOUNTS {
                assert!(snapshot.get(&accounts, account.to_be_bytes()).expect("readable").is_some());
            }
            assert!(db.statistics().pages_evicted > evicted + 50, "memory is not short");
            db.checkpoint().expect("a whole disk");
            let checkpoint = builder().open_checkpoint("x").expect("there is one");
            judge(&checkpoint, &format!("{preset}, checkpoint {n} beside an open transaction"));
        }
        drop(open);
    }
}
