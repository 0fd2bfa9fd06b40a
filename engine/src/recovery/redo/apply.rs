//! Applies sorted steps to the trees, a range of keys for each thread.

use super::step::{Redo, Step};
use crate::base::{Csn, Error, Location, Result};
use crate::buffer::prefetch;
use crate::log::first_operation;
use crate::recovery::threads;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::transaction::{Replay, TableState, TransactionSystem};
use std::collections::HashMap;
use std::sync::Arc;

/// Steps ahead for which memory is prefetched.
const PREFETCH_STEPS: usize = 12;
/// Returns the CSN of a step. Not inlined: in key order records come at random, and each access
/// waits for memory, so the access is delayed until it is needed.
#[inline(never)]
fn csn_of(batch: &[Redo<'_>], step: &Step<'_>) -> Csn {
    batch[step.record as usize].csn
}

/// Applies the ranges, each of which is the sum of what the parts have of it.
pub(super) fn apply_ranges(
    system: &TransactionSystem,
    batch: &[Redo<'_>],
    parts: &[&[Vec<Step<'_>>]],
    threads: usize,
) -> Result<()> {
    let tables = tables_of(system);
    let next = AtomicUsize::new(0);
    let ranges = parts.iter().map(|part| part.len()).max().unwrap_or(0);
    threads::each(0..threads, |_| {
        let mut steps = Vec::new();
        loop {
            let range = next.fetch_add(1, Ordering::Relaxed);
            if range >= ranges {
                return Ok(());
            }
            steps.clear();
            parts.iter().filter_map(|part| part.get(range)).for_each(|part| steps.extend_from_slice(part));
            steps.sort_unstable_by(Step::compare);
            apply_sorted(&tables, batch, &steps)?;
        }
    })?;
    Ok(())
}

fn tables_of(system: &TransactionSystem) -> HashMap<u32, Arc<TableState>> {
    system.catalog.lock().tables().into_iter().map(|table| (table.id.0, table)).collect()
}

/// How far leaves of steps have been requested: of two windows, so that one is brought in while
/// the other is worked on.
#[derive(Default)]
struct ReadAhead {
    /// Steps before the last window, and to its end.
    window: (usize, usize),
}

/// Leaves of a window: enough reads at a time for any device.
const WINDOW_LEAVES: usize = 64;

impl ReadAhead {
    /// Returns true if work on the last window is about to begin.
    #[inline]
    fn is_due(&self, done: usize) -> bool {
        done >= self.window.0
    }

    #[cold]
    fn advance(&mut self, table: &TableState, steps: &[Step<'_>]) -> Result<()> {
        let keys = steps[self.window.1..].iter().map(Step::key);
        let covered = table.tree.read_ahead_for(keys, WINDOW_LEAVES)?;
        let end = self.window.1 + covered;
        // With nothing left to ask for, nothing is due any more.
        self.window = (if covered == 0 { usize::MAX } else { self.window.1 }, end);
        Ok(())
    }
}

fn apply_sorted(
    tables: &HashMap<u32, Arc<TableState>>,
    batch: &[Redo<'_>],
    steps: &[Step<'_>],
) -> Result<()> {
    let mut ahead = steps.iter().skip(PREFETCH_STEPS);
    steps.iter().take(PREFETCH_STEPS).for_each(|step| prefetch(step.bytes));
    for of_table in steps.chunk_by(|a, b| a.table == b.table) {
        let table = tables.get(&of_table[0].table).ok_or_else(|| {
            Error::corruption(format!("the log changes table {}, which does not exist", of_table[0].table))
                .at(Location::Transaction(batch[of_table[0].record as usize].csn))
        })?;
        let mut replay = Replay::new(table);
        let mut ahead_of = ReadAhead::default();
        let mut done = 0;
        for row in of_table.chunk_by(Step::is_same_row) {
            debug_assert!(
                row.is_sorted_by_key(|step| step.record),
                "the changes of a row are made in the order of their transactions"
            );
            if ahead_of.is_due(done) {
                // The descent may wait for a page.
                replay.release_leaf();
                ahead_of.advance(table, of_table)?;
            }
            done += row.len();
            for step in row {
                ahead.next().inspect(|step| prefetch(step.bytes));
                let csn = || csn_of(batch, step);
                let located = |error: Error| error.at(Location::Transaction(csn()));
                if let Some((operation, _)) = first_operation(step.bytes).map_err(located)? {
                    replay.change(&operation, csn)?;
                }
            }
            replay.finish_row(row[0].key())?;
        }
    }
    Ok(())
}
