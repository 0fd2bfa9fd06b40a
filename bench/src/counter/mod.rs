//! Counters: each transaction adds one to a row, and does nothing else. With one row, all threads
//! meet at the hottest row that there can be; with a row for each thread, no thread meets another.
//!
//! | table | key | row |
//! |---|---|---|
//! | `counter` | number of the counter, 8 bytes, big-endian | count, filler: 100 bytes |

use crate::checked::Checked;
use crate::progress::Progress;
use crate::record;
use crate::store::{Error, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::workload::{Acknowledged, Ending, Intent, Seat, Worker, Workload};
use std::collections::BTreeMap;

record! {
    /// A counter.
    counter {
        /// Number of committed transactions.
        COUNT: u64,
        /// Unused.
        FILLER: [u8; 92],
    }
}

const TABLE: &str = "counter";

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Rows. Thread i adds to row i modulo this.
    pub counters: u64,
}

/// One thread.
pub struct CounterWorker<T> {
    table: T,
    key: [u8; 8],
    row: Vec<u8>,
}

impl<T: Clone + Send + Sync> Worker<T> for CounterWorker<T> {
    fn prepare(&mut self) -> Intent {
        Intent::default()
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        let exists = transaction.get_for_update(&self.table, &self.key, &mut self.row)?;
        if !exists || self.row.len() != counter::BYTES {
            return Err(Error::wrong(format!("counter {:x?} is absent or too short", self.key)));
        }
        counter::COUNT.add(&mut self.row, 1);
        transaction.insert(&self.table, &self.key, &self.row)?;
        Ok(Ending::Commit { written_bytes: (self.key.len() + self.row.len()) as u64 })
    }

    fn read<R: Reader<Table = T>>(&mut self, _: &mut R) -> Result<()> {
        Err(Error::wrong("this workload does not only read"))
    }
}

impl Workload for Counter {
    type Worker<T: Clone + Send + Sync> = CounterWorker<T>;

    fn name(&self) -> &'static str {
        "counter"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["increment"]
    }

    fn population(&self) -> String {
        format!("counter, {} rows", self.counters)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("counters".into(), self.counters.to_string())])
    }

    fn populate<S: Store>(&self, store: &S, _: usize, _: Progress<'_>) -> anyhow::Result<()> {
        let (table, mut session) = (store.table(TABLE)?, store.session(Level::Lazy)?);
        let mut fill = || -> Result<()> {
            let mut transaction = session.begin()?;
            for number in 0..self.counters {
                transaction.insert(&table, &number.to_be_bytes(), &[0; counter::BYTES])?;
            }
            transaction.commit()
        };
        fill().map_err(Error::into_failure)?;
        store.make_durable()
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<CounterWorker<S::Table>> {
        let key = (seat.index as u64 % self.counters).to_be_bytes();
        Ok(CounterWorker { table: store.table(TABLE)?, key, row: Vec::new() })
    }

    fn check<S: Store>(
        &self,
        store: &S,
        _: usize,
        acknowledged: &Acknowledged,
        _: Progress<'_>,
    ) -> anyhow::Result<Checked> {
        let (table, mut session) = (store.table(TABLE)?, store.session(Level::Durable)?);
        let (mut checked, mut sum) = (Checked::default(), 0);
        let scanned = session.begin_read().and_then(|mut reader| {
            reader.scan(&table, &[], &[u8::MAX; 9], |key, row| {
                checked.rows += 1;
                match row.len() == counter::BYTES {
                    true => sum += counter::COUNT.get(row),
                    false => checked.problem(|| format!("counter {key:x?} has {} bytes", row.len())),
                }
                Step::Continue(())
            })
        });
        scanned.map_err(Error::into_failure)?;
        checked.same(checked.rows, self.counters, || "counters, and to be there".into());
        let promised = acknowledged.get("increment").copied().unwrap_or(0);
        if sum < promised {
            checked.problem(|| format!("{promised} increments were acknowledged, but {sum} are counted"));
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests;
