//! How a command that writes opens its database: what a failed command created is removed.

use super::source::{is_url, open_to_write, shown};
use crate::signals;
use anyhow::{Context, Result, bail};
use quench_bench::objects::{is_empty, remove_all};
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

/// The place of a new database.
struct Undo {
    /// The URL of a store of objects.
    url: Option<String>,
    /// The directory, also of a store of objects.
    directory: Option<PathBuf>,
    new: NewDirectories,
}

/// Directories that were missing, from the innermost to the outermost.
#[derive(Default)]
pub struct NewDirectories(Vec<PathBuf>);

impl NewDirectories {
    /// Returns the directories that a command creates at a place.
    pub fn of(place: &Path) -> NewDirectories {
        let Some(directory) = directory_of(place) else { return NewDirectories::default() };
        let missing = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
        NewDirectories(missing.take_while(|path| !path.exists()).map(Path::to_path_buf).collect())
    }

    /// Removes the directories as far as they are empty. Ignores errors: the failure of the command
    /// is the error that matters.
    pub fn remove_empty(&self) {
        for directory in &self.0 {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Returns the directory of a database, or of a store of objects that is one.
fn directory_of(place: &Path) -> Option<PathBuf> {
    match is_url(place) {
        false => Some(place.to_path_buf()),
        true => place.to_str()?.strip_prefix("file://").map(PathBuf::from),
    }
}

/// Files of a database in its directory; the lock goes last.
const FILES: [&str; 3] = ["MANIFEST", "monitor.sock", ".quench-direct-probe"];
/// Its directories, and how the names of the files in them end.
const DIRECTORIES: [(&str, &str); 3] = [("pages", "data"), ("log", ".seg"), ("readers", "")];
/// Most attempts: a thread of the open database may make a file in a directory meanwhile.
const REMOVALS: u32 = 20;

/// Removes the files of a new database. What others put beside them meanwhile stays.
fn remove_database(directory: &Path) {
    for (name, end) in DIRECTORIES {
        for _ in 0..REMOVALS {
            let below = directory.join(name);
            for entry in std::fs::read_dir(&below).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().ends_with(end) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
            match std::fs::remove_dir(&below) {
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
        }
    }
    for name in FILES.into_iter().chain([LOCK]) {
        let _ = std::fs::remove_file(directory.join(name));
    }
}

impl Undo {
    /// Returns what has to be removed to undo the creation of a database. Nothing is removed from
    /// a directory that has files, and from a place in a store of objects that has objects.
    fn of(place: &Path) -> Option<Undo> {
        let directory = directory_of(place);
        let url = is_url(place).then(|| place.to_string_lossy().into_owned());
        let is_used = match (&directory, &url) {
            (Some(directory), _) => {
                std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
            }
            (None, url) => !url.as_ref().is_some_and(|url| matches!(is_empty(url), Ok(true))),
        };
        (!is_used).then(|| Undo { url, directory, new: NewDirectories::of(place) })
    }

    /// Removes the files, then the directories as far as they are empty. The caller has the lock;
    /// its file goes last, so that no other process creates a database meanwhile. Ignores errors:
    /// the failure of the command is the error that matters.
    fn undo(&self) {
        let Some(directory) = &self.directory else {
            let _ = self.url.as_deref().map(remove_all);
            return;
        };
        if self.url.is_some() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => signals::remove(&path),
                    path => drop(std::fs::remove_file(path)),
                }
            }
        } else {
            remove_database(directory);
        }
        self.new.remove_empty();
    }

    /// Undoes a creation that failed before the first manifest was written.
    fn undo_failed(&self) {
        let (Some(directory), None) = (&self.directory, &self.url) else { return };
        let manifest = std::fs::read(directory.join("MANIFEST")).unwrap_or_default();
        let is_locked = match File::open(directory.join(LOCK)) {
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
            Some(undo) if undo.url.is_some() => {
                // A store has no lock. If another process has taken the database, closing fails.
                if database.close().is_ok() {
                    undo.undo();
                }
            }
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
