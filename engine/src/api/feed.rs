//! Change feeds: the transactions that were committed, and the changes of some rows.

use super::database::Database;
use super::table::Table;
use crate::base::clock::Nanos;
use crate::base::{Csn, Result};
use crate::feed::{Change, ChangedTable, Changes, FeedStart};
use std::collections::VecDeque;
use std::time::Duration;

impl Database {
    /// Returns a feed of all transactions that committed after the CSN `after`, in the order of
    /// their CSNs, and waits for further ones. `Csn::ZERO` begins with the first transaction of the
    /// database; the CSN of a [`Snapshot`](crate::Snapshot) continues what the snapshot sees. A
    /// snapshot may see commits below level durable that a crash takes back; not so after
    /// [`Database::flush`].
    ///
    /// A transaction is returned when it is durable, so no crash takes it back. A reader that keeps
    /// its [`Changes::csn`], and begins there again after a crash or a close, gets each later
    /// transaction once. The feed reads the log. It causes no device write: what is committed with
    /// [`Durability::Lazy`](crate::Durability::Lazy) appears when it is written.
    ///
    /// While feeds run, log that they have not read is retained up to a quarter of
    /// [`log_bytes_max`](crate::Settings::log_bytes_max), beyond what recovery needs. Set
    /// [`change_history_bytes`](crate::Settings::change_history_bytes) to retain log without a
    /// running feed, also while the database is closed. A feed that is slower than that gets
    /// [`ErrorKind::FellBehind`](crate::ErrorKind::FellBehind); commits never wait for a feed.
    ///
    /// ```
    /// use quenchdb::{Change, Csn, Database};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// let db = Database::builder().open_in_memory()?;
    /// let users = db.create_table("users")?;
    /// let mut changes = db.changes(db.begin_read()?.csn())?;
    /// db.transact(|tx| tx.insert(&users, "alice", "Vienna"))?;
    ///
    /// let transaction = changes.next().expect("the database is open")?;
    /// for change in transaction.changes() {
    ///     match change? {
    ///         Change::Put { table, key, value } => {
    ///             assert_eq!(table.name(), "users");
    ///             assert_eq!((key.as_slice(), value.as_slice()), (&b"alice"[..], &b"Vienna"[..]));
    ///         }
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// // Kept with what was made of the changes, this is where to continue.
    /// let position: Csn = changes.csn();
    /// # assert!(position >= transaction.csn());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `FellBehind` if the log does not retain everything after `after`; `InvalidArgument` if no
    /// transaction has that CSN yet, or if the database is closed or open read-only.
    pub fn changes(&self, after: Csn) -> Result<Changes> {
        let writing = self.inner.check_writable()?;
        let _inside = self.inner.system.committed.enter()?;
        let catalog = self.inner.system.catalog.lock();
        let former = catalog.former().iter().map(|former| (former.id, former.name.clone()));
        let tables = catalog.tables().into_iter().map(|table| (table.id, table.name.get()));
        let tables = former.chain(tables).collect();
        drop(catalog);
        Changes::begin(FeedStart {
            source: self.inner.system.commit().feed_source().clone(),
            database: writing.database,
            epochs: writing.epochs.clone(),
            tables,
            feeds: self.inner.system.feeds(),
            after,
        })
    }

    /// Returns the changes of rows of `table` whose keys begin with `prefix`, from now on, in the
    /// order of commits. An empty prefix is all rows.
    ///
    /// ```
    /// use quenchdb::{Change, Database};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// let db = Database::builder().open_in_memory()?;
    /// let settings = db.create_table("settings")?;
    /// let mut watch = db.watch(&settings, "mail/")?;
    /// db.transact(|tx| tx.insert(&settings, "web/port", "80"))?;
    /// db.transact(|tx| tx.insert(&settings, "mail/port", "25"))?;
    ///
    /// let (_csn, change) = watch.next().expect("the database is open")?;
    /// assert_eq!(change.key(), Some(&b"mail/port"[..]));
    /// assert!(matches!(change, Change::Put { value, .. } if value == b"25"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::changes`].
    pub fn watch(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Watch> {
        let newest = self.inner.system.committed.newest_drawn();
        Ok(Watch {
            changes: self.changes(newest)?,
            table: table.id(),
            prefix: prefix.as_ref().to_vec(),
            found: VecDeque::new(),
        })
    }
}

impl Table {
    /// Returns whether a change is about this table.
    #[must_use]
    pub fn is(&self, changed: &ChangedTable) -> bool {
        self.id() == changed.id()
    }
}

/// The changes of some rows, with the CSNs of their transactions: [`Database::watch`]. Waits for
/// each; ends when the database is closed. If the table is dropped, the drop is the last change.
#[derive(Debug)]
pub struct Watch {
    changes: Changes,
    table: u32,
    prefix: Vec<u8>,
    found: VecDeque<(Csn, Change)>,
}

impl Watch {
    /// Waits at most `timeout` for the next change. `None` if there was none in this time, or if
    /// the database is closed.
    ///
    /// # Errors
    /// As [`Changes::next_timeout`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<(Csn, Change)>> {
        self.next_before(self.changes.deadline(Some(timeout)))
    }

    fn next_before(&mut self, deadline: Option<Nanos>) -> Result<Option<(Csn, Change)>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            let Some(transaction) = self.changes.next_before(deadline)? else { return Ok(None) };
            for change in transaction.changes() {
                let change = change?;
                let is_watched = change.table().id() == self.table
                    && change.key().is_none_or(|key| key.starts_with(&self.prefix));
                if is_watched {
                    self.found.push_back((transaction.csn(), change));
                }
            }
        }
    }
}

impl Iterator for Watch {
    type Item = Result<(Csn, Change)>;

    fn next(&mut self) -> Option<Result<(Csn, Change)>> {
        self.next_before(None).transpose()
    }
}
