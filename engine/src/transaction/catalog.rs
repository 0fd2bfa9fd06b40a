//! The catalog: which tables exist, since when, and who uses them.
//!
//! 1. A table carries the CSN of its creation. Touching it makes that CSN a dependency, so that no insert outlives the
//!    table it went to.
//! 2. A transaction or snapshot that touches a table is counted as its user until it ends. Dropping first marks the
//!    table, then looks at the count; using first counts, then looks at the mark. Whichever comes second sees the
//!    other, so no insert and drop of one table can both go through.
//! 3. Table identifiers are never reused.
//! 4. Creation and drop run under the catalog's lock from the check to the published change, and a checkpoint chooses
//!    its CSN under the same lock: the list of tables as of that CSN is exact.
//! 5. The pages of a dropped table are freed by the next checkpoint, before its round begins.
//! 6. Who works on a tree without being a user (garbage collection, `verify`) *holds* the table: that keeps its pages, and
//!    does not keep it from being dropped. Holding first counts, then looks at the mark of the drop; freeing pages comes
//!    after the mark, and waits until nobody holds the table.

use crate::base::{Csn, Error, ErrorKind, Location, Result, TableId};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Event, Mutex, MutexGuard};
use crate::tree::{Subtree, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest table name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A table: its name, its tree, its users.
#[derive(Debug)]
pub struct TableState {
    /// Identity in log records.
    pub id: TableId,
    /// Name.
    pub name: String,
    /// Where its rows are.
    pub tree: Tree,
    /// CSN of the creation; 0 once that is settled (loaded from a checkpoint). Written once by the creator.
    create_csn: AtomicU64,
    dropped: AtomicBool,
    users: AtomicUsize,
    holders: AtomicUsize,
    /// Happens when a dropped table is not held any more.
    unheld: Event,
}

impl TableState {
    /// A table created by the transaction with `create_csn`.
    #[must_use]
    pub fn new(id: TableId, name: String, tree: Tree, create_csn: Csn) -> TableState {
        TableState {
            id,
            name,
            tree,
            create_csn: AtomicU64::new(create_csn.0),
            dropped: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            unheld: Event::new(),
        }
    }

    /// CSN of the creation.
    #[must_use]
    pub fn create_csn(&self) -> Csn {
        Csn(self.create_csn.load(Ordering::Acquire))
    }

    fn set_create_csn(&self, csn: Csn) {
        self.create_csn.store(csn.0, Ordering::Release);
    }

    /// Counts one more user (invariant 2). To be paired with [`TableState::end_use`].
    ///
    /// # Errors
    /// `NotFound` if the table was dropped.
    pub fn begin_use(&self) -> Result<()> {
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.dropped.load(Ordering::SeqCst) {
            self.end_use();
            return Err(Error::new(ErrorKind::NotFound, "the table was dropped")
                .at(Location::Table(self.name.clone())));
        }
        Ok(())
    }

    /// One user less.
    pub fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// Holds the table's pages (invariant 6); `None` if it was dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Option<TableHold> {
        let hold = TableHold::new(self.clone());
        (!self.is_dropped()).then_some(hold)
    }

    /// True if the table was dropped: whoever holds it should let go.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Waits until nobody holds the table, which was dropped.
    pub fn await_unheld(&self) {
        loop {
            let ticket = self.unheld.ticket();
            if self.holders.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.unheld.wait(ticket, None);
        }
    }

    /// Marks the table as dropped if nobody uses it (invariant 2).
    fn mark_dropped(&self) -> Result<()> {
        self.dropped.store(true, Ordering::SeqCst);
        let users = self.users.load(Ordering::SeqCst);
        if users == 0 {
            return Ok(());
        }
        self.dropped.store(false, Ordering::SeqCst);
        Err(Error::new(ErrorKind::Busy, format!("{users} open transactions or snapshots use the table"))
            .at(Location::Table(self.name.clone())))
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
        if self.table.holders.fetch_sub(1, Ordering::SeqCst) == 1 && self.table.is_dropped() {
            self.table.unheld.notify_all();
        }
    }
}

/// A dropped table whose pages are still there.
#[derive(Debug)]
pub struct DroppedTable {
    /// The table.
    pub table: Arc<TableState>,
    /// What is left to be freed.
    pub rest: Vec<Subtree>,
}

/// All tables of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<TableState>>,
    dropped: Vec<DroppedTable>,
    next_id: u32,
}

impl Catalog {
    /// The table called `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        self.inner.lock().by_name.get(name).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such table").at(Location::Table(name.to_string()))
        })
    }

    /// All names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.inner.lock().by_name.keys().cloned().collect()
    }

    /// Exclusive access, for a change or for choosing a checkpoint's CSN (invariant 4).
    pub fn lock(&self) -> CatalogGuard<'_> {
        CatalogGuard { inner: self.inner.lock() }
    }
}

/// The catalog while it is locked.
pub struct CatalogGuard<'a> {
    inner: MutexGuard<'a, Inner>,
}

impl CatalogGuard<'_> {
    /// The identifier that the next created table gets.
    #[must_use]
    pub fn next_id(&self) -> TableId {
        TableId(self.inner.next_id.max(1))
    }

    /// Identifiers below `next` are used up (recovery).
    pub fn reserve_ids(&mut self, next: TableId) {
        self.inner.next_id = self.inner.next_id.max(next.0);
    }

    /// The table called `name`, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<TableState>> {
        self.inner.by_name.get(name).cloned()
    }

    /// The table with `id`, if there is one (recovery).
    #[must_use]
    pub fn find_id(&self, id: TableId) -> Option<Arc<TableState>> {
        self.inner.by_name.values().find(|table| table.id == id).cloned()
    }

    /// Checks that a table called `name` may be created.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long name, or if there is no identifier left; `AlreadyExists`.
    pub fn check_new(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a table name has 1 to {NAME_BYTES_MAX} bytes, this one has {}",
                name.len()
            )));
        }
        if self.next_id() >= TableId::LIMIT {
            return Err(Error::invalid("there is no table identifier left"));
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
        self.inner.by_name.insert(table.name.clone(), table);
    }

    /// Marks a table before its drop is logged.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while it is used.
    pub fn prepare_drop(&self, name: &str) -> Result<Arc<TableState>> {
        let table = self.find(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such table").at(Location::Table(name.to_string()))
        })?;
        table.mark_dropped()?;
        Ok(table)
    }

    /// Takes the mark back: the drop could not be logged.
    pub fn cancel_drop(&self, table: &TableState) {
        table.dropped.store(false, Ordering::SeqCst);
    }

    /// Publishes a drop.
    pub fn remove(&mut self, table: &Arc<TableState>) {
        table.dropped.store(true, Ordering::SeqCst);
        self.inner.by_name.remove(&table.name);
        self.inner
            .dropped
            .push(DroppedTable { table: table.clone(), rest: vec![Subtree::Node(table.tree.root())] });
    }

    /// All live tables.
    #[must_use]
    pub fn tables(&self) -> Vec<Arc<TableState>> {
        self.inner.by_name.values().cloned().collect()
    }

    /// True if there are dropped tables whose pages are not freed yet.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        !self.inner.dropped.is_empty()
    }

    /// Takes the dropped tables, to free their pages (invariant 5). What could not be freed is to be put back.
    #[must_use]
    pub fn take_dropped(&mut self) -> Vec<DroppedTable> {
        std::mem::take(&mut self.inner.dropped)
    }

    /// Puts back what [`CatalogGuard::take_dropped`] gave.
    pub fn put_back_dropped(&mut self, dropped: impl IntoIterator<Item = DroppedTable>) {
        self.inner.dropped.extend(dropped);
    }

    /// Holds all tables that have pages, dropped ones too: each with the pages that everything else is below.
    #[must_use]
    pub fn hold_all(&self) -> Vec<(TableHold, Vec<Subtree>)> {
        let root = |table: &TableState| vec![Subtree::Node(table.tree.root())];
        let live = self.inner.by_name.values().map(|table| (table.clone(), root(table)));
        let dropped = self.inner.dropped.iter().map(|dropped| (dropped.table.clone(), dropped.rest.clone()));
        live.chain(dropped).map(|(table, pages)| (TableHold::new(table), pages)).collect()
    }
}
