//! Frees the pages of dropped tables, at the beginning of a checkpoint.
//!
//! An unreadable page may be readable later: so the checkpoint fails, and the next one tries again.
//! But one page must not fail every checkpoint, because then the log fills up. So a page that is
//! unreadable in two attempts in a row stays allocated with its subtree, like a damaged page.
//!
//! 1. Only a page that itself failed in the attempt before is given up. Pages beside it are tried
//!    and freed if possible.
//! 2. Only a failed read counts. A lack of memory says nothing about a page.
//! 3. Other tables are tried also when one table fails.

use super::checkpointer::Checkpointer;
use crate::base::{ErrorKind, Result};
use crate::transaction::DroppedTable;

/// An attempt ends after so many unreadable pages: each may take long, and the device may be
/// unavailable.
const FAILURES_MAX: usize = 64;

impl Checkpointer {
    /// Frees the pages of dropped tables. After a failure the next checkpoint frees the rest; a
    /// close tries again at once.
    pub(super) fn free_dropped(&self, dropped: Vec<DroppedTable>, closing: bool) -> Result<()> {
        let (mut tables, mut kept, mut first) = (dropped.into_iter(), Vec::new(), None);
        let (mut failures, mut failures_again) = (FAILURES_MAX, FAILURES_MAX);
        while let Some(mut dropped) = tables.next() {
            dropped.table.await_unheld();
            let mut freed = free_pages(&mut dropped, &mut failures);
            if closing && freed.is_err() {
                freed = free_pages(&mut dropped, &mut failures_again);
            }
            if let Err(error) = freed {
                kept.push(dropped);
                let goes_on = error.kind() == ErrorKind::Io && failures > 0 && failures_again > 0;
                first.get_or_insert(error);
                if !goes_on {
                    kept.extend(tables.by_ref());
                }
            }
        }
        self.system.catalog.lock().put_back_dropped(kept);
        first.map_or(Ok(()), Err)
    }
}

/// Frees the pages of a dropped table and gives up pages that failed in the last attempt, too,
/// until `failures` more reads have failed.
///
/// # Errors
/// The first read that failed and had not failed in the last attempt; the rest stays in `dropped`.
/// Errors other than I/O end the attempt.
fn free_pages(dropped: &mut DroppedTable, failures: &mut usize) -> Result<()> {
    let table = dropped.table.name.get();
    let (mut failed, mut first) = (Vec::new(), None);
    let mut other = Ok(());
    while let Err(error) = dropped.table.tree.free_pages(&mut dropped.rest) {
        let Some(at) = dropped.rest.pop() else {
            tracing::warn!(%error, %table, "pages of a dropped table stay allocated because one is damaged");
            break;
        };
        if error.kind() != ErrorKind::Io {
            dropped.rest.push(at);
            other = Err(error);
            break;
        }
        if let Some(before) = dropped.failed.iter().position(|before| *before == at) {
            dropped.failed.swap_remove(before);
            tracing::warn!(%error, %table, "pages of a dropped table stay allocated because one cannot be read");
            continue;
        }
        failed.push(at);
        first.get_or_insert(error);
        *failures = failures.saturating_sub(1);
        if *failures == 0 {
            break;
        }
    }
    // At the end of the list, so that the next attempt begins with these pages.
    dropped.rest.extend(&failed);
    dropped.failed.extend(failed);
    other.and(first.map_or(Ok(()), Err))
}
