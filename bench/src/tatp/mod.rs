//! TATP (Telecom Application Transaction Processing benchmark, description of 2009): the register
//! of a mobile phone network.
//!
//! Seven short transactions on four tables, 80 of 100 only read. A transaction that does not find
//! what it needs counts, as the description says: of a fresh population 14.8 of 100
//! Get-New-Destination, five of eight Get-Access-Data and Update-Subscriber-Data, and five of
//! sixteen inserts and deletes find it.

mod schema;
mod transactions;

pub use transactions::{Client, Input, KINDS};

use crate::checked::Checked;
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::store::{Error, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::workload::{Acknowledged, Ending, Intent, Seat, Worker, Workload};
use quenchdb::internals::base::random::Random;
use schema::{
    Tables, access_info, call_forwarding, forwarding_key, number_of, special_facility, subscriber,
    subscriber_key, subscriber_of, typed_key,
};
use std::collections::BTreeMap;
use transactions::WEIGHTS;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    /// Subscribers.
    pub subscribers: u32,
    /// True if subscribers are chosen uniformly.
    pub uniform: bool,
    /// Index of the only type of transaction, if given.
    pub only: Option<usize>,
    /// Seed of the population.
    pub population_seed: u64,
    /// Seed of the run.
    pub seed: u64,
}

/// Subscribers of one transaction of the population.
const BATCH: u32 = 50;
/// Subscribers of one part of it.
const PART: u32 = 10_000;

/// Returns 1, 2, 3, 4 in random order, and how many of them to use: one to four, equally often.
fn kinds(random: &mut Random) -> ([u8; 4], usize) {
    let mut kinds = [1, 2, 3, 4];
    for place in (1..4).rev() {
        kinds.swap(place, random.below(place as u64 + 1) as usize);
    }
    (kinds, 1 + random.below(4) as usize)
}

fn capitals<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| b'A' + random.below(26) as u8)
}

impl Tatp {
    /// Returns the parameter A of the description's NURand.
    fn skew(&self) -> u64 {
        match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        }
    }

    /// Draws a subscriber, from 1.
    fn choose(&self, random: &mut Random) -> u32 {
        let all = u64::from(self.subscribers);
        if self.uniform {
            return 1 + random.below(all) as u32;
        }
        let drawn = random.below(self.skew() + 1) | (1 + random.below(all));
        (drawn % all) as u32 + 1
    }

    fn populate_one<X: Transaction>(
        random: &mut Random,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        s: u32,
    ) -> Result<()> {
        let mut row = [0; subscriber::BYTES];
        subscriber::VLR_LOCATION.set(&mut row, random.next_u64() as u32);
        subscriber::MSC_LOCATION.set(&mut row, random.next_u64() as u32);
        subscriber::BITS.set(&mut row, random.below(1 << 10) as u16);
        subscriber::HEX.put(&mut row, &random.next_u64().to_le_bytes()[..5]);
        subscriber::BYTE2.put(&mut row, &std::array::from_fn::<u8, 10, _>(|_| random.below(256) as u8));
        subscriber::SUB_NBR.put(&mut row, &number_of(s));
        transaction.insert(&tables.subscriber, &subscriber_key(s), &row)?;
        transaction.insert(&tables.number, &number_of(s), &subscriber_key(s))?;
        let (types, count) = kinds(random);
        for &kind in &types[..count] {
            let mut row = [0; access_info::BYTES];
            access_info::DATA1.set(&mut row, random.below(256) as u8);
            access_info::DATA2.set(&mut row, random.below(256) as u8);
            access_info::DATA3.put(&mut row, &capitals::<3>(random));
            access_info::DATA4.put(&mut row, &capitals::<5>(random));
            transaction.insert(&tables.access_info, &typed_key(s, kind), &row)?;
        }
        let (types, count) = kinds(random);
        for &kind in &types[..count] {
            let mut row = [0; special_facility::BYTES];
            special_facility::IS_ACTIVE.set(&mut row, u8::from(random.chance(85, 100)));
            special_facility::ERROR_CNTRL.set(&mut row, random.below(256) as u8);
            special_facility::DATA_A.set(&mut row, random.below(256) as u8);
            special_facility::DATA_B.put(&mut row, &capitals::<5>(random));
            transaction.insert(&tables.special_facility, &typed_key(s, kind), &row)?;
            // None to three of the three hours: each number as often.
            let (hours, count) = ([0u8, 8, 16], random.below(4) as usize);
            let first = random.below(3) as usize;
            for place in 0..count {
                let start = hours[(first + place) % 3];
                let mut row = [0; call_forwarding::BYTES];
                call_forwarding::END_TIME.set(&mut row, start + 1 + random.below(8) as u8);
                call_forwarding::NUMBERX.put(&mut row, &number_of(random.next_u64() as u32));
                transaction.insert(&tables.call_forwarding, &forwarding_key(s, kind, start), &row)?;
            }
        }
        Ok(())
    }
}

/// A thread of the workload.
pub struct TatpWorker<T> {
    tables: Tables<T>,
    tatp: Tatp,
    random: Random,
    s: u32,
    input: Input,
    client: Client,
}

impl<T> TatpWorker<T> {
    fn kind(&mut self) -> usize {
        if let Some(only) = self.tatp.only {
            return only;
        }
        let mut left = self.random.below(100);
        WEIGHTS
            .iter()
            .position(|weight| {
                let here = left < *weight;
                left = left.wrapping_sub(*weight);
                here
            })
            .unwrap_or(0)
    }
}

impl<T: Clone + Send + Sync> Worker<T> for TatpWorker<T> {
    fn prepare(&mut self) -> Intent {
        let kind = self.kind();
        self.s = self.tatp.choose(&mut self.random);
        self.input = Input::draw(kind, self.tatp.subscribers, &mut self.random);
        Intent { kind, reads_only: self.input.reads_only() }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        self.client.run(transaction, &self.tables, self.s, self.input)
    }

    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()> {
        self.client.read(snapshot, &self.tables, self.s, self.input).map(drop)
    }
}

/// Facilities and what hangs off a subscriber, as bits of their types.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    numbered: bool,
    access: u8,
    facilities: u8,
}

impl Tatp {
    fn check_all<R: Reader>(&self, reader: &mut R, tables: &Tables<R::Table>) -> Result<Checked> {
        let mut checked = Checked::default();
        let mut all = vec![Found::default(); self.subscribers as usize + 1];
        let mut rows = |table: &R::Table,
                        bytes: usize,
                        what: &str,
                        checked: &mut Checked,
                        each: &mut dyn FnMut(&[u8], &[u8]) -> bool| {
            reader.scan(table, &[], &[u8::MAX; 16], |key, row| {
                checked.rows += 1;
                if row.len() != bytes || !each(key, row) {
                    checked.problem(|| format!("{what}: row {key:x?} is not one that belongs there"));
                }
                Step::Continue(())
            })
        };
        let mut count = 0;
        rows(&tables.subscriber, subscriber::BYTES, "subscriber", &mut checked, &mut |key, row| {
            count += 1;
            let s = subscriber_of(key).unwrap_or(0);
            subscriber::SUB_NBR.bytes(row) == number_of(s) && subscriber::BITS.get(row) < 1 << 10
        })?;
        checked.same(count, self.subscribers, || "subscribers, and to be there".into());
        rows(&tables.number, 4, "numbers", &mut checked, &mut |key, row| {
            let s = subscriber_of(row).unwrap_or(0);
            let Some(found) = all.get_mut(s as usize) else { return false };
            found.numbered = true;
            key == number_of(s)
        })?;
        /// The bit of a type, and the subscriber.
        fn typed<'a>(all: &'a mut [Found], key: &[u8], bytes: usize) -> Option<(&'a mut Found, u8)> {
            let (s, kind) = (subscriber_of(key)?, *key.get(4)?);
            let fits = key.len() == bytes && (1..=4).contains(&kind) && s > 0;
            all.get_mut(s as usize).filter(|_| fits).map(|found| (found, 1 << kind))
        }
        rows(&tables.access_info, access_info::BYTES, "access_info", &mut checked, &mut |key, _| {
            typed(&mut all, key, 5).map(|(found, bit)| found.access |= bit).is_some()
        })?;
        let bytes = special_facility::BYTES;
        rows(&tables.special_facility, bytes, "special_facility", &mut checked, &mut |key, row| {
            let facility = typed(&mut all, key, 5).map(|(found, bit)| found.facilities |= bit);
            facility.is_some() && special_facility::IS_ACTIVE.get(row) < 2
        })?;
        let bytes = call_forwarding::BYTES;
        rows(&tables.call_forwarding, bytes, "call_forwarding", &mut checked, &mut |key, row| {
            let start = key.last().copied().unwrap_or(1);
            typed(&mut all, key, 6).is_some_and(|(found, bit)| found.facilities & bit != 0)
                && start.is_multiple_of(8)
                && start <= 16
                && (1..=24).contains(&call_forwarding::END_TIME.get(row))
        })?;
        for (s, found) in all.iter().enumerate().skip(1) {
            if !found.numbered || found.access == 0 || found.facilities == 0 {
                checked.problem(|| format!("subscriber {s} lacks number, access or facility: {found:?}"));
            }
        }
        Ok(checked)
    }
}

impl Workload for Tatp {
    type Worker<T: Clone + Send + Sync> = TatpWorker<T>;

    fn name(&self) -> &'static str {
        "tatp"
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn population(&self) -> String {
        format!("tatp, {} subscribers, seed {}", self.subscribers, self.population_seed)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let mix = self.only.map_or("80/16/4", |only| KINDS[only]);
        BTreeMap::from([
            ("subscribers".into(), self.subscribers.to_string()),
            ("distribution".into(), if self.uniform { "uniform" } else { "nurand" }.into()),
            ("mix".into(), mix.into()),
        ])
    }

    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> anyhow::Result<()> {
        let tables = Tables::open(|name| store.table(name))?;
        let part = |part: u64| -> anyhow::Result<()> {
            let mut random = Random::from_seed(self.population_seed ^ (part + 1) << 32);
            let mut session = store.session(Level::Lazy)?;
            let first = part as u32 * PART + 1;
            let last = self.subscribers.min(first + PART - 1);
            let mut batch = |first: u32| -> Result<()> {
                let mut transaction = session.begin()?;
                for s in first..=last.min(first + BATCH - 1) {
                    Tatp::populate_one(&mut random, &mut transaction, &tables, s)?;
                }
                transaction.commit()
            };
            (first..=last).step_by(BATCH as usize).try_for_each(&mut batch).map_err(Error::into_failure)
        };
        in_parallel(threads, self.subscribers.div_ceil(PART).into(), "populating", progress, part)?;
        store.make_durable()
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<TatpWorker<S::Table>> {
        Ok(TatpWorker {
            tables: Tables::open(|name| store.table(name))?,
            tatp: *self,
            random: Random::from_seed(seat.seed(self.seed)),
            s: 1,
            input: Input::GetSubscriberData,
            client: Client::default(),
        })
    }

    fn check<S: Store>(
        &self,
        store: &S,
        _: usize,
        _: &Acknowledged,
        progress: Progress<'_>,
    ) -> anyhow::Result<Checked> {
        progress("checking subscribers", 0, 1);
        let tables = Tables::open(|name| store.table(name))?;
        let mut session = store.session(Level::Durable)?;
        let checked = session.begin_read().and_then(|mut reader| self.check_all(&mut reader, &tables));
        checked.map_err(Error::into_failure)
    }
}

#[cfg(test)]
mod tests;
