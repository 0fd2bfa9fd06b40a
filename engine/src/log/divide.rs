//! Divides the redo of a transaction between logs: a fragment for each log whose pages it changed.

use super::fragment::{FRAGMENT_BYTES, FRAGMENTS_MAX, Fragment};
use super::record::first_operation;
use crate::base::checksum::crc;
use crate::base::{Csn, LogId, Result, TableId};
use std::collections::HashMap;

#[cfg(test)]
mod tests;

/// Operations that follow one another and belong to one log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Their offset in the redo.
    pub at: usize,
    /// Operations before them.
    pub operations: u32,
    pub log: LogId,
}

/// The redo of a transaction by log, each with room in front for what says which fragment it is.
#[derive(Debug, Default)]
pub struct Fragments {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    log: LogId,
    body: Vec<u8>,
    operations: u32,
}

impl Fragments {
    /// Divides `body`, encoded operations, as `runs` say, which begin at 0. With `rows_again` a row
    /// may have several operations in it, and goes where its first one does.
    pub(super) fn divide(body: &[u8], count: u32, runs: &[Run], rows_again: bool) -> Result<Fragments> {
        let mut fragments = Fragments::default();
        debug_assert!(runs.first().is_none_or(|run| run.at == 0), "the runs cover the body");
        debug_assert!(
            runs.is_sorted_by(|a, b| a.at < b.at && a.operations <= b.operations),
            "the runs follow one another"
        );
        let mut first_log: HashMap<(TableId, &[u8]), LogId> = HashMap::new();
        for (index, run) in runs.iter().enumerate() {
            let (end, operations) =
                runs.get(index + 1).map_or((body.len(), count), |next| (next.at, next.operations));
            let mut rest = &body[run.at..end];
            if !rows_again {
                fragments.add(run.log, rest, operations - run.operations);
                continue;
            }
            while let Some((operation, after)) = first_operation(rest)? {
                let log = match operation.row() {
                    Some(row) => *first_log.entry(row).or_insert(run.log),
                    None => run.log,
                };
                fragments.add(log, &rest[..rest.len() - after.len()], 1);
                rest = after;
            }
        }
        fragments.parts.sort_by_key(|part| part.log);
        let count = fragments.parts.len() as u32;
        debug_assert!(count <= FRAGMENTS_MAX, "there are not so many logs");
        for (number, part) in (0..).zip(&mut fragments.parts) {
            part.body[..FRAGMENT_BYTES].copy_from_slice(&Fragment { number, count }.encode());
        }
        Ok(fragments)
    }

    fn add(&mut self, log: LogId, bytes: &[u8], operations: u32) {
        if operations == 0 {
            return;
        }
        let at = self.parts.iter().position(|part| part.log == log).unwrap_or_else(|| {
            self.parts.push(Part { log, body: vec![0; FRAGMENT_BYTES], operations: 0 });
            self.parts.len() - 1
        });
        self.parts[at].body.extend_from_slice(bytes);
        self.parts[at].operations += operations;
    }

    /// Returns the number of fragments.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Lists predecessors in the first one: the last thing before they are committed.
    pub fn list_predecessors(&mut self, csns: &[Csn]) {
        debug_assert!(csns.len() <= super::record::LISTED_MAX.into(), "a record lists no more");
        if let Some(first) = self.parts.first_mut() {
            csns.iter().for_each(|csn| first.body.extend_from_slice(&csn.0.to_le_bytes()));
        }
    }

    /// Returns the log, body, checksum of the body and number of operations of each, ascending by
    /// log.
    pub fn bodies(&self) -> impl Iterator<Item = (LogId, &[u8], u32, u32)> {
        self.parts.iter().map(|part| (part.log, &part.body[..], crc(&part.body), part.operations))
    }
}
