//! Checking a whole database: trees, stored pages, space, log.
//!
//! It may run beside transactions and checkpoints, so what looks wrong at first (a page that was freed in this moment) is
//! looked at again before it is reported.

use super::builder::Progress;
use super::database::Inner;
use super::log_memory::{self, Memories};
use crate::base::account::Account;
use crate::base::settings::Settings;
use crate::base::{Csn, PageId, Result};
use crate::buffer::HIDDEN_ROUND;
use crate::checkpoint::Checkpointer;
use crate::device::{AlignedBuffer, Storage};
use crate::log::Segment;
use crate::recovery::{Running, check_log};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::Ordering;
use crate::transaction::TableHold;
use crate::tree::Subtree;
use crate::tree::image::validate_image_of;
use crate::tree::overflow::{self, LargeSubtree};
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// What `verify` looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables checked.
    pub tables: u64,
    /// Pages of their trees.
    pub pages: u64,
    /// Values that lie in pages of their own.
    pub large_values: u64,
    /// Rows, deleted ones that are still remembered included.
    pub entries: u64,
    /// Page images in the store that were read and are what was written.
    pub stored_pages: u64,
    /// Whole log blocks that a recovery would need now. None if the database was closed.
    pub log_blocks: u64,
    /// Records in them.
    pub log_records: u64,
    /// Each damage with its place. Empty means that everything is well.
    pub problems: Vec<String>,
}

/// Tables with the pages that everything else of them is below.
type Held = Vec<(TableHold, Vec<Subtree>)>;

pub(super) fn run(inner: &Inner, progress: Option<Progress>) -> Result<VerifyReport> {
    let mut progress = progress.unwrap_or_else(|| Box::new(|_, _, _| ()));
    let mut report = VerifyReport::default();
    let _hurry = inner.checkpointer.as_ref().map(|checkpointer| checkpointer.hurry());
    let mut check = Check { inner, report: &mut report, reported: HashSet::new(), reachable: HashSet::new() };
    let before = check.quiet();
    check.tables(&mut progress)?;
    let damaged = check_stored_pages(&inner.store, check.report, &mut progress);
    check.name_keys_of(damaged);
    let sound = check.report.problems.is_empty();
    check.space()?;
    if sound {
        // Below a damaged page nobody knows what can be reached.
        check.leaks();
        check.lost(before);
    }
    log(inner, &mut report, &mut progress)?;
    Ok(report)
}

struct Check<'a> {
    inner: &'a Inner,
    report: &'a mut VerifyReport,
    /// Damaged pages that are in the report.
    reported: HashSet<PageId>,
    /// Pages of the trees.
    reachable: HashSet<PageId>,
}

impl Check<'_> {
    fn hold_all(&self) -> Held {
        self.inner.system.catalog().lock().hold_all()
    }

    fn tables(&mut self, progress: &mut Progress) -> Result<()> {
        let tables = self.inner.system.catalog().lock().tables();
        for (done, table) in tables.iter().enumerate() {
            progress("tables checked", done as u64, tables.len() as u64);
            // Not as a user: the table may be dropped meanwhile, and then this ends.
            let Some(table) = table.hold() else { continue };
            let (summary, damages) = table.tree.survey(&|| !table.is_dropped())?;
            if table.is_dropped() {
                continue;
            }
            self.report.tables += 1;
            self.report.pages += summary.pages;
            self.report.large_values += summary.large_values;
            self.report.entries += summary.entries;
            self.reachable.extend(summary.page_ids);
            for damage in damages {
                self.reported.insert(damage.page);
                let keys = key_range(&damage.lower, damage.upper.as_deref());
                let problem = format!("table `{}`, {keys}: {}", table.name, damage.error);
                self.report.problems.push(problem);
            }
        }
        Ok(())
    }

    /// Reports stored pages that are damaged and not yet reported (those in memory are well), with the table and the keys
    /// that they are for.
    fn name_keys_of(&mut self, damaged: Vec<(PageId, String)>) {
        let mut owners = std::collections::HashMap::new();
        let wanted: HashSet<PageId> = damaged.iter().map(|(page, _)| *page).collect();
        let unnamed = wanted.difference(&self.reported).next().is_some();
        if unnamed {
            for (table, from) in self.hold_all() {
                for from in from {
                    // The keys of a value whose leaf is free are not known.
                    let Subtree::Node(from) = from else { continue };
                    let visited = table.tree.visit_pages(from, &mut |page, lower, upper| {
                        if wanted.contains(&page) {
                            let keys = key_range(lower, upper);
                            owners.insert(page, format!("table `{}`, {keys}: ", table.name));
                        }
                    });
                    // What is below a page that cannot be read stays without a name.
                    drop(visited);
                }
            }
        }
        for (page, problem) in damaged {
            if !self.reported.contains(&page) {
                let owner = owners.get(&page).map_or("", String::as_str);
                self.report.problems.push(format!("{owner}stored {page:?}: {problem}"));
            }
        }
    }

    /// Blocks and files: too many owners, or none. While no checkpoint is made nothing has an owner only in passing.
    fn space(&mut self) -> Result<()> {
        let Inner { store, segments, checkpointer, .. } = self.inner;
        let (problems, leaked) = match checkpointer {
            Some(checkpointer) => checkpointer.while_idle(|| (store.check_space(), segments.leaked())),
            None => (store.check_space(), Ok(Vec::new())),
        };
        self.report.problems.extend(problems);
        let problem = |id| format!("leaked file: log segment {id} is of no use, and nobody would remove it");
        self.report.problems.extend(leaked?.into_iter().map(problem));
        Ok(())
    }

    /// The newest CSN if no transaction is in progress and no dropped table waits for the next checkpoint: while that lasts a
    /// page without an image can be told to belong to nothing.
    fn quiet(&self) -> Option<Csn> {
        let system = &self.inner.system;
        let newest = system.commit().newest_drawn();
        let idle = system.in_progress().load(Ordering::SeqCst) == 0 && !system.catalog().lock().has_dropped();
        idle.then_some(newest)
    }

    /// Pages without an image that belong to nothing; not known while transactions run.
    fn lost(&mut self, before: Option<Csn>) {
        let (system, pool) = (&self.inner.system, &self.inner.pool);
        // What is being freed would be in neither list.
        let held = system.hold_retired();
        for reference in system.retired_values() {
            let mut pages = HashSet::new();
            if let Err(error) = overflow::check(pool, &reference, &mut pages) {
                self.report.problems.push(format!("a large value that was replaced or deleted: {error}"));
            }
            self.reachable.extend(pages);
        }
        // The root of a table that is being created is hidden, but for a moment at the very beginning: looked at twice.
        // What could not be freed because it cannot be read is listed by checkpoints.
        let listed = system.unfinished_pages();
        let known = |page: &PageId| {
            self.reachable.contains(page) || listed.contains(page) || pool.round_of(*page) == HIDDEN_ROUND
        };
        let is_lost = |page: &PageId| pool.is_allocated(*page) && !known(page);
        let mut lost: Vec<PageId> = (1..pool.page_count()).map(PageId).filter(is_lost).collect();
        if !lost.is_empty() {
            crate::sync::thread::sleep(std::time::Duration::from_millis(20));
            lost.retain(is_lost);
        }
        let sure = before.is_some() && before == self.quiet();
        drop(held);
        if let (Some(first), true) = (lost.first(), sure) {
            let problem = format!("leaked page: {first:?} and {} more belong to nothing", lost.len() - 1);
            self.report.problems.push(problem);
        }
    }

    /// Pages that have an image and belong to no tree.
    fn leaks(&mut self) {
        let mut leaked = self.without_owner(self.inner.store.page_ids());
        leaked.retain(|page| !self.reachable.contains(page));
        if leaked.is_empty() {
            return;
        }
        // Pages come and go: what counts is a look while no checkpoint frees any, at the trees as they are then.
        let again = || -> Result<BTreeSet<PageId>> {
            let _held = self.inner.system.hold_retired();
            let pool = &self.inner.pool;
            let retired = self.inner.system.retired_values();
            let mut large: Vec<_> =
                retired.iter().map(|reference| LargeSubtree::whole(pool, reference)).collect();
            for (table, from) in self.hold_all() {
                for from in from {
                    let from = match from {
                        Subtree::Node(page) => page,
                        Subtree::Large(subtree) => {
                            large.push(subtree);
                            continue;
                        }
                    };
                    table.tree.visit_pages(from, &mut |page, _, _| {
                        leaked.remove(&page);
                    })?;
                    table.tree.visit_large_values(from, &mut |reference| {
                        large.push(LargeSubtree::whole(pool, reference));
                    })?;
                }
            }
            for subtree in large {
                overflow::visit_pages(pool, subtree, &mut |page| {
                    leaked.remove(&page);
                })?;
            }
            // Looked up last: what was freed during this look has no image any more, also if its id is in use again.
            Ok(self.without_owner(leaked.into_iter()))
        };
        let leaked = match &self.inner.checkpointer {
            Some(checkpointer) => checkpointer.while_idle(again),
            None => again(),
        };
        let problem = |page| format!("leaked page: {page:?} has an image in the store, and is in no table");
        match leaked {
            Ok(leaked) => {
                // Once is enough.
                self.reachable.extend(&leaked);
                self.report.problems.extend(leaked.into_iter().map(problem));
            }
            Err(error) => self.report.problems.push(error.to_string()),
        }
    }

    /// Those of `pages` that have an image, are not free (the image of a free page goes with the next checkpoint), and belong to no
    /// large value in progress.
    fn without_owner(&self, pages: impl Iterator<Item = PageId>) -> BTreeSet<PageId> {
        let (store, pool) = (&self.inner.store, &self.inner.pool);
        let with_image = pages.filter(|page| pool.is_allocated(*page) && store.contains(*page));
        let mut without_owner: BTreeSet<PageId> = with_image.collect();
        // Noted before the image was recorded.
        let unfinished = self.inner.system.unfinished_pages();
        without_owner.retain(|page| !unfinished.contains(page));
        without_owner
    }
}

/// How often what looks wrong is looked at.
const LOOKS: u32 = 4;

/// Reads every image; returns what is wrong with which.
fn check_stored_pages(
    store: &PageStore,
    report: &mut VerifyReport,
    progress: &mut Progress,
) -> Vec<(PageId, String)> {
    let pages: Vec<PageId> = store.page_ids().collect();
    let mut image = AlignedBuffer::zeroed(store.page_bytes());
    let len = store.page_bytes();
    let mut damaged = Vec::new();
    for (done, page) in pages.iter().enumerate() {
        if done % 1024 == 0 {
            progress("stored pages checked", done as u64, pages.len() as u64);
        }
        let mut look = || {
            let read = store.read_page(*page, &mut image[..len]);
            read.and_then(|kind| validate_image_of(kind, &image[..len]))
        };
        // A page without an image was freed since the list was made; its id may be in use again and have one soon.
        let mut seen = None;
        for _ in 0..LOOKS {
            seen = store.contains(*page).then(&mut look);
            if !matches!(seen, Some(Err(_))) {
                break;
            }
        }
        match seen {
            None => {}
            Some(Ok(())) => report.stored_pages += 1,
            Some(Err(error)) => damaged.push((*page, error.to_string())),
        }
    }
    damaged
}

fn log(inner: &Inner, report: &mut VerifyReport, progress: &mut Progress) -> Result<()> {
    let account = Some(inner.pool.account());
    let Some(checkpointer) = &inner.checkpointer else {
        if inner.at_checkpoint.is_some() {
            // The log is the writer's.
            return Ok(());
        }
        let (_, manifest) = ManifestFile::open(&*inner.storage, true)?;
        let log = (&*inner.storage, inner.memory_found.as_ref(), account);
        return log_at_rest(log, &manifest, report, progress);
    };
    let manifest = checkpointer.manifest();
    let commit = inner.system.commit();
    // The watermark first: whatever it covers is then below the ends.
    let watermark = commit.watermark_in_segments();
    let running = Running { watermark, ends: commit.durable_ends() };
    let covered = || Checkpointer::covered(checkpointer);
    add_log((&*inner.storage, None, account), &manifest, Some(&running), &covered, report, progress)
}

/// Where segments are, what mapped memory holds besides, and what buffers are charged to.
type LogAndMemory<'a> = (&'a dyn Storage, Option<&'a Segment>, Option<&'a Arc<Account>>);

/// The log of a database that nobody writes.
fn log_at_rest(
    log: LogAndMemory<'_>,
    manifest: &Manifest,
    report: &mut VerifyReport,
    progress: &mut Progress,
) -> Result<()> {
    add_log(log, manifest, None, &|| manifest.covered, report, progress)
}

fn add_log(
    (storage, memory, account): LogAndMemory<'_>,
    manifest: &Manifest,
    running: Option<&Running>,
    covered: &dyn Fn() -> Csn,
    report: &mut VerifyReport,
    progress: &mut Progress,
) -> Result<()> {
    let found = check_log(storage, memory, account, manifest, running, covered, &mut **progress)?;
    report.log_blocks = found.blocks;
    report.log_records = found.records;
    report.problems.extend(found.problems);
    Ok(())
}

/// What can still be said of a database whose open was refused because of damage.
///
/// # Errors
/// The lock is taken, or the manifest or the directory of the log cannot be read.
pub(super) fn run_refused(
    storage: &dyn Storage,
    settings: &mut Settings,
    report: &mut VerifyReport,
    progress: &mut Progress,
) -> Result<()> {
    let _lock = storage.lock(false)?;
    let (_, mut manifest) = ManifestFile::open(storage, true)?;
    let memories = match manifest.log_memory {
        Some(_) => log_memory::open(storage, settings, &mut manifest, 1, 0),
        None => Ok(Memories::default()),
    };
    match memories {
        Ok(memories) => log_at_rest((storage, memories.found.as_ref(), None), &manifest, report, progress)?,
        // What is in segments alone would look as if something had been lost.
        Err(error) => report.problems.push(format!("the log is not looked at: {error}")),
    }
    let page_bytes = manifest.page_bytes as usize;
    match PageStore::open_read_only(storage, manifest.database, page_bytes, &manifest.store) {
        Ok(store) => {
            let damaged = check_stored_pages(&store, report, progress);
            let problem = |(page, problem)| format!("stored {page:?}: {problem}");
            report.problems.extend(damaged.into_iter().map(problem));
        }
        Err(error) => report.problems.push(format!("the page store: {error}")),
    }
    Ok(())
}

/// Bytes shown of a key.
const SHOWN_BYTES: usize = 48;

fn key_range(lower: &[u8], upper: Option<&[u8]>) -> String {
    let upper = upper.map_or_else(|| "the end".to_string(), |upper| format!("below {}", shown(upper)));
    let lower = if lower.is_empty() { "the beginning".to_string() } else { shown(lower) };
    format!("keys from {lower} to {upper}")
}

fn shown(key: &[u8]) -> String {
    let mut out = format!("\"{}\"", key[..key.len().min(SHOWN_BYTES)].escape_ascii());
    if key.len() > SHOWN_BYTES {
        let _ = write!(out, "… ({} bytes)", key.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::key_range;

    #[test]
    fn key_ranges_are_readable_whatever_the_keys_are() {
        assert_eq!(key_range(b"", None), "keys from the beginning to the end");
        assert_eq!(key_range(b"a\"\xff", Some(b"b\n")), r#"keys from "a\"\xff" to below "b\n""#);
        assert!(key_range(&[b'x'; 100], None).contains("… (100 bytes)"));
    }
}
