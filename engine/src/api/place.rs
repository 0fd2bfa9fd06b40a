//! Where a database or a backup is.

use crate::base::settings::Settings;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::file::FileStorage;
use crate::device::{BucketStatistics, LOCK_PATH, ObjectList, Pin, Storage};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Where a backup or a database is: a directory, a store of objects, or another storage.
///
/// A path that is a URL (`s3://bucket/prefix`) becomes [`Place::Url`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A store of objects, with the feature `object-storage`.
    Url(String),
    /// A storage of the tools and tests of this repository.
    Storage(OtherStorage),
}

/// A storage that only the engine's own tools and tests can make.
#[derive(Clone, Debug)]
pub struct OtherStorage(pub(super) Arc<dyn Storage>);

impl<P: AsRef<Path> + ?Sized> From<&P> for Place {
    fn from(path: &P) -> Place {
        let path = path.as_ref();
        match path.to_str().filter(|text| is_url(text)) {
            Some(url) => Place::Url(url.into()),
            None => Place::Directory(path.to_path_buf()),
        }
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place::from(&path)
    }
}

impl Place {
    /// Returns the place of another storage: for the engine's own tools and tests.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn storage(storage: Arc<dyn Storage>) -> Place {
        Place::Storage(OtherStorage(storage))
    }

    /// Locks out writers until the result is dropped. Opening a database in a directory creates the
    /// lock file. Without this file the database is not open (it is a copy, for instance), and the
    /// file is not created, because the place is only read.
    ///
    /// # Errors
    /// `Busy` if a writer has it open; I/O.
    pub(super) fn lock_for_reading(&self, storage: &dyn Storage) -> Result<Option<Box<dyn Send + Sync>>> {
        match self {
            Place::Directory(path) if matches!(path.join(LOCK_PATH).try_exists(), Ok(false)) => Ok(None),
            _ => storage.lock(false).map(Some),
        }
    }

    /// Returns the real directory, also of a store of objects that is one.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        match self {
            Place::Directory(path) => Some(path.clone()),
            Place::Url(url) if is_list(url) => None,
            Place::Url(url) => url.strip_prefix("file://").map(PathBuf::from),
            Place::Storage(storage) => storage.0.directory()?.path().map(Path::to_path_buf),
        }
    }

    /// Refuses a target that lies in one of the directories that will be read, or around one, under
    /// whatever path. Each directory has a name for the error.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn refuse_nested<'a>(
        &self,
        sources: impl IntoIterator<Item = Option<(&'a str, Option<PathBuf>)>>,
    ) -> Result<()> {
        let Some(target) = self.directory().map(|path| Ancestors::of(&path)) else { return Ok(()) };
        for (name, path) in sources.into_iter().flatten() {
            let Some(source) = path.map(|path| Ancestors::of(&path)) else { continue };
            let what = match (target.are_within(&source), source.are_within(&target)) {
                (true, true) => format!("the target is the directory of {name}"),
                (true, false) => format!("the target lies in the directory of {name}"),
                (false, true) => format!("the directory of {name} lies in the target"),
                (false, false) => continue,
            };
            return Err(Error::invalid(what).with_advice("choose an empty directory elsewhere"));
        }
        Ok(())
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Place::Directory(path) => Some(path.clone()),
            Place::Url(url) => Some(url.into()),
            Place::Storage(_) => None,
        }
    }

    /// Returns the pins of readers of checkpoints
    /// ([`Builder::open_checkpoint`](super::Builder::open_checkpoint)) in a store of objects. Each
    /// keeps its checkpoint. Readers of a database in a directory have none: they lock files.
    ///
    /// # Errors
    /// I/O.
    pub fn pins(&self) -> Result<Vec<Pin>> {
        let storage = self.open_source(&Settings::default())?;
        storage.pins().map_or(Ok(Vec::new()), |pins| pins.list_pins())
    }

    /// Removes a pin, whose reader has died, so that the writer can delete what it kept. A reader
    /// that is still alive fails with `Poisoned` as soon as it misses something, and never reads
    /// anything wrong.
    ///
    /// # Errors
    /// `NotFound` if there is no pin of this name; `InvalidArgument` for another name; I/O.
    pub fn remove_pin(&self, name: &str) -> Result<()> {
        let storage = self.open_source(&Settings::default())?;
        match storage.pins() {
            Some(pins) => pins.remove_pin(name),
            None => Err(Error::new(ErrorKind::NotFound, "readers of a directory have no pins")),
        }
    }

    /// Returns all objects of a database in a store of objects, and why each of them is there. Only
    /// reads, the log included, and ends no writer. A store that does not answer is given up after
    /// ten seconds.
    ///
    /// # Errors
    /// `InvalidArgument` if this is no URL; `NotFound` if there is no database; `Corruption` if its
    /// manifest is damaged; I/O.
    pub fn objects(&self) -> Result<ObjectList> {
        match self {
            Place::Url(url) => list_objects(url),
            Place::Directory(_) | Place::Storage(_) => {
                Err(Error::invalid("only a database at a URL (s3://, file://) consists of objects"))
            }
        }
    }

    /// Removes the fences of ended writers from a database in a store without appends, and returns
    /// how many they were. Each is an object of 48 bytes ([`ObjectState::Fence`]) that keeps a
    /// writer which never closed the database, and may still be alive, from reporting a commit that
    /// is lost. So all processes that have had the database open for writing, except the newest,
    /// must have ended. A database keeps a bounded number of fences by itself.
    ///
    /// [`ObjectState::Fence`]: crate::ObjectState::Fence
    ///
    /// # Errors
    /// As [`Place::objects`].
    pub fn remove_fences(&self) -> Result<u64> {
        match self {
            Place::Url(url) => remove_fences(url),
            Place::Directory(_) | Place::Storage(_) => {
                Err(Error::invalid("only a database at a URL (s3://, file://) has fences"))
            }
        }
    }

    /// Looks at the buckets of a database in several, and returns what each of them is. Only reads,
    /// and ends no writer. A bucket that does not answer within ten seconds has a problem.
    ///
    /// # Errors
    /// `InvalidArgument` if this is no list of URLs, or not the list of the database's buckets;
    /// `NotFound` if there is no database; I/O if too few of them answer.
    pub fn buckets(&self) -> Result<Vec<BucketStatistics>> {
        match self {
            Place::Url(url) if is_list(url) => buckets(url),
            _ => Err(Error::invalid("this is not a list of the URLs of several buckets")
                .with_advice("name all buckets of the database, with commas between them")),
        }
    }

    /// Opens the storage to write to it; a bucket of it is to be replaced.
    pub(super) fn open_replacing(
        &self,
        replace: &(String, String),
        settings: &Settings,
    ) -> Result<Arc<dyn Storage>> {
        match self {
            Place::Url(url) if is_list(url) => open_url_replacing(url, replace, settings),
            _ => Err(Error::invalid("only one of several buckets can be replaced")
                .with_advice("name all buckets of the database, with commas between them")),
        }
    }

    /// Opens the storage to read what is there, with the device settings of `settings`.
    pub(super) fn open_source(&self, settings: &Settings) -> Result<Arc<dyn Storage>> {
        self.open(false, true, settings)
    }

    /// Opens the storage to write to it, with the device settings of `settings`. Creates a missing
    /// directory.
    pub(super) fn open_target(&self, settings: &Settings) -> Result<Arc<dyn Storage>> {
        self.open(true, false, settings)
    }

    /// Opens the storage, with the cache of pages that `settings` names.
    pub(super) fn open_cached(
        &self,
        create: bool,
        read_only: bool,
        settings: &Settings,
    ) -> Result<Arc<dyn Storage>> {
        match (&settings.object_cache, self) {
            (None, _) => self.open(create, read_only, settings),
            (Some(cache), Place::Url(url)) => open_url_cached(url, read_only, settings, cache),
            (Some(_), _) => {
                let what = "a cache of pages is for a database that a URL names";
                Err(Error::invalid(what)
                    .with_advice("do not set object_cache")
                    .at(Location::Setting("object_cache")))
            }
        }
    }

    /// Opens the storage.
    pub(super) fn open(
        &self,
        create: bool,
        read_only: bool,
        settings: &Settings,
    ) -> Result<Arc<dyn Storage>> {
        match self {
            Place::Storage(storage) => Ok(storage.0.clone()),
            Place::Url(url) => open_url(url, read_only, settings),
            Place::Directory(path) => {
                let Settings { device_trust, io_uring, .. } = *settings;
                Ok(Arc::new(FileStorage::open(path, device_trust, io_uring, create)?))
            }
        }
    }
}

/// A directory and all above it, without links. The identity (device and inode) finds a directory
/// under another path, too; a missing one has none.
struct Ancestors {
    path: PathBuf,
    identities: Vec<(u64, u64)>,
    /// Of the directory itself.
    own: Option<(u64, u64)>,
}

impl Ancestors {
    fn of(path: &Path) -> Ancestors {
        let mut real = PathBuf::new();
        for part in std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).components() {
            match part {
                Component::ParentDir => drop(real.pop()),
                part => real.push(part),
            }
            real = real.canonicalize().unwrap_or(real);
        }
        let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        let identities = real.ancestors().filter_map(identity).collect();
        Ancestors { own: identity(&real), path: real, identities }
    }

    /// Returns whether this directory is `other` or lies below it.
    fn are_within(&self, other: &Ancestors) -> bool {
        self.path.starts_with(&other.path) || other.own.is_some_and(|own| self.identities.contains(&own))
    }
}

/// Returns whether a URL is a list of several.
#[cfg(feature = "object-storage")]
fn is_list(url: &str) -> bool {
    crate::device::objects::ObjectUrl::split(url).len() > 1
}

#[cfg(not(feature = "object-storage"))]
fn is_list(_url: &str) -> bool {
    false
}

#[cfg(feature = "object-storage")]
fn is_url(text: &str) -> bool {
    crate::device::objects::ObjectUrl::is_url(text)
}

#[cfg(feature = "object-storage")]
fn options(settings: &Settings) -> crate::device::objects::Options {
    use crate::base::settings::Acknowledge;
    let all_buckets = settings.acknowledge == Acknowledge::All;
    crate::device::objects::Options { all_buckets, ..Default::default() }
}

#[cfg(feature = "object-storage")]
fn open_url(url: &str, read_only: bool, settings: &Settings) -> Result<Arc<dyn Storage>> {
    use crate::device::objects::open_url;
    Ok(Arc::new(open_url(url, read_only, options(settings))?))
}

#[cfg(feature = "object-storage")]
fn list_objects(url: &str) -> Result<ObjectList> {
    super::objects::list(url)
}

#[cfg(feature = "object-storage")]
fn remove_fences(url: &str) -> Result<u64> {
    super::objects::remove_fences(url)
}

#[cfg(feature = "object-storage")]
fn buckets(url: &str) -> Result<Vec<BucketStatistics>> {
    super::objects::buckets(url)
}

#[cfg(feature = "object-storage")]
fn open_url_replacing(
    url: &str,
    (old, new): &(String, String),
    settings: &Settings,
) -> Result<Arc<dyn Storage>> {
    use crate::device::objects::{PageCache, open_url_replacing};
    let storage = open_url_replacing(url, (old, new), options(settings))?;
    Ok(match &settings.object_cache {
        Some(cache) => Arc::new(storage.with_cache(PageCache::open(cache, settings.object_cache_bytes)?)),
        None => Arc::new(storage),
    })
}

#[cfg(feature = "object-storage")]
fn open_url_cached(
    url: &str,
    read_only: bool,
    settings: &Settings,
    cache: &Path,
) -> Result<Arc<dyn Storage>> {
    use crate::device::objects::{PageCache, open_url};
    let cache = PageCache::open(cache, settings.object_cache_bytes)?;
    Ok(Arc::new(open_url(url, read_only, options(settings))?.with_cache(cache)))
}

#[cfg(not(feature = "object-storage"))]
fn open_url_cached(
    url: &str,
    read_only: bool,
    settings: &Settings,
    _cache: &Path,
) -> Result<Arc<dyn Storage>> {
    open_url(url, read_only, settings)
}

#[cfg(not(feature = "object-storage"))]
fn is_url(text: &str) -> bool {
    text.contains("://")
}

#[cfg(not(feature = "object-storage"))]
fn open_url(_url: &str, _read_only: bool, _settings: &Settings) -> Result<Arc<dyn Storage>> {
    Err(no_urls())
}

#[cfg(not(feature = "object-storage"))]
fn list_objects(_url: &str) -> Result<ObjectList> {
    Err(no_urls())
}

#[cfg(not(feature = "object-storage"))]
fn buckets(_url: &str) -> Result<Vec<BucketStatistics>> {
    Err(no_urls())
}

#[cfg(not(feature = "object-storage"))]
fn open_url_replacing(
    _url: &str,
    _replace: &(String, String),
    _settings: &Settings,
) -> Result<Arc<dyn Storage>> {
    Err(no_urls())
}

#[cfg(not(feature = "object-storage"))]
fn remove_fences(_url: &str) -> Result<u64> {
    Err(no_urls())
}

#[cfg(not(feature = "object-storage"))]
fn no_urls() -> Error {
    let what = "this build opens directories only";
    Error::new(ErrorKind::Unsupported, what).with_advice("for a URL, build with the feature `object-storage`")
}
