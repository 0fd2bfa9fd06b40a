//! Freeing the pages of dropped tables: what a checkpoint does first.
//!
//! A page that cannot be read may be readable the next time: so the checkpoint fails, and the next one tries again. But no page may
//! have every checkpoint fail for ever, for then the log fills up. So what cannot be read at two attempts in a row stays allocated, with what is
//! below it: as a damaged page does.
//!
//! 1. Only what failed itself at the attempt before is given up. What is beside it is tried all the same, and freed if it can be.
//! 2. Only a failed read counts. Too little memory says nothing of a page.
//! 3. Nor does one table keep the others waiting for a checkpoint that fails: they are tried all the same.

use super::checkpointer::Checkpointer;
use crate::base::{ErrorKind, Result};
use crate::transaction::DroppedTable;

/// An attempt ends when so many pages could not be read: each may take long, and the device may be gone for now.
const FAILURES_MAX: usize = 64;

impl Checkpointer {
    /// Frees the pages of dropped tables. What a failure leaves is for the next checkpoint; when closing there is none, so it is tried again at once.
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

/// Frees what can be freed of a dropped table and gives up what failed the last time too, until `failures` more reads have failed.
///
/// # Errors
/// The first read that failed and had not failed the last time; what is left is in `dropped` then. Others than I/O end the attempt.
fn free_pages(dropped: &mut DroppedTable, failures: &mut usize) -> Result<()> {
    let table = &dropped.table.name;
    let (mut failed, mut first) = (Vec::new(), None);
    let mut other = Ok(());
    while let Err(error) = dropped.table.tree.free_pages(&mut dropped.rest) {
        let Some(at) = dropped.rest.pop() else {
            tracing::warn!(%error, table, "pages of a dropped table stay allocated because one is damaged");
            break;
        };
        if error.kind() != ErrorKind::Io {
            dropped.rest.push(at);
            other = Err(error);
            break;
        }
        if let Some(before) = dropped.failed.iter().position(|before| *before == at) {
            dropped.failed.swap_remove(before);
            tracing::warn!(%error, table, "pages of a dropped table stay allocated because one cannot be read");
            continue;
        }
        failed.push(at);
        first.get_or_insert(error);
        *failures = failures.saturating_sub(1);
        if *failures == 0 {
            break;
        }
    }
    // Behind the others, so they are tried first the next time. Those of last time that were freed now never come again.
    dropped.rest.extend(&failed);
    dropped.failed.extend(failed);
    other.and(first.map_or(Ok(()), Err))
}
