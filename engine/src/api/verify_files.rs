//! What verify says about files: the copies of the manifest, and the log.

use crate::base::{Error, ErrorKind, Result};
use crate::device::{OpenMode, Storage};
use crate::log::{DIRECTORY, segment_id};
use crate::recovery::unreadable_log;
use crate::store::{Manifest, ManifestCopy, manifest_copies};

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
}

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
    /// that cannot be read is a problem; all others are still looked at.
    ///
    /// # Errors
    /// The manifest cannot be opened.
    pub(super) fn look(storage: &dyn Storage, manifest: &Manifest) -> Result<FoundFiles> {
        let report = FilesReport {
            manifest: manifest_copies(storage)?,
            closed: manifest.clean,
            ..FilesReport::default()
        };
        let mut found = FoundFiles { report, problems: Vec::new(), denied: false };
        match storage.list(DIRECTORY) {
            Ok(names) => names.iter().for_each(|name| found.add_segment(storage, name)),
            Err(error) => found.add_problem(&error),
        }
        Ok(found)
    }

    fn add_segment(&mut self, storage: &dyn Storage, name: &str) {
        let mode = OpenMode { create: false, read_only: true, direct: true };
        let len = || storage.open(&format!("{DIRECTORY}/{name}"), mode)?.len();
        match segment_id(name).and_then(|id| id.map(|_| len()).transpose()) {
            Ok(len) => {
                self.report.log_segments += u64::from(len.is_some());
                self.report.log_bytes += len.unwrap_or(0);
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
    /// Returns what is weak: the content is complete, but further damage could destroy it.
    pub(super) fn weaknesses(&self) -> Vec<String> {
        self.manifest.iter().filter_map(ManifestCopy::describe_problem).collect()
    }
}

/// The result of a check, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
