//! Checking a whole database: trees, stored pages, space, log.
//!
//! The check may run beside transactions and checkpoints. So a page that looks wrong at first (it
//! may have just been freed) is checked again before it is reported. No long step blocks
//! checkpoints.
//!
//! # Leaked pages
//! A page is leaked if it has an image and belongs to nothing. Pages change owners during the
//! search, but only in some ways, so the result is certain:
//!
//! 1. *Before*: list the pages with an image, except those of large values in progress, and how
//!    often each was freed.
//! 2. *The walk*: check all tables. The walk visits every node that exists from its beginning to
//!    its end, and every large value that an entry has, or had before a change in progress, when
//!    the walk reaches its key.
//! 3. *After the walk*: look for other pages where they can be, in large values that wait to be
//!    freed and in dropped tables.
//! 4. *At last*, while no checkpoint and no other thread frees pages: a listed page that was not
//!    visited and not freed is leaked, if every dropped table has been walked. This is the only
//!    step for which other threads wait.
//!
//! A page that the walk did not visit was no node then, unless its table was dropped. A page of a
//! large value that it did not visit was already waiting to be freed when the walk reached the key:
//! before an entry had the value, it was in progress, and the list excludes those. A value that
//! waits to be freed is never used again.

use super::database::Database;
use super::engine::{Engine, Writing};
use super::log_memory::{self, Memories};
use super::open::{Progress, or_ignore, written_meanwhile};
use super::verify_files::{FilesReport, FoundFiles, VerifyClass};
use crate::base::account::Account;
use crate::base::settings::Settings;
use crate::base::{Csn, Error, ErrorKind, PageId, Result, SegmentId};
use crate::buffer::{HIDDEN_EPOCH, Pool};
use crate::checkpoint::Checkpointer;
use crate::device::{AlignedBuffer, Storage};
use crate::log::Segment;
use crate::recovery::{Running, check_log};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::transaction::TableHold;
use crate::transaction::versions::VersionHandle;
use crate::tree::image::validate_image_of;
use crate::tree::overflow::{self, LargeSubtree};
use crate::tree::{LargeReference, Subtree, Survey, Tree};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// What `verify` checked, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables checked.
    pub tables: u64,
    /// Pages of their trees in memory or in the store.
    pub pages: u64,
    /// Values in pages of their own.
    pub large_values: u64,
    /// Rows, deleted ones included until they are purged.
    pub entries: u64,
    /// Intact page images in the store.
    pub stored_pages: u64,
    /// Whole log blocks that a recovery would need now; 0 for a closed database.
    pub log_blocks: u64,
    /// Records in these blocks.
    pub log_records: u64,
    /// The manifest, the log and other files; `None` for a reader of a checkpoint, which
    /// another process may be replacing.
    pub files: Option<FilesReport>,
    /// Damaged or missing spare copies: the content is complete, but further damage could destroy
    /// it. An open for writing repairs them.
    pub weaknesses: Vec<String>,
    /// Each damage with its place. Empty if none was found.
    pub problems: Vec<String>,
    /// The system refused access to a file.
    denied: bool,
}

impl VerifyReport {
    /// Returns the result in one word.
    #[must_use]
    pub fn class(&self) -> VerifyClass {
        match (self.problems.is_empty(), self.weaknesses.is_empty()) {
            (false, _) => VerifyClass::Damaged,
            (true, false) => VerifyClass::Degraded,
            (true, true) => VerifyClass::Sound,
        }
    }

    /// Returns what to do, in one sentence; `None` if nothing is wrong.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self.class() {
            VerifyClass::Sound => None,
            VerifyClass::Degraded => {
                Some("all data is there; `quench repair` makes the spare copies whole again")
            }
            VerifyClass::Damaged if self.denied => Some(
                "let this user read all files of the database, then verify again: other problems may end with that",
            ),
            VerifyClass::Damaged => Some(
                "stop writing and copy the files as they are; then restore a backup, or copy what can be read \
                 with `quench salvage`",
            ),
        }
    }

    fn add_files(&mut self, files: FoundFiles) {
        self.weaknesses.extend(files.report.weaknesses());
        self.files = Some(files.report);
        self.denied |= files.denied;
        files.problems.into_iter().for_each(|problem| self.add_problem(problem));
    }

    /// Adds the error of an open or of a file as a problem.
    fn add_error(&mut self, whose: &str, error: &Error) {
        self.denied |= error.is_denied();
        let what = error.as_problem();
        if !self.problems.iter().any(|known| known.ends_with(&what)) {
            self.problems.push(format!("{whose}{what}"));
        }
    }

    /// Adds a problem, unless it repeats one of the report, with or without more words before.
    fn add_problem(&mut self, problem: String) {
        if !self.problems.iter().any(|known| problem.ends_with(known.as_str())) {
            self.problems.push(problem);
        }
    }
}

/// Tables with the roots of their pages.
type Held = Vec<(TableHold, Vec<Subtree>)>;

impl Database {
    /// Checks the whole database: every tree, every stored page and its block, and the log from the
    /// checkpoint to its durable end. May run beside transactions, checkpoints and drops of tables;
    /// need not check rows that are appended behind the last row meanwhile.
    /// [`Builder::verify`](crate::Builder::verify) checks a database that cannot be opened, too.
    ///
    /// # Errors
    /// Only errors that prevent the check; damage is in the report. `Busy` if the database is open
    /// read-only in a store of objects, and something that looks like damage comes from a process
    /// that writes meanwhile.
    pub fn verify(&self, progress: Option<Progress>) -> Result<VerifyReport> {
        self.inner.check_usable()?;
        let mut report = run(&self.inner, progress)?;
        // What was read after a close may be of the next owner.
        self.inner.check_usable()?;
        // Of damaged pages nothing can be derived.
        if report.problems.is_empty() {
            let snapshot = self.begin_read()?;
            for check in self.inner.typed.checks() {
                report.problems.extend(check(&snapshot)?);
            }
        }
        Ok(report)
    }
}

fn run(engine: &Engine, progress: Option<Progress>) -> Result<VerifyReport> {
    let _span = tracing::info_span!("verify").entered();
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
    // What is below a damaged page is not known.
    let sound = check.report.problems.is_empty() && check.values_without_entry();
    let leaked = check.space()?;
    if sound {
        check.leaks(imaged);
        check.lost(before);
    }
    log(engine, &mut report, &mut progress)?;
    if let Some(files) = &mut report.files {
        files.add_leaked(&*engine.storage, &leaked);
    }
    if !report.problems.is_empty()
        && let Some(error) = written_meanwhile(&*engine.storage)
    {
        return Err(error);
    }
    Ok(report)
}

struct Check<'a> {
    engine: &'a Engine,
    report: &'a mut VerifyReport,
    /// Damaged pages in the report.
    reported: HashSet<PageId>,
    /// Pages that belong to a tree or a value.
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
            // Held, not used: the table may be dropped meanwhile, which ends its check.
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
                let problem = format!("table `{}`, {keys}: {}", table.name, damage.error.without_advice());
                self.report.problems.push(problem);
            }
        }
        Ok(())
    }

    /// Appends the large values that an entry with this stamp had before changes that may be taken
    /// back.
    fn values_before(&self, mut stamp: u64, values: &mut Vec<LargeReference>) {
        let (versions, guard) = (&self.engine.system.versions.slots, pin());
        while let Some(version) =
            VersionHandle::from_word(stamp).and_then(|handle| versions.read(handle, &guard))
        {
            values.extend(version.undo.before.reference());
            stamp = version.undo.prior;
        }
    }

    /// Reports damaged stored pages that are not yet reported (their copies in memory are intact),
    /// with their table and keys.
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
                    // Pages below one that cannot be read stay without a name.
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

    /// Checks blocks and files: too many owners, or none. While no checkpoint is made all owners
    /// are permanent.
    ///
    /// Returns obsolete log segments that would never be removed.
    fn space(&mut self) -> Result<Vec<SegmentId>> {
        let Engine { store, writing, .. } = self.engine;
        let (problems, leaked) = match writing {
            Some(Writing { checkpointer, segments, .. }) => {
                checkpointer.while_idle(|| (store.check_space(), segments.leaked()))
            }
            None => (store.check_space(), Ok(Vec::new())),
        };
        self.report.problems.extend(problems);
        leaked
    }

    /// Returns the newest CSN if no transaction is in progress and no dropped table waits for the
    /// next checkpoint. In this state a page without an image can be found to belong to nothing.
    fn quiet(&self) -> Option<Csn> {
        let system = &self.engine.system;
        let newest = system.committed.newest_drawn();
        let idle = system.in_progress().load(Ordering::SeqCst) == 0 && !system.catalog.lock().has_dropped();
        idle.then_some(newest)
    }

    /// Reports pages without an image that belong to nothing; they are not known while transactions
    /// run.
    fn lost(&mut self, before: Option<(Csn, Vec<Listed>)>) {
        let (system, pool) = (&self.engine.system, &self.engine.pool);
        let Some((before, mut lost)) = before.filter(|(csn, _)| Some(*csn) == self.quiet()) else { return };
        // A page that is being freed would be in neither list.
        let held = system.large_values.pause_frees();
        // The root of a table that is being created is hidden, except for a moment at the very
        // beginning: hence the second check. Checkpoints list pages that could not be freed because
        // they cannot be read.
        let listed = system.large_values.uncommitted_pages();
        let known = |page: &PageId| {
            self.reachable.contains(page)
                || listed.contains(page)
                || pool.frames().epoch_of(*page) == HIDDEN_EPOCH
        };
        // A page created since, for instance by an aborted transaction, may not have been visited.
        let is_lost = |listed: &Listed| listed.is_same(pool) && !known(&listed.page);
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

    /// Returns all pages in use.
    fn allocated(&self) -> Vec<Listed> {
        let pool = &self.engine.pool;
        let pages = (1..pool.page_count()).map(PageId);
        pages
            .map(|page| Listed { page, freed: pool.frames().times_freed(page) })
            .filter(|page| page.is_same(pool))
            .collect()
    }

    /// Executes step 1 of the search for leaked pages.
    fn imaged(&self) -> Vec<Listed> {
        let Engine { store, pool, system, .. } = self.engine;
        // In this order: a page that is freed later has a higher count, and one that was freed
        // before has no image.
        let imaged = |page| {
            let freed = pool.frames().times_freed(page);
            (pool.frames().is_allocated(page) && store.contains(page)).then_some(Listed { page, freed })
        };
        let mut imaged: Vec<Listed> = store.page_ids().filter_map(imaged).collect();
        // Pages are noted before their images are recorded.
        let unfinished = system.large_values.uncommitted_pages();
        imaged.retain(|imaged| !unfinished.contains(&imaged.page));
        imaged
    }

    /// Checks large values that no entry has: those that wait to be freed, and those that were
    /// replaced. Returns false if one is damaged.
    fn values_without_entry(&mut self) -> bool {
        let Engine { pool, system, .. } = self.engine;
        let retired: Vec<_> = {
            // A value that is being freed would not be in the list.
            let _held = system.large_values.pause_frees();
            let values = system.large_values.deferred().into_iter();
            values.map(|reference| (reference, pool.frames().times_freed(reference.root))).collect()
        };
        let before = self.report.problems.len();
        for (reference, freed) in retired {
            let mut pages = HashSet::new();
            match overflow::check(pool, &reference, &mut pages) {
                Ok(()) => self.reachable.extend(pages),
                // The value was freed meanwhile, from its root down.
                Err(_) if pool.frames().times_freed(reference.root) != freed => {}
                Err(error) => {
                    let error = error.without_advice();
                    let problem = format!("a large value that was replaced or deleted: {error}");
                    self.report.problems.push(problem);
                }
            }
        }
        for reference in std::mem::take(&mut self.replaced) {
            let whole = LargeSubtree::whole(pool, &reference);
            match overflow::visit_pages(pool, whole, &mut |page| self.reachable.extend([page])) {
                // The value may have been freed meanwhile, and its pages be reused. A damaged image
                // was already reported.
                Err(error) if error.kind() != ErrorKind::Corruption => {
                    self.report.problems.push(error.to_string());
                }
                _ => {}
            }
        }
        self.report.problems.len() == before
    }

    /// Executes step 3, for dropped tables, and step 4 of the search for leaked pages.
    fn leaks(&mut self, mut imaged: Vec<Listed>) {
        let pool = &self.engine.pool;
        let is_same = |listed: &Listed| listed.is_same(pool);
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
                // Do not report these pages again.
                self.reachable.extend(imaged.iter().map(|imaged| imaged.page));
                return;
            }
            // A checkpoint may be freeing the tables: the next list has what is left of them.
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
        // A writer may have freed the pages meanwhile; without one the failure is damage.
        if let (None, Some(error)) = (&self.engine.writing, failed) {
            self.report.problems.push(format!("a dropped table: {}", error.without_advice()));
        }
    }

    /// Returns the dropped tables with what is left of each, without holding them, which would
    /// block a checkpoint.
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

/// A page in use, and how often its id had been freed before.
struct Listed {
    page: PageId,
    freed: u32,
}

impl Listed {
    /// Returns whether the page is still in use and was not freed meanwhile.
    fn is_same(&self, pool: &Pool) -> bool {
        pool.frames().is_allocated(self.page) && pool.frames().times_freed(self.page) == self.freed
    }
}

/// How often a page that looks wrong is checked.
const LOOKS: u32 = 4;

/// Reads every image. Returns the damaged pages with their damage.
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
        // A page without an image was freed after the list was made; its id may be reused and get
        // an image soon.
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
            Some(Err(error)) => damaged.push((*page, error.without_advice())),
        }
    }
    damaged
}

fn log(engine: &Engine, report: &mut VerifyReport, progress: &mut Progress) -> Result<()> {
    let account = Some(engine.pool.account());
    let Some(Writing { checkpointer, .. }) = &engine.writing else {
        if engine.at_checkpoint.is_some() {
            // The log belongs to the writer.
            return Ok(());
        }
        let (_, manifest) = ManifestFile::open(&*engine.storage, true)?;
        report.add_files(FoundFiles::look(&*engine.storage, &manifest, true)?);
        let log = (&*engine.storage, engine.old_memory.found.as_ref(), account);
        return log_at_rest(log, &manifest, report, progress);
    };
    let manifest = checkpointer.manifest();
    // A copy that is being replaced looks damaged.
    let look = || FoundFiles::look(&*engine.storage, &manifest, false);
    let mut files = look()?;
    if !files.report.weaknesses().is_empty() {
        files = checkpointer.while_idle(look)?;
    }
    report.add_files(files);
    let commit = engine.system.commit();
    // The watermark first: everything that it covers is then below the ends.
    let watermark = commit.progress().watermark_in_segments();
    let running = Running { watermark, ends: commit.progress().durable_ends() };
    let covered = || Checkpointer::covered(checkpointer);
    add_log((&*engine.storage, None, account), &manifest, Some(&running), &covered, report, progress)
}

/// The storage of segments, the blocks of mapped memory, and the account of buffers.
type LogAndMemory<'a> = (&'a dyn Storage, Option<&'a Segment>, Option<&'a Arc<Account>>);

/// Checks the log of a database that is not open for writing.
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
    report.denied |= found.denied;
    found.problems.into_iter().for_each(|problem| report.add_problem(problem));
    Ok(())
}

/// Checks what can be checked of a database whose open failed with `error`: it is damaged, or a
/// file in its directory cannot be read.
///
/// # Errors
/// `error` for another reason, or if the manifest cannot be read either, unless it is damaged.
pub(super) fn run_refused(
    storage: &dyn Storage,
    error: Error,
    settings: &mut Settings,
    progress: &mut Progress,
) -> Result<VerifyReport> {
    let is_damage = error.kind() == ErrorKind::Corruption;
    // A store of objects that does not answer says nothing about the database.
    let is_file =
        matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound) && storage.directory().is_some();
    if !is_damage && !is_file {
        return Err(error);
    }
    let mut report = VerifyReport::default();
    report.add_error("", &error);
    match check_refused(storage, settings, &mut report, progress) {
        Ok(()) => {}
        Err(_) if is_file => return Err(error),
        // The second error says the same of the manifest.
        Err(more) if more.kind() == ErrorKind::NotFound || more.location() == error.location() => {
            report.problems.push("nothing else was checked, because that needs the manifest".into());
        }
        Err(more) => report.add_error("nothing else was checked: ", &more),
    }
    Ok(report)
}

fn check_refused(
    storage: &dyn Storage,
    settings: &mut Settings,
    report: &mut VerifyReport,
    progress: &mut Progress,
) -> Result<()> {
    // Where there is no database, no lock file is created.
    ManifestFile::open(storage, true)?;
    let _lock = storage.lock(false)?;
    let (_, mut manifest) = ManifestFile::open(storage, true)?;
    report.add_files(FoundFiles::look(storage, &manifest, true)?);
    let memories = match manifest.log_memory {
        Some(_) => log_memory::open(storage, settings, &mut manifest, 1, 0),
        None => Ok(Memories::default()),
    };
    let checked = memories.and_then(|memories| {
        let log = (storage, memories.old.found.as_ref(), None);
        log_at_rest(log, &manifest, report, progress)
    });
    // Without the memory the segments alone would look as if records were lost.
    if let Err(error) = checked {
        report.add_error("the log was not checked: ", &error);
    }
    let page_bytes = manifest.page_bytes as usize;
    match PageStore::open_read_only(storage, manifest.database, page_bytes, &manifest.store) {
        Ok(store) => {
            let damaged = check_stored_pages(&store, report, progress);
            let problem = |(page, problem)| format!("stored {page:?}: {problem}");
            report.problems.extend(damaged.into_iter().map(problem));
        }
        Err(error) => report.add_error("the page store: ", &error),
    }
    Ok(())
}

/// Bytes of a key in a message.
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
