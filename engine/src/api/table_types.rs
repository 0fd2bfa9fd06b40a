//! The types of tables: comparing, keeping and changing them.
//!
//! 1. A table that is created with types gets them in the record of its creation. So a crash leaves
//!    no table that could be opened with other types first.
//! 2. A table without types gets those with which it is first opened for writing. Two threads that
//!    do so at once compare theirs with what the first has logged.
//! 3. No handle has other types than the table has in the catalog: types are compared and a handle
//!    made under one lock, under which types change only if there is no handle.

use super::database::Database;
use super::table::Table;
use crate::base::{Error, ErrorKind, Location, Result, TableTypes};
use std::sync::Arc;

impl Database {
    /// Gives other types to a table, durably, and changes no row. For a change after which every
    /// row is right for the new types as it is: a type has another name, a struct of serde has a
    /// field with another name, an enum one more variant at its end. Rows that are not right would
    /// be misread: then copy them to another table.
    ///
    /// The table of an index is called `TABLE/NAME`. An index with other keys is dropped and opened
    /// again instead.
    ///
    /// ```
    /// use quenchdb::{Database, ErrorKind, Key, TableTypes, TypedTable};
    ///
    /// #[derive(Key)]
    /// struct Place {
    ///     city: String,
    /// }
    ///
    /// // Once called `Place`.
    /// #[derive(Key, Debug, PartialEq)]
    /// struct Address {
    ///     city: String,
    /// }
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// # let db = Database::builder().open_in_memory()?;
    /// let visits: TypedTable<Place, u64> = db.typed_table("visits")?;
    /// db.transact(|tx| visits.insert(tx, &Place { city: "Graz".into() }, &3))?;
    /// drop(visits);
    ///
    /// let refused = db.typed_table::<Address, u64>("visits").expect_err("other types");
    /// assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    /// db.set_types("visits", &TableTypes::table::<Address, u64>()?)?;
    /// let visits: TypedTable<Address, u64> = db.typed_table("visits")?;
    /// let first = visits.first(&db.begin_read()?)?;
    /// assert_eq!(first, Some((Address { city: "Graz".into() }, 3)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `Busy` while the table is open with types in this process; those of a commit.
    pub fn set_types(&self, name: &str, types: &TableTypes) -> Result<()> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        let _opening = self.inner.typed.lock_opening();
        let table = self.table(name)?;
        if !self.inner.typed.forget_unused(table.id()) {
            let what = "the table is open with types in this process: drop its handles and indexes first";
            return Err(Error::new(ErrorKind::Busy, what).at(Location::Table(name.to_string())));
        }
        self.inner.system.set_types(name, types, true).map(drop)
    }

    /// Returns the table called `name`, which has these types, or none in a database that is open
    /// read-only. Creates it, or gives it the types, if the database is open for writing.
    ///
    /// # Errors
    /// `InvalidArgument` if the table has other types.
    pub(crate) fn table_with_types(&self, name: &str, types: &TableTypes) -> Result<Table> {
        let table = if self.inner.check_writable().is_ok() {
            self.table_or_create_with_types(name, types)?
        } else {
            self.table(name)?
        };
        check_types(&table, types).map(|()| table)
    }

    fn table_or_create_with_types(&self, name: &str, types: &TableTypes) -> Result<Table> {
        let _inside = self.enter()?;
        let system = &self.inner.system;
        loop {
            let found = match system.table(name) {
                Ok(table) if table.types().is_some() => Ok(table),
                // Dropped or renamed meanwhile: `NotFound`.
                Ok(_) => system.set_types(name, types, false),
                Err(error) if error.kind() == ErrorKind::NotFound => system.create_typed_table(name, types),
                Err(error) => Err(error),
            };
            match found {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
                found => return found.map(|state| Table { state }),
            }
        }
    }

    /// Returns what all handles of a table with these types share, which `make` makes first. `None`
    /// if handles are open for which it has another type.
    ///
    /// # Errors
    /// `InvalidArgument` if the table has got other types.
    pub(crate) fn shared_of<T: Send + Sync + 'static>(
        &self,
        table: &Table,
        types: &TableTypes,
        make: impl FnOnce() -> T,
    ) -> Result<Option<Arc<T>>> {
        let _opening = self.inner.typed.lock_opening();
        check_types(table, types)?;
        Ok(self.inner.typed.get(table.id(), make))
    }

    /// Gives types to the table of an index, if the database is open for writing: with `replace`
    /// in place of those that it may have.
    pub(crate) fn give_index_types(&self, table: &Table, types: &TableTypes, replace: bool) -> Result<()> {
        if self.inner.check_writable().is_err() || (table.types().is_some() && !replace) {
            return Ok(());
        }
        let _inside = self.enter()?;
        self.inner.system.set_types(&table.name(), types, replace).map(drop)
    }
}

/// Compares the types of a table with those with which it is opened.
pub(super) fn check_types(table: &Table, types: &TableTypes) -> Result<()> {
    match table.types() {
        Some(own) if !own.opens_as(types) => {
            let what = format!(
                "the table was created as `{own}`, and is opened as `{types}`: open it with its own types, \
                 or change them with `Database::set_types` if every row is right for the new ones"
            );
            Err(Error::invalid(what).at(Location::Table(table.name().to_string())))
        }
        _ => Ok(()),
    }
}
