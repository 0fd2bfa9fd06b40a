//! `load`: rows of a file into tables, durably every batch, continued where it stopped.
//!
//! Each batch writes its rows and, in the same transaction, the number of lines done into the table
//! `quench.load`. So after a crash the marker and the rows agree, whatever moment it was. The last
//! batch of a file leaves a marker that names the file's length and time of change: the file is
//! loaded, so `--resume` loads it again only if it has changed. Standard input has neither, so its
//! last batch removes the marker, and the table goes when it holds no other.
//!
//! The first batch is read before the database is opened: a file that cannot be read creates
//! nothing.

use super::create::{Created, Writable};
use crate::errors::complain;
use crate::output::{Outcome, Progress, print_json, print_text};
use crate::rows::read::{Found, Layout, RowReader, place};
use crate::rows::{Format, Names, Row};
use anyhow::{Context, Result, bail};
use quenchdb::{ErrorKind, Table, Transaction};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Instant, UNIX_EPOCH};

/// Table of progress markers. A dump of all tables leaves it out.
pub const MARKERS: &str = "quench.load";
/// Stands in the marker of a loaded file, between the number of lines and the state of the file.
const COMPLETE: &str = " complete ";

/// `quench load`
#[derive(clap::Args)]
#[command(
    override_usage = "quench load [OPTIONS] <DIRECTORY> <TABLE> [FILE]\n       quench load [OPTIONS] <DIRECTORY> --all [FILE]",
    after_help = "Examples:\n  quench load mydb words words.tsv\n  quench load mydb words words.csv --skip-bad 10\n  \
                        quench dump a t | quench load b t -\n  quench dump a --all | quench load b --all\n  \
                        quench load mydb words words.tsv --resume   continue after a crash"
)]
pub struct LoadArgs {
    /// Database directory; created if it is missing
    directory: PathBuf,
    /// Table; created if it is missing. With --all, the file
    table: Option<String>,
    /// File of rows, or - for standard input
    file: Option<PathBuf>,
    /// Each row names its table first: read a dump of all tables
    #[arg(long)]
    all: bool,
    /// Format of the file [default: as the file's extension says, otherwise tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The CSV file does not begin with a header: its columns are key and value
    #[arg(long)]
    no_header: bool,
    #[command(flatten)]
    columns: Names,
    /// Rows in one durable commit
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Skip up to N bad lines, and report each (exit code 1 if there was one)
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Skip the rows that an earlier load of the same file into this table made durable: all of
    /// them if that load was complete and the file has not changed
    #[arg(long)]
    resume: bool,
}

/// Returns the table, unless it is --all, and the file. With --all the file comes first.
pub fn table_and_file<'a>(
    table: &'a Option<String>,
    file: &'a Option<PathBuf>,
    all: bool,
) -> Result<(Option<&'a str>, &'a Path)> {
    let file = file.as_deref();
    match (table, all) {
        (Some(table), false) => Ok((Some(table), file.unwrap_or(Path::new("-")))),
        (None, false) => bail!("name a table, or give --all for all tables"),
        (Some(_), true) if file.is_some() => bail!("--all and a table exclude each other"),
        (file, true) => Ok((None, file.as_ref().map_or(Path::new("-"), Path::new))),
    }
}

/// A file of rows.
struct Source {
    name: String,
    /// Bytes of the file, 0 if that is unknown.
    bytes: u64,
    /// Length and time of change of the file when it was opened; none of standard input.
    state: Option<String>,
    rows: RowReader,
}

fn source(file: &Path, layout: Layout) -> Result<Source> {
    let (name, bytes, state, input): (_, _, _, Box<dyn Read>) = if file == Path::new("-") {
        ("-".into(), 0, None, Box::new(std::io::stdin()))
    } else {
        let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        let metadata = opened.metadata().ok();
        let bytes = metadata.as_ref().map_or(0, std::fs::Metadata::len);
        let state = metadata.filter(std::fs::Metadata::is_file).as_ref().and_then(state_of);
        let name = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf()).display().to_string();
        (name, bytes, state, Box::new(opened))
    };
    Ok(Source { rows: RowReader::new(name.clone(), input, layout)?, name, bytes, state })
}

/// Returns what changes when a file changes.
fn state_of(metadata: &std::fs::Metadata) -> Option<String> {
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}", metadata.len(), changed.as_nanos()))
}

/// What earlier loads of a source have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// So many lines are durable, and there may be more.
    Lines(u64),
    /// All lines are, so many.
    All(u64),
}

/// Largest batch in bytes: transactions are bounded.
const BATCH_BYTES: usize = 16 << 20;

/// Rows that are written in one transaction.
#[derive(Default)]
struct Batch {
    /// Rows with their first and last line.
    rows: Vec<((u64, u64), Row)>,
    /// Lines of the file up to the end of the batch.
    lines: u64,
    ended: bool,
}

/// Bad lines that may be skipped, and those that were.
struct BadLines {
    allowed: u64,
    skipped: u64,
}

impl BadLines {
    /// Reports bad lines of the input `name`, or fails if there are too many.
    fn add(&mut self, name: &str, lines: (u64, u64), what: &dyn std::fmt::Display) -> Result<()> {
        let (count, place) = (lines.1 - lines.0 + 1, place(name, lines));
        if self.skipped + count > self.allowed {
            let after = if self.allowed > 0 {
                format!(" (bad lines skipped before: {})", self.skipped)
            } else {
                String::new()
            };
            bail!("{place}: {what}{after}");
        }
        self.skipped += count;
        complain(&format!("skipped {place}: {what}"));
        Ok(())
    }
}

struct Load<'a> {
    args: &'a LoadArgs,
    table: Option<&'a str>,
    source: Source,
    lines: u64,
    bad: BadLines,
}

impl Load<'_> {
    /// Reads the rows of the next batch.
    fn read_batch(&mut self) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while (batch.rows.len() as u64) < self.args.batch && bytes < BATCH_BYTES {
            let mut row = Row::default();
            match self.source.rows.next(&mut row)? {
                Found::End => {
                    batch.ended = true;
                    break;
                }
                Found::Bad(what) => self.bad.add(&self.source.name, self.source.rows.lines(), &what)?,
                Found::Row if row.table == MARKERS => {
                    let what = format!("the table {MARKERS} is this program's");
                    self.bad.add(&self.source.name, self.source.rows.lines(), &what)?;
                }
                Found::Row => {
                    bytes += row.key.len() + row.value.len();
                    batch.rows.push((self.source.rows.lines(), row));
                }
            }
            self.lines += 1;
        }
        batch.lines = self.lines;
        Ok(batch)
    }

    /// Skips lines that were loaded before.
    fn skip(&mut self, lines: u64) -> Result<()> {
        for done in 0..lines {
            if !self.source.rows.advance()? {
                bail!("{} has {done} lines, but {lines} were loaded before", self.source.name);
            }
        }
        self.lines = lines;
        Ok(())
    }
}

/// The tables that a load writes to.
struct Target<'a> {
    writable: Writable,
    /// The table of all rows, unless each row names its own.
    table: Option<&'a str>,
    tables: BTreeMap<String, Table>,
    markers: Table,
    marker: Vec<u8>,
    had_markers: bool,
    /// The table of all rows was there before.
    had_tables: bool,
}

impl<'a> Target<'a> {
    fn open(directory: &Path, table: Option<&'a str>, source: &str) -> Result<Target<'a>> {
        let mut writable = Writable::open_or_create(directory)?;
        let mut tables = BTreeMap::new();
        let names = writable.database()?.tables();
        let had_tables = table.is_none_or(|name| names.iter().any(|known| known == name));
        let had_markers = names.iter().any(|name| name == MARKERS);
        if let Some(name) = table {
            tables.insert(name.to_string(), writable.table_or_create(name)?);
        }
        let markers = writable.table_or_create(MARKERS)?;
        let marker = [source.as_bytes(), b"\0", table.unwrap_or_default().as_bytes()].concat();
        Ok(Target { writable, table, tables, markers, marker, had_markers, had_tables })
    }

    /// Returns what earlier loads of this source made durable.
    fn done_before(&self, source: &Source) -> Result<Before> {
        let Some(value) = self.writable.database()?.begin_read()?.get(&self.markers, &self.marker)? else {
            return Ok(Before::Lines(0));
        };
        let text = String::from_utf8_lossy(&value);
        let (lines, state) = match text.split_once(COMPLETE) {
            Some((lines, state)) => (lines, Some(state)),
            None => (&text[..], None),
        };
        let lines = lines.parse().ok();
        let lines = lines
            .with_context(|| format!("the marker of this load in {MARKERS} is not a number; delete it"))?;
        Ok(match state {
            None => Before::Lines(lines),
            Some(state) if source.state.as_deref() == Some(state) && self.had_tables => Before::All(lines),
            // The file was loaded, and it or the table has changed since.
            Some(_) => Before::Lines(0),
        })
    }

    fn insert(&mut self, transaction: &mut Transaction, row: &Row) -> Result<()> {
        let name = self.table.unwrap_or(&row.table);
        if !self.tables.contains_key(name) {
            let table = self.writable.table_or_create(name)?;
            self.tables.insert(name.to_string(), table);
        }
        match self.tables.get(name) {
            Some(table) if !row.key.is_empty() => Ok(transaction.insert(table, &row.key, &row.value)?),
            // The row only says that the table exists.
            _ => Ok(()),
        }
    }

    /// Writes a batch durably. Returns the number of its rows.
    fn write(&mut self, batch: &Batch, source: &Source, bad: &mut BadLines) -> Result<u64> {
        let mut transaction = self.writable.database()?.begin()?;
        let mut rows = 0;
        for (lines, row) in &batch.rows {
            match self.insert(&mut transaction, row) {
                Ok(()) => rows += u64::from(!row.key.is_empty()),
                Err(error) if is_refused(&error) => {
                    bad.add(&source.name, *lines, &format!("{error:#}"))?;
                }
                Err(error) => return Err(error.context(place(&source.name, *lines))),
            }
        }
        match &source.state {
            Some(state) if batch.ended => {
                let value = format!("{}{COMPLETE}{state}", batch.lines);
                transaction.insert(&self.markers, &self.marker, value)?;
            }
            None if batch.ended => {
                transaction.remove(&self.markers, &self.marker)?;
            }
            _ => transaction.insert(&self.markers, &self.marker, batch.lines.to_string())?,
        }
        transaction.commit()?;
        self.writable.keep();
        Ok(rows)
    }

    /// Drops the table of markers if it has none. Closes.
    fn close(self) -> Result<Created> {
        let database = self.writable.database()?;
        let first = database.begin_read()?.first(&self.markers)?;
        if first.is_none() {
            database.drop_table(MARKERS)?;
        }
        let mut created = self.writable.close()?;
        created.tables.retain(|name| name != MARKERS || self.had_markers);
        Ok(created)
    }
}

/// Returns whether the database refused a row for what it is.
fn is_refused(error: &anyhow::Error) -> bool {
    error.downcast_ref::<quenchdb::Error>().map(quenchdb::Error::kind) == Some(ErrorKind::InvalidArgument)
}

/// Writes all batches, of which the first is read already. Returns the number of rows.
fn write_all(load: &mut Load<'_>, target: &mut Target<'_>, first: Option<Batch>) -> Result<u64> {
    let progress = Progress::new();
    let mut rows = 0;
    let mut next = first;
    let mut step = || -> Result<bool> {
        let batch = match next.take() {
            Some(batch) => batch,
            None => load.read_batch()?,
        };
        rows += target.write(&batch, &load.source, &mut load.bad)?;
        let bytes = load.source.rows.bytes();
        progress.at("loading", bytes, load.source.bytes.max(bytes));
        Ok(batch.ended)
    };
    let ended = loop {
        match step() {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    progress.finish();
    match ended {
        Err(error) if rows > 0 => {
            Err(error
                .context(format!("stopped; {rows} rows of this run are durable, continue with --resume")))
        }
        ended => ended.map(|()| rows),
    }
}

/// Runs `load`.
pub fn run(args: &LoadArgs, json: bool) -> Result<Outcome> {
    let began = Instant::now();
    let (table, file) = table_and_file(&args.table, &args.file, args.all)?;
    let format = args.format.or_else(|| Format::of_file(file)).unwrap_or(Format::Tsv);
    let layout =
        Layout { format, has_tables: args.all, has_header: !args.no_header, names: args.columns.clone() };
    let bad = BadLines { allowed: args.skip_bad, skipped: 0 };
    let mut load = Load { args, table, source: source(file, layout)?, lines: 0, bad };
    let first = if args.resume { None } else { Some(load.read_batch()?) };
    let mut target = Target::open(&args.directory, load.table, &load.source.name)?;
    let before = if args.resume { target.done_before(&load.source)? } else { Before::Lines(0) };
    let (skipped, rows) = match before {
        Before::All(lines) => (lines, 0),
        Before::Lines(lines) => {
            load.skip(lines)?;
            (lines, write_all(&mut load, &mut target, first)?)
        }
    };
    let created = target.close()?;
    let seconds = began.elapsed().as_secs_f64();
    let bad = load.bad.skipped;
    if json {
        print_json(&json!({
            "table": table,
            "rows": rows,
            "skipped": skipped,
            "bad": bad,
            "created_database": created.database.is_some(),
            "created_tables": created.tables,
            "seconds": seconds,
        }))?;
    } else {
        let resumed = if skipped > 0 { format!(" ({skipped} were there already)") } else { String::new() };
        let into = table.map_or("all tables".into(), |table| format!("`{table}`"));
        let lines = if bad > 0 { format!(", bad lines skipped: {bad}") } else { String::new() };
        print_text(&format!("{rows} rows loaded into {into} in {seconds:.2} s{resumed}{lines}"))?;
        if let Some(created) = created.sentence() {
            complain(&created);
        }
    }
    Ok(if bad > 0 { Outcome::Wrong } else { Outcome::Done })
}
