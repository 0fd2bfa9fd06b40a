//! The rows of a range, fetched many at a time, in both directions.
//!
//! 1. A batch is fetched in one call of the engine, and belongs to the version of its transaction
//!    at that moment. After a change the next step fetches again, behind the row that it returned
//!    last. So a loop sees what its transaction writes ahead of it.
//! 2. Fetches begin small and grow, so that the first row of a long range comes soon.

use quenchdb::{Error, Reads, Result, Table};
use std::ops::Bound;

/// Rows of the first fetch, and of the first one after a change.
const ROWS_FIRST: usize = 16;
/// Rows of the largest fetch.
const ROWS_MAX: usize = 2048;
/// A fetch ends with the row that makes it so long.
const BYTES_MAX: usize = 256 << 10;

/// The limits of a range of keys.
pub type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The limits of a part of a range.
type Part<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the range that a caller names: `start` and `stop`, each with whether it is included, or
/// a prefix. `None` is no limit.
///
/// # Errors
/// `InvalidArgument` for a prefix beside other limits.
pub fn range(
    start: Option<(&[u8], bool)>,
    stop: Option<(&[u8], bool)>,
    prefix: Option<&[u8]>,
) -> Result<Range> {
    let limit = |key: Option<(&[u8], bool)>| match key {
        None => Bound::Unbounded,
        Some((key, true)) => Bound::Included(key.to_vec()),
        Some((key, false)) => Bound::Excluded(key.to_vec()),
    };
    let Some(prefix) = prefix else { return Ok((limit(start), limit(stop))) };
    if start.is_some() || stop.is_some() {
        let error = Error::invalid("a range has a prefix, or start and stop");
        return Err(error.with_advice("leave one of them out"));
    }
    // The lowest key behind all of them: bytes of 255 have no successor.
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX);
    let end = last.map(|at| [&prefix[..at], &[prefix[at] + 1]].concat());
    Ok((Bound::Included(prefix.to_vec()), end.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// Rows that were fetched together: their keys and their values, one behind the other.
#[derive(Default)]
struct Batch {
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Where the key and the value of each row end.
    ends: Vec<(usize, usize)>,
    /// Rows that were returned.
    returned: usize,
    /// The range has no row behind them.
    is_last: bool,
    /// From the highest key to the lowest.
    back: bool,
}

impl Batch {
    fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
        (self.returned, self.is_last) = (0, false);
    }

    /// Returns the row that was returned last.
    #[inline]
    fn row(&self) -> Option<(&[u8], &[u8])> {
        let at = self.returned.checked_sub(1)?;
        let (key, value) = if at == 0 { (0, 0) } else { self.ends[at - 1] };
        let (key_end, value_end) = self.ends[at];
        Some((&self.keys[key..key_end], &self.values[value..value_end]))
    }
}

/// The part of a range that is to be fetched, for [`Ahead::read`].
pub struct Ahead<'a> {
    batch: &'a mut Batch,
    limits: Part<'a>,
    rows_max: usize,
    bytes_max: usize,
    keys_only: bool,
}

impl Ahead<'_> {
    /// Reads the next rows. Call it once, without a lock that a signal handler may want.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn read(self, reads: &impl Reads, table: &Table) -> Result<()> {
        let batch = self.batch;
        let mut rows = reads.range(table, self.limits);
        if self.keys_only {
            rows = rows.keys();
        }
        while batch.ends.len() < self.rows_max && batch.keys.len() + batch.values.len() < self.bytes_max {
            let row = if batch.back { rows.next_row_back() } else { rows.next_row() };
            let Some((key, value)) = row.transpose()? else {
                batch.is_last = true;
                break;
            };
            batch.keys.extend_from_slice(key);
            if !self.keys_only {
                batch.values.extend_from_slice(value);
            }
            batch.ends.push((batch.keys.len(), batch.values.len()));
        }
        Ok(())
    }
}

/// Where the rows stand, beside those that were fetched.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Nothing was returned.
    Start,
    /// At the row `key`.
    At,
    /// Before the first row whose key is `key` or higher.
    Before,
    /// Behind the last row, or, with true, before the first row.
    End(bool),
}

/// The rows of a range. They stand before the first row, at a row, or behind the last one.
pub struct Rows {
    range: Range,
    place: Place,
    key: Vec<u8>,
    batch: Batch,
    rows_max: usize,
    keys_only: bool,
    /// The version of the transaction at which the batch was fetched.
    version: Option<u64>,
}

impl Rows {
    /// Returns the rows of a range, of which nothing is read yet. With `keys_only`, values are not
    /// read, and are empty.
    #[must_use]
    pub fn new(range: Range, keys_only: bool) -> Rows {
        let (place, key, batch) = (Place::Start, Vec::new(), Batch::default());
        Rows { range, place, key, batch, rows_max: ROWS_FIRST, keys_only, version: None }
    }

    /// Returns the part of the range that lies ahead; `None` if nothing does.
    fn ahead(&self, back: bool) -> Option<Part<'_>> {
        let (lower, upper) =
            (self.range.0.as_ref().map(Vec::as_slice), self.range.1.as_ref().map(Vec::as_slice));
        let key = self.key.as_slice();
        let is_below = match lower {
            Bound::Included(lower) => key < lower,
            Bound::Excluded(lower) => key <= lower,
            Bound::Unbounded => false,
        };
        let is_above = match upper {
            Bound::Included(upper) => key > upper,
            Bound::Excluded(upper) => key >= upper,
            Bound::Unbounded => false,
        };
        match (self.place, back) {
            (Place::End(at), _) if at == back => None,
            (Place::Start | Place::End(_), _) => Some((lower, upper)),
            // A place outside of the range: all of it is ahead, or nothing.
            (_, false) if is_below => Some((lower, upper)),
            (_, true) if is_above => Some((lower, upper)),
            (_, false) if is_above => None,
            (_, true) if is_below => None,
            (Place::At, false) => Some((Bound::Excluded(key), upper)),
            (Place::Before, false) => Some((Bound::Included(key), upper)),
            (_, true) => Some((lower, Bound::Excluded(key))),
        }
    }

    /// Moves to the next row of a direction, if it was fetched and the transaction still has this
    /// version.
    #[inline]
    pub fn step_fetched(&mut self, version: u64, back: bool) -> bool {
        let batch = &mut self.batch;
        let is_ready =
            self.version == Some(version) && batch.back == back && batch.returned < batch.ends.len();
        batch.returned += usize::from(is_ready);
        is_ready
    }

    /// Moves to the next row of a direction. Returns false at the end. `fetch` calls
    /// [`Ahead::read`].
    ///
    /// # Errors
    /// Those of `fetch`. The place stays as it is.
    pub fn step<E>(
        &mut self,
        version: u64,
        back: bool,
        fetch: impl FnOnce(Ahead<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        if self.step_fetched(version, back) {
            return Ok(true);
        }
        let continues = self.version == Some(version) && self.batch.back == back;
        self.rows_max = if continues { (self.rows_max * 4).min(ROWS_MAX) } else { ROWS_FIRST };
        self.fetch(version, back, (self.rows_max, BYTES_MAX), fetch)?;
        Ok(self.step_fetched(version, back))
    }

    /// Fetches rows behind the last one that was returned, up to limits of rows and bytes.
    fn fetch<E>(
        &mut self,
        version: u64,
        back: bool,
        (rows_max, bytes_max): (usize, usize),
        fetch: impl FnOnce(Ahead<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let Some((key, _)) = self.batch.row() {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.place = Place::At;
        }
        let is_over = self.version == Some(version) && self.batch.back == back && self.batch.is_last;
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.back = back;
        let fetched = match self.ahead(back).filter(|_| !is_over) {
            Some(limits) => {
                fetch(Ahead { batch: &mut batch, limits, rows_max, bytes_max, keys_only: self.keys_only })
            }
            None => Ok(()),
        };
        if fetched.is_err() {
            batch.clear();
        } else if batch.ends.is_empty() {
            self.place = Place::End(back);
        }
        self.batch = batch;
        self.version = fetched.is_ok().then_some(version);
        fetched
    }

    /// Returns key and value of the row that the last step has moved to; nothing at an end.
    #[inline]
    #[must_use]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        self.batch.row()
    }

    /// Moves before the first row whose key is `key` or higher. Reads nothing.
    pub fn seek(&mut self, key: &[u8]) {
        (self.key, self.place, self.version) = (key.to_vec(), Place::Before, None);
        self.batch.clear();
    }

    /// Moves behind up to `rows_max` rows, which it returns as columns: the ends of keys and values
    /// of each row, all keys, all values.
    ///
    /// # Errors
    /// Those of `fetch`.
    #[allow(clippy::type_complexity)]
    pub fn columns<E>(
        &mut self,
        (version, back): (u64, bool),
        rows_max: usize,
        fetch: impl FnOnce(Ahead<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(&[(usize, usize)], &[u8], &[u8]), E> {
        self.fetch(version, back, (rows_max, usize::MAX), fetch)?;
        let batch = &mut self.batch;
        batch.returned = batch.ends.len();
        Ok((&batch.ends, &batch.keys, &batch.values))
    }
}
