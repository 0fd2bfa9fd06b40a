//! `create`, `drop`, `rename`, `clear`, `count`: tables as a whole.

use super::create::Writable;
use super::source::{SourceArgs, open_to_write, shown};
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result};
use quenchdb::{Database, Error, ErrorKind, Snapshot};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Prefix of the names of tables that belong to this program.
pub const INTERNAL: &str = "quench.";

/// `quench create`
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quench create mydb\n  quench create mydb users orders")]
pub struct CreateArgs {
    /// Database directory; created if it is missing
    directory: PathBuf,
    /// Tables to create. None may exist: then nothing is created
    tables: Vec<String>,
}

/// `quench drop`
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quench drop mydb orders\n\n\
                        To remove a whole database, remove its directory.")]
pub struct DropArgs {
    /// Database directory
    directory: PathBuf,
    /// Tables to drop, with all their rows. All must exist: otherwise none is dropped
    #[arg(required = true)]
    tables: Vec<String>,
}

/// `quench rename`
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quench rename mydb orders invoices")]
pub struct RenameArgs {
    /// Database directory
    directory: PathBuf,
    /// Table
    table: String,
    /// New name, which no table may have
    new_name: String,
}

/// `quench clear`
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quench clear mydb cache")]
pub struct ClearArgs {
    /// Database directory
    directory: PathBuf,
    /// Table, which stays, without rows
    table: String,
}

/// `quench count`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench count mydb users\n  quench count mydb     every table, and its rows"
)]
pub struct CountArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Tables to count [default: all]
    tables: Vec<String>,
}

/// Runs `create`.
pub fn create(args: &CreateArgs, as_json: bool) -> Result<Outcome> {
    let mut writable = Writable::open_or_create(&args.directory)?;
    if args.tables.is_empty() && !writable.is_new() {
        let exists = Error::new(ErrorKind::AlreadyExists, "there is a database");
        return Err(exists).with_context(|| format!("cannot create {}", shown(&args.directory)));
    }
    for name in &args.tables {
        writable.create_table(name).with_context(|| format!("cannot create the table `{name}`"))?;
    }
    let created = writable.close()?;
    if as_json {
        print_json(&json!({
            "created_database": created.database.is_some(),
            "created_tables": created.tables,
        }))?;
    } else if let Some(sentence) = created.sentence() {
        print_text(&sentence)?;
    }
    Ok(Outcome::Done)
}

/// Runs `drop`.
pub fn drop_tables(args: &DropArgs, as_json: bool) -> Result<Outcome> {
    let database = open_to_write(&args.directory, false)?;
    let mut names = args.tables.clone();
    names.sort();
    names.dedup();
    for name in &names {
        database.table(name)?;
    }
    for name in &names {
        database.drop_table(name)?;
    }
    database.close()?;
    if as_json {
        print_json(&json!({"dropped": names}))?;
    } else {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        print_text(&format!("dropped {}", names.join(", ")))?;
    }
    Ok(Outcome::Done)
}

/// Runs `rename`.
pub fn rename(args: &RenameArgs, as_json: bool) -> Result<Outcome> {
    let database = open_to_write(&args.directory, false)?;
    database.rename_table(&args.table, &args.new_name)?;
    database.close()?;
    if as_json {
        print_json(&json!({"renamed": args.table, "to": args.new_name}))?;
    } else {
        print_text(&format!("renamed `{}` to `{}`", args.table, args.new_name))?;
    }
    Ok(Outcome::Done)
}

/// Runs `clear`.
pub fn clear(args: &ClearArgs, as_json: bool) -> Result<Outcome> {
    let database = open_to_write(&args.directory, false)?;
    database.clear_table(&args.table)?;
    database.close()?;
    if as_json {
        print_json(&json!({"cleared": args.table}))?;
    } else {
        print_text(&format!("cleared `{}`", args.table))?;
    }
    Ok(Outcome::Done)
}

/// Returns the number of rows of a table. Reads all of them.
pub fn count_rows(database: &Database, snapshot: &Snapshot, table: &str) -> Result<u64> {
    let progress = Progress::new();
    let range = snapshot.range(&database.table(table)?, ..);
    let counted = progress.rows(table, range).try_fold(0, |count, row| row.map(|_| count + 1));
    progress.finish();
    Ok(counted?)
}

/// Runs `count`.
pub fn count(args: &CountArgs, as_json: bool) -> Result<Outcome> {
    let database = args.source.open()?;
    let snapshot = database.begin_read()?;
    let is_internal = |name: &String| name.starts_with(INTERNAL);
    let names = match args.tables.is_empty() {
        true => database.tables().into_iter().filter(|name| !is_internal(name)).collect(),
        false => args.tables.clone(),
    };
    let mut counted = Vec::new();
    for name in names {
        let rows = count_rows(&database, &snapshot, &name)?;
        counted.push((name, rows));
    }
    if as_json {
        let all: Vec<_> = counted.iter().map(|(name, rows)| json!({"name": name, "rows": rows})).collect();
        print_json(&json!({"tables": all}))?;
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    for (name, rows) in &counted {
        match args.tables.len() {
            1 => drop(writeln!(text, "{rows}")),
            _ => drop(writeln!(text, "{name}\t{rows}")),
        }
    }
    if !text.is_empty() {
        print_text(&text)?;
    }
    Ok(Outcome::Done)
}
