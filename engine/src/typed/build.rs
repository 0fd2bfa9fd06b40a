//! Opening typed tables and indexes, and building an index beside transactions.
//!
//! The table `quench.indexes` lists all indexes (`api::index_list`). The table of an index is
//! called `TABLE/NAME`.
//!
//! 1. The index is listed as being built, before it has an entry.
//! 2. It is added to the open indexes, so that changes maintain it. Then the thread waits until
//!    every transaction that changed the table without it has ended (`maintain`, invariant 2).
//! 3. Rows are locked and read in batches, and their entries written, each batch in a transaction.
//!    A row that changes later has its entries changed by the transaction that changes it.
//! 4. All batches are made durable. Then the index is listed as complete.
//!
//! After a crash the index is built again from the beginning.

use super::index::{Core, FindKeys, Index, UniqueIndex, check};
use super::key::Key;
use super::maintain::Indexes;
use super::multimap::Multimap;
use super::range::decode_value;
use super::table::{Shared, TypedTable};
use super::value::Value;
use crate::api::{Database, INDEX_LIST, ListedIndex, StandbySnapshot, Table, TransactionOptions};
use crate::base::settings::Durability;
use crate::base::{Error, ErrorKind, Location, Result, TableKind, TableTypes};
use crate::transaction::{Isolation, LockMode, Locking};
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

/// What to do with an index that has other keys.
const WITH_OTHER_KEYS: &str = "open it as it is, or drop it first (`Database::drop_index`)";
/// Rows that one transaction of a build reads.
const ROWS_AT_ONCE: usize = 256;

fn is_of_index(types: &TableTypes) -> bool {
    matches!(types.kind(), TableKind::Index | TableKind::UniqueIndex)
}

/// Returns `None` instead of `NotFound`.
fn if_found(table: Result<Table>) -> Result<Option<Table>> {
    match table {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        table => table.map(Some),
    }
}

/// Returns the names of the indexes that the table has.
fn listed_names(db: &Database, table: &Table) -> Result<Vec<String>> {
    let Some(list) = if_found(db.table(INDEX_LIST))? else { return Ok(Vec::new()) };
    let snapshot = db.begin_read()?;
    let rows = snapshot.prefix(&list, table.id().to_be_bytes());
    rows.map(|row| ListedIndex::of_key(&row?.0).map(|(_, name)| name.to_string())).collect()
}

impl StandbySnapshot {
    /// Returns the table that was called `name` at the CSN of the snapshot, with types. The handle
    /// is for snapshots of this standby only, and is to be taken from each of them.
    ///
    /// ```
    /// use quenchdb::{Database, TypedTable};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory for temporary files");
    /// # let path = directory.path().join("db");
    /// let db = Database::open(&path)?;
    /// let ages: TypedTable<String, u64> = db.typed_table("ages")?;
    /// let standby = Database::builder().open_standby(&path)?;
    ///
    /// let mut tx = db.begin()?;
    /// ages.insert(&mut tx, "alice", &42)?;
    /// let csn = tx.commit()?;
    /// assert!(standby.wait_for(csn, std::time::Duration::from_secs(10))?);
    /// let snapshot = standby.snapshot()?;
    /// let ages: TypedTable<String, u64> = snapshot.typed_table("ages")?;
    /// assert_eq!(ages.get(&*snapshot, "alice")?, Some(42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` if the table has other types.
    pub fn typed_table<K: Key, V: Value + 'static>(&self, name: &str) -> Result<TypedTable<K, V>> {
        self.open_with_types(name, &TableTypes::table::<K, V>()?)
    }

    /// Returns the multimap that was called `name`. Otherwise as [`StandbySnapshot::typed_table`].
    ///
    /// # Errors
    /// As [`StandbySnapshot::typed_table`].
    pub fn multimap<K: Key, V: Key>(&self, name: &str) -> Result<Multimap<K, V>> {
        let types = TableTypes::multimap::<K, V>()?;
        self.open_with_types(name, &types).map(|pairs| Multimap { pairs })
    }

    /// Nothing changes the rows, so no index is missing.
    fn open_with_types<K: Key, V: Value + 'static>(
        &self,
        name: &str,
        types: &TableTypes,
    ) -> Result<TypedTable<K, V>> {
        let table = self.table_with_types(name, types)?;
        let shared = Arc::new(Shared { table, indexes: Indexes::<V>::new(Vec::new()) });
        Ok(TypedTable { shared, keys: PhantomData })
    }
}

impl Database {
    /// Opens the table called `name` with types; creates it, durably, if it is missing. The
    /// database keeps the names of the types ([`TypeName`](crate::TypeName)), so the table is never
    /// opened with others; [`Database::set_types`] changes them on purpose. A table of bytes gets
    /// the types with which it is first opened for writing: whether its rows are right for them is
    /// then up to the application.
    ///
    /// # Errors
    /// `InvalidArgument` if the table has other types; as [`Database::table_or_create`]; `NotFound`
    /// if it is missing in a database that is open read-only.
    pub fn typed_table<K: Key, V: Value + 'static>(&self, name: &str) -> Result<TypedTable<K, V>> {
        self.open_with_types(name, &TableTypes::table::<K, V>()?)
    }

    fn open_with_types<K: Key, V: Value + 'static>(
        &self,
        name: &str,
        types: &TableTypes,
    ) -> Result<TypedTable<K, V>> {
        let table = self.table_with_types(name, types)?;
        let missing = listed_names(self, &table)?;
        let shared = || Shared { table: table.clone(), indexes: Indexes::<V>::new(missing) };
        let shared = self.shared_of(&table, types, shared)?.ok_or_else(|| {
            Error::invalid("the table is open with another type of values in this process")
                .at(Location::Table(name.to_string()))
        })?;
        Ok(TypedTable { shared, keys: PhantomData })
    }

    /// Opens the table called `name` as a multimap; creates it, durably, if it is missing.
    ///
    /// # Errors
    /// As [`Database::typed_table`].
    pub fn multimap<K: Key, V: Key>(&self, name: &str) -> Result<Multimap<K, V>> {
        let types = TableTypes::multimap::<K, V>()?;
        self.open_with_types(name, &types).map(|pairs| Multimap { pairs })
    }

    /// Opens the index called `name` of a table. `keys` returns the index keys of a value: an
    /// `Option`, an array or a `Vec`. Any number of rows may have the same key.
    ///
    /// Call this after [`Database::typed_table`], for each index, before the first change: a table
    /// whose indexes are not all open cannot be changed. If the database has no such index yet, it
    /// is built now, beside other transactions; that takes as long as reading all rows and writing
    /// the entries. Changes of the table wait for a moment when the build begins, and for the rows
    /// that are just being read.
    ///
    /// The database keeps the entries, not the function: if the function changes, give the index
    /// another name, or drop it first ([`Database::drop_index`]). The entries lie in a table called
    /// `TABLE/NAME`. If the index is open already, this returns it with its first function.
    ///
    /// ```
    /// use quenchdb::{Database, TypedTable};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// # let db = Database::builder().open_in_memory()?;
    /// // The city of each customer.
    /// let customers: TypedTable<u64, String> = db.typed_table("customers")?;
    /// let by_city = db.index(&customers, "by city", |city| [city.to_lowercase()])?;
    /// db.transact(|tx| {
    ///     customers.insert(tx, 1, "Vienna")?;
    ///     customers.insert(tx, 2, "Graz")?;
    ///     customers.insert(tx, 3, "vienna")
    /// })?;
    /// let snapshot = db.begin_read()?;
    /// let ids: Vec<u64> =
    ///     by_city.get(&snapshot, "vienna").map(|row| Ok(row?.1)).collect::<quenchdb::Result<_>>()?;
    /// assert_eq!(ids, [1, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the index is unique or has other types; `LockTimeout` if transactions
    /// that have changed the table do not end; those of a commit.
    pub fn index<I, K, V, R>(
        &self,
        table: &TypedTable<K, V>,
        name: &str,
        keys: impl Fn(&V::Borrowed) -> R + Send + Sync + 'static,
    ) -> Result<Index<I, K, V>>
    where
        I: Key + 'static,
        K: Key,
        V: Value + 'static,
        R: IntoIterator<Item = I>,
    {
        let keys: FindKeys<I, V> = Box::new(move |value, each| keys(value).into_iter().for_each(each));
        let core = Opening { db: self, shared: &table.shared, name }.open(false, keys)?;
        Ok(Index { core, table: table.clone() })
    }

    /// Opens the index called `name` of a table, in which at most one row has each key: a change
    /// that would give a key to a second row fails with `AlreadyExists`. Otherwise as
    /// [`Database::index`].
    ///
    /// ```
    /// use quenchdb::{Database, ErrorKind, TypedTable};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// # let db = Database::builder().open_in_memory()?;
    /// let emails: TypedTable<u64, String> = db.typed_table("emails")?;
    /// let by_email = db.unique_index(&emails, "by email", |email| Some(email.to_string()))?;
    /// db.transact(|tx| emails.insert(tx, 1, "alice@example.com"))?;
    /// let taken = db.transact(|tx| emails.insert(tx, 2, "alice@example.com"));
    /// assert_eq!(taken.expect_err("refused").kind(), ErrorKind::AlreadyExists);
    /// let (id, _) = by_email.get(&db.begin_read()?, "alice@example.com")?.expect("a row");
    /// assert_eq!(id, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if two rows have the same key: then there is no index. As
    /// [`Database::index`].
    pub fn unique_index<I, K, V, R>(
        &self,
        table: &TypedTable<K, V>,
        name: &str,
        keys: impl Fn(&V::Borrowed) -> R + Send + Sync + 'static,
    ) -> Result<UniqueIndex<I, K, V>>
    where
        I: Key + 'static,
        K: Key,
        V: Value + 'static,
        R: IntoIterator<Item = I>,
    {
        let keys: FindKeys<I, V> = Box::new(move |value, each| keys(value).into_iter().for_each(each));
        let core = Opening { db: self, shared: &table.shared, name }.open(true, keys)?;
        Ok(UniqueIndex { core, table: table.clone() })
    }

    /// Drops the index called `name`, open or not, and its entries.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while transactions or snapshots use the index; those of a commit.
    pub fn drop_index<K: Key, V: Value + 'static>(&self, table: &TypedTable<K, V>, name: &str) -> Result<()> {
        let opening = Opening { db: self, shared: &table.shared, name };
        let _alone = table.shared.indexes.opening.lock();
        let Some((list, listed)) = opening.listed()? else {
            let what = format!("the table has no index `{name}`");
            return Err(Error::new(ErrorKind::NotFound, what).at(opening.place()));
        };
        opening.forget(&list, listed)
    }

    /// Drops a table and its indexes.
    ///
    /// # Errors
    /// As [`Database::drop_index`] and [`Database::drop_table`].
    pub fn drop_typed_table<K: Key, V: Value + 'static>(&self, table: TypedTable<K, V>) -> Result<()> {
        for name in listed_names(self, table.untyped())? {
            self.drop_index(&table, &name)?;
        }
        self.drop_table(&table.untyped().name())?;
        self.forget_shared(table.untyped());
        Ok(())
    }
}

/// The opening of an index.
struct Opening<'a, V: Value> {
    db: &'a Database,
    shared: &'a Arc<Shared<V>>,
    name: &'a str,
}

impl<V: Value + 'static> Opening<'_, V> {
    fn table(&self) -> &Table {
        &self.shared.table
    }

    fn place(&self) -> Location {
        Location::Table(self.table().name().to_string())
    }

    /// Returns the list of indexes and the line of this one.
    fn listed(&self) -> Result<Option<(Table, ListedIndex)>> {
        let Some(list) = if_found(self.db.table(INDEX_LIST))? else { return Ok(None) };
        let line = self.db.begin_read()?.get(&list, ListedIndex::key(self.table().id(), self.name))?;
        line.map(|line| Ok((list, ListedIndex::decode(&line)?))).transpose()
    }

    fn open<I: Key + 'static>(&self, is_unique: bool, keys: FindKeys<I, V>) -> Result<Arc<Core<I, V>>> {
        let _alone = self.shared.indexes.opening.lock();
        let differs =
            |what: &str| Error::invalid(format!("the index `{}` {what}", self.name)).at(self.place());
        let types = TableTypes::index::<I>(is_unique)?;
        let is_open = self.shared.indexes.find(self.name).map(|open| open.any().downcast::<Core<I, V>>());
        if let Some(Ok(core)) = &is_open
            && core.is_unique == is_unique
        {
            return Ok(core.clone());
        }
        let core = |table| Arc::new(Core { name: self.name.to_string(), table, is_unique, keys });
        let listed = self.listed()?;
        let old = listed.as_ref().map_or(Ok(None), |(_, listed)| self.table_of(*listed))?;
        if let Some(own) = old.as_ref().and_then(Table::types)
            && own != types
        {
            let what = format!("was created as `{own}`, and is opened as `{types}`");
            return Err(differs(&what).with_advice(WITH_OTHER_KEYS));
        }
        if is_open.is_some() || listed.as_ref().is_some_and(|(_, listed)| listed.is_unique != is_unique) {
            let what = "has another type of keys, or is of another kind";
            return Err(differs(what).with_advice(WITH_OTHER_KEYS));
        }
        if let (Some((_, listed)), Some(table)) = (&listed, &old)
            && listed.is_complete
        {
            self.db.give_index_types(table, &types, false)?;
            let core = core(table.clone());
            self.add(&core);
            return Ok(core);
        }
        let (list, table) = self.list_as_being_built(old, is_unique, &types)?;
        let core = core(table);
        self.shared.indexes.add(core.clone());
        match self.build(&list, &core) {
            Ok(()) => {
                self.add_check(&core);
                Ok(core)
            }
            Err(error) => {
                let listed = ListedIndex { is_unique, is_complete: false, table: core.table.id() };
                // The next open would build it again; a failure changes nothing for the caller.
                if let Err(error) = self.forget(&list, listed) {
                    tracing::warn!(%error, index = self.name, "what was built of an index stays until it is dropped");
                }
                Err(error)
            }
        }
    }

    fn add<I: Key + 'static>(&self, core: &Arc<Core<I, V>>) {
        self.shared.indexes.add(core.clone());
        self.add_check(core);
    }

    /// Has `Database::verify` check the index.
    fn add_check<I: Key + 'static>(&self, core: &Arc<Core<I, V>>) {
        let (index, table) = (Arc::downgrade(core), self.table().clone());
        self.db.add_check(Box::new(move |snapshot| {
            let open = index.upgrade().filter(|index| !index.table.is_dropped());
            open.map_or(Ok(Vec::new()), |index| check(&index, &table, snapshot).map(|report| report.problems))
        }));
    }

    /// Returns the table of a listed index. `None` if it does not exist: the last attempt to build
    /// the index, or to drop it, ended between two steps, or the application dropped the table. Nor
    /// is a table of another purpose that of an index: the list may have been copied to another
    /// database, where tables have other identifiers.
    fn table_of(&self, listed: ListedIndex) -> Result<Option<Table>> {
        let found = if_found(self.db.table_with_id(listed.table))?;
        Ok(found.filter(|table| match table.types() {
            Some(types) => is_of_index(&types),
            None => table.name().ends_with(&format!("/{}", self.name)),
        }))
    }

    /// Lists the index as being built, with an empty table. `old` is the table of an earlier
    /// attempt. Returns the list and the table.
    fn list_as_being_built(
        &self,
        old: Option<Table>,
        is_unique: bool,
        types: &TableTypes,
    ) -> Result<(Table, Table)> {
        let list = self.db.table_or_create(INDEX_LIST)?;
        let table = match old {
            Some(old) => self.db.clear_table(&old.name())?,
            None => self.new_table(&list, types)?,
        };
        self.db.give_index_types(&table, types, true)?;
        let listed = ListedIndex { is_unique, is_complete: false, table: table.id() };
        self.write_line(&list, listed).map(|()| (list, table))
    }

    /// Returns an empty table for the index.
    fn new_table(&self, list: &Table, types: &TableTypes) -> Result<Table> {
        let name = format!("{}/{}", self.table().name(), self.name);
        let Some(table) = if_found(self.db.table(&name))? else {
            return self.db.table_with_types(&name, types);
        };
        if table.types().is_some_and(|own| is_of_index(&own)) && !self.is_listed(list, &table)? {
            // Left over from a table that was dropped or cleared without its indexes.
            return self.db.clear_table(&name);
        }
        if table.types().is_some() || !self.db.begin_read()?.is_empty(&table)? {
            let what = "an index needs a table of this name, which has another purpose";
            return Err(Error::new(ErrorKind::AlreadyExists, what)
                .with_advice("rename one of both")
                .at(Location::Table(name)));
        }
        Ok(table)
    }

    /// Returns whether a table that exists has an index with this table.
    fn is_listed(&self, list: &Table, index: &Table) -> Result<bool> {
        let snapshot = self.db.begin_read()?;
        for line in snapshot.iter(list) {
            let (key, line) = line?;
            let (table, _) = ListedIndex::of_key(&key)?;
            if ListedIndex::decode(&line)?.table == index.id()
                && if_found(self.db.table_with_id(table))?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write_line(&self, list: &Table, listed: ListedIndex) -> Result<()> {
        self.db
            .transact(|tx| tx.insert(list, ListedIndex::key(self.table().id(), self.name), listed.encode()))
    }

    /// Removes the index from the open ones and from the list, and drops its table.
    fn forget(&self, list: &Table, listed: ListedIndex) -> Result<()> {
        // Changes do not maintain it from here on.
        self.write_line(list, ListedIndex { is_complete: false, ..listed })?;
        self.shared.indexes.remove(self.name);
        if let Some(table) = self.table_of(listed)? {
            self.db.drop_table(&table.name())?;
        }
        self.db.transact(|tx| tx.remove(list, ListedIndex::key(self.table().id(), self.name)).map(drop))
    }

    fn build<I: Key + 'static>(&self, list: &Table, core: &Core<I, V>) -> Result<()> {
        let waiting = TransactionOptions::new().locking(Locking::Pessimistic);
        self.db.transact_with(waiting, |tx| tx.lock_table(self.table(), LockMode::Shared))?;
        let mut from = Bound::Unbounded;
        while let Some(last) = self.build_some(core, &from)? {
            from = Bound::Excluded(last);
        }
        self.db.flush()?;
        self.write_line(
            list,
            ListedIndex { is_unique: core.is_unique, is_complete: true, table: core.table.id() },
        )
    }

    /// Writes the entries of the next rows. Returns the key of the last one; none at the end.
    fn build_some<I: Key + 'static>(
        &self,
        core: &Core<I, V>,
        from: &Bound<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        // A row that others change all the time is waited for: at another isolation it would be a
        // conflict, again and again.
        let waiting = TransactionOptions::new().isolation(Isolation::ReadCommitted);
        self.db.transact_with(waiting.durability(Durability::Lazy), |tx| {
            let mut keys = tx.keys_at_most(self.table(), (from.clone(), Bound::Unbounded), ROWS_AT_ONCE)?;
            for key in &keys {
                let Some(value) = tx.get_for_update(self.table(), key)? else { continue };
                let value = decode_value::<V>(self.table(), key, &value)?;
                for (entry, leads_to) in core.entries(key, value.borrow()) {
                    core.check_unique(tx, &entry, key)?;
                    tx.insert(&core.table, entry, leads_to)?;
                }
            }
            Ok(keys.pop())
        })
    }
}
