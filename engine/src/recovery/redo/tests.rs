//! Random histories against a `BTreeMap`, whatever the limits; and what must be refused.

use super::*;
use crate::base::Csn;
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::{ErrorKind, PageId, TableId};
use crate::buffer::{PageSource, Pool};
use crate::log::RedoBuffer;
use crate::transaction::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

struct NoImages;

impl PageSource for NoImages {
    fn read_page(&self, page: PageId, _: bool, _: &mut [u8]) -> Result<()> {
        Err(Error::corruption(format!("{page} has no image")))
    }
}

fn system() -> TransactionSystem {
    let pool = Pool::new(4096, 16 << 20, Arc::new(NoImages)).expect("small");
    let limits = Limits::for_page(4096, 1 << 20, Duration::from_secs(1));
    TransactionSystem::new(pool, limits, 1 << 20, Clock::manual())
}

fn records(history: &[RedoBuffer]) -> Vec<Redo<'_>> {
    let numbered = (1..).zip(history);
    numbered
        .map(|(csn, redo)| Redo {
            csn: Csn(csn),
            operations: redo.op_count(),
            body: redo.body(),
            earlier: None,
        })
        .collect()
}

fn redo_all(history: &[RedoBuffer], threads: usize, steps_max: usize) -> Result<TransactionSystem> {
    let system = system();
    let mut heard = 0;
    redo(&system, &records(history), Effort { threads, steps_max }, &mut |done| {
        assert!(done > heard, "progress goes on");
        heard = done;
    })?;
    assert_eq!(heard, history.len() as u64);
    Ok(system)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes transactions and knows what they make of the tables.
struct Writer {
    random: Random,
    tables: BTreeMap<u32, Rows>,
    next_table: u32,
}

impl Writer {
    fn key(&mut self) -> Vec<u8> {
        // Keys that differ before, at and behind their eighth byte.
        let number = self.random.below(60) as u8;
        match self.random.below(3) {
            0 => vec![number],
            1 => [b"prefix__".as_slice(), &[number]].concat(),
            _ => u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec(),
        }
    }

    fn row_operation(&mut self, redo: &mut RedoBuffer) {
        let key = self.key();
        let random = &mut self.random;
        let at = random.below(self.tables.len() as u64) as usize;
        let Some((id, rows)) = self.tables.iter_mut().nth(at) else { return };
        let table = TableId(*id);
        match (random.below(10), rows.get_mut(&key)) {
            (0..=1, Some(_)) => {
                redo.delete(table, &key);
                rows.remove(&key);
            }
            (2..=5, Some(value)) if !value.is_empty() => {
                let offset = random.below(value.len() as u64) as usize;
                let len = 1 + random.below((value.len() - offset) as u64) as usize;
                let bytes = vec![random.below(256) as u8; len];
                redo.patch(table, &key, offset, &bytes);
                value[offset..offset + len].copy_from_slice(&bytes);
            }
            (6, None) => redo.delete(table, &key),
            _ => {
                let len = if random.chance(1, 10) { random.below(700) } else { random.below(40) };
                let value = vec![random.below(256) as u8; len as usize];
                redo.put(table, &key, &value);
                rows.insert(key, value);
            }
        }
    }

    fn transaction(&mut self) -> RedoBuffer {
        let mut redo = RedoBuffer::default();
        let operations = if self.random.chance(1, 8) { self.random.below(60) } else { 1 };
        for _ in 0..operations {
            match self.random.below(60) {
                0 => {
                    redo.create_table(TableId(self.next_table), &format!("t{}", self.next_table));
                    self.tables.insert(self.next_table, Rows::new());
                    self.next_table += 1;
                }
                1 if self.tables.len() > 1 => {
                    let id = *self.tables.keys().next().expect("more than one");
                    redo.drop_table(TableId(id));
                    self.tables.remove(&id);
                }
                _ if !self.tables.is_empty() => self.row_operation(&mut redo),
                _ => {}
            }
        }
        redo
    }
}

fn rows(system: &TransactionSystem, table: u32, keys: impl Iterator<Item = Vec<u8>>) -> Rows {
    let table = system.catalog.lock().find_id(TableId(table)).expect("a table of the model");
    let mut rows = Rows::new();
    for key in keys {
        let mut value = Vec::new();
        if table.tree.lookup(&key, &mut value).expect("in memory").is_some() {
            rows.insert(key, value);
        }
    }
    rows
}

#[test]
fn whatever_the_limits_redo_makes_what_the_transactions_made() {
    for seed in 0..40 {
        let mut writer = Writer { random: Random::from_seed(seed), tables: BTreeMap::new(), next_table: 1 };
        let history: Vec<RedoBuffer> = (0..300).map(|_| writer.transaction()).collect();
        for (threads, steps_max) in [(1, 1 << 20), (3, 1 << 20), (2, 40), (2, 7), (1, 1)] {
            let system = redo_all(&history, threads, steps_max).expect("a sound history");
            let tables: BTreeSet<u32> = system.catalog.lock().tables().iter().map(|t| t.id.0).collect();
            assert_eq!(tables, writer.tables.keys().copied().collect());
            for (table, model) in &writer.tables {
                let every_key = (0..=255u8).flat_map(|n| {
                    let scrambled = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    [vec![n], [b"prefix__".as_slice(), &[n]].concat(), scrambled.to_be_bytes().to_vec()]
                });
                let there = rows(&system, *table, every_key);
                assert_eq!(&there, model, "seed {seed}, table {table}, {threads} threads, {steps_max} steps");
            }
        }
    }
}

fn one_table(change: impl FnOnce(&mut RedoBuffer)) -> Vec<RedoBuffer> {
    let mut create = RedoBuffer::default();
    create.create_table(TableId(1), "t");
    let mut redo = RedoBuffer::default();
    change(&mut redo);
    vec![create, redo]
}

#[test]
fn what_does_not_fit_is_corruption_with_the_transaction() {
    let table = TableId(1);
    type Change = fn(&mut RedoBuffer, TableId);
    let cases: [(Change, &str); 5] = [
        (|redo, table| redo.patch(table, b"k", 0, b"x"), "a row that does not exist"),
        (
            |redo, table| {
                redo.put(table, b"k", b"v");
                redo.delete(table, b"k");
                redo.patch(table, b"k", 0, b"x");
            },
            "a row that does not exist",
        ),
        (
            |redo, table| {
                redo.put(table, b"k", b"v");
                redo.patch(table, b"k", 1, b"x");
            },
            "beyond the end",
        ),
        (|redo, _| redo.put(TableId(9), b"k", b"v"), "table 9, which does not exist"),
        (|redo, table| redo.create_table(table, "t"), "creates table 1"),
    ];
    for (change, says) in cases {
        let history = one_table(|redo| change(redo, table));
        let error = redo_all(&history, 2, 1000).expect_err(says);
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.location(), Some(&Location::Transaction(Csn(2))), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_malformed_operation_is_corruption_with_the_transaction() {
    let history = one_table(|redo| redo.put(TableId(1), b"key", b"value"));
    let mut records = records(&history);
    records[1].body = &records[1].body[..4];
    let error = redo(&system(), &records, Effort { threads: 1, steps_max: 10 }, &mut |_| ())
        .expect_err("half an operation");
    assert_eq!(error.location(), Some(&Location::Transaction(Csn(2))), "{error}");
}

#[test]
fn a_transaction_larger_than_a_batch_is_replayed_in_parts() {
    let history = one_table(|redo| {
        for n in 0..5000u32 {
            redo.put(TableId(1), &n.wrapping_mul(2_654_435_761).to_be_bytes(), &n.to_le_bytes());
        }
        redo.delete(TableId(1), &7u32.wrapping_mul(2_654_435_761).to_be_bytes());
    });
    let system = redo_all(&history, 2, 64).expect("sound");
    let keys = (0..5000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec());
    assert_eq!(rows(&system, 1, keys).len(), 4999);
}
