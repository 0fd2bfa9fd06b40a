//! How a command that writes opens its database: what a failed command created is removed.

use super::source::{is_url, open_to_write, shown};
use crate::signals;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, ErrorKind, Table};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What a command created.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Created {
    /// The place of the database, if it is new.
    pub database: Option<String>,
    /// Tables, in the order of their creation.
    pub tables: Vec<String>,
}

impl Created {
    /// Returns a sentence about it, if there is anything.
    pub fn sentence(&self) -> Option<String> {
        let names: Vec<String> = self.tables.iter().map(|name| format!("`{name}`")).collect();
        let mut parts: Vec<String> =
            self.database.iter().map(|place| format!("the database {place}")).collect();
        match names.len() {
            0 => {}
            1 => parts.push(format!("the table {}", names[0])),
            _ => parts.push(format!("the tables {}", names.join(", "))),
        }
        (!parts.is_empty()).then(|| format!("created {}", parts.join(" and ")))
    }
}

/// An open database that may be new. If it is dropped before [`Writable::keep`], what was created
/// since is removed.
pub struct Writable {
    database: Option<Database>,
    place: PathBuf,
    created: Created,
    /// Removes the new database.
    undo: Option<Undo>,
    /// Number of created tables that stay.
    tables_kept: usize,
}

/// Name of the file whose lock belongs to the process that has the database open.
const LOCK: &str = "LOCK";

/// The directories of a new database.
struct Undo {
    directory: PathBuf,
    /// Directories that were missing, from the innermost to the outermost.
    missing: Vec<PathBuf>,
}

impl Undo {
    /// Returns what has to be removed to undo the creation of a database. Nothing is removed from
    /// a directory that has files, and from a store of objects.
    fn of(place: &Path) -> Option<Undo> {
        if is_url(place) || std::fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some()) {
            return None;
        }
        let missing = place.ancestors().filter(|path| !path.as_os_str().is_empty());
        let missing = missing.take_while(|path| !path.exists()).map(Path::to_path_buf).collect();
        Some(Undo { directory: place.to_path_buf(), missing })
    }

    /// Removes the files, then the directories as far as they are empty. The caller has the lock;
    /// its file goes last, so that no other process creates a database meanwhile. Ignores errors:
    /// the failure of the command is the error that matters.
    fn undo(&self) {
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                signals::remove(&path);
            } else if entry.file_name() != LOCK {
                let _ = std::fs::remove_file(path);
            }
        }
        let _ = std::fs::remove_file(self.directory.join(LOCK));
        for directory in &self.missing {
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// Undoes a creation that failed before the first manifest was written.
    fn undo_failed(&self) {
        let manifest = std::fs::read(self.directory.join("MANIFEST")).unwrap_or_default();
        let is_locked = match File::open(self.directory.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_err() => true,
            // The lock ends with this process at the latest.
            Ok(lock) => {
                std::mem::forget(lock);
                false
            }
            Err(_) => false,
        };
        if !is_locked && manifest.iter().all(|byte| *byte == 0) {
            self.undo();
        }
    }
}

impl Writable {
    /// Opens a database, or creates one. A new one needs a directory that is missing or empty.
    pub fn open_or_create(place: &Path) -> Result<Writable> {
        match open_to_write(place, false) {
            Err(error) if is_missing(&error) => Writable::create(place),
            opened => Ok(Writable::of(opened?, place, None)),
        }
    }

    /// Opens a database.
    pub fn open(place: &Path) -> Result<Writable> {
        Ok(Writable::of(open_to_write(place, false)?, place, None))
    }

    /// Creates a database.
    fn create(place: &Path) -> Result<Writable> {
        check_unused(place)?;
        let undo = Undo::of(place);
        let database = open_to_write(place, true).inspect_err(|_| {
            if let Some(undo) = &undo {
                undo.undo_failed();
            }
        })?;
        // A database with tables was created by another process at the same moment.
        let is_new = database.tables().is_empty();
        let mut opened = Writable::of(database, place, undo.filter(|_| is_new));
        opened.created.database = is_new.then(|| shown(place));
        Ok(opened)
    }

    fn of(database: Database, place: &Path, undo: Option<Undo>) -> Writable {
        let (place, created) = (place.to_path_buf(), Created::default());
        Writable { database: Some(database), place, created, undo, tables_kept: 0 }
    }

    /// Returns the database.
    pub fn database(&self) -> Result<&Database> {
        self.database.as_ref().context("the database is closed")
    }

    /// Returns a table; creates it if it is missing.
    pub fn table_or_create(&mut self, name: &str) -> Result<Table> {
        match self.database()?.table(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.create_table(name),
            found => Ok(found?),
        }
    }

    /// Creates a table.
    pub fn create_table(&mut self, name: &str) -> Result<Table> {
        let table = self.database()?.create_table(name)?;
        self.created.tables.push(name.into());
        Ok(table)
    }

    /// Returns whether this command created the database.
    pub fn is_new(&self) -> bool {
        self.created.database.is_some()
    }

    /// Makes all that was created so far stay, also if the command fails later.
    pub fn keep(&mut self) {
        self.undo = None;
        self.tables_kept = self.created.tables.len();
    }

    /// Returns the database. What was created stays.
    pub fn into_database(mut self) -> Result<Database> {
        self.keep();
        self.database.take().context("the database is closed")
    }

    /// Closes the database. What was created stays.
    pub fn close(mut self) -> Result<Created> {
        self.keep();
        let database = self.database.take().context("the database is closed")?;
        database.close().with_context(|| format!("cannot close {}", shown(&self.place)))?;
        Ok(std::mem::take(&mut self.created))
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        let Some(database) = self.database.take() else { return };
        match self.undo.take() {
            // The open database has the lock.
            Some(undo) => undo.undo(),
            None => {
                for name in &self.created.tables[self.tables_kept..] {
                    // The error of the command matters, not this one.
                    let _ = database.drop_table(name);
                }
            }
        }
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<quenchdb::Error>().map(quenchdb::Error::kind) == Some(ErrorKind::NotFound)
}

/// Names in the directory of a database whose creation was interrupted.
const UNFINISHED: [&str; 4] = [LOCK, "MANIFEST", "pages", "log"];

/// Checks that a directory holds nothing of others.
fn check_unused(place: &Path) -> Result<()> {
    if is_url(place) {
        return Ok(());
    }
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        if !UNFINISHED.iter().any(|name| entry.file_name() == *name) {
            bail!("{} is not empty and holds no database: give a new directory", place.display());
        }
    }
    Ok(())
}
