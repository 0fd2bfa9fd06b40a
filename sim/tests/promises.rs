//! A device that breaks its promises, one write at a time: each write of a small life is lost,
//! torn, misdirected, done twice or not flushed although the device said so, each store to mapped
//! memory loses a word or all of them, each fence does nothing, and each read of what is left finds
//! a flipped bit; with one log, a log for each thread, transactions divided by page, and logs in
//! mapped memory. Each time it is told what was struck (a log block, a page's image, a part of the
//! mapping, the manifest), and what the engine finds of it when it opens, reads, and verifies. What
//! cannot be found out is named here.

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
/// Two checkpoints; what follows the second is in the log only.
const CHECKPOINTS: [u32; 2] = [15, 30];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// What was struck and how the database answered, with how often.
type Found = BTreeMap<(&'static str, Answer), u64>;

/// A life of one kind: its protocol, and how many threads take turns, each with a log of its own
/// where there are several.
#[derive(Clone)]
struct Life {
    settings: Settings,
    threads: u32,
}

impl Life {
    fn of(preset: Preset, logs: usize) -> Life {
        let settings = small(preset, logs).with(|s| {
            // A block of the store for each page.
            s.compression = Compression::None;
            s.page_bytes = 4096;
            s.memory_bytes = 4 << 20;
            s.log_bytes_max = 8 << 20;
        });
        Life { settings, threads: logs as u32 }
    }

    fn open(&self, disk: &SimulatedStorage) -> quenchdb::Result<Database> {
        Database::builder().settings(self.settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
    }

    /// What was acknowledged: the content after each transaction. Ends where something failed.
    fn live(&self, disk: &SimulatedStorage) -> Vec<Content> {
        let (life, disk) = (self.clone(), disk.clone());
        simulate(move || {
            let history = life.work(&disk);
            disk.stop();
            // A read in the same life may have found it: then that was the end.
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
        // The first to begin ends last, so that the next life spreads its threads over the logs
        // like this one.
        for (number, thread) in (1..).zip(threads).collect::<Vec<_>>().into_iter().rev() {
            shared.set_turn(TRANSACTIONS + number);
            thread.join().expect("no panic");
        }
        Ok(std::mem::take(&mut *shared.history.lock()))
    }
}

/// `f` in a simulation and a thread of its own: nothing of its threads is left behind, so that the
/// same comes out again.
fn simulate<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let of_thread = result.clone();
    let run = || thread::spawn("life", move || *of_thread.lock() = Some(f())).expect("threads").join();
    simulation::run(Plan::of(SEED), run).0.expect("no panic");
    result.lock().take().expect("it has ended")
}

struct Shared {
    db: Database,
    table: Table,
    /// Number of the transaction that is next; beyond [`TRANSACTIONS`]: of the thread that may end.
    turn: AtomicU32,
    turned: Event,
    history: Mutex<Vec<Content>>,
}

impl Shared {
    fn await_turn(&self, is_come: impl Fn(u32) -> bool) -> u32 {
        loop {
            let (ticket, turn) = (self.turned.ticket(), self.turn.load(Ordering::SeqCst));
            if is_come(turn) {
                return turn;
            }
            self.turned.wait(ticket, None);
        }
    }

    fn set_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::SeqCst);
        self.turned.notify_all();
    }

    /// Every transaction whose number is the thread's.
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
    /// It opens; what is damaged is refused when it is read, and found by `verify`. The rest is
    /// right.
    FoundByReading,
}

fn judge(life: &Life, left: &SimulatedStorage, history: &[Content], context: &str) -> Answer {
    let (life, left, history) = (life.clone(), left.clone(), history.to_vec());
    let context = context.to_string();
    simulate(move || answer(&life, &left, &history, &context))
}

fn answer(life: &Life, left: &SimulatedStorage, history: &[Content], context: &str) -> Answer {
    let is_damage = |error: &quenchdb::Error| {
        let kinds =
            [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
        assert!(kinds.contains(&error.kind()), "{context}: {error}");
    };
    let db = match life.open(left) {
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
        FoundByReading
    } else if content == *last {
        if report.problems.is_empty() { Whole } else { FoundByVerify }
    } else {
        assert!(report.problems.is_empty(), "{context}: an older state, and {:?}", report.problems);
        assert!(history.contains(&content), "{context}: a state that never was");
        Prefix
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

/// A line of the journal without the numbers of threads, which are the process's.
fn nameless(line: &str) -> String {
    let of_thread = |word: &str| word.starts_with("Some(");
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(at) = words.iter().position(|word| *word == "thread") {
        words.remove(at + 1);
    }
    words.retain(|word| !of_thread(word));
    words.join(" ")
}

/// What the operation held that did not become what it should have, by the journal of the life in
/// which it was struck; `lines` are those of the life in which all went well: they differ from
/// there on.
fn struck_in(well: &SimulatedStorage, logs: usize, lines: &[String], struck: &[String]) -> &'static str {
    let same =
        lines.iter().zip(struck).take_while(|(well, struck)| nameless(well) == nameless(struck)).count();
    let again = struck.get(same).is_some_and(|line| line.starts_with("will be written again"));
    let operation = if again { same - 1 } else { same };
    // The operation that makes the memory: it does what it should all the same.
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

/// The same of a write that is line `operation`, and of log blocks whether others follow.
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

/// Whose the log block is.
fn log_of(well: &SimulatedStorage, operations: usize, path: &str, offset: u64) -> u32 {
    let bytes = well.crash(CrashKind::Kill, operations, SEED).read_file(path).expect("it was written to");
    let at = offset as usize + 12;
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

/// What was struck and what became of it, with how often, over all writes of the life.
fn strike_each(life: &Life, kind: MishapKind, crash: CrashKind) -> Found {
    use OperationKind::{DurableWrite, Flush, Memory, Write};
    let _alone = crate::support::alone();
    // The first life in a process makes what all share, and is not quite like the next.
    life.live(&SimulatedStorage::new(SEED));
    let well = SimulatedStorage::new(SEED);
    life.live(&well);
    let lines = well.describe(0);
    let mut struck = Vec::new();
    for operation in [DurableWrite, Write, Flush, Memory] {
        for after in 0.. {
            let disk = SimulatedStorage::new(SEED);
            disk.inject_mishap(Mishap { operation, after, kind });
            let history = life.live(&disk);
            if disk.faults_struck() == 0 {
                break;
            }
            struck.push((operation, after, disk, history));
        }
    }
    // Only now, so that each life has been preceded by such a life.
    let mut found = BTreeMap::new();
    for (operation, after, disk, history) in struck {
        let class = struck_in(&well, life.settings.logs, &lines, &disk.describe(0));
        let left = disk.crash(crash, disk.operations(), after);
        let context = format!("{kind:?} of {operation:?} {after} ({class})");
        *found.entry((class, judge(life, &left, &history, &context))).or_default() += 1;
    }
    println!("{}, {} logs, {}: {found:?}", life.settings.preset.name(), life.settings.logs, kind.name());
    found
}

fn answers(found: &Found, class: &str) -> BTreeSet<Answer> {
    found.keys().filter(|(of, _)| *of == class).map(|(_, answer)| *answer).collect()
}

/// Asserts what became of all that was struck of a class, and, of what is `found` at all, that
/// something was.
fn assert_answers(found: &Found, class: &str, allowed: &[Answer]) {
    let answers = answers(found, class);
    assert!(!answers.is_empty(), "no {class} was struck: {found:?}");
    assert!(answers.iter().all(|answer| allowed.contains(answer)), "{class}: {answers:?}, not {allowed:?}");
}

/// What is damaged in the store is found by whoever opens, reads or verifies; what the next
/// checkpoint replaced is missed by nobody.
const FOUND_OR_REPLACED: [Answer; 4] = [Whole, Refused, FoundByReading, FoundByVerify];

/// The store and the manifest, as for each kind of mishap that harms them.
fn assert_store(found: &Found) {
    for class in ["page", "mapping", "list"] {
        assert_answers(found, class, &FOUND_OR_REPLACED);
    }
    let detected = |class| answers(found, class).iter().any(|answer| *answer != Whole);
    assert!(
        detected("page") || detected("mapping"),
        "nothing of the newest checkpoint was struck: {found:?}"
    );
}

/// Each commit writes, one after the other.
fn one_log() -> Life {
    Life::of(Preset::PerTransaction, 1)
}

/// A log for each of three threads.
fn several_logs() -> Life {
    Life::of(Preset::Autonomous, 3)
}

/// Logs in mapped memory.
fn in_memory(logs: usize) -> Life {
    Life::of(Preset::Passive, logs)
}

/// Transactions divided between two logs.
fn by_page() -> Life {
    let life = Life::of(Preset::Group, 2);
    Life { settings: life.settings.with(|s| s.layout = Some(Layout::ByPage)), threads: 1 }
}

/// With the logs on the device; and what becomes of the newest block of a log, if another log has a
/// newer one, when it is lost. The newest transaction may have been told because of both, so a
/// fragment of it is missed by nobody; that of an earlier one is. Only the one with several logs if
/// tests do not run at their whole depth.
fn on_the_device() -> Vec<(Life, Answer)> {
    let (first, most) = if is_deep() { (0, 3) } else { (1, 1) };
    let all = [(one_log(), Prefix), (several_logs(), Refused), (by_page(), Prefix)];
    all.into_iter().skip(first).take(most).collect()
}

/// As [`assert_answers`] for the newest block of a log beside one that is newer, where there are
/// several logs.
fn assert_newest_of_its_log(life: &Life, found: &Found, allowed: &[Answer]) {
    if life.settings.logs > 1 {
        assert_answers(found, "newest block of its log", allowed);
    }
}

#[test]
fn a_lost_write_is_found_but_of_the_newest_log_block() {
    for (life, of_newest) in on_the_device() {
        let found = strike_each(&life, MishapKind::Lost, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "header of the store", &[Refused]);
        // There is another slot.
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        assert_answers(&found, "log block", &[Refused]);
        // It looks like a block that was never written: a torn tail. A newer record in another log
        // vouches for it.
        assert_newest_of_its_log(&life, &found, &[of_newest]);
        assert_answers(&found, "newest log block", &[Prefix]);
    }
}

#[test]
fn a_torn_write_is_found_but_of_the_newest_log_block() {
    for (life, of_newest) in on_the_device() {
        let found = strike_each(&life, MishapKind::Torn, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "header of the store", &[Refused, Whole]);
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        // Whole if all that was not written is padding.
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&life, &found, &[of_newest, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Whole]);
    }
}

/// It is not where it belongs, and damages another place.
#[test]
fn a_misdirected_write_is_found_but_of_the_newest_log_block() {
    for (life, of_newest) in on_the_device() {
        let found = strike_each(&life, MishapKind::Misdirected, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "manifest", &FOUND_OR_REPLACED);
        assert_answers(&found, "log block below the checkpoint", &FOUND_OR_REPLACED);
        // Recovery goes by what a block says of itself: it finds one that landed elsewhere in the
        // log.
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&life, &found, &[of_newest, Refused, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Refused, Whole]);
    }
}

/// Nothing that is in use is written to, so most are harmless; a block that was used again
/// meanwhile is found.
#[test]
fn a_write_that_is_done_twice_is_harmless_or_found() {
    for (life, _) in on_the_device() {
        let found = strike_each(&life, MishapKind::Duplicated, CrashKind::Kill);
        for class in ["page", "mapping", "list", "manifest", "log block", "newest log block"] {
            assert_answers(&found, class, &FOUND_OR_REPLACED);
        }
        assert_newest_of_its_log(&life, &found, &FOUND_OR_REPLACED);
    }
}

/// Then the power goes. What was told to be durable and was not is gone, in part or all; a flush
/// that came later has done its work.
#[test]
fn a_flush_that_lies_is_found_but_of_the_newest_log_block() {
    for (life, of_newest) in on_the_device() {
        let found = strike_each(&life, MishapKind::LyingFlush, CrashKind::PowerCut);
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "log block below the checkpoint", &[Whole]);
        assert_answers(&found, "log block", &[Refused, Whole]);
        assert_newest_of_its_log(&life, &found, &[of_newest, Whole]);
        assert_answers(&found, "newest log block", &[Prefix, Whole]);
        assert_answers(&found, "flush", &FOUND_OR_REPLACED);
    }
}

/// All of a store, or a word of it. Nothing tells the end of what a buffer holds from a record that
/// is not whole, and all behind it is lost with it: also where the record itself was below the
/// checkpoint. Only newer records of another log can vouch for what is gone.
#[test]
fn a_lost_word_of_log_memory_is_found_if_another_log_knows() {
    for kind in [MishapKind::Lost, MishapKind::Torn] {
        let found = strike_each(&in_memory(2), kind, CrashKind::Kill);
        assert_store(&found);
        assert_answers(&found, "manifest", &[Whole]);
        // Whole: an entry or header that is there twice, or zeros over zeros.
        assert_answers(&found, "store", &[Refused, Whole]);
        assert!(found[&("store", Refused)] > found[&("store", Whole)], "{found:?}");
        assert_answers(&found, "newest store", &[Prefix]);
        let found = strike_each(&in_memory(1), kind, CrashKind::Kill);
        assert_answers(&found, "store", &[Prefix, Whole]);
        assert_answers(&found, "newest store", &[Prefix]);
    }
}

/// Then the power goes. The next fence of the same thread does the work of the one that lied.
#[test]
fn a_fence_that_lies_loses_what_is_not_fenced_again() {
    for (logs, not_fenced_again) in [(2, Refused), (1, Prefix)] {
        let found = strike_each(&in_memory(logs), MishapKind::LyingFlush, CrashKind::PowerCut);
        assert_answers(&found, "Fence", &[Whole, not_fenced_again]);
        assert!(found[&("Fence", Whole)] > 30, "{found:?}");
        assert_answers(&found, "newest fence", &[Prefix, Whole]);
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "flush", &FOUND_OR_REPLACED);
    }
}
