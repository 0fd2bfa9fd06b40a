//! How a command opens its database.

use crate::output::Progress;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, ErrorKind, Place, Snapshot, Table};
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
    open(directory, true, false)
}

/// Gives the error of a database that another process has open the advice to read beside it.
pub fn hint_at_checkpoint(error: quenchdb::Error) -> quenchdb::Error {
    match error.kind() {
        ErrorKind::Busy => error.with_advice("use --checkpoint to read beside the process that has it open"),
        _ => error,
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

/// Returns a place inside another one. Of a URL with `?rest=`, in both buckets.
pub fn inside(place: &Path, name: &str) -> PathBuf {
    let text = place.to_string_lossy();
    match text.split_once("?rest=").filter(|_| is_url(place)) {
        Some((log, rest)) => format!("{log}/{name}?rest={rest}/{name}").into(),
        None => place.join(name),
    }
}

/// Checks that a new database can be made at a place: an empty directory, which is created, or a
/// URL at which there is none.
pub fn require_empty(place: &Path) -> Result<()> {
    if is_url(place) {
        let storage = quench_bench::objects::storage(&place.to_string_lossy())?;
        let is_empty = storage.names().with_context(|| format!("cannot read {}", shown(place)))?.is_empty();
        return if is_empty { Ok(()) } else { bail!("{} holds a database; give a new prefix", shown(place)) };
    }
    std::fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let mut entries = std::fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; give a new directory", place.display());
    }
    Ok(())
}

/// Refuses a file in the directory of a database: it could replace one of the database's own.
pub fn refuse_inside(file: &Path, directory: &Path) -> Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = file.canonicalize().or_else(|_| parent.canonicalize());
    match (real, directory.canonicalize()) {
        (Ok(real), Ok(directory)) if real.starts_with(&directory) => {
            bail!("{} lies in the directory of the database; choose another place", file.display())
        }
        _ => Ok(()),
    }
}

/// Refuses a place that holds a database or a backup: the files of `what` would lie among its own.
pub fn refuse_database(place: &Path, what: &str) -> Result<()> {
    let is_there = match is_url(place) {
        true => match Place::from(place).objects() {
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // Other objects than those of a database.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => false,
            found => found.map(|_| true)?,
        },
        false => DATABASE_FILES.iter().any(|name| place.join(name).exists()),
    };
    if is_there {
        bail!("{} holds a database: give {what} another place", shown(place));
    }
    Ok(())
}

/// Files that only databases, backups and unfinished ones have.
const DATABASE_FILES: [&str; 4] = ["MANIFEST", "BACKUP", "RESTORING", "pages/data"];

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
        .map_err(|error| if read_only { hint_at_checkpoint(error) } else { error });
    progress.finish();
    database.with_context(|| format!("cannot open {}", shown(directory)))
}
