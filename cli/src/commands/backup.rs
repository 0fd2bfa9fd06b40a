//! `backup`, `restore`, `compact`, `salvage`: copy a database, make a database of copies, and give
//! free space back.

use super::create::NewDirectories;
use super::source::{DatabaseArgs, is_busy, is_url, open_checkpoint, open_to_read, open_to_write, shown};
use crate::errors::complain;
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result};
use quench_bench::objects::{is_empty, remove_all};
use quenchdb::{BackupOptions, Csn, Database, LostRange, Place, RestoreOptions, Settings};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// `quench backup`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench backup mydb /backup/monday\n  quench backup mydb /backup/tuesday --base /backup/monday\n  quench backup mydb s3://bucket/backup/monday\n\n\
                        A full backup can be looked at with the commands that only read."
)]
pub struct BackupArgs {
    /// Database directory
    directory: PathBuf,
    /// Directory to create, or URL in a store of objects; an existing one must be empty
    target: PathBuf,
    /// An earlier backup of this database: copy only what has changed since
    #[arg(long)]
    base: Option<PathBuf>,
    /// Copy the newest checkpoint instead of making one; also done if another process has the
    /// database open, and always in a store of objects (`quench checkpoint` makes one there, and
    /// ends another writer)
    #[arg(long)]
    checkpoint: bool,
}

/// Opens the database to copy it. If another process writes to it, opens its newest checkpoint, and
/// returns a remark. In a store of objects an open for writing would end that process.
fn open_to_back_up(args: &BackupArgs) -> Result<(Database, Option<String>)> {
    if args.checkpoint || is_url(&args.directory) {
        let database = open_checkpoint(&args.directory)?;
        let lacks = !args.checkpoint && !database.recovery().clean;
        let said = "it was not closed: its newest checkpoint was copied, without what came later";
        return Ok((database, lacks.then(|| said.into())));
    }
    let busy = match open_to_write(&args.directory, false) {
        // The system refuses to write: it may let this user read.
        Err(error) if is_busy(&error) || is_read_only(&error) => error,
        opened => return Ok((opened?, None)),
    };
    // Readers prevent a checkpoint, too. Beside readers the newest checkpoint contains everything
    // if the database was closed. Beside a writer it always lacks something.
    match open_to_read(&args.directory) {
        Err(error) if is_busy(&error) && is_busy(&busy) => {
            let busy =
                error.downcast_ref::<quenchdb::Error>().map_or("it is in use", quenchdb::Error::message);
            let said = format!("{busy}: its newest checkpoint was copied");
            Ok((open_checkpoint(&args.directory)?, Some(said)))
        }
        Ok(database) if !database.recovery().clean => {
            Err(busy.context("it was not closed, and a backup would lack what is only in its log"))
        }
        opened => Ok((opened?, None)),
    }
}

/// Returns whether the system refused to write.
fn is_read_only(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(|error| {
        matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
    })
}

/// A place that was empty before a command writes to it.
struct Target {
    new: NewDirectories,
    /// The URL of a store of objects.
    url: Option<String>,
}

impl Target {
    fn of(place: &Path) -> Target {
        let url = is_url(place).then(|| place.to_string_lossy().into_owned());
        let has_nothing = |url: &String| match url.strip_prefix("file://") {
            Some(directory) => {
                std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
            }
            None => matches!(is_empty(url), Ok(true)),
        };
        Target { new: NewDirectories::of(place), url: url.filter(has_nothing) }
    }

    /// Removes what a failed command left. The engine has removed files, but no objects. Ignores
    /// errors: the failure of the command is the error that matters.
    fn clear_after(&self, error: &quenchdb::Error) {
        use quenchdb::ErrorKind::{AlreadyExists, Busy, Fenced, InvalidArgument};
        // Another process may have begun to write there.
        let is_ours = !matches!(error.kind(), AlreadyExists | Busy | Fenced | InvalidArgument);
        if let Some(url) = self.url.as_ref().filter(|_| is_ours) {
            let _ = remove_all(url);
        }
        self.new.remove_empty();
    }
}

/// `quench restore`
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  quench restore /backup/monday /backup/tuesday mydb\n  quench restore s3://bucket/backup/monday mydb\n\n\
                        The restored database is one of its own: its first backup must be a full one."
)]
pub struct RestoreArgs {
    /// A full backup, then increments in their order
    #[arg(required = true)]
    backups: Vec<PathBuf>,
    /// Directory to create, or URL in a store of objects; an existing one must be empty
    #[arg(required = true)]
    target: PathBuf,
    /// The original or a copy of it: replay its log (and trust its MANIFEST, if there is one)
    #[arg(long)]
    log: Option<PathBuf>,
    /// The memory-mapped log of the original, if it was moved
    #[arg(long, requires = "log", value_name = "FILE")]
    log_memory: Option<PathBuf>,
    /// Replay up to this CSN only
    #[arg(long)]
    to: Option<u64>,
}

/// Runs `backup`.
pub fn backup(args: &BackupArgs, as_json: bool) -> Result<Outcome> {
    let (database, said) = open_to_back_up(args)?;
    let progress = Progress::new();
    let options = BackupOptions::default().with(|s| {
        s.base = args.base.as_ref().map(Place::from);
        s.progress = Some(progress.callback());
    });
    let target = Target::of(&args.target);
    let made = database.backup(&args.target, options).inspect_err(|error| target.clear_after(error));
    progress.finish();
    let report = made.with_context(|| format!("cannot back up to {}", shown(&args.target)))?;
    database.close()?;
    if let Some(said) = said {
        complain(&said);
    }
    if as_json {
        print_json(&json!({
            "csn": report.csn.0,
            "base_csn": report.base_csn.map(|csn| csn.0),
            "pages": report.pages,
            "pages_copied": report.pages_copied,
            "bytes": report.bytes,
            "seconds": report.seconds,
        }))?;
    } else {
        let since = report.base_csn.map_or(String::new(), |csn| format!(" changed since CSN {csn}"));
        print_text(&format!(
            "backup at CSN {}: {} of {} pages{since}, {} bytes in {:.3} s",
            report.csn, report.pages_copied, report.pages, report.bytes, report.seconds
        ))?;
    }
    Ok(Outcome::Done)
}

/// Runs `restore`.
pub fn restore(args: &RestoreArgs, as_json: bool) -> Result<Outcome> {
    let progress = Progress::new();
    let options = RestoreOptions::default().with(|s| {
        s.log = args.log.as_ref().map(Place::from);
        s.to = args.to.map(Csn);
        s.settings = Settings::default().with(|s| s.log_memory = args.log_memory.clone());
        s.progress = Some(progress.callback());
    });
    let target = Target::of(&args.target);
    let restored = Database::restore(&args.backups, &args.target, options)
        .inspect_err(|error| target.clear_after(error));
    progress.finish();
    let report = restored.with_context(|| format!("cannot restore to {}", shown(&args.target)))?;
    if as_json {
        print_json(&json!({
            "csn": report.csn.0,
            "pages": report.pages,
            "bytes": report.bytes,
            "replayed": report.replayed,
            "seconds": report.seconds,
        }))?;
    } else {
        print_text(&format!(
            "restored to CSN {}: {} pages, {} bytes, {} transactions replayed in {:.3} s",
            report.csn, report.pages, report.bytes, report.replayed, report.seconds
        ))?;
    }
    Ok(Outcome::Done)
}

/// Runs `compact`.
pub fn compact(args: &DatabaseArgs, as_json: bool) -> Result<Outcome> {
    let database = open_to_write(&args.directory, false)?;
    let progress = Progress::new();
    let compacted = database.compact(Some(progress.callback()));
    progress.finish();
    let report = compacted?;
    database.close()?;
    if as_json {
        print_json(&json!({
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "bytes_used": report.bytes_used,
            "pages_moved": report.pages_moved,
            "seconds": report.seconds,
        }))?;
    } else {
        print_text(&format!(
            "compacted from {} to {} bytes, {} of them in use: {} pages moved in {:.3} s",
            report.bytes_before, report.bytes_after, report.bytes_used, report.pages_moved, report.seconds
        ))?;
    }
    Ok(Outcome::Done)
}

/// `quench salvage`
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  quench salvage damageddb newdb\n\nFor a database that is damaged and has no backup. The source is only read."
)]
pub struct SalvageArgs {
    /// Directory of the damaged database
    source: PathBuf,
    /// Directory of the new database
    target: PathBuf,
}

/// Runs `salvage`.
pub fn salvage(args: &SalvageArgs, as_json: bool) -> Result<Outcome> {
    let progress = Progress::new();
    let new = NewDirectories::of(&args.target);
    let salvaged =
        Database::salvage(&args.source, &args.target, Settings::default(), Some(progress.callback()))
            .inspect_err(|_| new.remove_empty());
    progress.finish();
    let report = salvaged.with_context(|| format!("cannot salvage {}", shown(&args.source)))?;
    if as_json {
        let tables = report.tables.iter().map(|(name, table)| {
            let lost: Vec<String> = table.lost.iter().map(LostRange::describe).collect();
            json!({"name": name, "rows": table.rows, "lost": lost})
        });
        print_json(&json!({
            "whole": report.is_whole(),
            "tables": tables.collect::<Vec<_>>(),
            "transactions": report.transactions,
            "remarks": report.remarks,
        }))?;
    } else {
        let mut text = String::new();
        for (name, table) in &report.tables {
            let _ = writeln!(text, "{name}\t{} rows from pages", table.rows);
            for lost in &table.lost {
                let _ = writeln!(text, "lost: table `{name}`, {}", lost.describe());
            }
        }
        for remark in &report.remarks {
            let _ = writeln!(text, "note: {remark}");
        }
        let _ = writeln!(text, "{} transactions of the log applied", report.transactions);
        print_text(&text)?;
    }
    Ok(if report.is_whole() { Outcome::Done } else { Outcome::Wrong })
}
