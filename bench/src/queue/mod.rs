//! A queue: producers put rows at its end, consumers take the first row. Every consumer begins
//! where rows were deleted, of which some are kept: a long snapshot sees them, or their deletion is
//! not durable yet.
//!
//! | table | key | row |
//! |---|---|---|
//! | `queue` | number of the queue (4 bytes), number of the row (8 bytes), big-endian | filler |
//! | `queue_done` | number of the run, number of the thread | rows put, rows taken |

use crate::checked::Checked;
use crate::progress::Progress;
use crate::record;
use crate::store::{Error, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::workload::{Acknowledged, Ending, Intent, Seat, Worker, Workload};
use anyhow::{Context, anyhow};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

record! {
    /// What a thread has done.
    done {
        /// Rows that it has put into its queue.
        PUT: u64,
        /// Rows that it has taken.
        TAKEN: u64,
    }
}

const ROWS: &str = "queue";
const DONE: &str = "queue_done";
const KINDS: &[&str] = &["put", "take"];
const PUT: usize = 0;
const TAKE: usize = 1;
/// Rows of one transaction of the population.
const BATCH: u64 = 500;

/// See the module.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Queues, all in one table. Thread i works on queue i modulo this.
    pub queues: u64,
    /// Rows of each queue at the begin.
    pub backlog: u64,
    /// Threads that only put; the others only take. `None`: each thread puts and takes in turn.
    pub producers: Option<usize>,
    /// Bytes of a row.
    pub value_bytes: usize,
    /// One snapshot is open during the whole run.
    pub long_snapshot: bool,
    /// The number of the next row.
    pub next: Arc<AtomicU64>,
}

/// One thread.
pub struct QueueWorker<T> {
    rows: T,
    done: T,
    /// The key in `done`.
    seat: [u8; 16],
    queue: u32,
    /// `None` for a thread that does both in turn.
    only: Option<usize>,
    kind: usize,
    next: Arc<AtomicU64>,
    value: Vec<u8>,
    row: Vec<u8>,
    key: Vec<u8>,
}

fn key_of(queue: u32, number: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&queue.to_be_bytes());
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

impl<T: Clone + Send + Sync> QueueWorker<T> {
    /// Counts a row that was put or taken. Returns the bytes written.
    fn count<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<u64> {
        let exists = transaction.get(&self.done, &self.seat, &mut self.row)?;
        if !exists {
            self.row.clear();
            self.row.resize(done::BYTES, 0);
        }
        let counter = if self.kind == PUT { done::PUT } else { done::TAKEN };
        counter.add(&mut self.row, 1);
        transaction.insert(&self.done, &self.seat, &self.row)?;
        Ok((self.seat.len() + self.row.len()) as u64)
    }
}

impl<T: Clone + Send + Sync> Worker<T> for QueueWorker<T> {
    fn prepare(&mut self) -> Intent {
        self.kind = self.only.unwrap_or(1 - self.kind);
        Intent { kind: self.kind, reads_only: false }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        if self.kind == PUT {
            let key = key_of(self.queue, self.next.fetch_add(1, Ordering::Relaxed));
            transaction.insert(&self.rows, &key, &self.value)?;
            let counted = self.count(transaction)?;
            return Ok(Ending::Commit { written_bytes: (key.len() + self.value.len()) as u64 + counted });
        }
        self.key.clear();
        let (from, to) = (key_of(self.queue, 0), key_of(self.queue + 1, 0));
        transaction.scan(&self.rows, &from, &to, |key, _| {
            self.key.extend_from_slice(key);
            Step::Break(())
        })?;
        if self.key.is_empty() {
            return Ok(Ending::READ);
        }
        if !transaction.remove(&self.rows, &self.key)? {
            return Err(Error::Conflict);
        }
        let counted = self.count(transaction)?;
        Ok(Ending::Commit { written_bytes: self.key.len() as u64 + counted })
    }

    fn read<R: Reader<Table = T>>(&mut self, _: &mut R) -> Result<()> {
        Err(Error::wrong("this workload does not only read"))
    }
}

fn first_row<R: Reader>(reader: &mut R, table: &R::Table) -> anyhow::Result<Option<Vec<u8>>> {
    let mut first = None;
    let scanned = reader.scan(table, &[], &[u8::MAX; 13], |key, _| {
        first = Some(key.to_vec());
        Step::Break(())
    });
    scanned.map_err(Error::into_failure)?;
    Ok(first)
}

impl Workload for Queue {
    type Worker<T: Clone + Send + Sync> = QueueWorker<T>;

    fn name(&self) -> &'static str {
        "queue"
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn population(&self) -> String {
        format!("queue, {} queues of {} rows of {} bytes", self.queues, self.backlog, self.value_bytes)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let producers = self.producers.map_or("all, in turn".into(), |count| count.to_string());
        BTreeMap::from([
            ("queues".into(), self.queues.to_string()),
            ("backlog".into(), self.backlog.to_string()),
            ("producers".into(), producers),
            ("long_snapshot".into(), self.long_snapshot.to_string()),
        ])
    }

    fn populate<S: Store>(&self, store: &S, _: usize, progress: Progress<'_>) -> anyhow::Result<()> {
        let (table, mut session) = (store.table(ROWS)?, store.session(Level::Lazy)?);
        store.table(DONE)?;
        let value = vec![0; self.value_bytes];
        let (mut number, all) = (0, self.queues * self.backlog);
        while number < all {
            progress("loading", number, all);
            let end = all.min(number + BATCH);
            let mut fill = || -> Result<()> {
                let mut transaction = session.begin()?;
                for number in number..end {
                    let key = key_of((number % self.queues) as u32, number);
                    transaction.insert(&table, &key, &value)?;
                }
                transaction.commit()
            };
            fill().map_err(Error::into_failure)?;
            number = end;
        }
        store.make_durable()
    }

    fn begin<S: Store>(&self, store: &S) -> anyhow::Result<()> {
        let (table, mut session) = (store.table(ROWS)?, store.session(Level::Durable)?);
        let mut newest = self.queues * self.backlog;
        let mut reader = session.begin_read().map_err(Error::into_failure)?;
        for queue in 0..self.queues as u32 {
            let last = reader.scan_back(&table, &key_of(queue, 0), &key_of(queue + 1, 0), |key, _| {
                let number = key.get(4..).and_then(|number| number.try_into().ok());
                newest = newest.max(number.map_or(0, |number| u64::from_be_bytes(number) + 1));
                Step::Break(())
            });
            last.map_err(Error::into_failure)?;
        }
        self.next.store(newest, Ordering::Relaxed);
        Ok(())
    }

    /// Holds one snapshot meanwhile, if this is asked for, and checks that the snapshot sees the
    /// same first row at the end.
    fn around<S: Store, T>(&self, store: &S, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if !self.long_snapshot {
            return run();
        }
        let table = store.table(ROWS)?;
        std::thread::scope(|scope| {
            let (began, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let holder = scope.spawn(move || -> anyhow::Result<()> {
                let mut session = store.session(Level::Durable)?;
                let mut snapshot = session.begin_read().map_err(Error::into_failure)?;
                let first = first_row(&mut snapshot, &table)?;
                let _ = began.send(());
                let _ = ended.recv();
                match first_row(&mut snapshot, &table)? == first {
                    true => Ok(()),
                    false => Err(anyhow!("the long snapshot has changed")),
                }
            });
            // The holder has failed if this fails.
            let result = begun.recv().map(|()| run());
            drop(end);
            holder.join().map_err(|_| anyhow!("the holder of the snapshot panicked"))??;
            result.context("no snapshot began")?
        })
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<QueueWorker<S::Table>> {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&seat.run.to_be_bytes());
        key[8..].copy_from_slice(&(seat.index as u64).to_be_bytes());
        Ok(QueueWorker {
            rows: store.table(ROWS)?,
            done: store.table(DONE)?,
            seat: key,
            queue: (seat.index as u64 % self.queues) as u32,
            only: self.producers.map(|count| if seat.index < count { PUT } else { TAKE }),
            kind: TAKE,
            next: self.next.clone(),
            value: vec![0; self.value_bytes],
            row: Vec::new(),
            key: Vec::new(),
        })
    }

    fn check<S: Store>(
        &self,
        store: &S,
        _: usize,
        acknowledged: &Acknowledged,
        _: Progress<'_>,
    ) -> anyhow::Result<Checked> {
        let (rows, threads) = (store.table(ROWS)?, store.table(DONE)?);
        let mut session = store.session(Level::Durable)?;
        let (mut checked, mut put, mut taken) = (Checked::default(), 0, 0);
        let scanned = session.begin_read().and_then(|mut reader| {
            reader.scan(&rows, &[], &[u8::MAX; 13], |key, row| {
                checked.rows += 1;
                if key.len() != 12 || row.len() != self.value_bytes {
                    checked.problem(|| format!("row {key:x?} has {} bytes", row.len()));
                }
                Step::Continue(())
            })?;
            reader.scan(&threads, &[], &[u8::MAX; 17], |key, row| {
                match row.len() == done::BYTES {
                    true => (put, taken) = (put + done::PUT.get(row), taken + done::TAKEN.get(row)),
                    false => checked.problem(|| format!("thread {key:x?} has {} bytes", row.len())),
                }
                Step::Continue(())
            })
        });
        scanned.map_err(Error::into_failure)?;
        let expected = (self.queues * self.backlog + put).saturating_sub(taken);
        checked.same(checked.rows, expected, || "rows, and those that were put and not taken".into());
        let promised = acknowledged.get(KINDS[PUT]).copied().unwrap_or(0);
        if put < promised {
            checked.problem(|| format!("{promised} rows were acknowledged as put, but {put} are counted"));
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests;
