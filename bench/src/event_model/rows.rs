//! Locks on rows: one holder, and a line of threads.

use super::input::RowLocks;
use crate::distribution::self_similar;
use quenchdb::internals::base::random::Random;
use std::collections::{HashMap, VecDeque};

/// A row that is locked.
#[derive(Debug, Default)]
struct Row {
    since: u64,
    line: VecDeque<usize>,
}

/// See the module. Rows that no thread locks take no memory.
#[derive(Debug)]
pub(super) struct Rows {
    locks: Option<RowLocks>,
    locked: HashMap<u64, Row>,
    /// The CSN of the newest transaction that released a row.
    released_by: HashMap<u64, u64>,
    /// Time that each row was locked.
    held_ns: HashMap<u64, u64>,
}

impl Rows {
    pub(super) fn new(locks: Option<RowLocks>) -> Rows {
        Rows { locks, locked: HashMap::new(), released_by: HashMap::new(), held_ns: HashMap::new() }
    }

    /// Draws the row of a transaction.
    pub(super) fn draw(&self, random: &mut Random) -> Option<u64> {
        self.locks.map(|locks| self_similar(random, locks.rows.max(1), locks.h))
    }

    /// Locks `row`, or puts `thread` in its line. Returns whether the row is locked.
    pub(super) fn lock(&mut self, row: u64, thread: usize, now: u64) -> bool {
        match self.locked.get_mut(&row) {
            Some(held) => {
                held.line.push_back(thread);
                false
            }
            None => {
                self.locked.insert(row, Row { since: now, line: VecDeque::new() });
                true
            }
        }
    }

    /// Releases `row`, which the transaction of `csn` had. Returns the thread that has it now.
    pub(super) fn release(&mut self, row: u64, csn: u64, now: u64) -> Option<usize> {
        self.released_by.insert(row, csn);
        let held = self.locked.get_mut(&row)?;
        *self.held_ns.entry(row).or_default() += now - held.since;
        held.since = now;
        let next = held.line.pop_front();
        if next.is_none() {
            self.locked.remove(&row);
        }
        next
    }

    /// Returns the CSN on which a transaction that has locked `row` depends.
    pub(super) fn predecessor(&self, row: u64) -> u64 {
        self.released_by.get(&row).copied().unwrap_or(0)
    }

    /// Forgets the times so far.
    pub(super) fn reset(&mut self, now: u64) {
        self.held_ns.clear();
        self.locked.values_mut().for_each(|row| row.since = now);
    }

    /// Returns the longest time that a row was locked.
    pub(super) fn longest_ns(&self, now: u64) -> u64 {
        let held = |row: &u64| self.locked.get(row).map_or(0, |held| now - held.since);
        let released = self.held_ns.iter().map(|(row, ns)| ns + held(row)).max().unwrap_or(0);
        self.locked.values().map(|row| now - row.since).max().unwrap_or(0).max(released)
    }
}
