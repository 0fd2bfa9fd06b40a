//! A transaction that counts its rows, and records its writes in a [`ledger`](crate::ledger), if
//! given.

use super::interface::{Reader, Result, Step, Transaction};
use crate::ledger::Entry;
use std::sync::Arc;

/// See the module.
pub struct Noted<'n, X> {
    inner: X,
    /// Number of rows read, written and scanned.
    pub rows: u64,
    ledger: Option<&'n mut Entry>,
}

impl<'n, X: Reader> Noted<'n, X> {
    /// Wraps `inner`.
    #[inline]
    pub fn new(inner: X, ledger: Option<&'n mut Entry>) -> Noted<'n, X> {
        Noted { inner, rows: 0, ledger }
    }

    /// Returns the wrapped transaction.
    #[inline]
    pub fn into_inner(self) -> X {
        self.inner
    }
}

impl<X: Reader> Reader for Noted<'_, X> {
    type Table = X::Table;

    #[inline]
    fn get_with<V>(&mut self, table: &X::Table, key: &[u8], f: impl FnOnce(&[u8]) -> V) -> Result<Option<V>> {
        self.rows += 1;
        self.inner.get_with(table, key, f)
    }

    #[inline]
    fn get(&mut self, table: &X::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.rows += 1;
        self.inner.get(table, key, value)
    }

    fn prefetch(&mut self, table: &X::Table, keys: &[[u8; 8]]) -> Result<()> {
        self.inner.prefetch(table, keys)
    }

    fn scan(
        &mut self,
        table: &X::Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<()> {
        let rows = &mut self.rows;
        self.inner.scan(table, from, to, |key, value| {
            *rows += 1;
            each(key, value)
        })
    }

    fn scan_back(
        &mut self,
        table: &X::Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<()> {
        let rows = &mut self.rows;
        self.inner.scan_back(table, from, to, |key, value| {
            *rows += 1;
            each(key, value)
        })
    }
}

impl<X: Transaction> Transaction for Noted<'_, X> {
    type Handle = X::Handle;

    fn name_of(table: &X::Table) -> Arc<str> {
        X::name_of(table)
    }

    #[inline]
    fn get_for_update(&mut self, table: &X::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.rows += 1;
        self.inner.get_for_update(table, key, value)
    }

    #[inline]
    fn insert(&mut self, table: &X::Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.rows += 1;
        self.inner.insert(table, key, value)?;
        if let Some(entry) = &mut self.ledger {
            entry.wrote(&X::name_of(table), key, Some(value));
        }
        Ok(())
    }

    #[inline]
    fn remove(&mut self, table: &X::Table, key: &[u8]) -> Result<bool> {
        self.rows += 1;
        let there = self.inner.remove(table, key)?;
        if let Some(entry) = self.ledger.as_mut().filter(|_| there) {
            entry.wrote(&X::name_of(table), key, None);
        }
        Ok(there)
    }

    fn commit(self) -> Result<()> {
        self.inner.commit()
    }

    fn commit_async(self) -> Result<X::Handle> {
        self.inner.commit_async()
    }

    fn abort(self) {
        self.inner.abort();
    }
}
