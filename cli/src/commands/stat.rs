//! `stat`: what is known of a database, in sections.

use super::buckets;
use super::source::{SourceArgs, is_busy, is_url, refuse_inside, shown};
use super::stat_html::{self, Section, TableFacts};
use crate::output::{Outcome, pause, print_json, print_text};
use crate::top::figures::Answer;
use crate::units::{count, size};
use anyhow::{Context, Result};
use quench_bench::requests::{Prices, RequestReport};
use quenchdb::{BucketStatistics, Csn, Database, Statistics};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `stat`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench stat mydb\n  quench stat mydb --all           every table and every figure\n  \
                        quench stat mydb --checkpoint --watch 5    beside a process that writes\n  \
                        quench stat mydb --html mydb.html          a map of the space, for a browser"
)]
pub struct StatArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Also print rows, size and shape of each table, for which all pages are read, and all other
    /// figures
    #[arg(long)]
    all: bool,
    /// Print again every so many seconds, until a signal
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = crate::parse::positive_seconds)]
    watch: Option<f64>,
    /// Write a page for a browser to this file instead: a map of the space, and all tables
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    html: Option<PathBuf>,
    /// JSON file with prices of a store of objects, as for `bench`
    #[arg(long, value_name = "FILE", value_parser = crate::parse::prices)]
    prices: Option<Prices>,
}

/// A file, or files of one kind.
struct FileFacts {
    name: String,
    files: u64,
    bytes: u64,
    /// Bytes that the file system has allocated.
    allocated: u64,
}

/// Returns the files of a database in a directory: each, or those of a folder together.
fn files(directory: &Path) -> Vec<FileFacts> {
    if is_url(directory) {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    for entry in names {
        let mut facts =
            FileFacts { name: entry.file_name().to_string_lossy().into(), files: 0, bytes: 0, allocated: 0 };
        let is_folder = entry.path().is_dir();
        let folder = is_folder.then(|| std::fs::read_dir(entry.path()).into_iter().flatten().flatten());
        let inner = folder.into_iter().flatten().map(|inner| inner.path());
        for file in inner.chain((!is_folder).then(|| entry.path())) {
            let Ok(metadata) = file.metadata() else { continue };
            facts.files += 1;
            facts.bytes += metadata.len();
            facts.allocated += metadata.blocks() * 512;
        }
        facts.name.push_str(if is_folder { "/" } else { "" });
        all.push(facts);
    }
    all
}

/// Returns format version and id of a database in a directory, from the first block of its pages
/// (docs/internals/formats.md).
fn identity(directory: &Path) -> Option<(u8, String)> {
    use std::io::Read;
    let mut head = [0; 24];
    std::fs::File::open(directory.join("pages/data")).ok()?.read_exact(&mut head).ok()?;
    let id = head[16..24].try_into().ok().map(u64::from_le_bytes)?;
    Some((head[7], format!("{id:016x}")))
}

fn tables(database: &Database) -> Result<Vec<TableFacts>> {
    let snapshot = database.begin_read()?;
    let facts = |name: String| -> Result<TableFacts> {
        let table = database.table(&name)?;
        let (rows, report) = (snapshot.len(&table)?, database.table_report(&table)?);
        Ok(TableFacts { name, rows, report, types: table.types() })
    };
    database.tables().into_iter().map(facts).collect()
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
        ("log_history_bytes", json!(s.log_history_bytes)),
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

fn line(label: &str, value: impl ToString) -> (String, String) {
    (label.into(), value.to_string())
}

fn yes_or<E: std::fmt::Display>(fact: &std::result::Result<(), E>) -> String {
    fact.as_ref().map_or_else(|why| format!("no: {why}"), |()| "yes".into())
}

fn database_section(database: &Database, s: &Statistics, directory: Option<&Path>) -> Section {
    let recovery = database.recovery();
    let mut lines = Vec::new();
    if let Some((format, id)) = directory.and_then(identity) {
        lines.push(line("id", id));
        lines.push(line("format", format));
    }
    lines.push(line("page", size(s.page_bytes)));
    lines.push(line("tables", count(s.tables)));
    lines.push(line(
        "last close",
        match recovery.clean {
            true => "clean".into(),
            false => format!(
                "none: {} transactions replayed from {} of log in {:.3} s",
                count(recovery.replayed),
                size(recovery.log_bytes),
                recovery.seconds
            ),
        },
    ));
    let (state, reasons) = directory.map_or_else(|| own_health(s), |directory| health_of(directory, s));
    lines.push(line(
        "health",
        if reasons.is_empty() { state.into() } else { format!("{state}: {}", reasons.join("; ")) },
    ));
    lines.push(line("newest transaction", format!("CSN {}", s.newest_csn)));
    // Unknown to a reader of the newest state.
    if s.checkpoint_csn > Csn::ZERO {
        lines.push(line("checkpoint", format!("CSN {}", s.checkpoint_csn)));
    }
    let readers = database.checkpoint_readers();
    if !readers.is_empty() {
        lines.push(line("readers of checkpoints", readers.len()));
    }
    lines.push(line("longest key", size(database.max_key_bytes() as u64)));
    Section("Database", lines)
}

/// Returns the health of a database, and the reasons: as the process says that has the database
/// open for writing, or else as this process has it open.
fn health_of(directory: &Path, s: &Statistics) -> (&'static str, Vec<String>) {
    let answer = if is_url(directory) { None } else { Answer::ask(directory).ok() };
    answer.map_or_else(|| own_health(s), |answer| (answer.health(), answer.health_reasons()))
}

fn own_health(s: &Statistics) -> (&'static str, Vec<String>) {
    (s.health.state.name(), s.health.reasons.clone())
}

fn space_section(s: &Statistics) -> Section {
    let used = s.store_bytes.saturating_sub(s.store_free_bytes);
    let mut lines = vec![
        line("file of pages", size(s.store_bytes)),
        line("in use", size(used)),
        line("free inside", size(s.store_free_bytes)),
        line("held for readers and checkpoints", size(s.store_held_bytes)),
        line("log in use", size(s.log_bytes_in_use)),
        line("log for change feeds", size(s.log_history_bytes)),
        line("recovery would take", format!("{:.1} s", s.replay_seconds_estimate)),
    ];
    if s.packs.packs > 0 {
        let text =
            format!("{} in {} blocks, {} dead", s.packs.live_images, s.packs.packs, s.packs.dead_images);
        lines.push(line("compressed pages", text));
    }
    if s.disk_full {
        lines.push(line("the disk is full", "free space; nothing acknowledged is lost"));
    }
    Section("Space", lines)
}

fn device_section(s: &Statistics) -> Section {
    let cache =
        if s.device.volatile_cache { "volatile: flushed for each commit" } else { "none, or durable" };
    Section(
        "Device",
        vec![
            line("name", &s.device.name),
            line("write cache", cache),
            line("durable by", &s.durability_method),
            line("direct I/O", yes_or(&s.device.direct_io)),
            line("io_uring", yes_or(&s.device.io_uring)),
        ],
    )
}

/// Of a database in several buckets.
fn buckets_section(s: &Statistics) -> Section {
    let line = |bucket: &BucketStatistics| line(&bucket.name, buckets::state_of(bucket, false));
    Section("Buckets", s.buckets.iter().map(line).collect())
}

fn files_section(files: &[FileFacts]) -> Section {
    let text = |bytes: u64, allocated: u64| match (size(bytes), size(allocated)) {
        (length, on_disk) if length == on_disk => length,
        (length, on_disk) => format!("{length}, {on_disk} on disk"),
    };
    let mut lines: Vec<_> = files
        .iter()
        .map(|file| {
            let files = if file.files == 1 { "file" } else { "files" };
            let of =
                if file.name.ends_with('/') { format!(" ({} {files})", file.files) } else { String::new() };
            let name = format!("{}{of}", file.name);
            (name, text(file.bytes, file.allocated))
        })
        .collect();
    let total = |of: fn(&FileFacts) -> u64| files.iter().map(of).sum();
    lines.push(line("total", text(total(|file| file.bytes), total(|file| file.allocated))));
    Section("Files", lines)
}

fn text_of(sections: &[Section]) -> String {
    let mut text = String::new();
    let labels = sections.iter().flat_map(|section| &section.1).map(|(label, _)| label.chars().count());
    let columns = labels.max().unwrap_or(0);
    for Section(title, lines) in sections.iter().filter(|section| !section.1.is_empty()) {
        let _ = writeln!(text, "{title}");
        for (label, value) in lines {
            let _ = writeln!(text, "  {label:<columns$}  {value}");
        }
    }
    text
}

fn tables_text(tables: &[TableFacts]) -> String {
    let columns = tables.iter().map(|table| table.name.chars().count()).max().unwrap_or(0).max(5);
    let row = |name: &str, figures: [String; 6], types: &str| {
        let [rows, pages, size, depth, fill, large] = figures;
        format!(
            "  {name:<columns$} {rows:>13} {pages:>11} {size:>11} {depth:>6} {fill:>6} {large:>13}  {types}\n"
        )
    };
    let rows = tables.iter().map(|table| row(&table.name, table.figures(), &table.types_text()));
    let titles = row("name", TableFacts::TITLES.map(String::from), "types");
    format!("Tables\n{titles}{}", rows.collect::<String>())
}

/// Returns the sections of `stat` without the files.
pub fn stat_text(database: &Database) -> String {
    let s = database.statistics();
    text_of(&[
        database_section(database, &s, None),
        space_section(&s),
        device_section(&s),
        buckets_section(&s),
    ])
}

fn sections(args: &StatArgs, database: &Database) -> [Section; 5] {
    let s = database.statistics();
    let directory = &*args.source.directory;
    let files = files(directory);
    [
        database_section(database, &s, Some(directory)),
        if files.is_empty() { Section("Files", Vec::new()) } else { files_section(&files) },
        space_section(&s),
        device_section(&s),
        buckets_section(&s),
    ]
}

fn print_text_of(args: &StatArgs, database: &Database) -> Result<()> {
    let mut text = text_of(&sections(args, database));
    if args.all {
        let s = database.statistics();
        text += &tables_text(&tables(database)?);
        let figure = |(name, value): (&str, Value)| {
            line(name, value.as_str().map_or_else(|| value.to_string(), str::to_string))
        };
        let figures = facts(database, &s, &args.prices.unwrap_or_default()).into_iter().map(figure).collect();
        text += &text_of(&[Section("All figures", figures)]);
    }
    print_text(&text)
}

fn print_json_of(args: &StatArgs, database: &Database) -> Result<()> {
    let s = database.statistics();
    let directory = &*args.source.directory;
    let figures = facts(database, &s, &args.prices.unwrap_or_default());
    let mut object: Map<String, Value> =
        figures.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let identity = identity(directory).filter(|_| !is_url(directory));
    object.insert("format".into(), json!(identity.as_ref().map(|(format, _)| format)));
    object.insert("id".into(), json!(identity.as_ref().map(|(_, id)| id)));
    let file = |file: &FileFacts| json!({"name": file.name, "files": file.files, "bytes": file.bytes, "allocated_bytes": file.allocated});
    let (state, reasons) = health_of(directory, &s);
    object.insert("health".into(), json!(state));
    object.insert("health_reasons".into(), json!(reasons));
    object.insert("buckets".into(), buckets::as_json(&s.buckets, false));
    object.insert("files".into(), files(directory).iter().map(file).collect());
    if args.all {
        let table = |TableFacts { name, rows, report, types }: &TableFacts| {
            json!({
                "name": name,
                "rows": rows,
                "pages": report.pages,
                "bytes": report.bytes,
                "depth": report.depth,
                "leaf_fill": report.leaf_fill,
                "large_values": report.large_values,
                "types": types.as_ref().map(ToString::to_string),
            })
        };
        object.insert("table_list".into(), tables(database)?.iter().map(table).collect());
    }
    print_json(&object)
}

/// Runs `stat`.
pub fn stat(args: &StatArgs, as_json: bool) -> Result<Outcome> {
    loop {
        match (args.source.open(), args.watch) {
            // Until the other process ends.
            (Err(error), Some(_)) if is_busy(&error) => {}
            (opened, _) => print_one(args, &opened?, as_json)?,
        }
        let Some(seconds) = args.watch else { return Ok(Outcome::Done) };
        if !pause(Duration::from_secs_f64(seconds))? {
            return Ok(Outcome::Done);
        }
    }
}

fn print_one(args: &StatArgs, database: &Database, as_json: bool) -> Result<()> {
    if let Some(file) = &args.html {
        refuse_inside(file, &args.source.directory)?;
        let title = shown(&args.source.directory);
        let (sections, tables) = (sections(args, database), tables(database)?);
        let page = stat_html::page(&title, &sections, &tables, &database.space_map(stat_html::CELLS));
        std::fs::write(file, page).with_context(|| format!("cannot write {}", shown(file)))?;
        return if as_json { print_json(&json!({"html": shown(file)})) } else { Ok(()) };
    }
    if as_json {
        return print_json_of(args, database);
    }
    if args.watch.is_some() && std::io::stdout().is_terminal() {
        // To the first column of the first line, and clears from there.
        print_text("\x1b[H\x1b[J")?;
    }
    print_text_of(args, database)
}
