//! `tables`, `checkpoint`, `log`: the content of a database.

use super::source::{DatabaseArgs, SourceArgs, open_to_write, shown};
use super::tables::{INTERNAL, count_rows};
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result};
use quenchdb::Database;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// `quench tables`
#[derive(clap::Args)]
pub struct TablesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Count the rows of each table too
    #[arg(long)]
    count: bool,
    /// List this program's own tables too, such as the progress of interrupted loads
    #[arg(long)]
    internal: bool,
}

/// `quench log`
#[derive(clap::Args)]
#[command(
    after_help = "Only reads. A database in a directory must not be open. A writer in a store of objects continues:\n\
                        if it adds to the log or removes a part while that is read, the command may say so and end."
)]
pub struct LogArgs {
    /// Database directory, or the URL of a store of objects
    directory: PathBuf,
    /// Number of records, the newest
    #[arg(long)]
    limit: Option<usize>,
}

/// Runs `tables`.
pub fn tables(args: &TablesArgs, as_json: bool) -> Result<Outcome> {
    let database = args.source.open()?;
    let mut listed: Vec<Value> = Vec::new();
    let mut text = String::new();
    let snapshot = database.begin_read()?;
    for name in database.tables() {
        let internal = name.starts_with(INTERNAL);
        if internal && !args.internal {
            continue;
        }
        let mut rows = None;
        if args.count {
            rows = Some(count_rows(&database, &snapshot, &name)?);
        }
        let _ = write!(text, "{name}");
        if let Some(rows) = rows {
            let _ = write!(text, "\t{rows}");
        }
        text.push_str(if internal { "\t(internal)\n" } else { "\n" });
        listed.push(json!({"name": name, "rows": rows, "internal": internal}));
    }
    if as_json {
        print_json(&json!({"tables": listed}))?;
    } else if !text.is_empty() {
        print_text(&text)?;
    }
    Ok(Outcome::Done)
}

/// Runs `checkpoint`.
pub fn checkpoint(args: &DatabaseArgs, as_json: bool) -> Result<Outcome> {
    let database = open_to_write(&args.directory, false)?;
    let report = database.checkpoint()?;
    database.close()?;
    if as_json {
        print_json(&json!({
            "csn": report.csn.0,
            "pages_written": report.pages_written,
            "bytes_written": report.bytes_written,
            "seconds": report.seconds,
        }))?;
    } else {
        print_text(&format!(
            "checkpoint at CSN {}: {} pages, {} bytes in {:.3} s",
            report.csn, report.pages_written, report.bytes_written, report.seconds
        ))?;
    }
    Ok(Outcome::Done)
}

/// Runs `log`.
pub fn log(args: &LogArgs, as_json: bool) -> Result<Outcome> {
    let progress = Progress::new();
    let records = Database::dump_log(&args.directory, Some(progress.callback()));
    progress.finish();
    let records = records.with_context(|| format!("cannot read the log of {}", shown(&args.directory)))?;
    let first = args.limit.map_or(0, |limit| records.len().saturating_sub(limit));
    let mut out = BufWriter::new(std::io::stdout().lock());
    for r in &records[first..] {
        if as_json {
            let record = json!({
                "location": r.location.to_string(),
                "epoch": r.epoch,
                "log": r.log,
                "block": r.block,
                "csn": r.csn.0,
                "dsn": r.dsn.0,
                "predecessors": r.predecessors.as_ref().map(|all| all.iter().map(|csn| csn.0).collect::<Vec<_>>()),
                "watermark": r.watermark.0,
                "bytes": r.bytes,
                "beyond_hole": r.beyond_hole,
                "carrier": r.carrier.map(|log| log.0),
                "part": r.part,
                "operations": r.operations,
            });
            writeln!(out, "{record}")?;
            continue;
        }
        let hole = if r.beyond_hole { "  (beyond a hole: not used)" } else { "" };
        writeln!(
            out,
            "csn {} epoch {}  depends on {}  watermark {}  {} bytes at {}, log {}, block {}{hole}",
            r.csn, r.epoch, r.dsn, r.watermark, r.bytes, r.location, r.log, r.block
        )?;
        if let Some(predecessors) = &r.predecessors {
            let all: Vec<String> = predecessors.iter().map(ToString::to_string).collect();
            let all = if all.is_empty() { "none that was open".into() } else { all.join(", ") };
            writeln!(out, "  predecessors: {all}")?;
        }
        if let Some(part) = &r.part {
            writeln!(out, "  {part}")?;
        }
        for operation in &r.operations {
            writeln!(out, "    {operation}")?;
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}
