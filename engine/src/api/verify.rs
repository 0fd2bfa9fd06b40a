//! Checking a whole database: trees, stored pages, space, log.
//!
//! It may run beside transactions and checkpoints, so what looks wrong at first (a page that was freed in this moment) is
//! looked at again before it is reported. Nothing that takes long is done while checkpoints wait.
//!
//! # Leaked pages
//! A page is leaked if it has an image and belongs to nothing. Pages change hands while they are looked for, but not in all ways, so this is certain:
//!
//! 1. *Before*: pages with an image, but for those of large values in progress; and how often each was freed.
//! 2. *The walk* through all tables, checking. It meets every node that is there from its beginning to its end, and every large value
//!    that an entry has, or had before a change in progress, when the walk comes to its key.
//! 3. *Behind it*: what is neither is looked for where it can be, large values that wait to be freed and dropped tables.
//! 4. *At last*, while no checkpoint and nobody else frees any: a page of the first list that was not met and not freed is leaked, if every dropped table
//!    has been walked through. This is the only step for which others wait.
//!
//! A page that was not met in 2 was no node then, unless its table was dropped. If it was part of a large value, that waited to be freed when the walk came
//! to its key: for before it was an entry's it was in progress, so the list does not have it. And what once waits to be freed never does anything else.

use super::database::Database;
use super::engine::{Engine, Writing};
use super::log_memory::{self, Memories};
use super::open::{Progress, or_ignore};
use crate::base::account::Account;
use crate::base::settings::Settings;
use crate::base::{Csn, ErrorKind, PageId, Result};
use crate::buffer::{HIDDEN_EPOCH, Pool};
use crate::checkpoint::Checkpointer;
use crate::device::{AlignedBuffer, Storage};
use crate::log::Segment;
use crate::recovery::{Running, check_log};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::transaction::TableHold;
use crate::transaction::versions::{Before, VersionHandle};
use crate::tree::image::validate_image_of;
use crate::tree::overflow::{self, LargeSubtree};
use crate::tree::{LargeReference, Subtree, Survey, Tree};
use std::collections::HashSet;
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

impl Database {
    /// Checks the whole database: every tree, every stored page and its block, and the log from the checkpoint to where it is
    /// durable. May run beside transactions and checkpoints, and a table may be dropped
    /// meanwhile; what is appended behind the last row that there was need not be checked. [`Builder::verify`] checks a database that cannot be opened, too.
    ///
    /// # Errors
    /// Only what keeps it from checking; damage is in the report.
    pub fn verify(&self, progress: Option<Progress>) -> Result<VerifyReport> {
        run(&self.inner, progress)
    }
}

fn run(engine: &Engine, progress: Option<Progress>) -> Result<VerifyReport> {
    let mut progress = or_ignore(progress);
    let mut report = VerifyReport::default();
    let _hurry = engine.writing.as_ref().map(|writing| writing.checkpointer.hurry());
    let mut check = Check {
        engine,
        report: &mut report,
        reported: HashSet::new(),
        reachable: HashSet::new(),
        replaced: Vec::new(),
    };
    let before = check.quiet().map(|csn| (csn, check.allocated()));
    let imaged = check.imaged();
    check.tables(&mut progress)?;
    let damaged = check_stored_pages(&engine.store, check.report, &mut progress);
    check.name_keys_of(damaged);
    // Below a damaged page nobody knows what can be reached.
    let sound = check.report.problems.is_empty() && check.values_without_entry();
    check.space()?;
    if sound {
        check.leaks(imaged);
        check.lost(before);
    }
    log(engine, &mut report, &mut progress)?;
    Ok(report)
}

struct Check<'a> {
    engine: &'a Engine,
    report: &'a mut VerifyReport,
    /// Damaged pages that are in the report.
    reported: HashSet<PageId>,
    /// Pages that belong to something.
    reachable: HashSet<PageId>,
    /// Large values that transactions in progress replaced or deleted.
    replaced: Vec<LargeReference>,
}

impl Check<'_> {
    fn hold_all(&self) -> Held {
        self.engine.system.catalog.lock().hold_all()
    }

    fn tables(&mut self, progress: &mut Progress) -> Result<()> {
        let tables = self.engine.system.catalog.lock().tables();
        for (done, table) in tables.iter().enumerate() {
            progress("tables checked", done as u64, tables.len() as u64);
            // Not as a user: the table may be dropped meanwhile, and then this ends.
            let Some(table) = table.hold() else { continue };
            let go_on = || !table.is_dropped();
            let replaced = |stamp, values: &mut Vec<_>| self.values_before(stamp, values);
            let (summary, damages) =
                table.tree.survey(&Survey { should_continue: &go_on, replaced: &replaced })?;
            self.replaced.extend(summary.replaced);
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

    /// Appends the large values that an entry with this stamp had before changes that may still be taken back.
    fn values_before(&self, mut stamp: u64, values: &mut Vec<LargeReference>) {
        let (versions, guard) = (&self.engine.system.versions.slots, pin());
        while let Some(version) =
            VersionHandle::from_word(stamp).and_then(|handle| versions.read(handle, &guard))
        {
            if let Before::Reference(reference) = &version.undo.before {
                values.push(**reference);
            }
            stamp = version.undo.prior;
        }
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
        let Engine { store, writing, .. } = self.engine;
        let (problems, leaked) = match writing {
            Some(Writing { checkpointer, segments, .. }) => {
                checkpointer.while_idle(|| (store.check_space(), segments.leaked()))
            }
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
        let system = &self.engine.system;
        let newest = system.committed.newest_drawn();
        let idle = system.in_progress().load(Ordering::SeqCst) == 0 && !system.catalog.lock().has_dropped();
        idle.then_some(newest)
    }

    /// Pages without an image that belong to nothing; not known while transactions run.
    fn lost(&mut self, before: Option<(Csn, Vec<Listed>)>) {
        let (system, pool) = (&self.engine.system, &self.engine.pool);
        let Some((before, mut lost)) = before.filter(|(csn, _)| Some(*csn) == self.quiet()) else { return };
        // What is being freed would be in neither list.
        let held = system.large_values.pause_frees();
        // The root of a table that is being created is hidden, but for a moment at the very beginning: looked at twice.
        // What could not be freed because it cannot be read is listed by checkpoints.
        let listed = system.large_values.uncommitted_pages();
        let known = |page: &PageId| {
            self.reachable.contains(page)
                || listed.contains(page)
                || pool.frames().epoch_of(*page) == HIDDEN_EPOCH
        };
        // What was made since, by a transaction that was aborted, say, may not have been met.
        let is_lost = |listed: &Listed| listed.is_there(pool) && !known(&listed.page);
        lost.retain(is_lost);
        if !lost.is_empty() {
            crate::sync::thread::sleep(std::time::Duration::from_millis(20));
            lost.retain(is_lost);
        }
        let sure = Some(before) == self.quiet();
        drop(held);
        if let (Some(Listed { page, .. }), true) = (lost.first(), sure) {
            let problem = format!("leaked page: {page:?} and {} more belong to nothing", lost.len() - 1);
            self.report.problems.push(problem);
        }
    }

    /// All pages that are in use.
    fn allocated(&self) -> Vec<Listed> {
        let pool = &self.engine.pool;
        let pages = (1..pool.page_count()).map(PageId);
        pages
            .map(|page| Listed { page, freed: pool.frames().times_freed(page) })
            .filter(|page| page.is_there(pool))
            .collect()
    }

    /// Step 1 of the search for leaked pages.
    fn imaged(&self) -> Vec<Listed> {
        let Engine { store, pool, system, .. } = self.engine;
        // In this order: what is freed later was freed more often, and what was freed before has no image.
        let imaged = |page| {
            let freed = pool.frames().times_freed(page);
            (pool.frames().is_allocated(page) && store.contains(page)).then_some(Listed { page, freed })
        };
        let mut imaged: Vec<Listed> = store.page_ids().filter_map(imaged).collect();
        // Noted before the image was recorded.
        let unfinished = system.large_values.uncommitted_pages();
        imaged.retain(|imaged| !unfinished.contains(&imaged.page));
        imaged
    }

    /// Large values that no entry has: those that wait to be freed, and those that were replaced. False if one is damaged.
    fn values_without_entry(&mut self) -> bool {
        let Engine { pool, system, .. } = self.engine;
        let retired: Vec<_> = {
            // What is being freed would not be in the list.
            let _held = system.large_values.pause_frees();
            let values = system.large_values.deferred().into_iter();
            values.map(|reference| (reference, pool.frames().times_freed(reference.root))).collect()
        };
        let before = self.report.problems.len();
        for (reference, freed) in retired {
            let mut pages = HashSet::new();
            match overflow::check(pool, &reference, &mut pages) {
                Ok(()) => self.reachable.extend(pages),
                // It was freed meanwhile, from its root down.
                Err(_) if pool.frames().times_freed(reference.root) != freed => {}
                Err(error) => {
                    let problem = format!("a large value that was replaced or deleted: {error}");
                    self.report.problems.push(problem);
                }
            }
        }
        for reference in std::mem::take(&mut self.replaced) {
            let whole = LargeSubtree::whole(pool, &reference);
            match overflow::visit_pages(pool, whole, &mut |page| self.reachable.extend([page])) {
                // Such a value may have been freed meanwhile, and its pages be another's. If it is damaged its image was found to be.
                Err(error) if error.kind() != ErrorKind::Corruption => {
                    self.report.problems.push(error.to_string());
                }
                _ => {}
            }
        }
        self.report.problems.len() == before
    }

    /// Steps 3, as far as dropped tables go, and 4 of the search for leaked pages.
    fn leaks(&mut self, mut imaged: Vec<Listed>) {
        let pool = &self.engine.pool;
        let is_same = |listed: &Listed| listed.is_there(pool);
        let (mut walked, mut failed) = (Vec::new(), None);
        for _ in 0..LOOKS {
            imaged.retain(|imaged| is_same(imaged) && !self.reachable.contains(&imaged.page));
            if imaged.is_empty() {
                return;
            }
            let mut decide = || {
                let mut dropped = self.dropped();
                dropped.retain(|(_, subtree)| !walked.contains(subtree));
                if dropped.is_empty() {
                    let _held = self.engine.system.large_values.pause_frees();
                    let unfinished = self.engine.system.large_values.uncommitted_pages();
                    imaged.retain(|imaged| is_same(imaged) && !unfinished.contains(&imaged.page));
                }
                dropped
            };
            let dropped = match &self.engine.writing {
                Some(writing) => writing.checkpointer.while_idle(decide),
                None => decide(),
            };
            if dropped.is_empty() {
                let problem =
                    |page| format!("leaked page: {page:?} has an image in the store, and is in no table");
                self.report.problems.extend(imaged.iter().map(|imaged| problem(imaged.page)));
                // Once is enough.
                self.reachable.extend(imaged.iter().map(|imaged| imaged.page));
                return;
            }
            // A checkpoint may be freeing them: what is left of them then is in the list the next time.
            for (tree, subtree) in dropped {
                let mut visit = |page| self.reachable.extend([page]);
                let visited = match subtree {
                    Subtree::Node(page) => tree.visit_all(page, &mut visit),
                    Subtree::Large(large) => overflow::visit_pages(pool, large, &mut visit),
                };
                match visited {
                    Ok(()) => walked.push(subtree),
                    Err(error) => failed = Some(error),
                }
            }
        }
        // Beside who writes it may have been freed meanwhile.
        if let (None, Some(error)) = (&self.engine.writing, failed) {
            self.report.problems.push(format!("a dropped table: {error}"));
        }
    }

    /// The dropped tables with what is left of each. Nobody holds them for that: a checkpoint would wait.
    fn dropped(&self) -> Vec<(Tree, Subtree)> {
        let mut held = self.hold_all();
        held.retain(|(table, _)| table.is_dropped());
        let of_table = |(table, rest): (TableHold, Vec<Subtree>)| {
            let tree = table.tree.clone();
            rest.into_iter().map(move |subtree| (tree.clone(), subtree))
        };
        held.into_iter().flat_map(of_table).collect()
    }
}

/// A page that was in use, and how often its id had been given back before.
struct Listed {
    page: PageId,
    freed: u32,
}

impl Listed {
    /// It is still the same.
    fn is_there(&self, pool: &Pool) -> bool {
        pool.frames().is_allocated(self.page) && pool.frames().times_freed(self.page) == self.freed
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

fn log(engine: &Engine, report: &mut VerifyReport, progress: &mut Progress) -> Result<()> {
    let account = Some(engine.pool.account());
    let Some(Writing { checkpointer, .. }) = &engine.writing else {
        if engine.at_checkpoint.is_some() {
            // The log is the writer's.
            return Ok(());
        }
        let (_, manifest) = ManifestFile::open(&*engine.storage, true)?;
        let log = (&*engine.storage, engine.old_memory.found.as_ref(), account);
        return log_at_rest(log, &manifest, report, progress);
    };
    let manifest = checkpointer.manifest();
    let commit = engine.system.commit();
    // The watermark first: whatever it covers is then below the ends.
    let watermark = commit.watermark_in_segments();
    let running = Running { watermark, ends: commit.durable_ends() };
    let covered = || Checkpointer::covered(checkpointer);
    add_log((&*engine.storage, None, account), &manifest, Some(&running), &covered, report, progress)
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
        Ok(memories) => {
            log_at_rest((storage, memories.old.found.as_ref(), None), &manifest, report, progress)?
        }
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
mod tests;
