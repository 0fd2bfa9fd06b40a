//! What several of these tests share.
#![allow(dead_code, reason = "no test needs everything")]

pub mod bank;
pub mod checked_rows;
pub mod configurations;
pub mod interleaved;
pub mod lists;
pub mod loss;
pub mod markers;
pub mod modes;
pub mod processes;
pub mod ranges;
pub mod reads;
pub mod returned_commits;
pub mod row_history;
pub mod skipped;
pub mod test_database;

use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::commit::presets;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{
    Acknowledger, Append, Axes, Csn, Database, Dependency, Layout, Place, Preset, Queue, RestoreOptions,
    RestoreReport, Result, Settings, Snapshot, Table, WorkerOptions, Writer, WriterOptions,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Rows by table and key.
pub type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// The rows of one table: what a test expects, or what it found.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the rows of a table; none if there is no such table.
pub fn rows(db: &Database, table: &str) -> Model {
    let snapshot = db.begin_read().expect("free");
    let Ok(table) = db.table(table) else { return Model::new() };
    snapshot.range(&table, ..).map(|row| row.expect("readable")).collect()
}

/// Returns every row of every table.
pub fn content(db: &Database) -> Content {
    let tables = db.tables().into_iter().map(|name| (db.table(&name).expect("listed"), name));
    content_of(&db.begin_read().expect("free"), tables).expect("readable")
}

/// Returns every row of these tables.
pub fn content_of(snapshot: &Snapshot, tables: impl Iterator<Item = (Table, String)>) -> Result<Content> {
    let mut content = Content::new();
    for (table, name) in tables {
        for row in snapshot.range(&table, ..) {
            let (key, value) = row?;
            content.insert((name.clone(), key), value);
        }
    }
    Ok(content)
}

/// Describes rows that are in only one of two contents, or differ: their number and the first ones.
pub fn difference(before: &Content, now: &Content) -> String {
    let described = |what: &str, of: &Content, other: &Content| {
        let rows: Vec<_> = of.iter().filter(|(key, value)| other.get(*key) != Some(*value)).collect();
        let keys: Vec<_> = rows.iter().take(5).map(|(key, _)| key).collect();
        format!("{} rows {what}, first {keys:?}", rows.len())
    };
    format!("{}; {}", described("only before", before, now), described("only now", now, before))
}

/// Waits until `is_so`, for an action of another thread that may have to wait for a processor.
#[track_caller]
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `run` in a new thread. Panics if it panics or takes more than `seconds`, in the whole depth
/// of the tests twice as long.
pub fn in_time<T: Send + 'static>(what: &str, seconds: u64, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(send.send(run())));
    let most = Duration::from_secs(if is_deep() { 2 * seconds } else { seconds });
    match receive.recv_timeout(most) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            println!("{what}: panicked");
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing"))
        }
    }
}

/// Runs `first` in a new thread, then `second` while that thread lives. If the thread ended, its
/// log would be assigned to the next new thread.
pub fn beside<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    let (send, receive) = mpsc::channel();
    let (until_the_end, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let until_the_end = until_the_end;
        scope.spawn(move || {
            let _ = send.send(first());
            // Blocks until the other end of the channel is dropped, also by a panic.
            let _ = end.recv();
        });
        let first = receive.recv().expect("no panic");
        let second = second();
        drop(until_the_end);
        (first, second)
    })
}

/// Runs `work` while `others` other threads live that have used the database, so that the threads
/// of `work` get other logs.
pub fn beside_others<T>(others: u64, db: &Database, work: impl FnOnce() -> T) -> T {
    let commit = || db.create_table(&format!("other {others}")).map(drop).expect("new");
    if others == 0 { work() } else { beside(commit, || beside_others(others - 1, db, work)).1 }
}

pub fn place(disk: &SimulatedStorage) -> Place {
    Place::storage(Arc::new(disk.clone()))
}

/// Restores backups, and optionally the log that was written after them, to a new disk.
pub fn restore(
    backups: &[&SimulatedStorage],
    log: Option<&SimulatedStorage>,
    to: Option<Csn>,
    settings: Settings,
) -> Result<(SimulatedStorage, RestoreReport)> {
    let target = SimulatedStorage::new(3);
    let options = RestoreOptions::default().with(|s| {
        s.log = log.map(place);
        s.to = to;
        s.settings = settings;
    });
    let report = Database::restore(backups.iter().map(|disk| place(disk)), place(&target), options)?;
    Ok((target, report))
}

/// Returns small settings with `logs` logs and no automatic checkpoints.
pub fn small(preset: Preset, logs: usize) -> Settings {
    test_database::tiny(8 << 20).with(|s| {
        s.preset = preset;
        s.logs = logs;
        s.lab.flush_unit_bytes = 0;
        s.log_memory = (preset == Preset::Passive).then(|| "mapped-memory".into());
    })
}

/// Returns settings with one worker per log, no stealing, and an idle log written after a second.
/// So lazy commits stay unwritten for a while.
pub fn patient_workers(logs: usize) -> Settings {
    small(Preset::Autonomous, logs).with(|s| {
        let options =
            WorkerOptions { stealing_group: Some(1), idle_max: Duration::ZERO, ..WorkerOptions::DEFAULT };
        s.lab.protocol = Some(Axes {
            writer: WriterOptions::Worker(options),
            dependency: Some(Dependency::Exact),
            flush_interval: Duration::from_secs(1),
            ..Preset::Autonomous.axes()
        });
        s.lab.flush_unit_bytes = 48 << 10;
    })
}

/// Returns the name of the dependency rule that was chosen.
pub fn rule_of(settings: &Settings) -> &'static str {
    settings.lab.protocol.and_then(|axes| axes.dependency).map_or("its own", Dependency::name)
}

/// Locks out other simulations in this process: any thread of the process may run deferred frees,
/// which would make runs differ.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writers that [`any_protocol`] draws.
const WRITERS: [Writer; 6] = [
    Writer::Committer,
    Writer::Leader,
    Writer::FlusherPerLog,
    Writer::Background,
    Writer::Worker,
    Writer::Memory,
];

/// Returns settings with a preset, sometimes with other choices than the preset's own. Over many
/// calls every valid combination occurs.
///
/// `pair` selects the preset and the dependency rule. Consecutive numbers cover all such pairs.
pub fn any_protocol(pair: u64, random: &mut Random) -> Settings {
    fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
        all[random.below(all.len() as u64) as usize]
    }
    fn sometimes<T: Copy>(random: &mut Random, all: &[T]) -> Option<T> {
        let one = one_of(random, all);
        random.chance(1, 4).then_some(one)
    }
    let (presets, rules) = (Preset::ALL.len(), Dependency::ALL.len());
    let number = pair;
    let pair = (pair % (presets * rules) as u64) as usize;
    loop {
        let preset = Preset::ALL[pair % presets];
        // Mostly workers that steal.
        let steals = preset == Preset::Autonomous && random.chance(3, 4);
        let logs = if steals { 2 } else { 1 } + random.below(3) as usize;
        let writer = if steals { Some(Writer::Worker) } else { sometimes(random, &WRITERS) };
        // By default the layout follows from the number of logs. Division by page has its own code.
        let layout = (!steals && random.chance(1, 3)).then_some(Layout::ByPage);
        let acknowledger = sometimes(random, &Acknowledger::ALL);
        let stealing_group = if steals { Some(4) } else { sometimes(random, &[1, 2, 3]) };
        let odds = if random.chance(1, 8) { 3 } else { 1 };
        let queue = sometimes(random, &Queue::ALL);
        let shared_flush = sometimes(random, &[true, false]);
        let flush_interval = (!steals && random.chance(3, 4)).then_some(Duration::ZERO);
        let in_memory = writer.unwrap_or(preset.axes().writer.kind()) == Writer::Memory;
        let mut settings = Settings::default().with(|s| {
            (s.preset, s.logs, s.log_bytes_max) = (preset, logs, 1 << 30);
            // The simulated disk's memory.
            s.log_memory = in_memory.then(|| "mapped-memory".into());
        });
        let axes = settings.protocol_mut();
        layout.into_iter().for_each(|layout| axes.set_layout(layout));
        writer.into_iter().for_each(|writer| axes.set_writer(writer));
        acknowledger.into_iter().for_each(|acknowledger| axes.set_acknowledger(acknowledger));
        axes.dependency = Some(Dependency::ALL[pair / presets]);
        axes.queue = queue.unwrap_or(axes.queue);
        axes.shared_flush = shared_flush;
        // In mapped memory no record waits for a flush.
        axes.flush_interval = flush_interval.filter(|_| !in_memory).unwrap_or(axes.flush_interval);
        let mut fits = writer != Some(Writer::Committer) || logs == 1;
        match axes.worker_mut() {
            Some(options) => options.stealing_group = stealing_group,
            None => fits &= stealing_group.is_none_or(|group| group == 1),
        }
        match axes.acknowledgment_mut() {
            Some(options) => options.odds = odds,
            None => fits &= odds == 1,
        }
        if fits && presets::check(&settings, logs).is_ok() {
            let flusher = writer == Some(Writer::Background);
            return with_append_of(number, with_collector(number, flusher, settings));
        }
    }
}

/// Has a worker collect all logs instead of the background thread, if that was drawn, in every
/// other configuration that allows it. Without a draw, so that all other choices of a seed stay
/// what they were.
fn with_collector(number: u64, is_drawn: bool, settings: Settings) -> Settings {
    let collects = settings.clone().with_protocol(|axes| axes.set_writer(Writer::Collector));
    let is_wanted = is_drawn && settings.logs > 1 && number.is_multiple_of(2);
    if is_wanted && presets::check(&collects, collects.logs).is_ok() { collects } else { settings }
}

/// Has two of five configurations append in groups, where that is possible. Without a draw, so that
/// all other choices of a seed stay what they were.
fn with_append_of(number: u64, settings: Settings) -> Settings {
    let in_groups = settings.clone().with_protocol(|axes| axes.append = Append::Consolidated);
    let fits = number % 5 < 2 && presets::check(&in_groups, in_groups.logs).is_ok();
    if fits { in_groups } else { settings }
}
