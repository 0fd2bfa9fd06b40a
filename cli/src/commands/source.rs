//! How a command opens its database.

use crate::output::Progress;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, Place, Snapshot, Table};
use std::path::{Path, PathBuf};

/// The directory of a database.
#[derive(clap::Args)]
pub struct DatabaseArgs {
    /// Database directory
    pub directory: PathBuf,
}

/// A database to read.
#[derive(clap::Args)]
pub struct SourceArgs {
    /// Database directory
    pub directory: PathBuf,
    /// Read the newest checkpoint; another process may have the database open and continue writing
    #[arg(long)]
    pub checkpoint: bool,
}

impl SourceArgs {
    /// Opens the database.
    pub fn open(&self) -> Result<Database> {
        if self.checkpoint { open_checkpoint(&self.directory) } else { open_to_read(&self.directory) }
    }

    /// Returns a table with a snapshot.
    pub fn table(&self, table: &str) -> Result<(Database, Table, Snapshot)> {
        let database = self.open()?;
        let table = database.table(table)?;
        let snapshot = database.begin_read()?;
        Ok((database, table, snapshot))
    }
}

/// Opens an existing database for reading.
pub fn open_to_read(directory: &Path) -> Result<Database> {
    open(directory, true, false).map_err(hint_at_checkpoint)
}

/// Adds a hint to the error of a database that another process has open.
pub fn hint_at_checkpoint(error: anyhow::Error) -> anyhow::Error {
    if is_busy(&error) {
        error.context("another process has the database open; use --checkpoint to read beside it")
    } else {
        error
    }
}

/// Opens a database for writing.
pub fn open_to_write(directory: &Path, create: bool) -> Result<Database> {
    open(directory, false, create)
}

/// Opens the newest checkpoint of a database beside a writer.
pub fn open_checkpoint(directory: &Path) -> Result<Database> {
    let opened = Database::builder().open_checkpoint(directory);
    opened.with_context(|| format!("cannot open a checkpoint of {}", shown(directory)))
}

/// Returns whether another process has the database open.
pub fn is_busy(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<quenchdb::Error>().map(quenchdb::Error::kind);
    kind == Some(quenchdb::ErrorKind::Busy)
}

/// Returns whether a database lies in a store of objects.
pub fn is_url(place: &Path) -> bool {
    matches!(Place::from(place), Place::Url(_))
}

/// Checks that a new database can be made at a place: an empty directory, which is created, or a
/// URL at which there is none.
pub fn require_empty(place: &Path) -> Result<()> {
    if is_url(place) {
        let storage = quench_bench::objects::storage(&place.to_string_lossy())?;
        let is_empty = storage.list("").with_context(|| format!("cannot read {}", shown(place)))?.is_empty();
        return if is_empty { Ok(()) } else { bail!("{} holds a database; give a new prefix", shown(place)) };
    }
    std::fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let mut entries = std::fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; give a new directory", place.display());
    }
    Ok(())
}

/// Returns the place of a database for people, without credentials that are in a URL by mistake.
pub fn shown(place: &Path) -> String {
    let text = place.display().to_string();
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://***@{rest}"),
        None => text,
    }
}

fn open(directory: &Path, read_only: bool, create: bool) -> Result<Database> {
    let progress = Progress::new();
    let database = Database::builder()
        .create(create)
        .read_only(read_only)
        .on_recovery(progress.callback())
        .open(directory)
        .map_err(|error| anyhow::Error::new(error).context(format!("cannot open {}", shown(directory))));
    progress.finish();
    database
}
