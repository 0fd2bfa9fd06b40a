//! `tables`, `stat`, `verify`, `checkpoint`, `log`: the content of a database, and whether it is
//! sound.

use super::source::{DatabaseArgs, SourceArgs, hint_at_checkpoint, open_checkpoint, open_to_write, shown};
use super::tables::{INTERNAL, count_rows};
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result};
use quench_bench::requests::{Prices, RequestReport};
use quenchdb::{Database, Statistics};
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

/// Arguments of `stat`.
#[derive(clap::Args)]
pub struct StatArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// JSON file with prices of a store of objects, as for `bench`
    #[arg(long, value_name = "FILE", value_parser = crate::parse::prices)]
    prices: Option<Prices>,
}

fn facts(database: &Database, s: &Statistics, prices: &Prices) -> Vec<(&'static str, Value)> {
    let (recovery, readers) = (database.recovery(), database.checkpoint_readers());
    vec![
        // Of this process, which has only opened the database.
        ("requests", json!(s.object_requests.map(|requests| RequestReport::of(&requests, prices, 0)))),
        ("device", json!(s.device.name)),
        ("volatile_cache", json!(s.device.volatile_cache)),
        ("direct_io", json!(s.device.direct_io.is_ok())),
        ("io_uring", json!(s.device.io_uring.is_ok())),
        ("durability", json!(s.durability_method)),
        ("log_memory", json!(s.log_memory.as_ref().map(ToString::to_string))),
        ("preset", json!(s.preset.name())),
        ("logs", json!(s.logs)),
        ("layout", json!(s.layout.name())),
        ("writer", json!(s.writer.name())),
        ("flush_interval_us", json!(s.flush_interval_us)),
        ("mean_write_us", json!(s.mean_write_us)),
        ("log_buffer_bytes", json!(s.log_buffer_bytes)),
        ("acknowledger", json!(s.acknowledger.name())),
        ("acknowledgment_group", json!(s.acknowledgment_group)),
        ("shares_flush", json!(s.shares_flush)),
        ("shared_flushes", json!(s.shared_flushes)),
        ("stealing_group", json!(s.stealing_group)),
        ("dependency", json!(s.dependency.name())),
        ("queue", json!(s.queue.name())),
        ("tables", json!(s.tables)),
        ("newest_csn", json!(s.newest_csn.0)),
        ("watermark", json!(s.watermark.0)),
        ("checkpoint_csn", json!(s.checkpoint_csn.0)),
        ("pages", json!(s.pages)),
        ("page_bytes", json!(s.page_bytes)),
        ("versions", json!(s.versions)),
        ("version_bytes", json!(s.version_bytes)),
        ("log_bytes_in_use", json!(s.log_bytes_in_use)),
        ("replay_seconds_estimate", json!(s.replay_seconds_estimate)),
        ("replay_log_bytes", json!(s.replay.work.log_bytes)),
        ("replay_operations", json!(s.replay.work.operations)),
        ("replay_record_bytes", json!(s.replay.work.record_bytes)),
        ("replay_pages", json!(s.replay.work.pages)),
        ("replay_stored_pages", json!(s.replay.work.stored_pages)),
        ("replay_rates_measured", json!(s.replay.rates.measured)),
        ("replay_scan_bytes_per_second", json!(s.replay.rates.scan_bytes_per_second)),
        ("replay_operation_ns", json!(s.replay.rates.operation_ns)),
        ("replay_byte_ns", json!(s.replay.rates.byte_ns)),
        ("replay_page_read_ns", json!(s.replay.rates.page_read_ns)),
        ("store_bytes", json!(s.store_bytes)),
        ("store_free_bytes", json!(s.store_free_bytes)),
        ("store_held_bytes", json!(s.store_held_bytes)),
        ("checkpoint_readers", json!(readers.len())),
        ("oldest_checkpoint_reader", json!(readers.iter().map(|reader| reader.csn.0).min())),
        ("store_reserved_bytes", json!(s.store_reserved_bytes)),
        ("packs", json!(s.packs.packs)),
        ("packs_half_empty", json!(s.packs.sparse_packs)),
        ("pack_images_live", json!(s.packs.live_images)),
        ("pack_images_dead", json!(s.packs.dead_images)),
        ("images_packed", json!(s.packs.images_packed)),
        ("images_packed_bytes_before", json!(s.packs.bytes_before)),
        ("images_packed_bytes_after", json!(s.packs.bytes_after)),
        ("disk_full", json!(s.disk_full)),
        ("closed_cleanly", json!(recovery.clean)),
        ("recovery_replayed", json!(recovery.replayed)),
        ("recovery_discarded", json!(recovery.discarded)),
        ("recovery_log_bytes", json!(recovery.log_bytes)),
        ("recovery_seconds", json!(recovery.seconds)),
        ("max_key_bytes", json!(database.max_key_bytes())),
        ("max_entry_bytes", json!(database.max_entry_bytes())),
    ]
}

/// Runs `stat`.
pub fn stat(args: &StatArgs, as_json: bool) -> Result<Outcome> {
    let database = args.source.open()?;
    let statistics = database.statistics();
    let facts = facts(&database, &statistics, &args.prices.unwrap_or_default());
    if as_json {
        let object: serde_json::Map<String, Value> =
            facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        print_json(&object)?;
        return Ok(Outcome::Done);
    }
    print_text(&text_of(&database, facts, statistics.disk_full))?;
    Ok(Outcome::Done)
}

fn text_of(database: &Database, facts: Vec<(&'static str, Value)>, is_full: bool) -> String {
    let mut text = database.open_line() + "\n";
    for (name, value) in facts {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let _ = writeln!(text, "{name:<20} {value}");
    }
    if is_full {
        text.push_str("the disk is full: free space; nothing acknowledged is lost\n");
    }
    text
}

/// Returns what `stat` prints.
pub fn stat_text(database: &Database) -> String {
    let statistics = database.statistics();
    text_of(database, facts(database, &statistics, &Prices::default()), statistics.disk_full)
}

/// Runs `verify`. Reports damage also if it makes the open fail.
pub fn verify(args: &SourceArgs, as_json: bool) -> Result<Outcome> {
    let progress = Progress::new();
    let checked = if args.checkpoint {
        open_checkpoint(&args.directory)?.verify(Some(progress.callback()))
    } else {
        let builder = Database::builder().on_recovery(progress.callback());
        builder.verify(&args.directory, Some(progress.callback()))
    };
    progress.finish();
    let checked = checked.with_context(|| format!("cannot check {}", shown(&args.directory)));
    let report = checked.map_err(hint_at_checkpoint)?;
    let sound = report.problems.is_empty();
    if as_json {
        print_json(&json!({
            "sound": sound,
            "tables": report.tables,
            "pages": report.pages,
            "large_values": report.large_values,
            "entries": report.entries,
            "stored_pages": report.stored_pages,
            "log_blocks": report.log_blocks,
            "log_records": report.log_records,
            "problems": report.problems,
        }))?;
    } else {
        let mut text = String::new();
        for problem in &report.problems {
            let _ = writeln!(text, "damaged: {problem}");
        }
        let _ = writeln!(
            text,
            "{}: {} tables, {} pages, {} entries, {} stored pages, {} log blocks with {} records",
            if sound { "sound" } else { "NOT SOUND" },
            report.tables,
            report.pages,
            report.entries,
            report.stored_pages,
            report.log_blocks,
            report.log_records
        );
        print_text(&text)?;
    }
    Ok(if sound { Outcome::Done } else { Outcome::Wrong })
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
