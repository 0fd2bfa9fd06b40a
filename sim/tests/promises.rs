//! A device breaks one promise in each run of a small workload:
//! - a write is lost, torn, misdirected, or done twice;
//! - a flush does nothing, although the device reports success;
//! - a store to mapped memory loses one word or all of them, or a fence does nothing;
//! - a read of the remaining files finds a flipped bit.
//!
//! The runs use one log, a log for each thread, transactions divided by page, and logs in mapped
//! memory. Each run classifies what the fault damaged: a log block, a page image, a part of the
//! mapping, the manifest. Then the test checks what open, reads, and `verify` detect. The
//! assertions name the damage that cannot be detected.

mod rot;
use crate::support::small;
use Answer::{FoundByReading, FoundByVerify, Prefix, Refused, Whole};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{
    CrashKind, Mishap, MishapKind, OperationKind, SimulatedStorage,
};
use quenchdb::internals::sync::simulation::{self, Plan};
use quenchdb::internals::sync::{Event, Mutex, thread};
use quenchdb::{Compression, Database, ErrorKind, Layout, Preset, Settings, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SEED: u64 = 1;
const TRANSACTIONS: u32 = 40;
/// The transactions that begin with a checkpoint; all after the second are in the log only.
const CHECKPOINTS: [u32; 2] = [15, 30];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// Number of runs by the damaged part and the outcome.
type Counts = BTreeMap<(&'static str, Answer), u64>;

/// The workload of all runs: settings, and the number of threads that take turns. Each thread has a
/// log of its own if there are several logs.
#[derive(Clone)]
struct Workload {
    settings: Settings,
    threads: u32,
}

impl Workload {
    fn of(preset: Preset, logs: usize) -> Workload {
        let settings = small(preset, logs).with(|s| {
            // A block of the store for each page.
            s.compression = Compression::None;
            s.page_bytes = 4096;
            s.memory_bytes = 4 << 20;
            s.log_bytes_max = 8 << 20;
        });
        Workload { settings, threads: logs as u32 }
    }

    fn open(&self, disk: &SimulatedStorage) -> quenchdb::Result<Database> {
        Database::builder().settings(self.settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
    }

    /// Runs the workload until an operation fails. Returns the content after each acknowledged
    /// transaction.
    fn run(&self, disk: &SimulatedStorage) -> Vec<Content> {
        let (workload, disk) = (self.clone(), disk.clone());
        simulate(move || {
            let history = workload.work(&disk);
            disk.stop();
            // A read of the same run may have detected the damage and ended the run.
            history.unwrap_or_else(|_| vec![Content::new()])
        })
    }

    fn work(&self, disk: &SimulatedStorage) -> quenchdb::Result<Vec<Content>> {
        let db = self.open(disk)?;
        let table = db.create_table("t")?;
        let (turn, history) = (AtomicU32::new(0), Mutex::new(vec![Content::new()]));
        let shared = Arc::new(Shared { db, table, turn, turned: Event::new(), history });
        let start = |number| {
            let (shared, threads) = (shared.clone(), self.threads);
            thread::spawn("worker", move || shared.take_turns(number, threads)).expect("threads")
        };
        let threads: Vec<_> = (0..self.threads).map(start).collect();
        shared.await_turn(|turn| turn >= TRANSACTIONS);
        disk.stop();
        // The first thread ends last, so that the next run assigns its threads to the same logs.
        for (number, thread) in (1..).zip(threads).collect::<Vec<_>>().into_iter().rev() {
            shared.set_turn(TRANSACTIONS + number);
            thread.join().expect("no panic");
        }
        Ok(std::mem::take(&mut *shared.history.lock()))
    }
}

/// Runs `f` in a simulation and a new thread. No thread-local state remains, so that every run is
/// the same.
fn simulate<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let of_thread = result.clone();
    let run = || thread::spawn("workload", move || *of_thread.lock() = Some(f())).expect("threads").join();
    simulation::run(Plan::of(SEED), run).0.expect("no panic");
    result.lock().take().expect("it has ended")
}

struct Shared {
    db: Database,
    table: Table,
    /// Number of the next transaction. Above [`TRANSACTIONS`]: number of the thread that may end,
    /// plus `TRANSACTIONS + 1`.
    turn: AtomicU32,
    turned: Event,
    history: Mutex<Vec<Content>>,
}

impl Shared {
    fn await_turn(&self, has_come: impl Fn(u32) -> bool) -> u32 {
        loop {
            let (ticket, turn) = (self.turned.ticket(), self.turn.load(Ordering::SeqCst));
            if has_come(turn) {
                return turn;
            }
            self.turned.wait(ticket, None);
        }
    }

    fn set_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::SeqCst);
        self.turned.notify_all();
    }

    /// Runs every `threads`-th transaction, from `number` on.
    fn take_turns(&self, number: u32, threads: u32) {
        for n in (number..TRANSACTIONS).step_by(threads as usize) {
            if self.await_turn(|turn| turn >= n) > n {
                break;
            }
            let mut content = self.history.lock().last().expect("not empty").clone();
            let done = transact(&self.db, &self.table, n, &mut content).is_ok();
            if done {
                self.history.lock().push(content);
            }
            self.set_turn(if done { n + 1 } else { TRANSACTIONS });
        }
        self.await_turn(|turn| turn == TRANSACTIONS + number + 1);
    }
}

fn transact(db: &Database, table: &Table, n: u32, content: &mut Content) -> quenchdb::Result<()> {
    let mut random = Random::from_seed(SEED << 32 | u64::from(n));
    if CHECKPOINTS.contains(&n) {
        db.checkpoint()?;
    }
    let mut tx = db.begin()?;
    for _ in 0..4 {
        let key = format!("key {:03}", random.below(120)).into_bytes();
        let value = format!("value {n} {}", "x".repeat(random.below(300) as usize)).into_bytes();
        tx.insert(table, &key, &value)?;
        content.insert(key, value);
    }
    tx.commit().map(drop)
}

/// The state of the database after the fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Answer {
    /// Everything acknowledged is present, and `verify` finds nothing.
    Whole,
    /// Everything acknowledged is present, and `verify` reports damage.
    FoundByVerify,
    /// The newest transactions are missing without an error; the content is an earlier state.
    Prefix,
    /// The open fails and names the damage.
    Refused,
    /// The open succeeds. Reads of damaged rows fail, `verify` reports the damage, and other rows
    /// are correct.
    FoundByReading,
}

fn judge(workload: &Workload, left: &SimulatedStorage, history: &[Content], context: &str) -> Answer {
    let (workload, left, history) = (workload.clone(), left.clone(), history.to_vec());
    let context = context.to_string();
    simulate(move || answer(&workload, &left, &history, &context))
}

fn answer(workload: &Workload, left: &SimulatedStorage, history: &[Content], context: &str) -> Answer {
    let is_damage = |error: &quenchdb::Error| {
        let kinds =
            [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
        assert!(kinds.contains(&error.kind()), "{context}: {error}");
    };
    let db = match workload.open(left) {
        Ok(db) => db,
        Err(error) => {
            is_damage(&error);
            return Refused;
        }
    };
    let mut content = Content::new();
    let mut refused = false;
    match db.table("t") {
        Ok(table) => {
            let snapshot = db.begin_read().expect("free");
            for row in snapshot.range(&table, ..) {
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
        FoundByReading
    } else if content == *last {
        if report.problems.is_empty() { Whole } else { FoundByVerify }
    } else {
        assert!(report.problems.is_empty(), "{context}: an older state, and {:?}", report.problems);
        assert!(history.contains(&content), "{context}: a state that never existed");
        Prefix
    };
    left.stop();
    answer
}

/// Returns what is at `offset` of a file after the first `operations` operations of the run without
/// faults.
fn class_of(well: &SimulatedStorage, operations: usize, path: &str, offset: u64) -> &'static str {
    if path == "MANIFEST" {
        return "manifest";
    }
    if path.starts_with("log/") {
        return "log block";
    }
    assert!(path.starts_with("pages"), "{path}");
    let bytes = well.crash(CrashKind::Kill, operations, SEED).read_file(path).expect("it was written to");
    // Byte 6 of a block is its kind.
    match bytes[offset as usize / 4096 * 4096 + 6] {
        1 => "header of the store",
        2 | 6 => "page",
        3 | 4 => "mapping",
        5 => "list",
        other => panic!("a block of kind {other}"),
    }
}

/// Returns path and offset of an operation from its line of the disk's journal.
fn place_of(line: &str) -> Option<(String, u64)> {
    let (head, rest) = line.split_once(" at ")?;
    let path = head.rsplit(' ').next()?.to_string();
    let offset = rest.split(',').next()?.trim().parse().ok()?;
    Some((path, offset))
}

/// Returns a line of the journal without thread numbers, which differ from run to run.
fn nameless(line: &str) -> String {
    let of_thread = |word: &str| word.starts_with("Some(");
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(at) = words.iter().position(|word| *word == "thread") {
        words.remove(at + 1);
    }
    words.retain(|word| !of_thread(word));
    words.join(" ")
}

/// Returns what the faulty operation wrote. `lines` is the journal of the run without faults,
/// `faulty` that of the run with the fault; the first difference is the faulty operation.
fn damaged_part(well: &SimulatedStorage, logs: usize, lines: &[String], faulty: &[String]) -> &'static str {
    let same = lines.iter().zip(faulty).take_while(|(line, other)| nameless(line) == nameless(other)).count();
    let again = faulty.get(same).is_some_and(|line| line.starts_with("will be written again"));
    let operation = if again { same - 1 } else { same };
    // The creation of the mapped memory, which the fault does not affect.
    let Some(line) = lines.get(operation) else { return "nothing" };
    for (what, newest) in [("store", "newest store"), ("Fence", "newest fence")] {
        if line.starts_with(what) {
            let later = lines[operation + 1..].iter().filter(|line| line.starts_with(what)).count();
            return if later < logs { newest } else { what };
        }
    }
    if line.starts_with("FlushMemory") {
        return "flush";
    }
    let Some((path, offset)) = place_of(line) else { return "flush" };
    class_of_write(well, lines, operation, &path, offset)
}

/// Returns what the write in line `operation` wrote; for a log block also whether newer ones
/// follow.
fn class_of_write(
    well: &SimulatedStorage,
    lines: &[String],
    operation: usize,
    path: &str,
    offset: u64,
) -> &'static str {
    let later: Vec<&String> = lines[operation + 1..].iter().filter(|line| is_write(line)).collect();
    match class_of(well, operation + 1, path, offset) {
        "log block" if later.iter().any(|line| line.contains("MANIFEST")) => "log block below the checkpoint",
        "log block" => {
            let log = log_of(well, operation + 1, path, offset);
            let others = later.iter().filter(|line| line.contains("log/")).filter_map(|line| place_of(line));
            let logs: Vec<u32> = others.map(|(path, at)| log_of(well, lines.len(), &path, at)).collect();
            match () {
                () if logs.is_empty() => "newest log block",
                () if logs.contains(&log) => "log block",
                () => "newest block of its log",
            }
        }
        class => class,
    }
}

fn is_write(line: &str) -> bool {
    line.starts_with("durable write ") || line.starts_with("write ")
}

/// Returns the number of the log that the block belongs to.
fn log_of(well: &SimulatedStorage, operations: usize, path: &str, offset: u64) -> u32 {
    let bytes = well.crash(CrashKind::Kill, operations, SEED).read_file(path).expect("it was written to");
    let at = offset as usize + 12;
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

/// Runs the workload once for each operation that a fault of this kind can affect. Counts the
/// outcomes by the damaged part.
fn fault_each(workload: &Workload, kind: MishapKind, crash: CrashKind) -> Counts {
    use OperationKind::{DurableWrite, Flush, Memory, Write};
    let _alone = crate::support::alone();
    // The first run in a process differs slightly, because it initializes process-wide state.
    workload.run(&SimulatedStorage::new(SEED));
    let well = SimulatedStorage::new(SEED);
    workload.run(&well);
    let lines = well.describe(0);
    let mut runs = Vec::new();
    for operation in [DurableWrite, Write, Flush, Memory] {
        for after in 0.. {
            let disk = SimulatedStorage::new(SEED);
            disk.inject_mishap(Mishap { operation, after, kind });
            let history = workload.run(&disk);
            if disk.faults_struck() == 0 {
                break;
            }
            runs.push((operation, after, disk, history));
        }
    }
    // Judged after all runs, so that every run follows a run of the same workload.
    let mut found = BTreeMap::new();
    for (operation, after, disk, history) in runs {
        let class = damaged_part(&well, workload.settings.logs, &lines, &disk.describe(0));
        let left = disk.crash(crash, disk.operations(), after);
        let context = format!("{kind:?} of {operation:?} {after} ({class})");
        *found.entry((class, judge(workload, &left, &history, &context))).or_default() += 1;
    }
    println!(
        "{}, {} logs, {}: {found:?}",
        workload.settings.preset.name(),
        workload.settings.logs,
        kind.name()
    );
    found
}

fn answers(found: &Counts, class: &str) -> BTreeSet<Answer> {
    found.keys().filter(|(of, _)| *of == class).map(|(_, answer)| *answer).collect()
}

/// Asserts that faults damaged `class`, and that all of its outcomes are allowed.
fn assert_answers(found: &Counts, class: &str, allowed: &[Answer]) {
    let answers = answers(found, class);
    assert!(!answers.is_empty(), "no fault damaged a {class}: {found:?}");
    assert!(answers.iter().all(|answer| allowed.contains(answer)), "{class}: {answers:?}, not {allowed:?}");
}

/// Outcomes of damage in the store: open, a read or `verify` detects it, or the next checkpoint has
/// already replaced the damaged part.
const FOUND_OR_REPLACED: [Answer; 4] = [Whole, Refused, FoundByReading, FoundByVerify];

/// Asserts the outcomes of damaged parts of the store.
fn assert_store(found: &Counts) {
    for class in ["page", "mapping", "list"] {
        assert_answers(found, class, &FOUND_OR_REPLACED);
    }
    let detected = |class| answers(found, class).iter().any(|answer| *answer != Whole);
    assert!(detected("page") || detected("mapping"), "no fault damaged the newest checkpoint: {found:?}");
}

/// One log; each commit writes its own record.
fn one_log() -> Workload {
    Workload::of(Preset::PerTransaction, 1)
}

/// A log for each of three threads.
fn several_logs() -> Workload {
    Workload::of(Preset::Autonomous, 3)
}

/// Logs in mapped memory.
fn in_memory(logs: usize) -> Workload {
    Workload::of(Preset::Passive, logs)
}

/// Transactions divided between two logs.
fn by_page() -> Workload {
    let workload = Workload::of(Preset::Group, 2);
    Workload { settings: workload.settings.with_protocol(|axes| axes.set_layout(Layout::ByPage)), threads: 1 }
}

/// Returns the workloads with logs on the device. Each comes with the outcome after the loss of a
/// log's newest block, if another log has a newer block. With transactions divided by page, the
/// lost block may hold a fragment of the newest transaction, and recovery then discards the whole
/// transaction without an error. A shallow run uses only the workload with several logs.
fn on_the_device() -> Vec<(Workload, Answer)> {
    let (first, most) = if is_deep() { (0, 3) } else { (1, 1) };
    let all = [(one_log(), Prefix), (several_logs(), Refused), (by_page(), Prefix)];
    all.into_iter().skip(first).take(most).collect()
}

/// Asserts, with several logs, the outcomes for a log's newest block if another log has a newer
/// one.
fn assert_newest_of_its_log(workload: &Workload, found: &Counts, allowed: &[Answer]) {
    if workload.settings.logs > 1 {
        assert_answers(found, "newest block of its log", allowed);
    }
}

#[test]
fn a_lost_write_is_found_but_of_the_newest_log_block() {
    for (workload, of_newest) in on_the_device() {
        let found = fault_each(&workload, MishapKind::Lost, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "header of the store", &[Refused, Whole]);
        // The manifest has a second slot.
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        assert_answers(&found, "log block", &[Refused]);
        // A lost newest block looks like a torn tail. Only a newer record in another log proves
        // that the block was written.
        assert_newest_of_its_log(&workload, &found, &[of_newest]);
        assert_answers(&found, "newest log block", &[Prefix]);
    }
}

#[test]
fn a_torn_write_is_found_but_of_the_newest_log_block() {
    for (workload, of_newest) in on_the_device() {
        let found = fault_each(&workload, MishapKind::Torn, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "header of the store", &[Refused, Whole]);
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        // Whole if only padding was not written.
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&workload, &found, &[of_newest, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Whole]);
    }
}

/// The write is missing at its place and damages another place.
#[test]
fn a_misdirected_write_is_found_but_of_the_newest_log_block() {
    for (workload, of_newest) in on_the_device() {
        let found = fault_each(&workload, MishapKind::Misdirected, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "manifest", &FOUND_OR_REPLACED);
        assert_answers(&found, "log block below the checkpoint", &FOUND_OR_REPLACED);
        // Recovery identifies a block by its header, so that it finds a block at a wrong place of
        // the log.
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&workload, &found, &[of_newest, Refused, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Refused, Whole]);
    }
}

/// The engine never overwrites a block in use, so most repeated writes are harmless. A repeated
/// write over a block that was reused since is detected.
#[test]
fn a_duplicated_write_is_harmless_or_found() {
    for (workload, _) in on_the_device() {
        let found = fault_each(&workload, MishapKind::Duplicated, CrashKind::Kill);
        for class in ["page", "mapping", "list", "manifest", "log block", "newest log block"] {
            assert_answers(&found, class, &FOUND_OR_REPLACED);
        }
        assert_newest_of_its_log(&workload, &found, &FOUND_OR_REPLACED);
    }
}

/// A power cut follows. Writes that the flush should have made durable are lost, in part or all, if
/// no later flush made them durable.
#[test]
fn a_lying_flush_is_found_but_of_the_newest_log_block() {
    for (workload, of_newest) in on_the_device() {
        let found = fault_each(&workload, MishapKind::LyingFlush, CrashKind::PowerCut);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&workload, &found, &[of_newest, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Whole]);
        assert_answers(&found, "flush", &FOUND_OR_REPLACED);
    }
}

/// All of a store is lost, or one word of it. An incomplete record looks like the end of the
/// buffer, so that all later records of the log are lost with it, even if the incomplete record is
/// older than the checkpoint. Only newer records of another log prove that records are missing.
#[test]
fn a_lost_word_of_log_memory_is_found_if_another_log_knows() {
    for kind in [MishapKind::Lost, MishapKind::Torn] {
        let found = fault_each(&in_memory(2), kind, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "manifest", &[Whole]);
        // Whole if the store wrote a second copy of an entry or header, or zeros over zeros.
        assert_answers(&found, "store", &[Refused, Whole]);
        assert!(found[&("store", Refused)] > found[&("store", Whole)], "{found:?}");
        assert_answers(&found, "newest store", &[Prefix]);
        let found = fault_each(&in_memory(1), kind, CrashKind::Kill);
        assert_answers(&found, "store", &[Prefix, Whole]);
        assert_answers(&found, "newest store", &[Prefix]);
    }
}

/// A power cut follows. The next fence of the same thread makes the earlier stores durable, too.
#[test]
fn a_lying_fence_loses_stores_that_no_later_fence_covers() {
    for (logs, not_fenced_again) in [(2, Refused), (1, Prefix)] {
        let found = fault_each(&in_memory(logs), MishapKind::LyingFlush, CrashKind::PowerCut);
        assert_answers(&found, "Fence", &[Whole, not_fenced_again]);
        assert!(found[&("Fence", Whole)] > 30, "{found:?}");
        assert_answers(&found, "newest fence", &[Prefix, Whole]);
        assert_answers(&found, "flush", &FOUND_OR_REPLACED);
    }
}
