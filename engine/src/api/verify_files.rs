//! What verify says about files: the copies of the manifest, and the log.

use super::refuse::OWN_FILES;
use crate::backup::BACKUP_PATH;
use crate::base::{DatabaseId, Error, ErrorKind, Result, SegmentId};
use crate::device::ownership::DIRECT_PROBE;
use crate::device::{Directory, OpenMode, Storage};
use crate::log::{DIRECTORY, database_of, path_of, segment_id};
use crate::recovery::{is_foreign, unreadable_log};
use crate::store::{Manifest, ManifestCopy, manifest_copies};
use std::path::Path;

/// The files of a database besides its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilesReport {
    /// The copies of the manifest.
    pub manifest: Vec<ManifestCopy>,
    /// Log segments.
    pub log_segments: u64,
    /// Bytes of log segments.
    pub log_bytes: u64,
    /// The database was closed: it does not need its log.
    pub closed: bool,
    /// Files in the directory that the database does not need.
    pub extra_files: Vec<ExtraFile>,
}

/// A file in the directory of a database that the database does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtraFile {
    /// Path in the directory of the database.
    pub path: String,
    /// Length in bytes; 0 if the file cannot be opened.
    pub bytes: u64,
    /// What it is, and what to do with it.
    pub what: String,
}

/// How to open a file to look at it.
const TO_LOOK: OpenMode = OpenMode { create: false, read_only: true, direct: true };
/// How to open a file to ask for its length.
const TO_ASK: OpenMode = OpenMode { direct: false, ..TO_LOOK };

/// The files as they were found.
pub(super) struct FoundFiles {
    pub(super) report: FilesReport,
    /// Each file that cannot be read, with the reason.
    pub(super) problems: Vec<String>,
    /// The system refused access to a file.
    pub(super) denied: bool,
}

impl FoundFiles {
    /// Looks at the files. A copy of the manifest that is being replaced looks damaged. A segment
    /// that cannot be read is a problem; all others are still looked at. `at_rest` says that no
    /// process has the database open for writing.
    ///
    /// # Errors
    /// The manifest cannot be opened.
    pub(super) fn look(storage: &dyn Storage, manifest: &Manifest, at_rest: bool) -> Result<FoundFiles> {
        let report = FilesReport {
            manifest: manifest_copies(storage)?,
            closed: manifest.clean,
            ..FilesReport::default()
        };
        let mut found = FoundFiles { report, problems: Vec::new(), denied: false };
        let database = at_rest.then_some(manifest.database);
        match storage.directory() {
            Some(directory) => {
                match directory.list(DIRECTORY) {
                    Ok(names) => names.iter().for_each(|name| found.add_log_file(directory, name, database)),
                    Err(error) => found.add_problem(&error),
                }
                found.add_extra_files(directory, manifest);
            }
            // `Place::objects` lists the other objects of a store.
            None => match storage.segments().list() {
                Ok(ids) => ids.into_iter().for_each(|id| found.add_segment(storage, id, database)),
                Err(error) => found.add_problem(&error),
            },
        }
        Ok(found)
    }

    /// Looks for files in the directory and in that of the pages that are not of this database.
    fn add_extra_files(&mut self, directory: &dyn Directory, manifest: &Manifest) {
        let memory = manifest.log_memory.as_ref().and_then(|memory| Path::new(&memory.path).file_name());
        let is_own = |name: &str| {
            OWN_FILES.contains(&name) || name == BACKUP_PATH || memory.is_some_and(|memory| memory == name)
        };
        // An unreadable directory is an error of the open.
        for name in directory.list("").unwrap_or_default().iter().filter(|name| !is_own(name)) {
            let what = match name == DIRECT_PROBE {
                true => "an interrupted open left it: remove it",
                false => "no file of this database: move it away",
            };
            self.report.add_extra_file(directory, name.clone(), what);
        }
        for name in directory.list("pages").unwrap_or_default().iter().filter(|name| *name != "data") {
            self.report.add_extra_file(
                directory,
                format!("pages/{name}"),
                "no file of this database: move it away",
            );
        }
    }

    /// Adds a file in the directory of segments.
    fn add_log_file(&mut self, directory: &dyn Directory, name: &str, database: Option<DatabaseId>) {
        match segment_id(name) {
            Ok(Some(id)) => self.add_segment(directory, id, database),
            Ok(None) => self.add_foreign(directory, format!("{DIRECTORY}/{name}")),
            Err(error) => self.add_problem(&error),
        }
    }

    fn add_foreign(&mut self, directory: &dyn Directory, path: String) {
        self.report.add_extra_file(directory, path, "no log segment: move it away");
    }

    /// Adds a segment. With `database`, a segment of another database is an extra file, as is a
    /// file of another program with the name of one.
    fn add_segment(&mut self, storage: &dyn Storage, id: SegmentId, database: Option<DatabaseId>) {
        let look = || -> Result<_> {
            let file = storage.segments().open(id, TO_LOOK)?;
            let of = database_of(&*file);
            let is_foreign = of.is_none() && is_foreign(storage, id)?;
            let other = database.is_some_and(|id| of.is_some_and(|of| of != id));
            Ok((!is_foreign).then_some((file.len()?, other)))
        };
        match look() {
            Ok(None) => storage.directory().into_iter().for_each(|at| self.add_foreign(at, path_of(id))),
            Ok(Some((bytes, true))) => {
                let what =
                    "a log segment of another database: move it away, because an open for writing refuses it";
                self.report.extra_files.push(ExtraFile { path: path_of(id), bytes, what: what.into() });
            }
            Ok(Some((bytes, false))) => {
                self.report.log_segments += 1;
                self.report.log_bytes += bytes;
            }
            // It was removed since the directory was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.add_problem(&error),
        }
    }

    fn add_problem(&mut self, error: &Error) {
        self.denied |= error.is_denied();
        self.problems.push(unreadable_log(error));
    }
}

impl FilesReport {
    /// Adds log segments that would never be removed while the database is open.
    pub(super) fn add_leaked(&mut self, storage: &dyn Storage, leaked: &[SegmentId]) {
        for id in leaked {
            let (path, what) = (path_of(*id), "an obsolete log segment: the next open removes it");
            let bytes = storage.segments().open(*id, TO_ASK).and_then(|file| file.len()).unwrap_or(0);
            self.extra_files.push(ExtraFile { path, bytes, what: what.into() });
        }
    }

    fn add_extra_file(&mut self, directory: &dyn Directory, path: String, what: &str) {
        let bytes = directory.open(&path, TO_ASK).and_then(|file| file.len()).unwrap_or(0);
        self.extra_files.push(ExtraFile { path, bytes, what: what.into() });
    }

    /// Returns what is weak: the content is complete, but further damage could destroy it.
    pub(super) fn weaknesses(&self) -> Vec<String> {
        self.manifest.iter().filter_map(ManifestCopy::describe_problem).collect()
    }
}

/// The result of a check, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum VerifyClass {
    /// Nothing is wrong.
    Sound,
    /// The content is complete, but a spare copy of something is damaged or missing. An open for
    /// writing repairs it.
    Degraded,
    /// Something is damaged.
    Damaged,
}

impl VerifyClass {
    /// Returns the class as a word: `sound`, `degraded`, `damaged`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VerifyClass::Sound => "sound",
            VerifyClass::Degraded => "degraded",
            VerifyClass::Damaged => "damaged",
        }
    }
}
