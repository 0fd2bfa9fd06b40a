//! A committed transaction, and its changes.

use super::behind::fell_behind;
use super::chunks::Chunk;
use super::names::{ChangedTable, Names};
use crate::base::{Csn, Error, Location, Result, TableId, TableTypes};
use crate::commit::FeedSource;
use crate::log::{Operation, first_operation};
use std::borrow::Cow;
use std::sync::Arc;

/// A change of a transaction. Keys and values are copies.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// The row has this value now.
    Put {
        /// The table.
        table: ChangedTable,
        /// The key of the row.
        key: Vec<u8>,
        /// The whole value.
        value: Vec<u8>,
    },
    /// Bytes of the row's value were replaced; its length is the same. Occurs only for transactions
    /// that committed without
    /// [`change_history_bytes`](crate::Settings::change_history_bytes) and before the feed began.
    Patch {
        /// The table.
        table: ChangedTable,
        /// The key of the row.
        key: Vec<u8>,
        /// Offset of the first replaced byte in the value.
        offset: usize,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// The row was deleted.
    Delete {
        /// The table.
        table: ChangedTable,
        /// The key of the row.
        key: Vec<u8>,
    },
    /// The table was created, without rows.
    CreateTable {
        /// The table, with its name.
        table: ChangedTable,
    },
    /// The table and its rows were dropped.
    DropTable {
        /// The table.
        table: ChangedTable,
    },
    /// The table has another name now.
    RenameTable {
        /// The table, with its new name.
        table: ChangedTable,
    },
    /// The table got types, because it was opened with types for the first time, or other types
    /// ([`Database::set_types`](crate::Database::set_types)).
    SetTypes {
        /// The table.
        table: ChangedTable,
        /// Its types.
        types: TableTypes,
    },
}

impl Change {
    /// Returns the table that changed.
    #[must_use]
    pub fn table(&self) -> &ChangedTable {
        match self {
            Change::Put { table, .. }
            | Change::Patch { table, .. }
            | Change::Delete { table, .. }
            | Change::CreateTable { table }
            | Change::DropTable { table }
            | Change::RenameTable { table }
            | Change::SetTypes { table, .. } => table,
        }
    }

    /// Returns the key of the row that changed; `None` if the change is about the table.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Change::Put { key, .. } | Change::Patch { key, .. } | Change::Delete { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// A committed transaction of a change feed.
#[derive(Clone, Debug)]
pub struct CommittedTransaction {
    csn: Csn,
    /// Chunks before the body, and the bytes that count of each.
    chunks: Vec<(Chunk, usize)>,
    body: Vec<u8>,
    names: Names,
    /// The log of this process; `None` if another process writes it.
    source: Option<Arc<FeedSource>>,
}

impl CommittedTransaction {
    pub(super) fn new(
        csn: Csn,
        chunks: Vec<(Chunk, usize)>,
        body: Vec<u8>,
        names: Names,
        source: Option<Arc<FeedSource>>,
    ) -> Self {
        CommittedTransaction { csn, chunks, body, names, source }
    }

    /// Returns the commit sequence number of the transaction. A feed that begins there,
    /// `db.changes(csn)`, returns the transactions after this one.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Returns the changes in the order in which the transaction made them; if the layout divides
    /// changes by page, in the order of each row. A row may occur several times. A transaction
    /// longer than `chunk_bytes` is read from the log piece by piece, so this may fail, and works
    /// only while the feed exists and has not fallen behind.
    #[must_use]
    pub fn changes(&self) -> ChangesOf<'_> {
        ChangesOf { transaction: self, next_chunk: 0, operations: Cow::Borrowed(&[]), at: 0, value: None }
    }

    fn read(&self, chunk: &Chunk, bytes: usize) -> Result<Vec<u8>> {
        let Some(source) = &self.source else { return chunk.read(bytes) };
        source.check_process()?;
        chunk.read(bytes).map_err(|error| match source.history_begins() {
            // The segment was recycled.
            begins if begins >= self.csn => fell_behind(Csn(self.csn.0 - 1), begins),
            _ => error,
        })
    }
}

/// The changes of a [`CommittedTransaction`]. After an error there is no next one.
#[derive(Debug)]
pub struct ChangesOf<'t> {
    transaction: &'t CommittedTransaction,
    /// The chunk that is read next; the body comes behind the last one.
    next_chunk: usize,
    operations: Cow<'t, [u8]>,
    at: usize,
    /// A large value that continues with the next operation.
    value: Option<LargeValue>,
}

#[derive(Debug)]
struct LargeValue {
    table: TableId,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Iterator for ChangesOf<'_> {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        let next = self.next_change();
        if next.is_err() {
            self.operations = Cow::Borrowed(&[]);
            (self.next_chunk, self.at, self.value) = (self.transaction.chunks.len() + 1, 0, None);
        }
        let located = next.map_err(|error| match error.location() {
            Some(_) => error,
            None => error.at(Location::Transaction(self.transaction.csn)),
        });
        located.transpose()
    }
}

impl ChangesOf<'_> {
    fn next_change(&mut self) -> Result<Option<Change>> {
        loop {
            let rest = &self.operations[self.at..];
            let Some((operation, after)) = first_operation(rest)? else {
                if !self.begin_next()? {
                    let ends = self.value.is_none();
                    let cut_off = || Error::corruption("a large value in the log has no end");
                    return if ends { Ok(None) } else { Err(cut_off()) };
                }
                continue;
            };
            let behind = self.operations.len() - after.len();
            let change = change_of(&self.transaction.names, operation, &mut self.value)?;
            self.at = behind;
            if change.is_some() {
                return Ok(change);
            }
        }
    }

    /// Reads the next chunk, or begins the body. Returns false at the end.
    fn begin_next(&mut self) -> Result<bool> {
        let transaction = self.transaction;
        self.operations = match transaction.chunks.get(self.next_chunk) {
            Some((chunk, bytes)) => Cow::Owned(transaction.read(chunk, *bytes)?),
            None if self.next_chunk == transaction.chunks.len() => Cow::Borrowed(&transaction.body),
            None => return Ok(false),
        };
        (self.at, self.next_chunk) = (0, self.next_chunk + 1);
        Ok(true)
    }
}

/// Returns the change that an operation is; `None` if `value` continues with the next one.
fn change_of(
    names: &Names,
    operation: Operation<'_>,
    value: &mut Option<LargeValue>,
) -> Result<Option<Change>> {
    let (id, is_large) = match operation {
        Operation::PutLarge { table, .. } | Operation::LargePart { table, .. } => (table, true),
        Operation::Put { table, .. }
        | Operation::Patch { table, .. }
        | Operation::Delete { table, .. }
        | Operation::CreateTable { table, .. }
        | Operation::DropTable { table }
        | Operation::RenameTable { table, .. }
        | Operation::SetTypes { table, .. } => (table, false),
    };
    if value.is_some() && !is_large {
        return Err(Error::corruption("something else comes in the middle of a large value"));
    }
    let table = names.table(id);
    Ok(Some(match operation {
        Operation::Put { key, value, .. } => Change::Put { table, key: key.to_vec(), value: value.to_vec() },
        Operation::Patch { key, offset, bytes, .. } => {
            Change::Patch { table, key: key.to_vec(), offset, bytes: bytes.to_vec() }
        }
        Operation::Delete { key, .. } => Change::Delete { table, key: key.to_vec() },
        Operation::CreateTable { .. } => Change::CreateTable { table },
        Operation::DropTable { .. } => Change::DropTable { table },
        Operation::RenameTable { .. } => Change::RenameTable { table },
        Operation::SetTypes { types, .. } => Change::SetTypes { table, types: types.decode()? },
        Operation::PutLarge { key, pieces, .. } | Operation::LargePart { key, pieces, .. } => {
            let mut large = match value.take() {
                Some(large) if (large.table, large.key.as_slice()) == (id, key) => large,
                Some(_) => return Err(Error::corruption("a large value comes in the middle of another")),
                None => LargeValue { table: id, key: key.to_vec(), value: Vec::new() },
            };
            pieces.iter().for_each(|piece| large.value.extend_from_slice(piece));
            if matches!(operation, Operation::LargePart { .. }) {
                *value = Some(large);
                return Ok(None);
            }
            Change::Put { table, key: large.key, value: large.value }
        }
    }))
}
