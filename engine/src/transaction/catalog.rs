//! The catalog: which tables exist, since when, and how many users they have.
//!
//! 1. A table carries the CSN of its creation. Touching the table makes that CSN a dependency, so
//!    that no insert outlives its table. A caller that learns of a drop depends on the drop in the
//!    same way. A call that answers that a table exists, or that none has this name, waits until
//!    the answer is durable.
//! 2. A transaction or snapshot that touches a table is counted as its user until it ends. Dropping
//!    first marks the table, then reads the count; using first counts, then reads the mark.
//!    Whichever comes second sees the other, so no insert and drop of one table can both succeed.
//!    The mark is *dropping* until the drop is in the log or has failed. A user that reads this
//!    mark waits for the decision, so that no user sees a drop that fails. The dropping thread
//!    waits for no other meanwhile.
//! 3. Table identifiers are never reused. A rename changes only the name: users continue, and what
//!    they log carries the identifier. A lookup by name depends on the rename that gave the name,
//!    and on the change that gave the types.
//! 4. Creation, drop, rename and changes of types run under the catalog's lock from the check to
//!    the published change. A checkpoint chooses its CSN under the same lock, so the list of tables
//!    as of that CSN is exact.
//! 5. The next checkpoint frees the pages of a dropped table, before its epoch begins.
//! 6. A thread that works on a tree without being a user (garbage collection, `verify`) *holds* the
//!    table. A hold keeps the pages, and does not prevent a drop. Holding first counts, then reads
//!    the mark, as using does. Freeing pages comes after the drop, and waits until no hold is left.

use super::dead_ranges::DeadRanges;
use super::locks::TableLocks;
use super::table_name::TableName;
use crate::base::similar::suggestion;
use crate::base::{Csn, Error, ErrorKind, Location, Result, TableId, TableTypes};
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Backoff, Event, Mutex, MutexGuard};
use crate::tree::{Subtree, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest table name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Marks of a table (invariant 2).
const LIVE: u8 = 0;
const DROPPING: u8 = 1;
const DROPPED: u8 = 2;

/// A table: its name, its tree, its users.
#[derive(Debug)]
pub struct TableState {
    /// Identity in log records.
    pub id: TableId,
    /// Name.
    pub name: TableName,
    /// Types of keys and values, if the table was opened with types. Changed under the catalog's
    /// lock.
    types: Mutex<Option<Arc<TableTypes>>>,
    /// The rows.
    pub tree: Tree,
    /// The locks besides the stamps of rows.
    pub locks: TableLocks,
    /// Ranges of deleted rows that scans skip.
    pub dead_ranges: DeadRanges,
    /// CSN of the creation; 0 for a table that was loaded from a checkpoint. Written once by the
    /// creator.
    create_csn: AtomicU64,
    /// CSN of the newest change of the name or the types; 0 if there was none since open. Written
    /// under the catalog's lock.
    altered_csn: AtomicU64,
    /// CSN of the drop; 0 before. Written once, before the mark says DROPPED.
    drop_csn: AtomicU64,
    /// `LIVE`, `DROPPING` or `DROPPED`. Written under the catalog's lock, read by users and
    /// holders.
    mark: AtomicU8,
    users: AtomicUsize,
    /// Rows read and rows changed since open. Beside the users, because they change together.
    rows_read: AtomicU64,
    rows_changed: AtomicU64,
    holders: AtomicUsize,
    /// Happens when the last hold of a dropped table ends.
    unheld: Event,
}

impl TableState {
    /// Returns a table that the transaction with `create_csn` created.
    #[must_use]
    pub fn new(id: TableId, name: &str, tree: Tree, create_csn: Csn) -> TableState {
        TableState {
            id,
            name: TableName::new(name),
            tree,
            locks: TableLocks::default(),
            dead_ranges: DeadRanges::default(),
            create_csn: AtomicU64::new(create_csn.0),
            types: Mutex::new(None),
            altered_csn: AtomicU64::new(0),
            drop_csn: AtomicU64::new(0),
            mark: AtomicU8::new(LIVE),
            users: AtomicUsize::new(0),
            rows_read: AtomicU64::new(0),
            rows_changed: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
            unheld: Event::new(),
        }
    }

    /// Returns the CSN of the creation.
    #[must_use]
    pub fn create_csn(&self) -> Csn {
        Csn(self.create_csn.load(Ordering::Acquire))
    }

    /// Returns the CSN on which an answer depends that a table has this name and these types.
    #[must_use]
    pub fn named_csn(&self) -> Csn {
        self.create_csn().max(Csn(self.altered_csn.load(Ordering::Acquire)))
    }

    /// Returns the CSN of the drop; 0 before.
    #[must_use]
    pub fn drop_csn(&self) -> Csn {
        Csn(self.drop_csn.load(Ordering::Acquire))
    }

    /// Returns the types of keys and values, if the table was opened with types.
    #[must_use]
    pub fn types(&self) -> Option<Arc<TableTypes>> {
        self.types.lock().clone()
    }

    /// Gives types to a table that no other thread knows yet.
    #[must_use]
    pub fn with_types(self, types: Option<Arc<TableTypes>>) -> TableState {
        TableState { types: Mutex::new(types), ..self }
    }

    fn set_create_csn(&self, csn: Csn) {
        self.create_csn.store(csn.0, Ordering::Release);
    }

    /// Counts one more user (invariant 2), and waits while another thread tries to drop the table.
    /// To be paired with [`TableState::end_use`].
    ///
    /// # Errors
    /// `NotFound` if the table was dropped.
    pub fn begin_use(&self) -> Result<()> {
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.await_decision() {
            self.end_use();
            return Err(Error::new(ErrorKind::NotFound, "the table was dropped")
                .with_advice("open it again by name if it was created again")
                .at(Location::Table(self.name.to_string())));
        }
        Ok(())
    }

    /// Counts one user less.
    pub fn end_use(&self) {
        let before = self.users.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "each use of a table ends once");
    }

    /// Counts rows that were read, and rows that a committed transaction changed.
    pub(super) fn count_rows(&self, read: u64, changed: u64) {
        for (counter, rows) in [(&self.rows_read, read), (&self.rows_changed, changed)] {
            if rows > 0 {
                counter.fetch_add(rows, Ordering::Relaxed);
            }
        }
    }

    /// Returns the rows that were read and that were changed since open.
    #[must_use]
    pub fn rows_read_and_changed(&self) -> (u64, u64) {
        (self.rows_read.load(Ordering::Relaxed), self.rows_changed.load(Ordering::Relaxed))
    }

    /// Holds the table's pages (invariant 6); `None` if the table was dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Option<TableHold> {
        let hold = TableHold::new(self.clone());
        (!self.await_decision()).then_some(hold)
    }

    /// Returns whether the table is dropped, once that is decided, which takes nanoseconds unless
    /// the dropping thread is off the CPU.
    #[inline]
    fn await_decision(&self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.mark.load(Ordering::SeqCst) {
                DROPPING => backoff.pause(),
                mark => return mark == DROPPED,
            }
        }
    }

    /// Returns whether the table was dropped, so that holders should release it.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.mark.load(Ordering::SeqCst) == DROPPED
    }

    /// Waits until no hold of the table, which was dropped, is left.
    pub fn await_unheld(&self) {
        loop {
            let ticket = self.unheld.ticket();
            if self.holders.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.unheld.wait(ticket, None);
        }
    }
}

/// A table that is being dropped. Dropping this value cancels the drop unless
/// [`CatalogGuard::remove`] has published it.
#[derive(Debug)]
pub struct Dropping {
    table: Arc<TableState>,
}

impl Dropping {
    /// Marks the table, unless it has users (invariant 2).
    fn begin(table: Arc<TableState>) -> Result<Dropping> {
        table.mark.store(DROPPING, Ordering::SeqCst);
        let dropping = Dropping { table };
        match dropping.users.load(Ordering::SeqCst) {
            0 => Ok(dropping),
            users => {
                let what = format!("{users} open transactions or snapshots use the table");
                Err(Error::new(ErrorKind::Busy, what)
                    .with_advice("end them first")
                    .at(Location::Table(dropping.name.to_string())))
            }
        }
    }
}

impl std::ops::Deref for Dropping {
    type Target = Arc<TableState>;

    fn deref(&self) -> &Arc<TableState> {
        &self.table
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        let _ = self.mark.compare_exchange(DROPPING, LIVE, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// The use of a table by a transaction or snapshot, until it ends. Rows are counted here, and added
/// to the counts of the table together with the end of the use: other threads write to these, too.
#[derive(Debug)]
pub(super) struct TableUse {
    pub(super) table: Arc<TableState>,
    pub(super) rows_read: u64,
    /// Of a transaction that commits.
    pub(super) rows_changed: u64,
}

impl TableUse {
    /// The use of a table at which it was counted as a user.
    pub(super) fn new(table: &Arc<TableState>) -> TableUse {
        TableUse { table: table.clone(), rows_read: 0, rows_changed: 0 }
    }

    pub(super) fn is_of(&self, table: &Arc<TableState>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    pub(super) fn end(self) {
        self.table.count_rows(self.rows_read, self.rows_changed);
        self.table.end_use();
    }
}

/// Keeps the pages of a table (invariant 6).
#[derive(Debug)]
pub struct TableHold {
    table: Arc<TableState>,
}

impl TableHold {
    fn new(table: Arc<TableState>) -> TableHold {
        table.holders.fetch_add(1, Ordering::SeqCst);
        TableHold { table }
    }
}

impl std::ops::Deref for TableHold {
    type Target = TableState;

    fn deref(&self) -> &TableState {
        &self.table
    }
}

impl Drop for TableHold {
    fn drop(&mut self) {
        let before = self.table.holders.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "each hold of a table ends once");
        if before == 1 && self.table.is_dropped() {
            self.table.unheld.notify_all();
        }
    }
}

/// A dropped table whose pages are not all freed.
#[derive(Debug)]
pub struct DroppedTable {
    /// The table.
    pub table: Arc<TableState>,
    /// Pages still to be freed.
    pub rest: Vec<Subtree>,
    /// Those of them that could not be read at the last attempt.
    pub failed: Vec<Subtree>,
}

/// A table that was dropped, for change feeds that read the log before its drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormerTable {
    /// Its identifier.
    pub id: TableId,
    /// Its last name.
    pub name: Arc<str>,
    /// The CSN of its drop.
    pub dropped: Csn,
}

fn no_table(name: &str, names: impl Iterator<Item = String>) -> Error {
    let error = Error::new(ErrorKind::NotFound, "no table has this name");
    let error = error.at(Location::Table(name.to_string()));
    match suggestion(name, names) {
        Some(advice) => error.with_advice(advice),
        None => error,
    }
}

/// All tables of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<TableState>>,
    /// CSN of the newest change after which a name exists no more: a drop or a rename.
    newest_unnamed: Csn,
    dropped: Vec<DroppedTable>,
    /// Tables whose drop is in the history of the log.
    former: Vec<FormerTable>,
    next_id: u32,
}

impl Catalog {
    /// Returns the table called `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        self.lock().table(name)
    }

    /// Returns the CSN on which an answer about `name` from before this call depends: that of the
    /// creation or rename of the table, or if there is no such table, of the newest drop or rename.
    /// A change of the catalog depends on all earlier ones, so a change between the answer and this
    /// call covers what the answer was about.
    pub(super) fn newest_change(&self, name: &str) -> Csn {
        let inner = self.inner.lock();
        inner.by_name.get(name).map_or(inner.newest_unnamed, |table| table.named_csn())
    }

    /// Returns all names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.inner.lock().by_name.keys().cloned().collect()
    }

    /// Returns all tables, in the order of their names.
    #[must_use]
    pub fn tables(&self) -> Vec<Arc<TableState>> {
        self.inner.lock().by_name.values().cloned().collect()
    }

    /// Locks the catalog, for a change or for choosing a checkpoint's CSN (invariant 4).
    pub fn lock(&self) -> CatalogGuard<'_> {
        CatalogGuard { inner: self.inner.lock() }
    }
}

/// The catalog while it is locked.
pub struct CatalogGuard<'a> {
    inner: MutexGuard<'a, Inner>,
}

impl CatalogGuard<'_> {
    /// Returns the identifier of the next created table.
    #[must_use]
    pub fn next_id(&self) -> TableId {
        TableId(self.inner.next_id.max(1))
    }

    /// Marks identifiers below `next` as used (recovery).
    pub fn reserve_ids(&mut self, next: TableId) {
        self.inner.next_id = self.inner.next_id.max(next.0);
    }

    /// Returns the table called `name`, if it exists.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<TableState>> {
        self.inner.by_name.get(name).cloned()
    }

    /// Returns the table with `id`, if it exists (recovery).
    #[must_use]
    pub fn find_id(&self, id: TableId) -> Option<Arc<TableState>> {
        self.inner.by_name.values().find(|table| table.id == id).cloned()
    }

    /// Checks that a table called `name` may be created.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long name, or if there is no identifier left;
    /// `AlreadyExists`.
    pub fn check_new(&self, name: &str) -> Result<()> {
        self.check_name(name)?;
        self.check_identifiers()
    }

    /// Checks that there is an identifier for a new table.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none.
    pub fn check_identifiers(&self) -> Result<()> {
        if self.next_id() >= TableId::LIMIT {
            return Err(Error::invalid("all table identifiers are used")
                .with_advice("copy the tables to a new database (`salvage` or a dump)"));
        }
        Ok(())
    }

    /// Checks that a table may be called `name`.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long name; `AlreadyExists`.
    pub fn check_name(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a table name has 1 to {NAME_BYTES_MAX} bytes, this one has {}",
                name.len()
            )));
        }
        if self.inner.by_name.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, "the table exists already")
                .at(Location::Table(name.to_string())));
        }
        Ok(())
    }

    /// Publishes a created table.
    pub fn insert(&mut self, table: Arc<TableState>, create_csn: Csn) {
        table.set_create_csn(create_csn);
        self.inner.next_id = self.inner.next_id.max(table.id.0 + 1);
        debug_assert!(!self.inner.by_name.contains_key(&*table.name.get()), "a name has one table");
        self.inner.by_name.insert(table.name.to_string(), table);
    }

    /// Publishes a change of a table's name. No table has the new name.
    pub fn rename(&mut self, table: &Arc<TableState>, name: &str, csn: Csn) {
        debug_assert!(!self.inner.by_name.contains_key(name), "a name has one table");
        debug_assert!(self.inner.newest_unnamed <= csn, "changes of the catalog rise");
        debug_assert!(table.named_csn() <= csn, "a table is renamed after it got its name");
        self.inner.by_name.remove(&*table.name.get());
        self.inner.newest_unnamed = csn;
        table.altered_csn.store(csn.0, Ordering::Release);
        table.name.set(name);
        self.inner.by_name.insert(name.to_string(), table.clone());
    }

    /// Publishes a change of a table's types.
    pub fn set_types(&mut self, table: &TableState, types: TableTypes, csn: Csn) {
        debug_assert!(table.create_csn() <= csn, "a table is altered after it was created");
        table.altered_csn.store(csn.0, Ordering::Release);
        *table.types.lock() = Some(Arc::new(types));
    }

    /// Returns the table called `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        self.find(name).ok_or_else(|| no_table(name, self.inner.by_name.keys().cloned()))
    }

    /// Marks a table before its drop is logged.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while the table is used.
    pub fn prepare_drop(&self, name: &str) -> Result<Dropping> {
        Dropping::begin(self.table(name)?)
    }

    /// Publishes a drop that is in the log.
    pub fn remove(&mut self, table: &Arc<TableState>, drop_csn: Csn) {
        debug_assert!(self.find_id(table.id).is_some(), "only a table of the catalog is dropped");
        debug_assert!(self.inner.newest_unnamed <= drop_csn, "changes of the catalog rise");
        debug_assert!(table.create_csn() <= drop_csn, "a table is dropped after it was created");
        table.drop_csn.store(drop_csn.0, Ordering::Release);
        self.inner.newest_unnamed = drop_csn;
        table.mark.store(DROPPED, Ordering::SeqCst);
        self.inner.by_name.remove(&*table.name.get());
        self.inner.former.push(FormerTable { id: table.id, name: table.name.get(), dropped: drop_csn });
        self.inner.dropped.push(DroppedTable {
            table: table.clone(),
            rest: vec![Subtree::Node(table.tree.root())],
            failed: Vec::new(),
        });
    }

    /// Returns all live tables.
    #[must_use]
    pub fn tables(&self) -> Vec<Arc<TableState>> {
        self.inner.by_name.values().cloned().collect()
    }

    /// Returns the tables whose drop is in the history of the log.
    #[must_use]
    pub fn former(&self) -> &[FormerTable] {
        &self.inner.former
    }

    /// Remembers tables that were dropped before the database was opened (recovery).
    pub fn remember_former(&mut self, former: impl IntoIterator<Item = FormerTable>) {
        self.inner.former.extend(former);
    }

    /// Forgets tables that were dropped up to `csn`.
    pub fn forget_former(&mut self, csn: Csn) {
        self.inner.former.retain(|former| former.dropped > csn);
    }

    /// Returns whether pages of dropped tables are not freed yet.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        !self.inner.dropped.is_empty()
    }

    /// Takes the dropped tables, to free their pages (invariant 5). The caller puts back what it
    /// could not free.
    #[must_use]
    pub fn take_dropped(&mut self) -> Vec<DroppedTable> {
        std::mem::take(&mut self.inner.dropped)
    }

    /// Puts back tables that [`CatalogGuard::take_dropped`] returned.
    pub fn put_back_dropped(&mut self, dropped: impl IntoIterator<Item = DroppedTable>) {
        self.inner.dropped.extend(dropped);
    }

    /// Holds all tables that have pages, dropped ones too: each with the roots of its pages.
    #[must_use]
    pub fn hold_all(&self) -> Vec<(TableHold, Vec<Subtree>)> {
        let root = |table: &TableState| vec![Subtree::Node(table.tree.root())];
        let live = self.inner.by_name.values().map(|table| (table.clone(), root(table)));
        let dropped = self.inner.dropped.iter().map(|dropped| (dropped.table.clone(), dropped.rest.clone()));
        live.chain(dropped).map(|(table, pages)| (TableHold::new(table), pages)).collect()
    }
}
