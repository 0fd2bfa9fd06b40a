//! Taking over a database in several buckets: what counts of the log is fixed, in a majority.
//!
//! ```text
//!   bucket 1    1 2 3 4 5 6 F            fenced: has 6 blocks
//!   bucket 2    1 2 3 4 F                fenced: has 4 blocks
//!   bucket 3    1 2 3 4 5 …              out of reach
//!
//!   6 blocks count. Blocks 1 to 4 are in two buckets; 5 and 6 become an object of the new writer in
//!   two buckets; the manifest says "4 blocks, and this object".
//! ```
//!
//! 1. A majority is fenced, and each bucket is read after its fence (O32). A block that was
//!    acknowledged is in one of these buckets, with all blocks below it. The bucket that has most
//!    decides. The takeover waits a little for the other buckets, too: then less is put again, and
//!    a bucket that came back old and was not found out does no harm.
//! 2. What is not in a majority of buckets that are fenced is put into objects of the new writer,
//!    before the manifest names them (O33). So the next takeover finds it, whatever majority it
//!    meets.
//! 3. The manifest then says of each segment how much counts, and later takeovers take exactly that
//!    (O34). A block that no fenced bucket had stays discarded, although it may lie in another.

use super::body::{Accepted, ObjectId, SegmentEntry};
use super::buckets::Buckets;
use super::fence::{Ended, accepted_parts, fence_all, peek};
use super::frame::Frame;
use super::patience::{Patience, error_of, persist, place, read_all};
use super::request::{Condition, Request};
use super::segment_reader::Part;
use super::store::ObjectStore;
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// When a majority is fenced, the takeover waits for the others as long as that took, within these
/// bounds.
const GRACE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Most bytes of an object with blocks of an ended writer.
const TAIL_BYTES_MAX: u64 = 4 << 20;

/// What counts of the segments of earlier writers, by number.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// For the manifest.
    pub(super) entries: BTreeMap<u64, SegmentEntry>,
    /// For readers.
    pub(super) ended: BTreeMap<u64, Ended>,
    /// What was fenced now, and how many blocks of each may count.
    pub(super) fenced: Vec<(ObjectId, u64)>,
}

type Ends = BTreeMap<u64, Ended>;

/// Decides what counts of `segments`, and puts what is in too few buckets into more of them. Fences
/// them unless their writer has closed the database.
///
/// # Errors
/// As [`fence_all`]; I/O if too few buckets answer.
pub(super) fn decide(
    buckets: &Buckets,
    segments: &[SegmentEntry],
    fence: Option<Frame>,
    next: &dyn Fn() -> ObjectId,
    patience: Duration,
) -> Result<Decided> {
    let is_decided = |entry: &&SegmentEntry| entry.accepted.is_some() && !planted::is(Bug::AcceptedIgnored);
    let (decided, open): (Vec<&SegmentEntry>, Vec<&SegmentEntry>) = segments.iter().partition(is_decided);
    let mut all = Decided::default();
    for entry in decided {
        all.ended.insert(entry.number, accepted_parts(buckets, entry, patience)?);
        all.entries.insert(entry.number, entry.clone());
    }
    if open.is_empty() {
        return Ok(all);
    }
    let open: Vec<SegmentEntry> = open.into_iter().cloned().collect();
    let ends = end_in_majority(buckets, &open, fence, patience)?;
    for entry in open {
        let (accepted, ended) = accept(buckets, &entry, &ends, next, patience)?;
        if fence.is_some() {
            let longest = ends.iter().filter_map(|(_, ends)| ends.get(&entry.number));
            let blocks = longest.map(|ended| ended.parts.len() as u64).max().unwrap_or(0);
            all.fenced.extend(entry.ids().map(|id| (id, blocks)));
        }
        all.ended.insert(entry.number, ended);
        all.entries.insert(entry.number, SegmentEntry { accepted: Some(accepted), ..entry });
    }
    Ok(all)
}

/// What the threads that fence have found.
#[derive(Default)]
struct Fencing {
    ends: Mutex<Vec<(usize, Result<Ends>)>>,
    ended: Event,
    is_over: AtomicBool,
}

/// Ends the segments in a majority of the buckets, and returns what each of these has.
fn end_in_majority(
    buckets: &Buckets,
    open: &[SegmentEntry],
    fence: Option<Frame>,
    patience: Duration,
) -> Result<Vec<(usize, Ends)>> {
    let fencing = Arc::new(Fencing::default());
    let needed = if planted::is(Bug::OneBucketFenced) { 1 } else { buckets.quorum() };
    let open: Arc<Vec<SegmentEntry>> = Arc::new(open.to_vec());
    for bucket in 0..buckets.all().len() {
        let (buckets, of_thread, open) = (buckets.clone(), fencing.clone(), open.clone());
        let end = move || {
            let result = end_in(&buckets, bucket, &open, fence, &of_thread.is_over, patience);
            of_thread.ends.lock().push((bucket, result));
            of_thread.ended.notify_all();
        };
        if let Err(error) = thread::spawn("quench-fence", end) {
            let error = Error::io("no thread to fence a bucket", error);
            fencing.ends.lock().push((bucket, Err(error)));
        }
    }
    let clock = Clock::real();
    let (begun, mut until) = (clock.now(), None);
    loop {
        let (ticket, now) = (fencing.ended.ticket(), clock.now());
        {
            let mut ends = fencing.ends.lock();
            let whole = ends.iter().filter(|(_, result)| result.is_ok()).count();
            let missing = buckets.all().len() - ends.len();
            let is_hopeless = whole + missing < needed;
            if whole >= needed && until.is_none() {
                let [least, most] = GRACE;
                until = Some(Nanos(now.0 + now.since(begun).clamp(least, most).as_nanos() as u64));
            }
            let is_over =
                missing == 0 || planted::is(Bug::OneBucketFenced) || until.is_some_and(|until| now >= until);
            if (whole >= needed && is_over) || is_hopeless {
                fencing.is_over.store(true, Ordering::Relaxed);
                let all = std::mem::take(&mut *ends);
                drop(ends);
                return match is_hopeless {
                    true => Err(worst_of(all)),
                    false => {
                        Ok(all.into_iter().filter_map(|(bucket, ends)| Some((bucket, ends.ok()?))).collect())
                    }
                };
            }
        }
        fencing.ended.wait(ticket, until.map(|until| until.since(now)));
    }
}

/// Returns the error that says most: if an object is missing, a later writer may have collected it.
fn worst_of(all: Vec<(usize, Result<Ends>)>) -> Error {
    let mut errors: Vec<Error> = all.into_iter().filter_map(|(_, result)| result.err()).collect();
    errors.sort_by_key(|error| error.kind() == ErrorKind::Io);
    errors.into_iter().next().unwrap_or_else(|| Error::new(ErrorKind::Io, "too few buckets can be fenced"))
}

/// Ends the segments in one bucket when it counts, and returns what it has.
fn end_in(
    buckets: &Buckets,
    bucket: usize,
    open: &[SegmentEntry],
    fence: Option<Frame>,
    is_over: &AtomicBool,
    patience: Duration,
) -> Result<Ends> {
    let bucket = &buckets.all()[bucket];
    let mut wait = Patience::new(patience);
    while !bucket.is_counted() {
        if is_over.load(Ordering::Relaxed) || bucket.is_excluded() || !wait.pause() {
            let what = format!("the bucket {} does not count", bucket.name);
            return Err(Error::new(ErrorKind::Io, what));
        }
    }
    let store = &*bucket.store;
    let peek = |entry: &SegmentEntry| Ok((entry.number, peek(store, entry, patience)?));
    let Some(fence) = fence else { return open.iter().map(peek).collect() };
    if planted::is(Bug::BucketReadBeforeFence) {
        let before: Ends = open.iter().map(peek).collect::<Result<_>>()?;
        fence_all(store, open, &fence, patience)?;
        return Ok(before);
    }
    fence_all(store, open, &fence, patience)
}

/// Decides what counts of a segment, of which these buckets have these blocks.
fn accept(
    buckets: &Buckets,
    entry: &SegmentEntry,
    ends: &[(usize, Ends)],
    next: &dyn Fn() -> ObjectId,
    patience: Duration,
) -> Result<(Accepted, Ended)> {
    let blocks = |ends: &Ends| ends.get(&entry.number).map_or(0, |ended| ended.parts.len());
    let mut lens: Vec<usize> = ends.iter().map(|(_, ends)| blocks(ends)).collect();
    lens.sort_unstable_by(|a, b| b.cmp(a));
    let longest = ends.iter().max_by_key(|(_, ends)| blocks(ends));
    let Some((bucket, of_longest)) = longest else { return Ok(Default::default()) };
    let parts = of_longest.get(&entry.number).map(|ended| ended.parts.clone()).unwrap_or_default();
    // So many blocks are in a majority of all buckets.
    let mut whole = lens.get(buckets.quorum() - 1).copied().unwrap_or(0);
    if planted::is(Bug::NothingPutAgain) {
        whole = parts.len();
    }
    let (whole_parts, rest) = parts.split_at(whole);
    let tails = put_again(buckets, &*buckets.all()[*bucket].store, rest, next, patience)?;
    let mut counted = whole_parts.to_vec();
    counted.extend(tails.iter().map(|(id, len)| Part { name: id.log_name(), range: 0..*len }));
    Ok((Accepted { blocks: whole as u64, tails }, Ended { parts: counted, fence: None }))
}

/// Changes where an accepted segment lies, and not its content: `blocks` of it stay under
/// their own names, and those behind them in objects of this writer. So a bucket with a fence in
/// the place of a block can have it, too.
///
/// # Errors
/// I/O if too few buckets answer.
pub(super) fn shorten(
    buckets: &Buckets,
    entry: &SegmentEntry,
    blocks: u64,
    next: &dyn Fn() -> ObjectId,
    patience: Duration,
) -> Result<(SegmentEntry, Ended)> {
    let parts = accepted_parts(buckets, entry, patience)?.parts;
    let before = entry.accepted.clone().unwrap_or_default();
    debug_assert!(blocks <= before.blocks, "a segment gets shorter");
    let (of_blocks, of_tails) = parts.split_at(before.blocks as usize);
    let (kept, moved) = of_blocks.split_at(blocks as usize);
    let mut tails = put_again(buckets, buckets, moved, next, patience)?;
    let mut counted = kept.to_vec();
    counted.extend(tails.iter().map(|(id, len)| Part { name: id.log_name(), range: 0..*len }));
    counted.extend_from_slice(of_tails);
    tails.extend(before.tails);
    let accepted = Some(Accepted { blocks, tails });
    Ok((SegmentEntry { accepted, ..entry.clone() }, Ended { parts: counted, fence: None }))
}

/// Puts blocks of one bucket into objects of the new writer, in enough buckets.
fn put_again(
    buckets: &Buckets,
    source: &dyn ObjectStore,
    mut blocks: &[Part],
    next: &dyn Fn() -> ObjectId,
    patience: Duration,
) -> Result<Vec<(ObjectId, u64)>> {
    let mut tails = Vec::new();
    while !blocks.is_empty() {
        let mut bytes = 0;
        let fits = |part: &&Part| {
            bytes += part.len();
            bytes <= TAIL_BYTES_MAX
        };
        let count = blocks.iter().take_while(fits).count().max(1);
        let (some, behind) = blocks.split_at(count);
        blocks = behind;
        let wanted: Vec<_> = some.iter().map(|part| (part.name.clone(), None)).collect();
        let mut body = Vec::new();
        for (part, reply) in some.iter().zip(read_all(source, &wanted, patience)) {
            let failed = |failure| error_of(&failure, "a log object cannot be read", &part.name);
            body.extend_from_slice(&reply.map_err(failed)?.body);
        }
        let (id, len) = (next(), body.len() as u64);
        if len != some.iter().map(Part::len).sum::<u64>() {
            let what = "a log object has another length than was listed";
            return Err(Error::corruption(what).at(place(&some[0].name, 0)));
        }
        // Only this writer uses the name, and always with these bytes.
        let name = id.log_name();
        let put = Request::Put { name: name.clone(), body: body.into(), condition: Condition::Always };
        persist(buckets, &put, patience)
            .map_err(|failure| error_of(&failure, "blocks of an ended writer cannot be put", &name))?;
        tails.push((id, len));
    }
    Ok(tails)
}
