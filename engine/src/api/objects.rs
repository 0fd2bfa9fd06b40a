//! The objects of a database in a store of objects, for people.

use crate::base::{ErrorKind, Result};
use crate::device::objects::open_url_to_look;
use crate::device::{BucketStatistics, LogRecords, ObjectContent, ObjectList, Storage};
use crate::log::{ScanOptions, scan_what_is_readable};
use crate::store::ManifestFile;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a store that does not answer is asked.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads that read the log, and bytes that each reads at a time.
const THREADS: usize = 4;
const PIECE_BYTES: usize = 4 << 20;

/// Returns all objects of the database at a URL.
///
/// # Errors
/// See [`Place::objects`](super::Place::objects).
pub(super) fn list(url: &str) -> Result<ObjectList> {
    let storage = open_url_to_look(url, PATIENCE)?;
    let mut list = storage.list_objects()?;
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let segments = match segments(&storage) {
        // Not complete, damaged or newer: the list of objects is right all the same.
        Err(error) if error.kind() != ErrorKind::Io => BTreeMap::new(),
        read => read?,
    };
    for object in &mut list.objects {
        if let ObjectContent::Log(log) = &mut object.content
            && log.records == LogRecords::Unknown
        {
            let of_segment = log.segment.and_then(|segment| segments.get(&segment).copied());
            log.records = of_segment.unwrap_or(LogRecords::Unknown);
        }
    }
    Ok(list)
}

/// Looks at the buckets that a list of URLs names.
///
/// # Errors
/// See [`Place::buckets`](super::Place::buckets).
pub(super) fn buckets(urls: &str) -> Result<Vec<BucketStatistics>> {
    open_url_to_look(urls, PATIENCE)?.look_at_buckets()
}

/// Deletes the fences at a URL that stay.
///
/// # Errors
/// See [`Place::remove_fences`](super::Place::remove_fences).
pub(super) fn remove_fences(url: &str) -> Result<u64> {
    open_url_to_look(url, PATIENCE)?.remove_fences()
}

/// Reads the log, and returns for each segment whether a recovery needs its records.
fn segments(storage: &Arc<dyn Storage>) -> Result<BTreeMap<u64, LogRecords>> {
    let _lock = storage.lock(false)?;
    let (_, manifest) = ManifestFile::open(&**storage, true)?;
    let (database, covered) = (manifest.database, manifest.covered);
    let (threads, read_only, piece_bytes, keep_bytes) = (THREADS, true, PIECE_BYTES, 0);
    let options = ScanOptions { database, covered, threads, read_only, piece_bytes, keep_bytes };
    let (scan, left_out) = scan_what_is_readable(storage, options)?;
    // A place that cannot be read may hold a record that is needed.
    let otherwise = if left_out.is_empty() { LogRecords::Covered } else { LogRecords::Unknown };
    let records = |is_needed| if is_needed { LogRecords::Needed } else { otherwise };
    Ok(scan.segments.iter().map(|found| (found.segment.id.0, records(found.oldest.is_some()))).collect())
}
