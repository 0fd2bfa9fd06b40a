//! The tables of a standby's copy, by the numbers and names that they have in the database.
//!
//! 1. A table of the copy may have another number than in the database, because numbers of tables
//!    that were never created are skipped there.
//! 2. A dropped table gets a hidden name first, and is dropped when no snapshot can see it. So a
//!    snapshot sees all tables of its CSN, and a drop waits for no snapshot.

use crate::api::database::Database;
use crate::api::table::Table;
use crate::base::{Error, ErrorKind, Result, TableId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

/// The tables at one CSN, by name. Those of later CSNs have higher numbers.
#[derive(Debug)]
pub(super) struct View {
    number: u64,
    pub(super) names: BTreeMap<Arc<str>, Table>,
}

/// A table that is dropped when each view up to this one is gone.
#[derive(Debug)]
struct Dropped {
    table: Table,
    last_view: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Tables {
    by_id: HashMap<u32, Table>,
    names: BTreeMap<Arc<str>, Table>,
    views: Vec<(u64, Weak<View>)>,
    dropped: Vec<Dropped>,
    /// The number of the newest view, and of the newest hidden name.
    next: (u64, u64),
}

impl Tables {
    /// Returns the tables of a copy to which nothing was applied.
    pub(super) fn of(db: &Database) -> Tables {
        let tables = db.inner.system.catalog.tables();
        let tables: Vec<Table> = tables.into_iter().map(|state| Table { state }).collect();
        let by_id = tables.iter().map(|table| (table.id(), table.clone())).collect();
        let names = tables.into_iter().map(|table| (table.name(), table)).collect();
        Tables { by_id, names, views: Vec::new(), dropped: Vec::new(), next: (0, 0) }
    }

    /// Returns the tables of a copy, by their numbers in the database. Drops all others but `keep`:
    /// what an interrupted change of tables has left.
    pub(super) fn resume(db: &Database, ids: &BTreeMap<u32, u32>, keep: &str) -> Result<Tables> {
        let mut tables = Tables { by_id: HashMap::new(), names: BTreeMap::new(), ..Tables::of(db) };
        for state in db.inner.system.catalog.tables() {
            let table = Table { state };
            if let Some((id, _)) = ids.iter().find(|(_, local)| **local == table.id()) {
                tables.by_id.insert(*id, table.clone());
                tables.names.insert(table.name(), table);
            } else if *table.name() != *keep {
                db.drop_table(&table.name())?;
            }
        }
        Ok(tables)
    }

    /// Returns the tables of the copy, by their numbers in the database.
    pub(super) fn ids(&self) -> BTreeMap<u32, u32> {
        self.by_id.iter().map(|(id, table)| (*id, table.id())).collect()
    }

    /// Returns the tables, each with its number in the database.
    pub(super) fn numbered(&self) -> Vec<(TableId, Arc<str>)> {
        self.by_id.iter().map(|(id, table)| (TableId(*id), table.name())).collect()
    }

    pub(super) fn get(&self, id: u32) -> Result<&Table> {
        let unknown = || Error::corruption(format!("the log changes table {id}, which does not exist"));
        self.by_id.get(&id).ok_or_else(unknown)
    }

    /// Returns a view of the tables that are there now.
    pub(super) fn view(&mut self) -> Arc<View> {
        self.next.0 += 1;
        self.views.retain(|(_, view)| view.strong_count() > 0);
        let view = Arc::new(View { number: self.next.0, names: self.names.clone() });
        self.views.push((view.number, Arc::downgrade(&view)));
        view
    }

    pub(super) fn create(&mut self, db: &Database, id: u32, name: &str) -> Result<()> {
        if self.by_id.contains_key(&id) || self.names.contains_key(name) {
            return Err(Error::corruption(format!("the log creates table {id}, which exists already")));
        }
        self.free_name(db, name)?;
        let table = db.create_table(name)?;
        self.by_id.insert(id, table.clone());
        self.names.insert(name.into(), table);
        Ok(())
    }

    pub(super) fn rename(&mut self, db: &Database, id: u32, name: &str) -> Result<()> {
        let table = self.get(id)?.clone();
        let before = table.name();
        if *before == *name {
            return Ok(());
        }
        self.free_name(db, name)?;
        db.rename_table(&before, name)?;
        self.names.remove(&before);
        self.names.insert(name.into(), table);
        Ok(())
    }

    pub(super) fn drop(&mut self, db: &Database, id: u32) -> Result<()> {
        let table = self.get(id)?.clone();
        self.names.remove(&table.name());
        self.by_id.remove(&id);
        self.hide(db, &table)?;
        self.dropped.push(Dropped { table, last_view: self.next.0 });
        Ok(())
    }

    /// Gives a table a name that no other has.
    fn hide(&mut self, db: &Database, table: &Table) -> Result<()> {
        loop {
            self.next.1 += 1;
            let hidden = format!("dropped {}", self.next.1);
            match db.rename_table(&table.name(), &hidden) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                renamed => return renamed,
            }
        }
    }

    /// Takes a name from a table that is only hidden.
    fn free_name(&mut self, db: &Database, name: &str) -> Result<()> {
        let hidden = self.dropped.iter().find(|dropped| *dropped.table.name() == *name);
        match hidden.map(|dropped| dropped.table.clone()) {
            Some(table) => self.hide(db, &table),
            None => Ok(()),
        }
    }

    /// Drops tables that no snapshot can see any more.
    pub(super) fn drop_unseen(&mut self, db: &Database) -> Result<()> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        self.views.retain(|(_, view)| view.strong_count() > 0);
        let oldest = self.views.first().map_or(u64::MAX, |(number, _)| *number);
        for Dropped { table, last_view } in std::mem::take(&mut self.dropped) {
            let kind = match last_view >= oldest {
                true => Some(ErrorKind::Busy),
                false => db.drop_table(&table.name()).err().map(|error| error.kind()),
            };
            match kind {
                None => {}
                // The next call tries again.
                Some(ErrorKind::Busy) => self.dropped.push(Dropped { table, last_view }),
                Some(kind) => return Err(Error::new(kind, "a dropped table of the copy cannot be removed")),
            }
        }
        Ok(())
    }
}
