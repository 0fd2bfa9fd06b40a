//! The catalog: which tables exist, since when, and who uses them.
//!
//! 1. A table carries the CSN of its creation. Touching it makes that CSN a dependency, so that no insert outlives the
//!    table it went to. Who is told that it was dropped depends on the drop in the same way. A call that answers that a table exists,
//!    or that none has this name, waits until that is durable.
//! 2. A transaction or snapshot that touches a table is counted as its user until it ends. Dropping first marks the
//!    table, then looks at the count; using first counts, then looks at the mark. Whichever comes second sees the
//!    other, so no insert and drop of one table can both go through. The mark says *dropping* until the drop is in the log or
//!    given up: who meets that waits until it is decided, so that a drop that fails is seen by nobody. Whoever drops waits for nobody meanwhile.
//! 3. Table identifiers are never reused.
//! 4. Creation and drop run under the catalog's lock from the check to the published change, and a checkpoint chooses
//!    its CSN under the same lock: the list of tables as of that CSN is exact.
//! 5. The pages of a dropped table are freed by the next checkpoint, before its round begins.
//! 6. Who works on a tree without being a user (garbage collection, `verify`) *holds* the table: that keeps its pages, and
//!    does not keep it from being dropped. Holding first counts, then looks at the mark, as using does; freeing pages comes
//!    after the drop, and waits until nobody holds the table.

use super::descriptor::{DescriptorId, Descriptors};
use super::system::TransactionSystem;
use crate::base::settings::Durability;
use crate::base::{Csn, Error, ErrorKind, Location, Result, TableId};
use crate::commit::{Pending, Predecessors, Ticket};
use crate::log::RedoBuffer;
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
    pub name: String,
    /// Where its rows are.
    pub tree: Tree,
    /// CSN of the creation; 0 once that is settled (loaded from a checkpoint). Written once by the creator.
    create_csn: AtomicU64,
    /// CSN of the drop; 0 before. Written once, before the mark says DROPPED.
    drop_csn: AtomicU64,
    /// `LIVE`, `DROPPING` or `DROPPED`. Written under the catalog's lock, read by users and holders.
    mark: AtomicU8,
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
            drop_csn: AtomicU64::new(0),
            mark: AtomicU8::new(LIVE),
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

    /// CSN of the drop, of a table that was dropped.
    #[must_use]
    pub fn drop_csn(&self) -> Csn {
        Csn(self.drop_csn.load(Ordering::Acquire))
    }

    fn set_create_csn(&self, csn: Csn) {
        self.create_csn.store(csn.0, Ordering::Release);
    }

    /// Counts one more user (invariant 2), and waits while somebody tries to drop the table. To be paired with [`TableState::end_use`].
    ///
    /// # Errors
    /// `NotFound` if the table was dropped.
    pub fn begin_use(&self) -> Result<()> {
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.is_dropped_at_last() {
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
        (!self.is_dropped_at_last()).then_some(hold)
    }

    /// Whether it is dropped, once that is decided. Who drops holds up others for nanoseconds, unless its thread is off the CPU.
    #[inline]
    fn is_dropped_at_last(&self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.mark.load(Ordering::SeqCst) {
                DROPPING => backoff.pause(),
                mark => return mark == DROPPED,
            }
        }
    }

    /// True if the table was dropped: whoever holds it should let go.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.mark.load(Ordering::SeqCst) == DROPPED
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
}

/// A table that is being dropped. Unless [`CatalogGuard::remove`] publishes that, it is given up when this goes.
#[derive(Debug)]
pub struct Dropping {
    table: Arc<TableState>,
}

impl Dropping {
    /// Marks the table, if nobody uses it (invariant 2).
    fn begin(table: Arc<TableState>) -> Result<Dropping> {
        table.mark.store(DROPPING, Ordering::SeqCst);
        let dropping = Dropping { table };
        match dropping.users.load(Ordering::SeqCst) {
            0 => Ok(dropping),
            users => {
                let what = format!("{users} open transactions or snapshots use the table");
                Err(Error::new(ErrorKind::Busy, what).at(Location::Table(dropping.name.clone())))
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
    /// Of that, what could not be read when it was tried last.
    pub failed: Vec<Subtree>,
}

/// All tables of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<TableState>>,
    /// CSN of the newest drop.
    newest_drop: Csn,
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

    /// What an answer about `name` that was given before this call rests on: the creation of the table, or if there is none, the newest
    /// drop. A change of the catalog depends on all before it, so one that came in between stands for what it changed.
    fn newest_change(&self, name: &str) -> Csn {
        let inner = self.inner.lock();
        inner.by_name.get(name).map_or(inner.newest_drop, |table| table.create_csn())
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
    pub fn prepare_drop(&self, name: &str) -> Result<Dropping> {
        let table = self.find(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such table").at(Location::Table(name.to_string()))
        })?;
        Dropping::begin(table)
    }

    /// Publishes a drop, which is in the log.
    pub fn remove(&mut self, table: &Arc<TableState>, drop_csn: Csn) {
        table.drop_csn.store(drop_csn.0, Ordering::Release);
        self.inner.newest_drop = drop_csn;
        table.mark.store(DROPPED, Ordering::SeqCst);
        self.inner.by_name.remove(&table.name);
        self.inner.dropped.push(DroppedTable {
            table: table.clone(),
            rest: vec![Subtree::Node(table.tree.root())],
            failed: Vec::new(),
        });
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

impl TransactionSystem {
    /// The table called `name`.
    ///
    /// # Errors
    /// `NotFound`; `Poisoned` if it is not known whether that stays so.
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        let table = self.once_durable(name, self.catalog().table(name))?;
        // Nearly always it is: that costs a comparison with W.
        self.commit().wait_committed(table.create_csn())?;
        Ok(table)
    }

    /// Creates a table; durable when it returns.
    ///
    /// # Errors
    /// `InvalidArgument`, `AlreadyExists`, `OutOfMemory`, and those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Arc<TableState>> {
        self.once_durable(name, self.create_new_table(name))
    }

    /// Whoever is told that a table exists already, or that it does not, may rely on that (invariant 1).
    fn once_durable<T>(&self, name: &str, answer: Result<T>) -> Result<T> {
        let tells = |error: &Error| matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound);
        if answer.as_ref().is_err_and(tells) {
            self.commit().wait_committed(self.catalog().newest_change(name))?;
        }
        answer
    }

    fn create_new_table(&self, name: &str) -> Result<Arc<TableState>> {
        self.catalog().lock().check_new(name)?;
        let tree = Tree::create_hidden(self.pool.clone(), self.observer.clone())?;
        let created = self.change_catalog(|catalog, redo| {
            catalog.check_new(name)?;
            let table =
                Arc::new(TableState::new(catalog.next_id(), name.to_string(), tree.clone(), Csn::MAX));
            redo.create_table(table.id, name);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            // Rounds begin under the catalog's lock.
            tree.publish();
            catalog.insert(table.clone(), committed.0.csn);
            Ok(Some((table, committed)))
        });
        let (table, (ticket, pending)) = match created {
            Ok(created) => created,
            Err(error) => {
                if let Err(error) = tree.destroy() {
                    tracing::warn!(%error, "pages of a table that was not created stay until the next open");
                }
                return Err(error);
            }
        };
        self.commit().finish(ticket, pending)?;
        Ok(table)
    }

    /// Drops a table; durable when it returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while transactions or snapshots use it; those of a commit.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let dropped = self.change_catalog(|catalog, redo| {
            let table = catalog.prepare_drop(name)?;
            redo.drop_table(table.id);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            catalog.remove(&table, committed.0.csn);
            Ok(Some(committed))
        });
        let (ticket, pending) = self.once_durable(name, dropped)?;
        self.commit().finish(ticket, pending)
    }

    /// Runs `change` under the catalog's lock until it finds room in the log. It is waited for without the lock: a checkpoint,
    /// which may be what makes the room, takes it too, and so does everybody who opens a table.
    fn change_catalog<T>(
        &self,
        mut change: impl FnMut(&mut CatalogGuard<'_>, &mut RedoBuffer) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut redo = RedoBuffer::default();
        loop {
            redo.clear();
            if let Some(done) = change(&mut self.catalog().lock(), &mut redo)? {
                return Ok(done);
            }
            self.commit().await_room(self.log_of_thread(), redo.body().len())?;
        }
    }

    /// Logs a change of the catalog: it depends on every transaction before it, and is a barrier in redo. `None` if there is
    /// no room in the log now.
    fn precommit_catalog_change(&self, redo: &RedoBuffer) -> Result<Option<(Ticket, Pending)>> {
        let taken = Taken(&self.descriptors, self.descriptors.take()?);
        // Dropped first: after a panic nothing is acknowledged before a checkpoint goes on that waits for the descriptor.
        let _inside = self.commit().inside("a thread that changed the catalog");
        let now = self.clock.now();
        let pending = Pending {
            dsn: Pending::EVERYTHING,
            predecessors: Predecessors::default(),
            alone: false,
            durability: Durability::Durable,
            begun: now,
            ready: now,
            waits: true,
        };
        let commit = self.commit();
        let preparing = || self.descriptors.set_preparing(taken.1);
        let result = commit.precommit_now(self.log_of_thread(), Self::record_of(redo), pending, preparing);
        Ok(result?.map(|ticket| (ticket, pending)))
    }
}

/// The descriptor of a change of the catalog. No version ever carries its stamp.
struct Taken<'a>(&'a Descriptors, DescriptorId);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}
