//! `verify`, `repair`: is a database sound, and what can be made so?

use super::source::{SourceArgs, hint_at_checkpoint, open_checkpoint, shown};
use crate::output::{Outcome, Progress, print_json, print_text};
use crate::units::grouped;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, FilesReport, VerifyClass, VerifyReport};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// `quench repair`
#[derive(clap::Args)]
#[command(
    after_help = "A degraded database has all its data, but a spare copy of something is damaged: one of the two copies of\n\
                  the manifest. Opening the database for writing makes both copies equal, which this command does. Data that\n\
                  is damaged has no spare copy: restore a backup, or use `salvage` to copy what can be read."
)]
pub struct RepairArgs {
    /// Database directory, or the URL of a store of objects
    directory: PathBuf,
    /// Only say what would be repaired
    #[arg(long)]
    dry_run: bool,
}

/// Runs `verify`. Reports damage also if it makes the open fail.
pub fn verify(args: &SourceArgs, as_json: bool) -> Result<Outcome> {
    let report = if args.checkpoint {
        let progress = Progress::new();
        let checked = open_checkpoint(&args.directory)?.verify(Some(progress.callback()));
        progress.finish();
        checked.with_context(|| format!("cannot check {}", shown(&args.directory)))?
    } else {
        check(&args.directory)?
    };
    match as_json {
        true => print_json(&as_value(&report))?,
        false => print_text(&as_text(&report))?,
    }
    Ok(if report.class() == VerifyClass::Sound { Outcome::Done } else { Outcome::Wrong })
}

fn check(directory: &Path) -> Result<VerifyReport> {
    let progress = Progress::new();
    let builder = Database::builder().on_recovery(progress.callback());
    let checked = builder.verify(directory, Some(progress.callback()));
    progress.finish();
    checked.map_err(hint_at_checkpoint).with_context(|| format!("cannot check {}", shown(directory)))
}

/// Runs `repair`.
pub fn repair(args: &RepairArgs, as_json: bool) -> Result<Outcome> {
    let before = check(&args.directory)?;
    if before.class() == VerifyClass::Damaged {
        if as_json {
            print_json(&json!({"repaired": [], "before": as_value(&before)}))?;
        } else {
            print_text(&as_text(&before))?;
        }
        bail!(
            "{} is damaged, and nothing was changed: restore a backup, or copy what can be read with `quench salvage`",
            shown(&args.directory)
        );
    }
    let is_degraded = before.class() == VerifyClass::Degraded;
    let repaired: &[String] = if is_degraded && !args.dry_run { &before.weaknesses } else { &[] };
    let mut after = None;
    if !repaired.is_empty() {
        let builder = Database::builder().create(false);
        let database = builder.open(&args.directory).with_context(|| cannot_repair(&args.directory))?;
        database.close().with_context(|| cannot_repair(&args.directory))?;
        after = Some(check(&args.directory)?);
    }
    let sound = after.as_ref().unwrap_or(&before).class() == VerifyClass::Sound;
    if as_json {
        let after = after.as_ref().map(as_value);
        print_json(&json!({"repaired": repaired, "before": as_value(&before), "after": after}))?;
    } else {
        let mut text = String::new();
        let done = if args.dry_run { "would be repaired" } else { "repaired" };
        for weakness in &before.weaknesses {
            let _ = writeln!(text, "{done}: {weakness}");
        }
        let _ = match (is_degraded, args.dry_run) {
            (false, _) => writeln!(text, "sound: nothing to repair"),
            (true, true) => writeln!(text, "degraded: nothing was changed"),
            (true, false) => {
                writeln!(text, "{}", if sound { "sound" } else { "still not sound: run `verify`" })
            }
        };
        print_text(&text)?;
    }
    Ok(if sound || args.dry_run { Outcome::Done } else { Outcome::Wrong })
}

fn cannot_repair(directory: &Path) -> String {
    format!("cannot repair {}", shown(directory))
}

fn as_value(report: &VerifyReport) -> Value {
    let files = report.files.as_ref().map(|files| {
        let copy = |copy: &quenchdb::ManifestCopy| {
            json!({"offset": copy.offset, "generation": copy.generation, "problem": copy.problem})
        };
        let extra = |extra: &quenchdb::ExtraFile| {
            json!({"path": extra.path, "bytes": extra.bytes, "what": extra.what})
        };
        json!({
            "manifest": files.manifest.iter().map(copy).collect::<Vec<_>>(),
            "log_segments": files.log_segments,
            "log_bytes": files.log_bytes,
            "closed": files.closed,
            "extra_files": files.extra_files.iter().map(extra).collect::<Vec<_>>(),
        })
    });
    json!({
        "class": report.class().name(),
        "sound": report.class() == VerifyClass::Sound,
        "tables": report.tables,
        "pages": report.pages,
        "large_values": report.large_values,
        "entries": report.entries,
        "stored_pages": report.stored_pages,
        "log_blocks": report.log_blocks,
        "log_records": report.log_records,
        "files": files,
        "weaknesses": report.weaknesses,
        "problems": report.problems,
        "advice": report.advice(),
    })
}

fn as_text(report: &VerifyReport) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let _ = writeln!(text, "damaged: {problem}");
    }
    for weakness in &report.weaknesses {
        let _ = writeln!(text, "degraded: {weakness}");
    }
    if let Some(files) = &report.files {
        let _ = writeln!(text, "manifest: {}", manifest_line(files));
        let _ = writeln!(text, "log: {}", log_line(files));
        describe_extra_files(files, &mut text);
    }
    let class = match report.class() {
        VerifyClass::Sound => "sound",
        VerifyClass::Degraded => "DEGRADED",
        _ => "NOT SOUND",
    };
    let _ = writeln!(
        text,
        "{class}: {} tables, {} pages, {} entries, {} stored pages, {} log blocks with {} records",
        report.tables,
        report.pages,
        report.entries,
        report.stored_pages,
        report.log_blocks,
        report.log_records
    );
    if let Some(advice) = report.advice() {
        let _ = writeln!(text, "{advice}");
    }
    text
}

/// Appends a line about the files that the database does not need, and one for each.
fn describe_extra_files(files: &FilesReport, text: &mut String) {
    if files.extra_files.is_empty() {
        return;
    }
    let bytes: u64 = files.extra_files.iter().map(|extra| extra.bytes).sum();
    let count = files.extra_files.len().to_string();
    let bytes = grouped(&bytes.to_string());
    let _ = writeln!(text, "note: files that the database does not need: {}, {bytes} bytes", grouped(&count));
    for extra in &files.extra_files {
        let bytes = grouped(&extra.bytes.to_string());
        let _ = writeln!(text, "note: {}, {bytes} bytes: {}", extra.path, extra.what);
    }
}

fn manifest_line(files: &FilesReport) -> String {
    let intact = files.manifest.iter().filter(|copy| copy.problem.is_none()).count();
    let generation = files.manifest.iter().map(|copy| copy.generation).max().unwrap_or(0);
    format!(
        "{intact} of {} copies intact, generation {}",
        files.manifest.len(),
        grouped(&generation.to_string())
    )
}

fn log_line(files: &FilesReport) -> String {
    let needed = if files.closed { "not needed, the database was closed" } else { "needed by the next open" };
    format!(
        "{} segments, {} bytes, {needed}",
        grouped(&files.log_segments.to_string()),
        grouped(&files.log_bytes.to_string())
    )
}
