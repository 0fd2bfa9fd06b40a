//! Secondary indexes: tables whose entries lead from a key in a row to the row.
//!
//! | index | key of an entry | value of an entry |
//! |---|---|---|
//! | unique | the index key, as the only part | the key of the row |
//! | other | the index key as a part, and the key of the row as the last part | nothing |

use super::key::{AsKey, Key};
use super::maintain::{Maintain, Plan};
use super::range::{KeysIn, bounds, decode_key, not_a_key};
use super::table::TypedTable;
use super::value::Value;
use crate::api::{Range, Reads, Table, Transaction};
use crate::base::{Error, ErrorKind, Location, Result};
use std::any::Any;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

/// The function of the application that finds the index keys of a value: it calls its second
/// argument with each.
pub(super) type FindKeys<I, V> = Box<dyn Fn(&<V as Value>::Borrowed, &mut dyn FnMut(I)) + Send + Sync>;

/// An open index, as all handles of it share it.
pub(super) struct Core<I, V: Value> {
    pub(super) name: String,
    pub(super) table: Table,
    pub(super) is_unique: bool,
    pub(super) keys: FindKeys<I, V>,
}

impl<I: Key + 'static, V: Value + 'static> Core<I, V> {
    /// Returns the entries of the row `key` with this value, in order.
    pub(super) fn entries(&self, key: &[u8], value: &V::Borrowed) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut entries = BTreeMap::new();
        (self.keys)(value, &mut |index_key| {
            if self.is_unique {
                entries.insert(index_key.to_key(), key.to_vec());
            } else {
                let mut entry = Vec::with_capacity(32 + key.len());
                index_key.encode_part(&mut entry);
                entry.extend_from_slice(key);
                entries.insert(entry, Vec::new());
            }
        });
        entries
    }

    /// Checks that no other row has the entry, whose value is the key of its row.
    pub(super) fn check_unique(&self, tx: &mut Transaction, entry: &[u8], key: &[u8]) -> Result<()> {
        if !self.is_unique {
            return Ok(());
        }
        match tx.read_to_change(&self.table, entry)? {
            Some(other) if other != key => {
                let what = format!("another row has this key in the unique index `{}`", self.name);
                Err(Error::new(ErrorKind::AlreadyExists, what)
                    .at(Location::Table(self.table.name().to_string())))
            }
            _ => Ok(()),
        }
    }
}

impl<I: Key + 'static, V: Value + 'static> Maintain<V> for Core<I, V> {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        before: Option<&V::Borrowed>,
        after: Option<&V::Borrowed>,
    ) -> Result<Plan> {
        let entries =
            |value: Option<&V::Borrowed>| value.map_or_else(BTreeMap::new, |value| self.entries(key, value));
        let (before, after) = (entries(before), entries(after));
        let removed = before.keys().filter(|entry| !after.contains_key(*entry)).cloned().collect();
        let added: Vec<_> = after.into_iter().filter(|(entry, _)| !before.contains_key(entry)).collect();
        added.iter().try_for_each(|(entry, _)| self.check_unique(tx, entry, key))?;
        Ok(Plan { removed, added })
    }

    fn apply(&self, tx: &mut Transaction, plan: Plan) -> Result<()> {
        plan.removed.iter().try_for_each(|entry| tx.remove(&self.table, entry).map(drop))?;
        plan.added.iter().try_for_each(|(entry, value)| tx.insert(&self.table, entry, value))
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// What a check of an index found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexReport {
    /// Rows of the table.
    pub rows: u64,
    /// Entries of the index.
    pub entries: u64,
    /// Differences between both, at most 100.
    pub problems: Vec<String>,
}

/// Problems that a check of an index lists.
const PROBLEMS_MAX: usize = 100;

/// Compares an index with its table.
pub(super) fn check<I: Key + 'static, V: Value + 'static>(
    core: &Core<I, V>,
    table: &Table,
    reader: &impl Reads,
) -> Result<IndexReport> {
    let mut report = IndexReport::default();
    let problem = |report: &mut IndexReport, what: String| {
        if report.problems.len() < PROBLEMS_MAX {
            report.problems.push(format!("index `{}` of table `{}`: {what}", core.name, table.name()));
        }
    };
    let mut rows = reader.iter(table);
    let mut expected = 0;
    while let Some((key, value)) = rows.next_row().transpose()? {
        report.rows += 1;
        let shown = key.escape_ascii();
        let value = match V::decode(value) {
            Ok(value) => value,
            Err(what) => {
                problem(&mut report, format!("the value of row `{shown}` cannot be read: {what}"));
                continue;
            }
        };
        for (entry, leads_to) in core.entries(key, value.borrow()) {
            expected += 1;
            let found = reader.get(&core.table, &entry)?;
            if found.as_ref() != Some(&leads_to) {
                let what = if found.is_none() { "has no entry" } else { "has an entry of another row" };
                problem(&mut report, format!("row `{shown}` {what}"));
            }
        }
    }
    report.entries = reader.len(&core.table)?;
    if report.entries != expected && report.problems.is_empty() {
        let what = format!("it has {} entries, and the rows have {expected}", report.entries);
        problem(&mut report, what);
    }
    Ok(report)
}

/// A secondary index that leads from a key of type `I` to any number of rows; [`Database::index`]
/// opens it.
///
/// [`Database::index`]: crate::Database::index
pub struct Index<I, K, V: Value> {
    pub(super) core: Arc<Core<I, V>>,
    pub(super) table: TypedTable<K, V>,
}

/// A secondary index that leads from a key of type `I` to at most one row;
/// [`Database::unique_index`] opens it.
///
/// [`Database::unique_index`]: crate::Database::unique_index
pub struct UniqueIndex<I, K, V: Value> {
    pub(super) core: Arc<Core<I, V>>,
    pub(super) table: TypedTable<K, V>,
}

macro_rules! both {
    ($($type:ident)*) => { $(
        impl<I, K, V: Value> Clone for $type<I, K, V> {
            fn clone(&self) -> Self {
                $type { core: self.core.clone(), table: self.table.clone() }
            }
        }

        impl<I, K, V: Value> fmt::Debug for $type<I, K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($type));
                shown.field("name", &self.core.name).field("table", &self.table).finish_non_exhaustive()
            }
        }

        impl<I: Key + 'static, K: Key, V: Value + 'static> $type<I, K, V> {
            /// Compares the index with the rows of its table, as the reader sees both.
            ///
            /// # Errors
            /// As [`TypedTable::get`].
            pub fn verify(&self, reader: &impl Reads) -> Result<IndexReport> {
                check(&self.core, self.table.untyped(), reader)
            }
        }
    )* };
}

both! { Index UniqueIndex }

impl<I: Key + 'static, K: Key, V: Value + 'static> UniqueIndex<I, K, V> {
    /// Returns the row with this key in the index.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn get(&self, reader: &impl Reads, key: impl AsKey<I>) -> Result<Option<(K, V::Owned)>> {
        let Some(row) = reader.get(&self.core.table, key.to_key())? else { return Ok(None) };
        row_of(&self.core.table, &self.table, reader, &row).map(Some)
    }

    /// Returns whether a row has this key in the index. Does not read the row.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn contains_key(&self, reader: &impl Reads, key: impl AsKey<I>) -> Result<bool> {
        reader.contains_key(&self.core.table, key.to_key())
    }

    /// Returns the rows with keys in `range` in the index, in the order of these keys, from both
    /// ends.
    pub fn range<'a, S: Reads>(&self, reader: &'a S, range: impl KeysIn<I>) -> IndexRows<'a, S, I, K, V> {
        IndexRows::new(reader, &self.core, &self.table, bounds(&range))
    }
}

impl<I: Key + 'static, K: Key, V: Value + 'static> Index<I, K, V> {
    /// Returns the rows with this key in the index, in the order of their own keys, from both ends.
    pub fn get<'a, S: Reads>(&self, reader: &'a S, key: impl AsKey<I>) -> IndexRows<'a, S, I, K, V> {
        self.range(reader, &key..=&key)
    }

    /// Returns the rows with keys in `range` in the index, in the order of these keys, from both
    /// ends.
    pub fn range<'a, S: Reads>(&self, reader: &'a S, range: impl KeysIn<I>) -> IndexRows<'a, S, I, K, V> {
        let ends = range.ends(|key| {
            let mut part = Vec::new();
            key.encode_part(&mut part);
            part
        });
        // All entries of a key begin with its bytes, and other entries do not.
        let behind = |part: Vec<u8>| match crate::api::prefix_range(&part).1 {
            Bound::Excluded(end) | Bound::Included(end) => Some(end),
            Bound::Unbounded => None,
        };
        let lower = match ends.0 {
            Bound::Excluded(part) => match behind(part) {
                Some(end) => Bound::Included(end),
                // There is no higher key.
                None => return IndexRows::new(reader, &self.core, &self.table, NOTHING),
            },
            other => other,
        };
        let upper = match ends.1 {
            Bound::Included(part) => behind(part).map_or(Bound::Unbounded, Bound::Excluded),
            other => other,
        };
        IndexRows::new(reader, &self.core, &self.table, (lower, upper))
    }
}

/// The bounds of an empty range.
const NOTHING: (Bound<Vec<u8>>, Bound<Vec<u8>>) = (Bound::Excluded(Vec::new()), Bound::Excluded(Vec::new()));

/// Returns the row to which an entry leads.
fn row_of<K: Key, V: Value>(
    index: &Table,
    table: &TypedTable<K, V>,
    reader: &impl Reads,
    row: &[u8],
) -> Result<(K, V::Owned)> {
    let key: K = decode_key(table.untyped(), row)?;
    match table.get(reader, &key)? {
        Some(value) => Ok((key, value)),
        None => {
            let what = format!("an entry leads to row `{}`, which does not exist", row.escape_ascii());
            Err(Error::corruption(what)
                .with_advice("drop the index and open it again: rows were changed without it")
                .at(Location::Table(index.name().to_string())))
        }
    }
}

/// Rows in the order of an index, from both ends: the index key, the key, and the value. After an
/// error the iterator ends.
#[must_use = "a range reads nothing before `next`"]
pub struct IndexRows<'a, S, I, K, V: Value> {
    entries: Range<'a, S>,
    reader: &'a S,
    index: Table,
    is_unique: bool,
    table: TypedTable<K, V>,
    failed: bool,
    types: PhantomData<fn() -> I>,
}

impl<S: fmt::Debug, I, K, V: Value> fmt::Debug for IndexRows<'_, S, I, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRows").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<'a, S: Reads, I: Key, K: Key, V: Value> IndexRows<'a, S, I, K, V> {
    fn new(
        reader: &'a S,
        core: &Core<I, V>,
        table: &TypedTable<K, V>,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Self {
        IndexRows {
            entries: reader.range(&core.table, range),
            reader,
            index: core.table.clone(),
            is_unique: core.is_unique,
            table: table.clone(),
            failed: false,
            types: PhantomData,
        }
    }

    fn step(&mut self, back: bool) -> Option<Result<(I, K, V::Owned)>> {
        if self.failed {
            return None;
        }
        let entry = if back { self.entries.next_row_back() } else { self.entries.next_row() }?;
        let row = entry.and_then(|(entry, leads_to)| {
            let (index_key, row) = if self.is_unique {
                (decode_key(&self.index, entry)?, leads_to)
            } else {
                let mut rest = entry;
                let index_key = I::decode_part(&mut rest);
                (index_key.ok_or_else(|| not_a_key::<I>(&self.index, entry))?, rest)
            };
            let (key, value) = row_of(&self.index, &self.table, self.reader, row)?;
            Ok((index_key, key, value))
        });
        self.failed = row.is_err();
        Some(row)
    }
}

impl<S: Reads, I: Key, K: Key, V: Value> Iterator for IndexRows<'_, S, I, K, V> {
    type Item = Result<(I, K, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<S: Reads, I: Key, K: Key, V: Value> DoubleEndedIterator for IndexRows<'_, S, I, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}
