//! The indexes of a table, as its changes see them.
//!
//! 1. A change of a row plans the changes of all indexes first, which checks that unique keys stay
//!    unique, and then makes them. If a later step fails, the transaction can only abort, so that
//!    no row is committed without its entries.
//! 2. An index may be opened while transactions change rows. A change reads the number of the list
//!    of indexes before and after it; if the number differs, the change fails with a conflict. The
//!    thread that opens the index first changes the list and then waits for a lock of the table,
//!    so either the change sees the new list, or the thread waits for the transaction.
//! 3. A database remembers which indexes a table has. Until the application has opened them all,
//!    rows cannot be changed.

use super::value::Value;
use crate::api::{Table, Transaction};
use crate::base::{Error, Location, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::any::Any;
use std::sync::Arc;

/// The changes of an index that belong to a change of a row.
#[derive(Debug, Default)]
pub struct Plan {
    /// Keys of entries that go.
    pub removed: Vec<Vec<u8>>,
    /// Entries that come.
    pub added: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An index of a table with values of type `V`.
pub trait Maintain<V: Value>: Send + Sync {
    /// Returns the name of the index.
    fn name(&self) -> &str;

    /// Returns what changes when the value of the row `key` changes.
    ///
    /// # Errors
    /// `AlreadyExists` if another row has a key that is unique.
    fn plan(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        before: Option<&V::Borrowed>,
        after: Option<&V::Borrowed>,
    ) -> Result<Plan>;

    /// Carries the plan out.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    fn apply(&self, tx: &mut Transaction, plan: Plan) -> Result<()>;

    /// Returns the index itself, for an application that opens it again.
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Open indexes.
pub(super) type List<V> = Arc<[Arc<dyn Maintain<V>>]>;

/// The indexes of a table.
pub(super) struct Indexes<V: Value> {
    /// Changes with each change of the list.
    version: AtomicU64,
    /// Whether there is none, open or not.
    none: AtomicBool,
    lists: Mutex<Lists<V>>,
    /// Held while an index is opened or dropped.
    pub(super) opening: Mutex<()>,
}

struct Lists<V: Value> {
    open: List<V>,
    /// Names of indexes that the database has and the application has not opened.
    missing: Vec<String>,
}

/// The indexes at the beginning of a change.
pub(super) struct Current<V: Value> {
    version: u64,
    /// None if there is no index.
    pub(super) open: Option<List<V>>,
}

impl<V: Value> Indexes<V> {
    /// Returns the indexes of a table that has those called `missing`.
    pub(super) fn new(missing: Vec<String>) -> Indexes<V> {
        Indexes {
            version: AtomicU64::new(0),
            none: AtomicBool::new(missing.is_empty()),
            lists: Mutex::new(Lists { open: Arc::new([]), missing }),
            opening: Mutex::new(()),
        }
    }

    /// Returns the indexes that a change has to maintain.
    ///
    /// # Errors
    /// `InvalidArgument` if the application has not opened all of them.
    pub(super) fn current(&self, table: &Table) -> Result<Current<V>> {
        let version = self.version.load(Ordering::SeqCst);
        if self.none.load(Ordering::SeqCst) {
            return Ok(Current { version, open: None });
        }
        let lists = self.lists.lock();
        if let Some(name) = lists.missing.first() {
            let what = format!("the table has an index `{name}`");
            return Err(Error::invalid(what)
                .with_advice("open it before a change, or drop it")
                .at(Location::Table(table.name().to_string())));
        }
        Ok(Current { version, open: Some(lists.open.clone()) })
    }

    /// Checks after a change that the list is the same (invariant 2). If it is not, the transaction
    /// can only abort.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check(&self, current: &Current<V>, tx: &mut Transaction) -> Result<()> {
        if self.version.load(Ordering::SeqCst) == current.version {
            return Ok(());
        }
        Err(tx.conflicts("an index of the table was opened or dropped"))
    }

    /// Returns the open index called `name`.
    pub(super) fn find(&self, name: &str) -> Option<Arc<dyn Maintain<V>>> {
        self.lists.lock().open.iter().find(|index| index.name() == name).cloned()
    }

    /// Adds an index to the list.
    pub(super) fn add(&self, index: Arc<dyn Maintain<V>>) {
        let mut lists = self.lists.lock();
        lists.missing.retain(|name| name != index.name());
        lists.open = lists.open.iter().cloned().chain([index]).collect();
        self.changed(&lists);
    }

    /// Removes the index called `name` from both lists.
    pub(super) fn remove(&self, name: &str) {
        let mut lists = self.lists.lock();
        lists.missing.retain(|missing| missing != name);
        lists.open = lists.open.iter().filter(|index| index.name() != name).cloned().collect();
        self.changed(&lists);
    }

    fn changed(&self, lists: &Lists<V>) {
        self.none.store(lists.open.is_empty() && lists.missing.is_empty(), Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}
