//! How a command opens its database.

use crate::output::Progress;
use anyhow::{Context, Result};
use quenchdb::{Database, Snapshot, Table};
use std::path::{Path, PathBuf};

/// A database and nothing else.
#[derive(clap::Args)]
pub struct DatabaseArgs {
    /// Database directory
    pub directory: PathBuf,
}

/// A database to be read.
#[derive(clap::Args)]
pub struct SourceArgs {
    /// Database directory
    pub directory: PathBuf,
    /// Read the newest checkpoint; another process may have the database open and go on writing
    #[arg(long)]
    pub checkpoint: bool,
}

impl SourceArgs {
    /// Opens it.
    pub fn open(&self) -> Result<Database> {
        if self.checkpoint { open_checkpoint(&self.directory) } else { open_to_read(&self.directory) }
    }

    /// A table with a snapshot to read it.
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

/// What whoever only reads can do if somebody else has the database.
pub fn hint_at_checkpoint(error: anyhow::Error) -> anyhow::Error {
    if is_busy(&error) { error.context("--checkpoint reads beside a writer") } else { error }
}

/// Opens a database for writing.
pub fn open_to_write(directory: &Path, create: bool) -> Result<Database> {
    open(directory, false, create)
}

/// Opens the newest checkpoint of a database beside whoever writes.
pub fn open_checkpoint(directory: &Path) -> Result<Database> {
    let opened = Database::builder().open_checkpoint(directory);
    opened.with_context(|| format!("cannot open a checkpoint of {}", directory.display()))
}

/// Whether somebody else has the database.
pub fn is_busy(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<quenchdb::Error>().map(quenchdb::Error::kind);
    kind == Some(quenchdb::ErrorKind::Busy)
}

fn open(directory: &Path, read_only: bool, create: bool) -> Result<Database> {
    let progress = Progress::new();
    let database = Database::builder()
        .create(create)
        .read_only(read_only)
        .on_recovery(progress.callback())
        .open(directory)
        .map_err(|error| anyhow::Error::new(error).context(format!("cannot open {}", directory.display())));
    progress.finish();
    database
}
