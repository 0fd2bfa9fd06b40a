//! One module for each question that a command answers.

pub mod backup;
pub mod dump;
pub mod inspect;
pub mod load;
pub mod rows_at;

use crate::output::Progress;
use anyhow::Result;
use quenchdb::{Database, Snapshot, Table};
use std::path::Path;

/// Opens an existing database for reading.
pub fn open_to_read(directory: &Path) -> Result<Database> {
    open(directory, true, false)
}

/// Opens a database for writing.
pub fn open_to_write(directory: &Path, create: bool) -> Result<Database> {
    open(directory, false, create)
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

/// A table with a snapshot to read it.
pub fn table_to_read(directory: &Path, table: &str) -> Result<(Database, Table, Snapshot)> {
    let database = open_to_read(directory)?;
    let table = database.table(table)?;
    let snapshot = database.begin_read()?;
    Ok((database, table, snapshot))
}
