//! The parts of a database in a directory: which file is which?
//!
//! | file | part |
//! |---|---|
//! | `MANIFEST` | the manifest |
//! | `log/00000001.seg` … | the segments |
//! | `pages/data` | the pages |
//! | another one without a directory | a small file |

use super::segment_names::{LOG_DIRECTORY, id_of, path_of};
use super::storage::{Directory, File, ManifestStore, Names, OpenMode, Roles, Segments};
use crate::base::{Result, SegmentId};
use std::sync::Arc;

/// The file of the manifest.
pub const MANIFEST_PATH: &str = "MANIFEST";
/// The directory of the pages.
pub const PAGES_DIRECTORY: &str = "pages";
/// The file of the pages.
pub const PAGES_PATH: &str = "pages/data";

impl<D: Directory> Roles for D {
    fn manifest(&self, mode: OpenMode) -> Result<ManifestStore> {
        Directory::open(self, MANIFEST_PATH, mode).map(ManifestStore::File)
    }

    fn segments(&self) -> &dyn Segments {
        self
    }

    fn pages(&self, mode: OpenMode) -> Result<Arc<dyn File>> {
        if mode.create {
            self.create_directory(PAGES_DIRECTORY)?;
        }
        Directory::open(self, PAGES_PATH, mode)
    }

    fn small_file(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        Directory::open(self, name, mode)
    }

    fn remove_small_file(&self, name: &str) -> Result<()> {
        Directory::remove(self, name)
    }

    fn names(&self) -> Result<Vec<String>> {
        Directory::list(self, "")
    }

    fn flush_names(&self, of: Names) -> Result<()> {
        self.flush_directory(match of {
            Names::Root => "",
            Names::Segments => LOG_DIRECTORY,
            Names::Pages => PAGES_DIRECTORY,
        })
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }
}

impl<D: Directory> Segments for D {
    fn prepare(&self) -> Result<()> {
        self.create_directory(LOG_DIRECTORY)
    }

    fn list(&self) -> Result<Vec<SegmentId>> {
        let names = Directory::list(self, LOG_DIRECTORY)?;
        names.iter().filter_map(|name| id_of(name).transpose()).collect()
    }

    fn open(&self, id: SegmentId, mode: OpenMode) -> Result<Arc<dyn File>> {
        Directory::open(self, &path_of(id), mode)
    }

    fn create(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        self.create_new(&path_of(id))
    }

    fn remove(&self, id: SegmentId) -> Result<()> {
        Directory::remove(self, &path_of(id))
    }
}
