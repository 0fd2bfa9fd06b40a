//! Change feeds: of all transactions, or of the changes of some rows.

use quenchdb::{Change, Changes, Csn, Result, Watch};
use std::time::Duration;

/// A feed of the committed transactions of a database, or of the changes of some rows.
pub enum Feed {
    /// Transactions.
    Changes(Changes),
    /// Changes of rows, one at a time.
    Watch(Watch),
}

impl Feed {
    /// Waits for the next transaction, or the next change of a row, at most `timeout`. Returns its
    /// CSN and its changes; `None` at the end of the time, or if the database is closed.
    ///
    /// # Errors
    /// Those of the feed.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<(Csn, Vec<Change>)>> {
        match self {
            Feed::Changes(feed) => {
                let next = match timeout {
                    Some(timeout) => feed.next_timeout(timeout)?,
                    None => feed.next().transpose()?,
                };
                next.map(|found| Ok((found.csn(), found.changes().collect::<Result<_>>()?))).transpose()
            }
            Feed::Watch(feed) => {
                let next = match timeout {
                    Some(timeout) => feed.next_timeout(timeout)?,
                    None => feed.next().transpose()?,
                };
                Ok(next.map(|(csn, change)| (csn, vec![change])))
            }
        }
    }

    /// Returns the CSN after which a later feed continues; 0 for a feed of rows.
    #[must_use]
    pub fn csn(&self) -> Csn {
        if let Feed::Changes(feed) = self { feed.csn() } else { Csn(0) }
    }
}

/// The kinds of changes. Their places are the numbers of the header for C.
pub const KINDS: [&str; 7] =
    ["put", "patch", "delete", "create-table", "drop-table", "rename-table", "set-types"];

/// A change, in parts.
#[derive(Debug, PartialEq)]
pub struct Fields<'a> {
    /// The place in [`KINDS`].
    pub kind: usize,
    /// The name of the table.
    pub table: &'a str,
    /// `None` for a change of a table.
    pub key: Option<&'a [u8]>,
    /// The value, or the bytes of a patch.
    pub value: Option<&'a [u8]>,
    /// Where a patch begins in the value.
    pub offset: Option<u64>,
}

/// Returns the parts of a change.
#[must_use]
pub fn fields(change: &Change) -> Fields<'_> {
    let (kind, value, offset) = match change {
        Change::Put { value, .. } => (0, Some(value.as_slice()), None),
        Change::Patch { offset, bytes, .. } => (1, Some(bytes.as_slice()), Some(*offset as u64)),
        Change::Delete { .. } => (2, None, None),
        Change::CreateTable { .. } => (3, None, None),
        Change::DropTable { .. } => (4, None, None),
        Change::RenameTable { .. } => (5, None, None),
        _ => (6, None, None),
    };
    Fields { kind, table: change.table().name(), key: change.key(), value, offset }
}
