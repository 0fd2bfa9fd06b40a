//! Creating, dropping, renaming and finding tables, and giving them types, durably (see the
//! invariants of `catalog`).

use super::catalog::{CatalogGuard, TableState};
use super::descriptor::{DescriptorId, Descriptors};
use super::system::{TransactionSystem, record_of};
use crate::base::settings::Durability;
use crate::base::{Csn, Error, ErrorKind, Result, TableTypes};
use crate::commit::{Pending, Predecessors, Ticket};
use crate::log::RedoBuffer;
use crate::tree::Tree;
use std::sync::Arc;

/// A table whose creation is in the log, and what to wait for.
type Created = (Arc<TableState>, (Ticket, Pending));

impl TransactionSystem {
    /// Returns the table called `name`, once its creation, its name and its types are durable.
    ///
    /// # Errors
    /// `NotFound`, once the drop is durable; `Poisoned` if a creation, drop, rename or change of
    /// types cannot become durable.
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        let table = self.once_durable(name, self.catalog.table(name))?;
        // Nearly always durable already: then the wait is one comparison with W.
        self.committed.wait(table.named_csn())?;
        Ok(table)
    }

    /// Creates a table of bytes, which is durable when this returns.
    ///
    /// # Errors
    /// `InvalidArgument`, `AlreadyExists`, `OutOfMemory`, and those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Arc<TableState>> {
        self.once_durable(name, self.create_new_table(name, None))
    }

    /// Creates a table with types: both become durable in one step.
    ///
    /// # Errors
    /// As [`TransactionSystem::create_table`].
    pub fn create_typed_table(&self, name: &str, types: &TableTypes) -> Result<Arc<TableState>> {
        self.once_durable(name, self.create_new_table(name, Some(Arc::new(types.clone()))))
    }

    /// Returns `answer` once the caller may rely on it: that a table exists already, or does not
    /// (invariant 1).
    fn once_durable<T>(&self, name: &str, answer: Result<T>) -> Result<T> {
        let is_answer =
            |error: &Error| matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound);
        if answer.as_ref().is_err_and(is_answer) {
            self.committed.wait(self.catalog.newest_change(name))?;
        }
        answer
    }

    fn create_new_table(&self, name: &str, types: Option<Arc<TableTypes>>) -> Result<Arc<TableState>> {
        self.catalog.lock().check_new(name)?;
        self.with_new_tree(|catalog, redo, tree| {
            catalog.check_new(name)?;
            let table = new_table(catalog, name, tree, types.clone());
            log_creation(redo, &table, name);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            // Checkpoint epochs begin under the catalog's lock.
            tree.publish();
            catalog.insert(table.clone(), committed.0.csn);
            Ok(Some((table, committed)))
        })
    }

    /// Replaces a table by an empty one of the same name and types, durably and in one step.
    ///
    /// # Errors
    /// As [`TransactionSystem::drop_table`] and [`TransactionSystem::create_table`].
    pub fn clear_table(&self, name: &str) -> Result<Arc<TableState>> {
        let cleared = self.with_new_tree(|catalog, redo, tree| {
            let old = catalog.prepare_drop(name)?;
            catalog.check_identifiers()?;
            let table = new_table(catalog, name, tree, old.types());
            redo.drop_table(old.id);
            log_creation(redo, &table, name);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            tree.publish();
            catalog.remove(&old, committed.0.csn);
            catalog.insert(table.clone(), committed.0.csn);
            Ok(Some((table, committed)))
        });
        self.once_durable(name, cleared)
    }

    /// Creates an empty tree that no thread knows, runs `change` with it as
    /// [`TransactionSystem::change_catalog`] does, and waits until the change is durable. If the
    /// change fails, the tree is freed.
    fn with_new_tree(
        &self,
        mut change: impl FnMut(&mut CatalogGuard<'_>, &mut RedoBuffer, &Tree) -> Result<Option<Created>>,
    ) -> Result<Arc<TableState>> {
        let tree = self.create_hidden_tree()?;
        let created = self.change_catalog(|catalog, redo| change(catalog, redo, &tree));
        let (table, (ticket, pending)) = match created {
            Ok(created) => created,
            Err(error) => {
                if let Err(error) = tree.destroy() {
                    tracing::warn!(%error, "pages of a table that was not created stay allocated until the next open");
                }
                return Err(error);
            }
        };
        self.committed.commit().waits().finish(ticket, &pending)?;
        Ok(table)
    }

    /// Drops a table and its rows, durably.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while transactions or snapshots use the table; those of a commit.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let dropped = self.change_catalog(|catalog, redo| {
            let table = catalog.prepare_drop(name)?;
            redo.drop_table(table.id);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            catalog.remove(&table, committed.0.csn);
            Ok(Some(committed))
        });
        let (ticket, pending) = self.once_durable(name, dropped)?;
        self.committed.commit().waits().finish(ticket, &pending).map(drop)
    }

    /// Gives a table another name, durably. Its users continue.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for the new name; `AlreadyExists`; those of a commit.
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<()> {
        let renamed = self.change_catalog(|catalog, redo| {
            let table = catalog.table(name)?;
            catalog.check_name(new_name)?;
            redo.rename_table(table.id, new_name);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            catalog.rename(&table, new_name, committed.0.csn);
            Ok(Some(committed))
        });
        let of_new_name = renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
        let (ticket, pending) = self.once_durable(if of_new_name { new_name } else { name }, renamed)?;
        self.committed.commit().waits().finish(ticket, &pending).map(drop)
    }

    /// Gives a table types, durably: with `replace` in place of those that it may have, otherwise
    /// only if it has none.
    ///
    /// # Errors
    /// `NotFound`; those of a commit.
    pub fn set_types(&self, name: &str, types: &TableTypes, replace: bool) -> Result<Arc<TableState>> {
        let set = self.change_catalog(|catalog, redo| {
            let table = catalog.table(name)?;
            let before = table.types();
            if before.as_deref() == Some(types) || (before.is_some() && !replace) {
                return Ok(Some((table, None)));
            }
            redo.set_types(table.id, types);
            let Some(committed) = self.precommit_catalog_change(redo)? else { return Ok(None) };
            catalog.set_types(&table, types.clone(), committed.0.csn);
            Ok(Some((table, Some(committed))))
        });
        let (table, committed) = self.once_durable(name, set)?;
        match committed {
            Some((ticket, pending)) => drop(self.committed.commit().waits().finish(ticket, &pending)?),
            None => self.committed.wait(table.named_csn())?,
        }
        Ok(table)
    }

    /// Runs `change` under the catalog's lock until it finds room in the log. Waits for room
    /// without the lock, which a checkpoint needs to make room, and every caller that opens a
    /// table.
    fn change_catalog<T>(
        &self,
        mut change: impl FnMut(&mut CatalogGuard<'_>, &mut RedoBuffer) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut redo = RedoBuffer::default();
        loop {
            redo.clear();
            if let Some(done) = change(&mut self.catalog.lock(), &mut redo)? {
                return Ok(done);
            }
            self.committed.commit().space().await_room(self.log_of_thread(), redo.body().len())?;
        }
    }

    /// Logs a change of the catalog, which depends on every transaction before it and is a barrier
    /// in redo. `None` if the log has no room now.
    fn precommit_catalog_change(&self, redo: &RedoBuffer) -> Result<Option<(Ticket, Pending)>> {
        let taken = Taken(&self.descriptors, self.descriptors.take()?);
        // Dropped first: a panic must poison the database before a checkpoint that waits for the
        // descriptor continues.
        let _inside = self.committed.commit().failure().guard("a thread that changed the catalog");
        let now = self.clock.now();
        let pending = Pending {
            dsn: Pending::EVERYTHING,
            predecessors: Predecessors::default(),
            alone: false,
            durability: Durability::Durable,
            begun: now,
            ready: now,
            waits: true,
            holds_locks: false,
        };
        let commit = self.committed.commit();
        let preparing = || self.descriptors.set_preparing(taken.1);
        let result = commit.precommit_now(self.log_of_thread(), record_of(redo), &pending, preparing);
        Ok(result?.map(|ticket| (ticket, pending)))
    }
}

/// Returns a table that no other thread knows yet.
fn new_table(
    catalog: &CatalogGuard<'_>,
    name: &str,
    tree: &Tree,
    types: Option<Arc<TableTypes>>,
) -> Arc<TableState> {
    Arc::new(TableState::new(catalog.next_id(), name, tree.clone(), Csn::MAX).with_types(types))
}

/// Logs a new table and its types in one record, so that no table with types is ever without.
fn log_creation(redo: &mut RedoBuffer, table: &TableState, name: &str) {
    redo.create_table(table.id, name);
    if let Some(types) = table.types() {
        redo.set_types(table.id, &types);
    }
}

/// The descriptor of a change of the catalog. No version ever carries its stamp.
struct Taken<'a>(&'a Descriptors, DescriptorId);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}
