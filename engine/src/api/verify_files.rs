//! What verify says about files: the copies of the manifest, and the log.

use crate::base::Result;
use crate::device::{OpenMode, Storage};
use crate::log::{DIRECTORY, segment_id};
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

impl FilesReport {
    /// Looks at the files. A copy of the manifest that is being replaced looks damaged.
    ///
    /// # Errors
    /// I/O.
    pub(super) fn of(storage: &dyn Storage, manifest: &Manifest) -> Result<FilesReport> {
        let mut report = FilesReport {
            manifest: manifest_copies(storage)?,
            closed: manifest.clean,
            ..FilesReport::default()
        };
        for name in storage.list(DIRECTORY)? {
            if segment_id(&name)?.is_some() {
                let mode = OpenMode { create: false, read_only: true, direct: true };
                report.log_segments += 1;
                // A segment may be removed meanwhile.
                let file = storage.open(&format!("{DIRECTORY}/{name}"), mode);
                report.log_bytes += file.and_then(|file| file.len()).unwrap_or(0);
            }
        }
        Ok(report)
    }

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
