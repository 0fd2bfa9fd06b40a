//! Checking a whole database.

use super::builder::Progress;
use super::database::Inner;
use crate::base::{PageId, Result};
use crate::device::AlignedBuffer;
use std::collections::HashSet;

/// What `verify` looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables checked.
    pub tables: u64,
    /// Pages of their trees.
    pub pages: u64,
    /// Rows, deleted ones that are still remembered included.
    pub entries: u64,
    /// Page images in the store that were read and are what was written.
    pub stored_pages: u64,
    /// Each damage with its place. Empty means that everything is well.
    pub problems: Vec<String>,
}

pub(super) fn run(inner: &Inner, mut progress: Option<Progress>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut reachable = HashSet::new();
    let tables = inner.system.catalog().lock().tables();
    for (done, table) in tables.iter().enumerate() {
        if let Some(progress) = &mut progress {
            progress("tables checked", done as u64, tables.len() as u64);
        }
        // A table dropped in this moment has nothing to check.
        if table.begin_use().is_err() {
            continue;
        }
        match table.tree.check_invariants() {
            Ok(summary) => {
                report.tables += 1;
                report.pages += summary.pages;
                report.entries += summary.entries;
                reachable.extend(summary.page_ids);
            }
            Err(error) => report.problems.push(format!("table `{}`: {error}", table.name)),
        }
        table.end_use();
    }
    stored_pages(inner, &mut report, &mut progress);
    Ok(report)
}

fn stored_pages(inner: &Inner, report: &mut VerifyReport, progress: &mut Option<Progress>) {
    let pages: Vec<PageId> = inner.store.page_ids().collect();
    let mut image = AlignedBuffer::zeroed(inner.pool.page_bytes());
    let len = inner.pool.page_bytes();
    for (done, page) in pages.iter().enumerate() {
        if let Some(progress) = progress
            && done % 1024 == 0
        {
            progress("stored pages checked", done as u64, pages.len() as u64);
        }
        let read = inner
            .store
            .read_page(*page, &mut image[..len])
            .and_then(|()| crate::tree::image::validate_image(&image[..len]));
        match read {
            Ok(()) => report.stored_pages += 1,
            // A checkpoint may have removed it since the list was made.
            Err(_) if !inner.store.contains(*page) => {}
            Err(error) => report.problems.push(format!("stored page {page}: {error}")),
        }
    }
}
