//! Every way to read rows, for tests that know the expected content.

use quenchdb::internals::base::random::Random;
use quenchdb::{Error, Range, Reads, Result, Snapshot, Table, Transaction, ValueReader};
use std::io::Read;
use std::ops::Bound;

pub type Row = (Vec<u8>, Vec<u8>);

/// The transaction or snapshot that reads.
#[derive(Clone, Copy)]
pub enum Reader<'a> {
    Transaction(&'a Transaction),
    Snapshot(&'a Snapshot),
}

macro_rules! with {
    ($self:ident, $reader:ident => $call:expr) => {
        match $self {
            Reader::Transaction($reader) => $call,
            Reader::Snapshot($reader) => $call,
        }
    };
}

impl Reader<'_> {
    /// Reads one row in a random way.
    pub fn row(self, table: &Table, key: &[u8], random: &mut Random) -> Result<Option<Vec<u8>>> {
        match random.below(8) {
            0 => {
                let mut value = b"of a row before".to_vec();
                Ok(with!(self, reader => reader.get_into(table, key, &mut value))?.then_some(value))
            }
            1 => {
                with!(self, reader => reader.prefetch(table, [key, &[key, b"no such row"].concat()]))?;
                with!(self, reader => reader.get(table, key))
            }
            2 | 3 => {
                let value = with!(self, reader => reader.read_value(table, key))?;
                value.map(|value| whole(value, random)).transpose()
            }
            _ => with!(self, reader => reader.get(table, key)),
        }
    }

    /// Reads the first or the last row of a table.
    pub fn end_of(self, table: &Table, last: bool) -> Result<Option<Row>> {
        with!(self, reader => if last { reader.last(table) } else { reader.first(table) })
    }

    /// Reads the rows of a range in order: from either end, or from both ends until they meet.
    pub fn rows(
        self,
        table: &Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        random: &mut Random,
    ) -> Result<Vec<Row>> {
        with!(self, reader => rows_of(reader.range(table, bounds), random))
    }
}

fn rows_of<S: Reads>(mut rows: Range<'_, S>, random: &mut Random) -> Result<Vec<Row>> {
    let (way, copies) = (random.below(3), random.chance(1, 2));
    let own = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for n in 0.. {
        let back = way == 0 || (way == 1 && n % 2 == 1);
        let row = match (back, copies) {
            (false, true) => rows.next(),
            (true, true) => rows.next_back(),
            (false, false) => rows.next_row().map(|row| row.map(own)),
            (true, false) => rows.next_row_back().map(|row| row.map(own)),
        };
        let Some(row) = row.transpose()? else { break };
        if back { upper.push(row) } else { lower.push(row) }
    }
    lower.extend(upper.into_iter().rev());
    Ok(lower)
}

/// Reads a value to its end, or in pieces from the last piece to the first.
fn whole(mut value: ValueReader<'_>, random: &mut Random) -> Result<Vec<u8>> {
    let len = value.len();
    let mut bytes = Vec::new();
    if random.chance(1, 2) {
        let read = value.read_to_end(&mut bytes);
        read.map_err(|error| error.downcast::<Error>().expect("an error of the engine"))?;
        return Ok(bytes);
    }
    bytes.resize(len as usize, 0);
    let piece = 1 + random.below(5_000) as usize;
    for from in (0..bytes.len()).step_by(piece).rev() {
        let end = bytes.len().min(from + piece);
        let mut at = from;
        while at < end {
            // A read stops at the end of a page.
            let some = value.read_at(at as u64, &mut bytes[at..end])?;
            assert!(some > 0, "a value of {len} bytes ends at {at}");
            at += some;
        }
    }
    assert_eq!(value.read_at(len, &mut [0])?, 0, "a value of {len} bytes continues after its end");
    Ok(bytes)
}
