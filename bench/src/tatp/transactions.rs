//! The seven transactions of TATP.

use super::schema::{
    Tables, access_info, call_forwarding, forwarding_key, number_of, special_facility, subscriber,
    subscriber_key, typed_key,
};
use crate::store::{Error, Reader, Result, Step, Transaction};
use crate::workload::Ending;
use quenchdb::internals::base::random::Random;
use std::hint::black_box;

/// The types, in the order of [`Input`].
pub const KINDS: &[&str] = &[
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];

/// Percentages of the mix: 80 read, 16 update, 4 insert or delete.
pub const WEIGHTS: [u64; 7] = [35, 10, 35, 2, 14, 2, 2];

/// The input of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Input {
    GetSubscriberData,
    GetNewDestination { kind: u8, start: u8, end: u8 },
    GetAccessData { kind: u8 },
    UpdateSubscriberData { kind: u8, bit: bool, data_a: u8 },
    UpdateLocation { location: u32 },
    InsertCallForwarding { kind: u8, start: u8, end: u8, number: u32 },
    DeleteCallForwarding { kind: u8, start: u8 },
}

/// Draws a number from 1 to 4.
fn kind(random: &mut Random) -> u8 {
    1 + random.below(4) as u8
}

/// Draws 0, 8 or 16.
fn start(random: &mut Random) -> u8 {
    8 * random.below(3) as u8
}

/// Draws 1 to 24. So an inserted forwarding may end before it begins, unlike those of the
/// population.
fn hour(random: &mut Random) -> u8 {
    1 + random.below(24) as u8
}

impl Input {
    /// Draws the input of type `index` of [`KINDS`].
    pub fn draw(index: usize, subscribers: u32, random: &mut Random) -> Input {
        match index {
            0 => Input::GetSubscriberData,
            1 => Input::GetNewDestination { kind: kind(random), start: start(random), end: hour(random) },
            2 => Input::GetAccessData { kind: kind(random) },
            3 => Input::UpdateSubscriberData {
                kind: kind(random),
                bit: random.chance(1, 2),
                data_a: random.below(256) as u8,
            },
            4 => Input::UpdateLocation { location: random.next_u64() as u32 },
            5 => {
                let (kind, start, end) = (kind(random), start(random), hour(random));
                let number = 1 + random.below(subscribers.into()) as u32;
                Input::InsertCallForwarding { kind, start, end, number }
            }
            _ => Input::DeleteCallForwarding { kind: kind(random), start: start(random) },
        }
    }

    /// Returns whether the transaction only reads.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        matches!(
            self,
            Input::GetSubscriberData | Input::GetNewDestination { .. } | Input::GetAccessData { .. }
        )
    }
}

/// Buffers of one thread.
#[derive(Clone, Debug, Default)]
pub struct Client {
    row: Vec<u8>,
    other: Vec<u8>,
}

fn whole(there: bool, row: &[u8], bytes: usize, what: &str) -> Result<bool> {
    if there && row.len() != bytes {
        return Err(Error::wrong(format!("a row of {what} has {} bytes, not {bytes}", row.len())));
    }
    Ok(there)
}

fn committed(key: &[u8], row: &[u8]) -> Ending {
    Ending::Commit { written_bytes: (key.len() + row.len()) as u64 }
}

impl Client {
    /// Runs a transaction that only reads, on subscriber `s`. Returns whether it found its rows.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read<R: Reader>(
        &mut self,
        reader: &mut R,
        tables: &Tables<R::Table>,
        s: u32,
        input: Input,
    ) -> Result<bool> {
        match input {
            Input::GetSubscriberData => {
                self.subscriber(reader, tables, s)?;
                black_box(&self.row);
                Ok(true)
            }
            Input::GetNewDestination { kind, start, end } => {
                self.new_destination(reader, tables, s, (kind, start, end))
            }
            Input::GetAccessData { kind } => {
                let there = reader.get(&tables.access_info, &typed_key(s, kind), &mut self.row)?;
                black_box(&self.row);
                whole(there, &self.row, access_info::BYTES, "access_info")
            }
            _ => Err(Error::wrong("this transaction writes")),
        }
    }

    /// Reads a subscriber into `row`. The subscriber must exist.
    fn subscriber<R: Reader>(&mut self, reader: &mut R, tables: &Tables<R::Table>, s: u32) -> Result<()> {
        let there = reader.get(&tables.subscriber, &subscriber_key(s), &mut self.row)?;
        self.must_be_whole(there, s)
    }

    fn must_be_whole(&self, there: bool, s: u32) -> Result<()> {
        match whole(there, &self.row, subscriber::BYTES, "subscriber")? {
            true => Ok(()),
            false => Err(Error::wrong(format!("subscriber {s} is not there"))),
        }
    }

    /// Reads a subscriber that the transaction will change into `row`.
    fn subscriber_for_update<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        s: u32,
    ) -> Result<()> {
        let there = transaction.get_for_update(&tables.subscriber, &subscriber_key(s), &mut self.row)?;
        self.must_be_whole(there, s)
    }

    fn new_destination<R: Reader>(
        &mut self,
        reader: &mut R,
        tables: &Tables<R::Table>,
        s: u32,
        (kind, start, end): (u8, u8, u8),
    ) -> Result<bool> {
        let there = reader.get(&tables.special_facility, &typed_key(s, kind), &mut self.row)?;
        let there = whole(there, &self.row, special_facility::BYTES, "special_facility")?;
        if !there || special_facility::IS_ACTIVE.get(&self.row) == 0 {
            return Ok(false);
        }
        let (from, to) = (forwarding_key(s, kind, 0), forwarding_key(s, kind, start + 1));
        let mut found = false;
        reader.scan(&tables.call_forwarding, &from, &to, |_, row| {
            if row.len() == call_forwarding::BYTES && end < call_forwarding::END_TIME.get(row) {
                black_box(call_forwarding::NUMBERX.bytes(row));
                found = true;
            }
            Step::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the subscriber with the number of `s`.
    fn by_number<R: Reader>(&mut self, reader: &mut R, tables: &Tables<R::Table>, s: u32) -> Result<u32> {
        let there = reader.get(&tables.number, &number_of(s), &mut self.row)?;
        match <[u8; 4]>::try_from(self.row.as_slice()) {
            Ok(found) if there => Ok(u32::from_be_bytes(found)),
            _ => Err(Error::wrong(format!("the number of subscriber {s} is not there"))),
        }
    }

    /// Runs a transaction on subscriber `s`. Rolls back if its rows are missing, as the
    /// specification expects.
    ///
    /// # Errors
    /// Those of the store.
    pub fn run<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        s: u32,
        input: Input,
    ) -> Result<Ending> {
        match input {
            Input::UpdateSubscriberData { kind, bit, data_a } => {
                self.update_subscriber_data(transaction, tables, s, (kind, bit, data_a))
            }
            Input::UpdateLocation { location } => {
                let s = self.by_number(transaction, tables, s)?;
                self.subscriber_for_update(transaction, tables, s)?;
                subscriber::VLR_LOCATION.set(&mut self.row, location);
                let key = subscriber_key(s);
                transaction.insert(&tables.subscriber, &key, &self.row)?;
                Ok(committed(&key, &self.row))
            }
            Input::InsertCallForwarding { kind, start, end, number } => {
                let s = self.by_number(transaction, tables, s)?;
                if !self.may_forward(transaction, tables, s, (kind, start))? {
                    return Ok(Ending::RollBack);
                }
                let (key, mut row) = (forwarding_key(s, kind, start), [0; call_forwarding::BYTES]);
                call_forwarding::END_TIME.set(&mut row, end);
                call_forwarding::NUMBERX.put(&mut row, &number_of(number));
                transaction.insert(&tables.call_forwarding, &key, &row)?;
                Ok(committed(&key, &row))
            }
            Input::DeleteCallForwarding { kind, start } => {
                let s = self.by_number(transaction, tables, s)?;
                let key = forwarding_key(s, kind, start);
                let there = transaction.remove(&tables.call_forwarding, &key)?;
                Ok(if there { committed(&key, &[]) } else { Ending::RollBack })
            }
            _ => self.read(transaction, tables, s, input).map(|_| Ending::READ),
        }
    }

    fn update_subscriber_data<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        s: u32,
        (kind, bit, data_a): (u8, bool, u8),
    ) -> Result<Ending> {
        self.subscriber_for_update(transaction, tables, s)?;
        let bits = subscriber::BITS.get(&self.row) & !1 | u16::from(bit);
        subscriber::BITS.set(&mut self.row, bits);
        transaction.insert(&tables.subscriber, &subscriber_key(s), &self.row)?;
        let key = typed_key(s, kind);
        let there = transaction.get_for_update(&tables.special_facility, &key, &mut self.other)?;
        if !whole(there, &self.other, special_facility::BYTES, "special_facility")? {
            return Ok(Ending::RollBack);
        }
        special_facility::DATA_A.set(&mut self.other, data_a);
        transaction.insert(&tables.special_facility, &key, &self.other)?;
        Ok(Ending::Commit { written_bytes: (4 + self.row.len() + key.len() + self.other.len()) as u64 })
    }

    /// Returns whether the facility exists and has no forwarding from that hour on.
    fn may_forward<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        s: u32,
        (kind, start): (u8, u8),
    ) -> Result<bool> {
        let (from, to) = (typed_key(s, 0), typed_key(s, u8::MAX));
        let mut exists = false;
        transaction.scan(&tables.special_facility, &from, &to, |key, _| {
            exists |= key.last() == Some(&kind);
            Step::Continue(())
        })?;
        let key = forwarding_key(s, kind, start);
        Ok(exists && !transaction.get_for_update(&tables.call_forwarding, &key, &mut self.row)?)
    }
}
