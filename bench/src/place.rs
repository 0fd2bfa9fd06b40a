//! Where a run's database is: in a directory, in a store of objects, or on a modelled device around
//! a directory or memory.
//! Its log can be on a modelled device of its own.

use crate::modelled::{Device, Figures, ModelledStorage, SplitStorage};
use crate::objects;
use anyhow::{Result, bail};
use quenchdb::internals::device::file::FileStorage;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::{Directory, LOG_DIRECTORY, OpenMode, Storage};
use quenchdb::{Builder, Database, DeviceTrust};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module. Cloning shares the device.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory; `None`: everything is in memory, or in a store of objects.
    directory: Option<PathBuf>,
    /// The URL of a database in a store of objects.
    url: Option<String>,
    trust: DeviceTrust,
    modelled: Option<Arc<dyn Storage>>,
    /// The storage of the log, if the log is on a device of its own.
    log: Option<Arc<ModelledStorage>>,
}

impl Place {
    /// Returns a directory on its own device.
    #[must_use]
    pub fn directory(directory: &Path, trust: DeviceTrust) -> Place {
        Place { directory: Some(directory.to_path_buf()), url: None, trust, modelled: None, log: None }
    }

    /// Returns a database in a store of objects.
    #[must_use]
    pub fn objects(url: &str) -> Place {
        Place { directory: None, url: Some(url.into()), trust: DeviceTrust::Auto, modelled: None, log: None }
    }

    /// Returns a modelled device around `directory`, or around memory that lives as long as a clone
    /// of the place.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn modelled(
        figures: &'static Figures,
        directory: Option<&Path>,
        trust: DeviceTrust,
        seed: u64,
    ) -> Result<Place> {
        let inner = inner_storage(directory, trust)?;
        let storage = ModelledStorage::new(inner, Device::new(figures, seed), trust);
        let directory = directory.map(Path::to_path_buf);
        Ok(Place { directory, url: None, trust, modelled: Some(Arc::new(storage)), log: None })
    }

    /// Puts the log on a modelled device of its own, around the same directory or other memory.
    ///
    /// # Errors
    /// The directory cannot be opened; the database is in a store of objects.
    pub fn with_log_device(self, figures: &'static Figures, seed: u64) -> Result<Place> {
        if let Some(url) = &self.url {
            bail!("the log of {url} cannot be on a device of its own");
        }
        let inner = inner_storage(self.directory.as_deref(), self.trust)?;
        let log = Arc::new(ModelledStorage::new(inner, Device::new(figures, seed), self.trust));
        let split: Arc<dyn Storage> = Arc::new(SplitStorage::new(self.storage()?, log.clone()));
        Ok(Place { modelled: Some(split), log: Some(log), ..self })
    }

    /// Returns the directory, if the place has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Returns the URL, if the database is in a store of objects.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Returns whether the database ends with this process.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.directory.is_none() && self.url.is_none()
    }

    /// Returns the directory or the URL, as a database is opened.
    #[must_use]
    pub fn location(&self) -> Option<&Path> {
        self.url.as_deref().map(Path::new).or(self.path())
    }

    /// Returns the storage for measurements on the same device.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn storage(&self) -> Result<Arc<dyn Storage>> {
        match (&self.modelled, &self.url) {
            (Some(storage), _) => Ok(storage.clone()),
            (None, Some(url)) => objects::storage(url),
            (None, None) => Ok(inner_storage(self.directory.as_deref(), self.trust)?),
        }
    }

    /// Returns the storage for measurements on the device of the log.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn log_storage(&self) -> Result<Arc<dyn Storage>> {
        match &self.log {
            Some(log) => Ok(log.clone()),
            None => self.storage(),
        }
    }

    /// Opens the database.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(&self, builder: Builder) -> quenchdb::Result<Database> {
        let builder = match &self.modelled {
            Some(storage) => builder.storage(storage.clone()),
            None => builder,
        };
        builder.open(self.location().unwrap_or(Path::new("memory")))
    }

    /// Returns the name of the device in reports.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn device_name(&self) -> Result<String> {
        Ok(self.storage()?.facts().name)
    }

    /// Returns the bytes of the files in `directory` of the database, `log` or `pages`: their
    /// blocks on the file system, or their length in memory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn bytes_in(&self, directory: &str) -> Result<u64> {
        if let Some(path) = &self.directory {
            return bytes_on_disk(&path.join(directory));
        }
        let (storage, mut bytes) = (self.storage()?, 0);
        let mode = OpenMode { create: false, read_only: true, direct: false };
        match directory {
            LOG_DIRECTORY => {
                for id in storage.segments().list()? {
                    bytes += storage.segments().open(id, mode)?.len()?;
                }
            }
            _ => bytes += storage.pages(mode)?.len()?,
        }
        Ok(bytes)
    }
}

/// Returns the storage of a directory on its own device, or of new memory.
fn inner_storage(directory: Option<&Path>, trust: DeviceTrust) -> Result<Arc<dyn Directory>> {
    Ok(match directory {
        Some(directory) => Arc::new(FileStorage::open(directory, trust, true, true)?),
        None => Arc::new(MemoryStorage::new()),
    })
}

fn bytes_on_disk(directory: &Path) -> Result<u64> {
    use anyhow::Context;
    use std::os::unix::fs::MetadataExt;
    let describe = || format!("cannot read {}", directory.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).with_context(describe)? {
        bytes += entry?.metadata().with_context(describe)?.blocks() * 512;
    }
    Ok(bytes)
}
