//! Opening the memory-mapped log: the memory that the database needs, and the memory that this run
//! is going to use.
//!
//! ```text
//!   1  does the manifest name a memory?  find it by id, make it durable, take its blocks;
//!                                          refuse to open if it is missing
//!   2  does this run use one?            map it; divide a new one; name it in the manifest that
//!                                          recovery publishes
//!   3  recovery                            moves blocks that only the memory has to a segment,
//!                                          publishes the manifest
//!   4  use                                 divide an old memory again if its division has to
//!                                          change; then commits begin to use it
//! ```
//!
//! The memory of step 1 and that of step 2 are usually the same one. Its old content is not needed
//! any more when step 4 begins, and it keeps its id. So if opening is interrupted at any point, the
//! manifest names a memory with everything that is needed.
//!
//! A memory of this database that step 1 did not need gets a new id in step 2. An open in between
//! has moved its content to segments or discarded it, so the content must not be found again.

use crate::base::random::Random;
use crate::base::settings::{Axes, Settings, Writer};
use crate::base::{DatabaseId, Error, ErrorKind, Location, Result};
use crate::device::Storage;
use crate::device::mapped::{MapOptions, MappedMemory, MemoryFacts, absolute};
use crate::log::memory::{
    BUFFERS_EACH, LogMemory, MemoryId, MemoryState, buffer_bytes_that_fit, find, needed_bytes,
};
use crate::log::{Segment, next_id};
use crate::store::{Manifest, NeededMemory};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Length of a new memory, if that is enough for all buffers.
const NEW_BYTES: u64 = 16 << 20;
/// Log buffers never take more than this part of all memory.
const LOG_MEMORY_PART: u64 = 8;

/// The mapped memory that the database needed when it was opened.
#[derive(Default)]
pub(super) struct OldMemory {
    /// Blocks of that memory, as a segment that no file has.
    pub(super) found: Option<Segment>,
    /// The facts of that memory, if the database is opened read-only.
    pub(super) facts: Option<MemoryFacts>,
}

/// What opening has found and prepared.
#[derive(Default)]
pub(super) struct Memories {
    pub(super) old: OldMemory,
    /// The memory that this run is going to use.
    used: Option<Used>,
}

struct Used {
    mapped: Arc<dyn MappedMemory>,
    database: DatabaseId,
    id: MemoryId,
    logs: usize,
    buffer_bytes: u64,
    budget: u64,
}

fn setting(what: impl Into<String>) -> Error {
    Error::invalid(what.into()).at(Location::Setting("log_memory"))
}

fn options(settings: &Settings, create: bool) -> MapOptions {
    MapOptions {
        create,
        read_only: settings.read_only,
        bytes: 0,
        new_bytes: NEW_BYTES,
        cache: settings.lab.memory_cache,
        store: settings.lab.memory_store,
        latency: settings.lab.insertion_latency,
    }
}

/// Executes steps 1 and 2. `buffer_bytes` is the requested length of a log buffer, 0 for none;
/// writes the chosen length to `settings`.
///
/// # Errors
/// `NotFound` if the memory that the database needs is not there; `InvalidArgument` for settings
/// that contradict each other or what is there; those of mapping.
pub(super) fn open(
    storage: &dyn Storage,
    settings: &mut Settings,
    manifest: &mut Manifest,
    logs: usize,
    buffer_bytes: u64,
) -> Result<Memories> {
    let is_in_memory = Axes::of(settings).writer.kind() == Writer::Memory;
    // A read-only open commits nothing, whatever the settings say of commits.
    let uses = is_in_memory && !settings.read_only;
    let needed = manifest.log_memory.take();
    if needed.is_none() && !is_in_memory && settings.log_memory.is_some() {
        let preset = settings.preset;
        return Err(setting(format!(
            "preset {preset} has no log in mapped memory, and the database needs none"
        ))
        .with_advice("do not set log_memory"));
    }
    let mut memories = Memories::default();
    let mut old = None;
    if let Some(needed) = needed {
        let found = find_needed(storage, settings, manifest.database, &needed, "salvage the database")?;
        found.make_durable();
        memories.old.found = find(&found, manifest.epoch, manifest.covered, next_id(storage.segments())?)?;
        if settings.read_only {
            manifest.log_memory = Some(needed);
            memories.old.facts = Some(found.mapped().facts());
        }
        old = Some(found);
    }
    if let Some(path) = settings.log_memory.clone().filter(|_| uses) {
        let old = old.filter(|old| old.mapped().facts().path == placed(storage, &path));
        let used = prepare(storage, settings, manifest.database, &path, old, logs, buffer_bytes)?;
        settings.lab.log_buffer_bytes = used.buffer_bytes as usize;
        let path = placed(storage, &path).into_os_string().into_string();
        let path = path.map_err(|_| {
            setting("the path is not UTF-8 and cannot be stored in the manifest")
                .with_advice("choose another path")
        })?;
        manifest.log_memory = Some(NeededMemory { id: used.id.0, path });
        memories.used = Some(used);
    }
    Ok(memories)
}

/// Returns the path as mapping names it.
fn placed(storage: &dyn Storage, path: &Path) -> PathBuf {
    match storage.own_memory() {
        Some(own) if own == path => own,
        _ => absolute(path),
    }
}

/// Opens, to be read, the memory that a log needs which is going to be replayed over a backup.
///
/// # Errors
/// As [`open`].
pub(super) fn find_of_original(
    storage: &dyn Storage,
    settings: &Settings,
    database: DatabaseId,
    needed: &NeededMemory,
) -> Result<LogMemory> {
    let settings = Settings { read_only: true, ..settings.clone() };
    let otherwise = "restore up to a CSN that the files reach (`to`, --to)";
    find_needed(storage, &settings, database, needed, otherwise)
}

/// Opens the memory that the manifest names, at the place in the settings or in the manifest.
fn find_needed(
    storage: &dyn Storage,
    settings: &Settings,
    database: DatabaseId,
    needed: &NeededMemory,
    otherwise: &str,
) -> Result<LogMemory> {
    let mut places: Vec<PathBuf> = settings.log_memory.iter().map(|path| placed(storage, path)).collect();
    let before = PathBuf::from(&needed.path);
    if !places.contains(&before) {
        places.push(before);
    }
    for place in &places {
        let mapped = match storage.map_memory(place, options(settings, false)) {
            Ok(mapped) => mapped,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match LogMemory::look(mapped) {
            Ok(MemoryState::Formatted(of, memory)) if of == database && memory.id().0 == needed.id => {
                return Ok(memory);
            }
            Err(error) if places.len() == 1 => return Err(error),
            _ => {}
        }
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let what = format!(
        "the database was not closed, and its newest commits are in a memory-mapped log that is not at {}",
        looked.join(" or ")
    );
    let advice = format!("say where it is with log_memory; if it is gone, {otherwise}");
    Err(Error::new(ErrorKind::NotFound, what)
        .with_advice(advice)
        .at(Location::File { path: needed.path.clone(), offset: 0 }))
}

/// Executes step 2.
fn prepare(
    storage: &dyn Storage,
    settings: &Settings,
    database: DatabaseId,
    path: &Path,
    old: Option<LogMemory>,
    logs: usize,
    said: u64,
) -> Result<Used> {
    let wanted = settings.log_buffer_bytes() as u64;
    let budget = settings.memory_bytes / LOG_MEMORY_PART;
    let is_new = old.is_none();
    let (mapped, id) = match old {
        Some(old) => (old.mapped().clone(), old.id()),
        None => {
            let new_bytes = NEW_BYTES.max(needed_bytes(logs, wanted).next_multiple_of(1 << 20));
            let options =
                MapOptions { bytes: settings.lab.log_memory_bytes, new_bytes, ..options(settings, true) };
            let mapped = storage.map_memory(path, options)?;
            if let MemoryState::Formatted(of, _) = LogMemory::look(mapped.clone())?
                && of != database
            {
                let what = format!("the memory-mapped log belongs to database {of}, this is {database}");
                let path = path.display().to_string();
                return Err(Error::invalid(what)
                    .with_advice("choose another, or remove it if that database was closed")
                    .at(Location::File { path, offset: 0 }));
            }
            (mapped, MemoryId(Random::from_entropy().next_u64()))
        }
    };
    let bytes = mapped.bytes();
    if settings.lab.log_memory_bytes != 0 && settings.lab.log_memory_bytes != bytes {
        let what = format!("the memory-mapped log has {bytes} bytes, not {}", settings.lab.log_memory_bytes);
        return Err(Error::invalid(what)
            .with_advice("set log_memory_bytes to its length, or close the database and remove the file")
            .at(Location::Setting("log_memory_bytes")));
    }
    let fits = if said == 0 { buffer_bytes_that_fit(bytes, logs, wanted) } else { Some(said / 4096 * 4096) };
    let least = if said == 0 { 64 << 10 } else { said };
    let buffer_bytes = fits.filter(|fits| needed_bytes(logs, *fits) <= bytes).ok_or_else(|| {
        let needed = needed_bytes(logs, least);
        let what = format!(
            "the memory-mapped log has {bytes} bytes, too little for {logs} logs with {} buffers of {least} bytes each: \
             {needed} are needed",
            BUFFERS_EACH.0
        );
        Error::invalid(what)
            .with_advice("name a longer file, or set fewer logs")
            .at(Location::Setting("log_memory"))
    })?;
    let used = Used { mapped, database, id, logs, buffer_bytes, budget };
    if is_new {
        // A new memory holds nothing that is needed. Its header is durable before anything else is
        // stored: a file without one is of others.
        used.divide()?.make_durable();
    }
    Ok(used)
}

impl Used {
    fn divide(&self) -> Result<LogMemory> {
        let Used { mapped, database, id, logs, buffer_bytes, budget } = self;
        LogMemory::prepare(mapped.clone(), *database, *id, *logs, *buffer_bytes, *budget)
    }
}

impl Memories {
    /// Executes step 4: returns the memory that this run uses.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too small.
    pub(super) fn begin_use(&self) -> Result<Option<Arc<LogMemory>>> {
        self.used.as_ref().map(|used| used.divide().map(Arc::new)).transpose()
    }
}
