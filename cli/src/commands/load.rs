//! `load`: lines into a table, durably every batch, continued where it stopped.
//!
//! Each batch writes its rows and, in the same transaction, the number of lines done into the table
//! `quench.load`. So after a crash the marker and the rows agree, whatever moment it was. The last
//! batch removes the marker, and the table goes when it holds no other.

use super::source::open_to_write;
use crate::output::{Outcome, Progress, print_json, print_text};
use crate::rows::decode_line;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, Table};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Table of progress markers.
const MARKERS: &str = "quench.load";

/// `quench load`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench load mydb words words.tsv\n  quench dump a t | quench load b t -\n  \
                        quench load mydb words words.tsv --resume   continue after a crash"
)]
pub struct LoadArgs {
    /// Database directory; created if it is missing
    directory: PathBuf,
    /// Table; created if it is missing
    table: String,
    /// File of lines `key<TAB>value`, or - for standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Rows in one durable commit
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Skip the rows that an interrupted load of the same file into this table made durable
    #[arg(long)]
    resume: bool,
}

struct Source {
    name: String,
    bytes: u64,
    lines: Box<dyn BufRead>,
}

fn source(file: &Path) -> Result<Source> {
    if file == Path::new("-") {
        return Ok(Source {
            name: "-".into(),
            bytes: 0,
            lines: Box::new(BufReader::with_capacity(1 << 18, std::io::stdin())),
        });
    }
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let bytes = opened.metadata().map(|m| m.len()).unwrap_or(0);
    let name = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf()).display().to_string();
    Ok(Source { name, bytes, lines: Box::new(BufReader::with_capacity(1 << 18, opened)) })
}

struct Load<'a> {
    args: &'a LoadArgs,
    database: Database,
    table: Table,
    markers: Table,
    marker: Vec<u8>,
    source: Source,
    /// Lines read so far; the last one is the number that errors name.
    line_number: u64,
    bytes_read: u64,
    line: Vec<u8>,
}

/// Largest batch in bytes: transactions are bounded.
const BATCH_BYTES: usize = 16 << 20;

/// The rows of a batch.
struct Batch {
    rows: u64,
    ended: bool,
}

impl Load<'_> {
    /// Reads the next line without its newline. Returns false at the end.
    fn next_line(&mut self) -> Result<bool> {
        self.line.clear();
        // Refuses a line longer than any row before it fills the memory.
        const LONGEST: u64 = 4 * quenchdb::VALUE_BYTES_MAX + (1 << 20);
        let read = self
            .source
            .lines
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut self.line)
            .with_context(|| format!("cannot read {}", self.source.name))?;
        if read == 0 {
            return Ok(false);
        }
        self.bytes_read += read as u64;
        self.line_number += 1;
        if read as u64 == LONGEST {
            bail!("{} line {}: longer than {LONGEST} bytes", self.source.name, self.line_number);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok(true)
    }

    fn batch(&mut self) -> Result<Batch> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut transaction = self.database.begin()?;
        let mut batch = Batch { rows: 0, ended: false };
        let mut bytes = 0;
        while batch.rows < self.args.batch && bytes < BATCH_BYTES {
            if !self.next_line()? {
                batch.ended = true;
                break;
            }
            let place = || format!("{} line {}", self.source.name, self.line_number);
            decode_line(&self.line, &mut key, &mut value).with_context(place)?;
            transaction.insert(&self.table, &key, &value).with_context(place)?;
            batch.rows += 1;
            bytes += key.len() + value.len();
        }
        if batch.ended {
            transaction.remove(&self.markers, &self.marker)?;
        } else {
            transaction.insert(&self.markers, &self.marker, self.line_number.to_string())?;
        }
        transaction.commit()?;
        Ok(batch)
    }

    /// Returns the number of lines that an earlier load of this source made durable.
    fn done_before(&self) -> Result<u64> {
        let Some(value) = self.database.begin_read()?.get(&self.markers, &self.marker)? else {
            return Ok(0);
        };
        std::str::from_utf8(&value)
            .ok()
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("the marker of this load in {MARKERS} is not a number; delete it"))
    }

    /// The markers of other interrupted loads stay.
    fn drop_empty_markers(&self) -> Result<()> {
        let first = self.database.begin_read()?.range::<&[u8]>(&self.markers, ..).next().transpose()?;
        if first.is_none() {
            self.database.drop_table(MARKERS)?;
        }
        Ok(())
    }

    fn skip(&mut self, lines: u64) -> Result<()> {
        for _ in 0..lines {
            if !self.next_line()? {
                bail!("{} has {} lines, but {lines} were loaded before", self.source.name, self.line_number);
            }
        }
        Ok(())
    }

    fn all(&mut self, progress: &Progress) -> Result<u64> {
        let mut rows = 0;
        loop {
            let batch = self.batch().with_context(|| {
                format!("stopped; {rows} rows of this run are durable, continue with --resume")
            })?;
            rows += batch.rows;
            progress.at("loading", self.bytes_read, self.source.bytes.max(self.bytes_read));
            if batch.ended {
                return Ok(rows);
            }
        }
    }
}

/// Runs `load`.
pub fn run(args: &LoadArgs, json: bool) -> Result<Outcome> {
    let began = Instant::now();
    let source = source(&args.file)?;
    let database = open_to_write(&args.directory, true)?;
    let table = database.table_or_create(&args.table)?;
    let markers = database.table_or_create(MARKERS)?;
    let marker = [source.name.as_bytes(), b"\0", args.table.as_bytes()].concat();
    let mut load = Load {
        args,
        database,
        table,
        markers,
        marker,
        source,
        line_number: 0,
        bytes_read: 0,
        line: Vec::new(),
    };
    let skipped = if args.resume { load.done_before()? } else { 0 };
    load.skip(skipped)?;
    let progress = Progress::new();
    let loaded = load.all(&progress);
    progress.finish();
    let rows = loaded?;
    load.drop_empty_markers()?;
    load.database.close()?;
    let seconds = began.elapsed().as_secs_f64();
    if json {
        print_json(&json!({"table": args.table, "rows": rows, "skipped": skipped, "seconds": seconds}))?;
    } else {
        let resumed = if skipped > 0 { format!(" ({skipped} were there already)") } else { String::new() };
        print_text(&format!("{rows} rows loaded into `{}` in {seconds:.2} s{resumed}", args.table))?;
    }
    Ok(Outcome::Done)
}
