//! The copies of the manifest, as they are on the device: for a check of the files.

use super::file::{open_store, read_manifest, slot_offset};
use super::format::Manifest;
use crate::base::Result;
use crate::device::{MANIFEST_PATH, ManifestStore, Storage};

/// A copy of the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ManifestCopy {
    /// Its offset in the file `MANIFEST`, in bytes.
    pub offset: u64,
    /// Which publication it is of; 0 if it is not valid.
    pub generation: u64,
    /// Why it does not count: what is wrong with its bytes, or that it is older than the other.
    /// `None` if it is valid and the newest.
    pub problem: Option<String>,
}

/// Returns both copies, or the only one of a register. No process may be
/// publishing meanwhile.
///
/// # Errors
/// `NotFound`; I/O while opening the file.
pub fn manifest_copies(storage: &dyn Storage) -> Result<Vec<ManifestCopy>> {
    let read: Vec<(u64, Result<Manifest>)> = match open_store(storage, false, true)? {
        ManifestStore::Register(register) => {
            vec![(0, register.read().and_then(|bytes| Manifest::decode(&bytes)))]
        }
        ManifestStore::File(file) => {
            let decode = |slot| read_manifest(&*file, slot).and_then(|bytes| Manifest::decode(&bytes));
            [0, 1].map(|slot| (slot_offset(slot), decode(slot))).into()
        }
    };
    let copy = |(offset, read): (u64, Result<Manifest>)| {
        let (generation, problem) = match read {
            Ok(manifest) => (manifest.generation, None),
            Err(error) => (0, Some(error.to_string())),
        };
        ManifestCopy { offset, generation, problem }
    };
    let mut copies: Vec<ManifestCopy> = read.into_iter().map(copy).collect();
    let newest = copies.iter().map(|copy| copy.generation).max().unwrap_or(0);
    for copy in copies.iter_mut().filter(|copy| copy.problem.is_none() && copy.generation < newest) {
        let what = format!("it is older: generation {}, the newest is {newest}", copy.generation);
        copy.problem = Some(what);
    }
    Ok(copies)
}

impl ManifestCopy {
    /// Returns the copy and what is wrong with it in one line; `None` if it is intact.
    #[must_use]
    pub fn describe_problem(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        Some(format!("the copy of {MANIFEST_PATH} at byte {} does not count: {problem}", self.offset))
    }
}
