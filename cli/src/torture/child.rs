//! The child that is killed: it works as fast as it can and reports each commit after it was
//! acknowledged.
//!
//! With `--steps N` it ends by itself: each thread makes N steps beside a checkpoint, and the
//! database is closed.
//!
//! Lines on standard output, one `write` each: `S` the accounts are durable; `T w s` transfer, `I w
//! s` insert, `D w s` delete of the insert `w s` were acknowledged. Rows of bounded loss are
//! written and never reported.

use crate::bank::{Bank, Entry};
use crate::output::Outcome;
use crate::parse::parse_preset;
use anyhow::{Result, anyhow};
use quench_bench::rows::fill;
use quenchdb::internals::base::random::Random;
use quenchdb::{CommitHandle, Database, Durability, Preset, Table, Transaction};
use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Threads of one child are numbered from `round` times this.
pub const WRITERS_A_ROUND: u32 = 4096;

/// The arguments of the child.
#[derive(clap::Args)]
pub struct ChildArgs {
    directory: PathBuf,
    #[arg(long)]
    threads: u32,
    #[arg(long, value_parser = parse_preset)]
    preset: Preset,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    round: u32,
    #[arg(long)]
    log_memory: Option<PathBuf>,
    #[arg(long)]
    no_io_uring: bool,
    #[arg(long)]
    steps: Option<u64>,
    /// Checks the acknowledgments on standard input before it works.
    #[arg(long)]
    pub check: bool,
}

/// How a child opens its database.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// Commit protocol.
    pub preset: Preset,
    /// The file of a memory-mapped log.
    pub log_memory: Option<&'a Path>,
    /// Whether the engine may use io_uring.
    pub io_uring: bool,
}

/// Opens with small bounds, so that checkpoints and segment changes happen within a second.
pub fn open(directory: &Path, way: Way<'_>) -> quenchdb::Result<Database> {
    let log_memory = way.log_memory.map(Path::to_path_buf);
    let settings = quenchdb::Settings::default().with(|s| {
        s.preset = way.preset;
        s.io_uring = way.io_uring;
        // A segment is full after a few milliseconds.
        s.lab.log_buffer_bytes = if log_memory.is_some() { 64 << 10 } else { 0 };
        s.log_memory = log_memory;
        s.segment_bytes = 1 << 20;
        s.lab.checkpoint_log_bytes = 8 << 20;
        s.log_bytes_max = 256 << 20;
    });
    Database::builder().settings(settings).open(directory)
}

/// The tables beside the bank: rows, their index by attribute, and what was deleted.
#[derive(Clone)]
pub struct Rows {
    /// Entry to attribute (8 bytes) and payload.
    pub rows: Table,
    /// Attribute and entry to nothing.
    pub index: Table,
    /// Entry to nothing.
    pub deleted: Table,
}

impl Rows {
    fn open(database: &Database) -> Result<Rows> {
        Ok(Rows {
            rows: database.table_or_create("rows")?,
            index: database.table_or_create("rows_by_attribute")?,
            deleted: database.table_or_create("deleted")?,
        })
    }

    fn insert(&self, tx: &mut Transaction, entry: Entry, random: &mut Random) -> quenchdb::Result<()> {
        let mut value = vec![0; 8 + random.below(200) as usize];
        fill(random, &mut value);
        tx.insert(&self.rows, entry.key(), &value)?;
        tx.insert(&self.index, [&value[..8], &entry.key()].concat(), [])
    }

    fn delete(&self, tx: &mut Transaction, entry: Entry) -> quenchdb::Result<()> {
        let value = tx
            .get(&self.rows, entry.key())?
            .ok_or_else(|| quenchdb::Error::corruption(format!("committed row {entry:?} is not visible")))?;
        tx.remove(&self.rows, entry.key())?;
        if !tx.remove(&self.index, [&value[..8], &entry.key()].concat())? {
            return Err(quenchdb::Error::corruption(format!("row {entry:?} has no index entry")));
        }
        tx.insert(&self.deleted, entry.key(), [])
    }
}

#[derive(Clone, Copy)]
enum Action {
    Transfer(Entry),
    Insert(Entry),
    Delete(Entry),
}

fn report(action: Action) -> Result<()> {
    let (letter, entry) = match action {
        Action::Transfer(entry) => ('T', entry),
        Action::Insert(entry) => ('I', entry),
        Action::Delete(entry) => ('D', entry),
    };
    say(&format!("{letter} {} {}\n", entry.writer, entry.sequence))
}

/// One line, one write: a kill leaves at most the last line cut short.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()?;
    Ok(())
}

struct Writer {
    database: Database,
    bank: Bank,
    rows: Rows,
    writer: u32,
    sequence: u64,
    random: Random,
    /// Rows of this writer that exist and may be deleted.
    live: Vec<Entry>,
    pending: VecDeque<(CommitHandle, Action)>,
}

impl Writer {
    fn next(&mut self) -> Entry {
        self.sequence += 1;
        Entry { writer: self.writer, sequence: self.sequence }
    }

    fn choose(&mut self) -> Action {
        match self.random.below(10) {
            0..=4 => Action::Transfer(self.next()),
            5..=7 => Action::Insert(self.next()),
            _ if self.live.is_empty() => Action::Insert(self.next()),
            _ => {
                let at = self.random.below(self.live.len() as u64) as usize;
                Action::Delete(self.live.swap_remove(at))
            }
        }
    }

    fn act(&mut self, tx: &mut Transaction, action: Action) -> quenchdb::Result<()> {
        match action {
            Action::Transfer(entry) => self.bank.transfer(tx, entry, &mut self.random),
            Action::Insert(entry) => self.rows.insert(tx, entry, &mut self.random),
            Action::Delete(entry) => self.rows.delete(tx, entry),
        }
    }

    /// Runs the action until it does not conflict, at a random level and in a random way. What is
    /// written when its commit returns survives a kill, too.
    fn step(&mut self) -> Result<()> {
        let action = self.choose();
        let way = self.random.below(10);
        let level = match way {
            0 => Durability::BoundedLoss,
            8 | 9 => Durability::Written,
            _ => Durability::Durable,
        };
        loop {
            let mut tx = self.database.begin_with(level)?;
            let done = self.act(&mut tx, action).and_then(|()| {
                if way <= 3 { tx.commit_async().map(Some) } else { tx.commit().map(|_| None) }
            });
            match done {
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
                Ok(None) => {
                    report(action)?;
                    break;
                }
                Ok(Some(_)) if way == 0 => break,
                Ok(Some(handle)) => {
                    self.pending.push_back((handle, action));
                    break;
                }
            }
        }
        if let Action::Insert(entry) = action {
            self.live.push(entry);
            if self.live.len() > 1000 {
                self.live.swap_remove(0);
            }
        }
        if self.pending.len() > self.random.below(64) as usize {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        let Some((handle, action)) = self.pending.pop_front() else { return Ok(()) };
        handle.wait()?;
        report(action)
    }
}

fn checkpoints(database: &Database, mut random: Random) -> Result<()> {
    loop {
        std::thread::sleep(Duration::from_millis(10 + random.below(400)));
        database.checkpoint()?;
    }
}

/// Runs a number of steps in each writer, beside a checkpoint.
fn make_steps(database: &Database, writers: Vec<Writer>, steps: u64) -> Result<()> {
    let work = |mut writer: Writer| -> Result<()> {
        (0..steps).try_for_each(|_| writer.step())?;
        (0..writer.pending.len()).try_for_each(|_| writer.wait_for_oldest())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = writers.into_iter().map(|writer| scope.spawn(|| work(writer))).collect();
        let checkpoint = database.checkpoint();
        let ended =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        ended.collect::<Result<()>>().and(checkpoint.map(drop).map_err(Into::into))
    })
}

/// Opens the database, and works until the parent kills it. Returns after an error, or after
/// `--steps` steps.
pub fn run(args: &ChildArgs) -> Result<Outcome> {
    work(args, open_as(args)?)
}

/// Opens the database as the arguments say.
pub fn open_as(args: &ChildArgs) -> Result<Database> {
    let way =
        Way { preset: args.preset, log_memory: args.log_memory.as_deref(), io_uring: !args.no_io_uring };
    Ok(open(&args.directory, way)?)
}

/// Works until the parent kills this process, or as [`run`].
pub fn work(args: &ChildArgs, database: Database) -> Result<Outcome> {
    let bank = Bank::open(&database)?;
    say("S\n")?;
    let rows = Rows::open(&database)?;
    let writers =
        (0..args.threads).map(|thread| args.round * WRITERS_A_ROUND + thread).map(|writer| Writer {
            database: database.clone(),
            bank: bank.clone(),
            rows: rows.clone(),
            writer,
            sequence: 0,
            random: Random::from_seed(args.seed ^ (u64::from(writer) << 20)),
            live: Vec::new(),
            pending: VecDeque::new(),
        });
    if let Some(steps) = args.steps {
        make_steps(&database, writers.collect(), steps)?;
        return Ok(Outcome::Done);
    }
    let (failed, failure) = std::sync::mpsc::channel();
    let spawn = |work: Box<dyn FnOnce() -> Result<()> + Send>| {
        let failed = failed.clone();
        std::thread::spawn(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let _ = failed.send(result.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))));
        });
    };
    for mut writer in writers {
        spawn(Box::new(move || {
            loop {
                writer.step()?;
            }
        }));
    }
    let checkpointed = database.clone();
    let random = Random::from_seed(args.seed.wrapping_add(u64::from(args.round)));
    spawn(Box::new(move || checkpoints(&checkpointed, random)));
    failure.recv()??;
    Ok(Outcome::Done)
}
