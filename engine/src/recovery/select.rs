//! Which transactions are true after a crash: a pure decision, no I/O.
//!
//! Input is what the manifest had decided before and what a scan found in the logs. Output is the
//! set to replay, what is void from now on, and what the next manifest must say, or the finding
//! that committed data is lost.
//!
//! ```text
//!   csn     1 ... checkpoint | 41   42   43   44   45   46   47   stored watermark 44
//!   found                    | yes  yes  yes  yes   -   yes  yes   F = 45: the first missing
//!   dsn                      |  40   0   41   43        44   45
//!   result     in the pages  | replay replay ...   void replay void   46 depends on none from F on
//! ```
//!
//! The decision is made in two steps, since the records of a long log do not fit in memory.
//! [`Bounds`] are found from what is known of whole blocks: how far each log counts, and the
//! highest watermark. A [`Selector`] then sees the records in CSN order, a window at a time: below
//! F everything counts, and once F is found each record is judged alone.
//!
//! # Rules, each with the interleaving that it prevents
//!
//! 1. **Only what an epoch's entry accepts.** Blocks of an earlier epoch count up to the accepted
//!    end that its entry names for their log; a log or an epoch without an entry counts not at all.
//!    *Prevents:* a write in flight at SIGKILL lands after the recovery's scan; its transaction was
//!    discarded, its CSN drawn again; the next recovery must not see it.
//! 2. **Of the running epoch the gap-free run.** Of each log the blocks count from the first one
//!    with a transaction above the checkpoint up to the first hole. (Blocks before that may be
//!    gone: segments covered by the checkpoint are reused in any order; but if the one before it,
//!    whose last CSN it has, is above the checkpoint too, that is the hole.) Blocks of a later
//!    epoch than the manifest's are what an interrupted recovery wrote: nothing of that epoch was
//!    served, they do not count. *Prevents:* believing a block that the commit protocol had not
//!    counted as durable; a second attempt at recovery taking the first attempt's copies for its
//!    own.
//! 3. **One (epoch, CSN), one content.** Re-appended copies are byte-identical to the originals;
//!    copies that differ, or two epochs that used one CSN, are corruption. *Prevents:* replaying
//!    whichever of two histories was scanned last.
//! 4. **The checkpoint covers.** Nothing at or below its CSN is replayed, missing or void.
//!    *Prevents:* refusing a database whose log was recycled.
//! 5. **Once void, always void.** A CSN that an earlier recovery discarded is not replayed even if
//!    its record is whole. *Prevents:* A lost, B (depends on A) whole but discarded; the next
//!    recovery finds A's CSN void, hence not missing, and replays B without A.
//! 6. **F and DSN.** F is the smallest CSN above the checkpoint that is neither found nor void. A
//!    transaction is replayed if and only if its DSN is below F. *Prevents:* losing acknowledged
//!    work: the commit rule acknowledges when dsn < W, and W never passes a CSN that is not
//!    durable, so W <= F. And it keeps the set closed: all below F are there.
//! 7. **Stored watermarks (I10).** A record stores the watermark computed before its own draw. If F
//!    lies strictly below any stored watermark, F was durable once: committed data is lost, refuse.
//!    Watermarks of records behind a hole count, their transactions do not. At F equal to the
//!    watermark nothing is lost: W is the first that was *not* durable. *Prevents:* opening with a
//!    hole in the middle as if it were a torn tail.
//! 8. **The epoch's first CSN is a watermark.** Everything below it was decided and made durable
//!    before the epoch served any request. *Prevents:* the same loss when the epoch has written no
//!    record yet.
//! 9. **Everything up to the last CSN is decided.** Void = above the checkpoint, at or below the
//!    highest CSN that was found anywhere (behind holes too) or announced in the manifest, and not
//!    replayed. CSNs continue above it. *Prevents:* an aborted CSN with bytes on the disk being
//!    drawn again.
//! 10. **Re-append from the highest watermark.** Replayed transactions at or above it may be in a
//!     volatile cache only (after SIGKILL); they are to be copied into the new epoch and flushed
//!     before anything is served. Those below it were durable when the watermark was computed.
//!     *Prevents:* new work depending on a record that the next power cut removes.
//! 11. **Chunks are records.** A chunk of a long transaction has a CSN, and rules 1 to 10 hold for
//!     it as if it were a transaction. The record that commits the transaction has a DSN at or
//!     above its chunks, so rule 6 replays it only if all of them are there. Chunks above what is
//!     *covered* and at or below the checkpoint are in the log as far as a transaction above it may
//!     need them; whether all are there is asked when that is replayed. A chunk whose transaction
//!     did not commit changes nothing. *Prevents:* replaying a part of a transaction.
//! 12. **Each record by its own rule.** A record that names the rule exact lists the direct
//!     predecessors that were not committed when it asked to commit. It is replayed if and only if
//!     each of them is below F or replayed. *Prevents:* losing acknowledged work: the exact rule
//!     acknowledges above W, past a CSN that is lost. It keeps the set closed: by induction over
//!     CSNs, a predecessor that is not listed was committed, so durable with all it depends on, and
//!     is replayed. A chunk by that rule lists nothing: the one before it lies before it in the
//!     same log.
//! 13. **All fragments or none.** A transaction with fragments in several logs is replayed if and
//!     only if all are found, and the first one passes rules 6 and 12. The others are void with it.
//!     *Prevents:* replaying what one log had durable of a transaction, and replaying it later.

use crate::base::planted::{self, Bug};
use crate::base::{Csn, Epoch, Error, Location, LogId, Result};
use crate::log::{DependencyRule, Fragment, RecordKind};
use crate::store::{AcceptedEnd, CsnSet, EpochEntry, Manifest};

#[cfg(test)]
mod history;
#[cfg(test)]
mod tests;

/// A whole record, as far as the decision needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// The epoch that drew the CSN; for a re-appended copy lower than that of the block.
    pub epoch: Epoch,
    /// The log that it was found in.
    pub log: LogId,
    /// The epoch of the block that it was found in.
    pub block_epoch: Epoch,
    /// Operations, as its header says; only handed back.
    pub operations: u16,
    /// Its kind.
    pub kind: RecordKind,
    /// Which fragment of its transaction, if that has several.
    pub fragment: Option<Fragment>,
    /// The rule that judges it.
    pub rule: DependencyRule,
    /// The transaction.
    pub csn: Csn,
    /// The highest CSN that it read or overwrote.
    pub dsn: Csn,
    /// The watermark computed before `csn` was drawn.
    pub watermark: Csn,
    /// Equal for equal bytes: a checksum and, in the lower half, the length of the record.
    pub fingerprint: u64,
    /// Its place; only handed back.
    pub position: u64,
}

impl FoundRecord {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.fingerprint & u64::from(u32::MAX)
    }
}

/// A whole block, as far as the decision needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundBlock {
    /// Its number in its log and epoch.
    pub sequence: u64,
    /// CSN of its first record.
    pub first_csn: Csn,
    /// CSN of its last record.
    pub last_csn: Csn,
    /// CSN of the last record of the block before it in its log and epoch, 0 if there was none.
    pub previous_csn: Csn,
    /// The highest watermark in its records, those left out that store one above their own CSN.
    pub watermark: Csn,
}

/// The blocks that the scan found of one log in one epoch (the epoch of the blocks).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLog {
    /// The log.
    pub log: LogId,
    /// The epoch in the blocks' headers.
    pub epoch: Epoch,
    /// All whole blocks, those behind holes included, by sequence.
    pub blocks: Vec<FoundBlock>,
}

/// Earlier decisions, from the manifest.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// In the page images.
    pub checkpoint: Csn,
    /// Records above it may be needed: chunks of transactions that are not in the page images.
    pub covered: Csn,
    /// The epoch that was running.
    pub epoch: Epoch,
    /// Its first CSN.
    pub first_csn: Csn,
    /// CSNs below this one have been drawn, or will not be.
    pub next_csn: Csn,
    /// Earlier epochs, ascending.
    pub epochs: &'a [EpochEntry],
}

impl<'a> Decided<'a> {
    /// The decisions in a manifest.
    #[must_use]
    pub fn of(manifest: &'a Manifest) -> Decided<'a> {
        Decided {
            checkpoint: manifest.checkpoint,
            covered: manifest.covered,
            epoch: manifest.epoch,
            first_csn: manifest.first_csn,
            next_csn: manifest.next_csn,
            epochs: &manifest.epochs,
        }
    }

    fn entry(&self, epoch: Epoch) -> Option<&'a EpochEntry> {
        self.epochs.iter().find(|entry| entry.epoch == epoch)
    }

    fn voids(&self) -> CsnSet {
        self.epochs.iter().fold(CsnSet::default(), |voids, entry| voids.union(&entry.voids))
    }
}

/// The decision, besides the records to replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    /// F (rule 6).
    pub frontier: Csn,
    /// The highest watermark (rules 7, 8).
    pub watermark: Csn,
    /// Highest decided CSN; the new epoch draws above it (rule 9).
    pub last_csn: Csn,
    /// All void CSNs above the checkpoint, old and new (rule 9).
    pub voids: CsnSet,
    /// The accepted ends of the running epoch.
    pub accepted: Vec<AcceptedEnd>,
    /// Records to replay.
    pub replayed: u64,
    /// Whole records that are void only now.
    pub discarded: u64,
}

impl Selection {
    /// The entry that the next manifest must hold for the epoch that was running, besides the
    /// earlier entries.
    #[must_use]
    pub fn entry(&self, decided: &Decided<'_>) -> EpochEntry {
        EpochEntry {
            epoch: decided.epoch,
            first_csn: decided.first_csn,
            frontier: self.frontier,
            last_csn: self.last_csn,
            accepted: self.accepted.clone(),
            voids: self.voids.clone(),
        }
    }
}

/// A log as it was found, divided.
#[derive(Debug)]
struct Divided {
    found: FoundLog,
    running: bool,
    /// Sequence number of the last block that counts (rules 1, 2).
    end: Option<u64>,
}

impl Divided {
    fn new(decided: &Decided<'_>, found: FoundLog) -> Divided {
        let interrupted = planted::is(Bug::LaterEpochBelieved) && found.epoch > decided.epoch;
        let running = found.epoch == decided.epoch || interrupted;
        let end = if running {
            end_of_run(decided, &found)
        } else {
            let accepted = decided.entry(found.epoch).and_then(|entry| entry.accepted_end(found.log));
            accepted.map(|end| if planted::is(Bug::AcceptedEndIgnored) { u64::MAX } else { end })
        };
        Divided { found, running, end }
    }

    /// Returns true if a block counts. Of an earlier epoch a hole below the accepted end does not
    /// matter: the recovery that accepted it had seen none that did, and segments may have been
    /// reused since.
    fn counts(&self, sequence: u64) -> bool {
        Some(sequence) <= self.end
    }

    /// Blocks that are witnesses of what must be there: those that count, and those of the running
    /// epoch behind the hole. They passed their checksums, but nothing refers to them: what cannot
    /// be true is not believed.
    fn witnesses(&self) -> impl Iterator<Item = &FoundBlock> {
        let there = self.found.blocks.iter().filter(|block| self.running || self.counts(block.sequence));
        there.filter(|block| block.last_csn < Csn::LIMIT)
    }
}

/// Rule 2: the last block of the run that begins with the first block above the checkpoint, or else
/// the last block. A hole before that run does not end the log: if it held a chunk that is needed,
/// that is found missing (rule 11).
fn end_of_run(decided: &Decided<'_>, found: &FoundLog) -> Option<u64> {
    let Decided { checkpoint, covered, .. } = *decided;
    let mut needed = found.blocks.iter().filter(|block| block.last_csn > checkpoint);
    // One that is above the checkpoint was before it and is missing: none of these counts.
    let Some(first) = needed.next().filter(|block| block.previous_csn <= checkpoint) else {
        let chunks =
            found.blocks.iter().filter(|block| block.last_csn > covered && block.last_csn <= checkpoint);
        return chunks.map(|block| block.sequence).next_back();
    };
    let first = first.sequence;
    let run = needed.zip(first..).take_while(|(block, before)| block.sequence == before.saturating_add(1));
    Some(run.last().map_or(first, |(block, _)| block.sequence))
}

/// Decisions before any record is looked at.
#[derive(Debug)]
pub struct Bounds<'a> {
    decided: Decided<'a>,
    logs: Vec<Divided>,
    voids: CsnSet,
    watermark: Csn,
    last_csn: Csn,
    /// Nothing above it is looked at.
    end: Csn,
}

impl<'a> Bounds<'a> {
    /// The bounds for what was found.
    #[must_use]
    pub fn new(decided: Decided<'a>, found: Vec<FoundLog>) -> Bounds<'a> {
        let logs: Vec<Divided> = found.into_iter().map(|found| Divided::new(&decided, found)).collect();
        let voids = decided.voids().above(decided.checkpoint);
        // Rules 7 and 8.
        let witnesses = || logs.iter().flat_map(Divided::witnesses);
        let watermark = witnesses().map(|block| block.watermark).fold(decided.first_csn, Csn::max);
        // Rule 9: the highest CSN that is decided now.
        let announced = Csn(decided.next_csn.0.saturating_sub(1));
        let known = [decided.checkpoint, announced, voids.last().unwrap_or(Csn::ZERO)];
        let found = witnesses().filter(|_| !planted::is(Bug::VoidCsnDrawnAgain)).map(|block| block.last_csn);
        let last_csn = found.chain(known).fold(Csn::ZERO, Csn::max);
        Bounds { decided, logs, voids, watermark, last_csn, end: Csn::MAX }
    }

    /// What is above `end` is not looked at: records are left out, and what they vouch for. For a
    /// database that is to be as it was at that CSN.
    pub fn end_at(&mut self, end: Csn) {
        self.end = end;
        self.watermark = self.watermark.min(end.next());
        self.last_csn = self.last_csn.min(end);
    }

    /// Returns true if the records of a block are to be looked at: `log` is an index of what was
    /// found.
    #[must_use]
    pub fn counts(&self, log: usize, sequence: u64) -> bool {
        self.logs.get(log).is_some_and(|log| log.counts(sequence))
    }

    /// Returns true if what was selected of `csn` is to be appended again (rule 10).
    #[must_use]
    pub fn is_to_append_again(&self, csn: Csn) -> bool {
        csn >= self.watermark && csn > self.decided.checkpoint && !planted::is(Bug::NotAppendedAgain)
    }

    fn accepted(&self) -> Vec<AcceptedEnd> {
        let running = self.logs.iter().filter(|log| log.running);
        let mut accepted: Vec<AcceptedEnd> =
            running.filter_map(|log| Some(AcceptedEnd { log: log.found.log, sequence: log.end? })).collect();
        accepted.sort_by_key(|end| end.log);
        accepted
    }

    fn lost(&self, missing: Csn) -> Error {
        let watermark = self.watermark;
        let mut what = format!(
            "a committed transaction is missing from the log: everything below CSN {watermark} had been durable"
        );
        let mut holes = self.logs.iter().filter_map(|log| Some((&log.found, hole_at(log, missing)?)));
        if let (Some((found, sequence)), None) = (holes.next(), holes.next()) {
            what += &format!("; log {} of {:?} has a hole behind block {sequence}", found.log, found.epoch);
        }
        Error::corruption(what).at(Location::Transaction(missing))
    }
}

/// The block behind which `missing` must have been if it was in this log, if a hole is there: CSNs
/// rise within a log.
fn hole_at(log: &Divided, missing: Csn) -> Option<u64> {
    let blocks = &log.found.blocks;
    let before = blocks.iter().filter(|block| block.first_csn < missing).map(|block| block.sequence).max();
    let after = blocks.iter().filter(|block| block.last_csn > missing).map(|block| block.sequence).min();
    let before = before.unwrap_or(0);
    // Nothing after it: a hole if an earlier recovery had seen more blocks.
    let next = after.or(if log.running { None } else { log.end.map(|end| end.saturating_add(1)) })?;
    (next > before.saturating_add(1)).then_some(before)
}

/// Decides about the records, window by window.
#[derive(Debug)]
pub struct Selector<'b> {
    bounds: &'b Bounds<'b>,
    /// F, as far as it is known: everything below is there or void.
    frontier: Csn,
    /// The record at F is missing: F is final.
    found_frontier: bool,
    /// The last one that is not void.
    last_replayed: Csn,
    voids: Vec<(Csn, Csn)>,
    replayed: u64,
    discarded: u64,
}

impl<'b> Selector<'b> {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(bounds: &'b Bounds<'b>) -> Selector<'b> {
        let checkpoint = bounds.decided.checkpoint;
        Selector {
            bounds,
            frontier: bounds.voids.first_absent(checkpoint.next()),
            found_frontier: false,
            last_replayed: checkpoint,
            voids: Vec::new(),
            replayed: 0,
            discarded: 0,
        }
    }

    /// `records` are all that count between two CSNs, above those of the call before, in any order:
    /// leaves those that are to be replayed, and chunks that may belong to them (rule 11), one for
    /// each CSN, ascending. All fragments of a transaction are in one call. `listed` returns the
    /// predecessors that a record lists.
    ///
    /// # Errors
    /// `Corruption` if committed data is missing (rules 7, 8; names the CSN, and the log if only
    /// one can have held it) or the records contradict each other or the manifest.
    pub fn select(
        &mut self,
        records: &mut Vec<FoundRecord>,
        listed: &dyn Fn(&FoundRecord) -> Result<Vec<Csn>>,
    ) -> Result<()> {
        let bounds = self.bounds;
        records.retain(|record| record.csn <= bounds.end);
        records.iter().try_for_each(|record| check_record(&bounds.decided, record))?;
        // Rule 4.
        let Decided { mut checkpoint, covered, .. } = bounds.decided;
        if planted::is(Bug::RedoSkipsFirst) {
            checkpoint = checkpoint.next();
        }
        let is_chunk = |record: &FoundRecord| record.kind == RecordKind::Chunk;
        records.retain(|record| record.csn > if is_chunk(record) { covered } else { checkpoint });
        records.sort_by_key(|record| record.csn);
        unify(records)?;
        for record in records.iter() {
            if self.found_frontier {
                break;
            }
            if record.csn == self.frontier {
                self.frontier = bounds.voids.first_absent(self.frontier.next());
            } else if record.csn > self.frontier {
                self.end_at_frontier()?;
            }
        }
        // Rule 5.
        records.retain(|record| !bounds.voids.contains(record.csn) || planted::is(Bug::DiscardedReplayed));
        let is_first = |record: &FoundRecord| record.fragment.is_none_or(|fragment| fragment.number == 0);
        let transactions = |records: &[FoundRecord]| {
            records.iter().filter(|record| !is_chunk(record) && is_first(record)).count() as u64
        };
        let torn = torn_fragments(records);
        let whole = transactions(records);
        let mut failed = Ok(());
        records.retain(|record| {
            let replayed = match record.fragment {
                Some(_) if torn.binary_search(&record.csn).is_ok() => Ok(false),
                Some(fragment) if fragment.number > 0 => Ok(self.last_replayed == Csn(record.csn.0 - 1)),
                _ => self.is_to_replay(record, listed),
            };
            let replayed = replayed.unwrap_or_else(|error| {
                failed = Err(error);
                false
            });
            if replayed && record.csn > checkpoint {
                self.note_gap(Csn(record.csn.0 - 1));
                self.last_replayed = record.csn;
            }
            replayed
        });
        let replayed = transactions(records);
        (self.discarded, self.replayed) = (self.discarded + whole - replayed, self.replayed + replayed);
        failed
    }

    /// Rules 6 and 12. Records are asked about in the order of their CSNs.
    #[inline]
    fn is_to_replay(
        &self,
        record: &FoundRecord,
        listed: &dyn Fn(&FoundRecord) -> Result<Vec<Csn>>,
    ) -> Result<bool> {
        // All that it can depend on is there.
        let bound = if planted::is(Bug::FrontierTooHigh) { self.frontier.next() } else { self.frontier };
        if record.csn < self.frontier || record.dsn < bound {
            return Ok(true);
        }
        match record.rule {
            DependencyRule::Dsn => Ok(false),
            DependencyRule::Exact { listed: 0 } => Ok(true),
            DependencyRule::Exact { .. } if planted::is(Bug::PredecessorsIgnored) => Ok(true),
            DependencyRule::Exact { .. } => {
                let predecessors = listed(record)?;
                if predecessors.iter().any(|csn| *csn >= record.csn) {
                    let what = "a log record lists itself or a later transaction as its predecessor";
                    return Err(Error::corruption(what).at(Location::Transaction(record.csn)));
                }
                Ok(predecessors.iter().all(|csn| *csn < self.frontier || self.is_replayed(*csn)))
            }
        }
    }

    /// Returns true if a CSN above the checkpoint that was asked about before is replayed: no gap
    /// holds it.
    fn is_replayed(&self, csn: Csn) -> bool {
        let after = self.voids.partition_point(|(first, _)| *first <= csn);
        let in_gap = after.checked_sub(1).is_some_and(|at| self.voids[at].1 >= csn);
        csn <= self.last_replayed && !in_gap
    }

    /// Everything below is there or void, as far as it is known.
    #[must_use]
    pub fn frontier(&self) -> Csn {
        self.frontier
    }

    /// Rule 7.
    fn end_at_frontier(&mut self) -> Result<()> {
        self.found_frontier = true;
        let lost = self.frontier < self.bounds.watermark && !planted::is(Bug::HoleIsTornTail);
        if lost { Err(self.bounds.lost(self.frontier)) } else { Ok(()) }
    }

    /// Rule 9: between the last replayed one and the next is nothing, up to `last`.
    fn note_gap(&mut self, last: Csn) {
        let first = self.last_replayed.next();
        if first <= last && !planted::is(Bug::VoidForgotten) {
            self.voids.push((first, last));
        }
    }

    /// There are no more records.
    ///
    /// # Errors
    /// As [`Selector::select`].
    pub fn finish(mut self) -> Result<Selection> {
        self.end_at_frontier()?;
        let bounds = self.bounds;
        self.note_gap(bounds.last_csn);
        Ok(Selection {
            frontier: self.frontier,
            watermark: bounds.watermark,
            last_csn: bounds.last_csn,
            voids: CsnSet::from_ranges(self.voids),
            accepted: bounds.accepted(),
            replayed: self.replayed,
            discarded: self.discarded,
        })
    }
}

/// Rule 13: the CSNs of fragments of which others are missing; `records` are sorted.
fn torn_fragments(records: &[FoundRecord]) -> Vec<Csn> {
    let (mut torn, mut whole_up_to) = (Vec::new(), Csn::ZERO);
    for (at, record) in records.iter().enumerate() {
        let Some(fragment) = record.fragment.filter(|_| record.csn > whole_up_to) else { continue };
        let belongs = |(number, other): (u32, &FoundRecord)| {
            other.csn.0 == record.csn.0 + u64::from(number)
                && other.fragment == Some(Fragment { number, count: fragment.count })
        };
        let found = (0..fragment.count).zip(&records[at..]).filter(|found| belongs(*found)).count();
        if found == fragment.count as usize || planted::is(Bug::FragmentCountIgnored) {
            whole_up_to = fragment.last_of(record.csn);
        } else {
            torn.push(record.csn);
        }
    }
    torn
}

/// Rule 3; `records` are sorted.
fn unify(records: &mut Vec<FoundRecord>) -> Result<()> {
    let differ = |a: &FoundRecord, b: &FoundRecord| {
        a.csn == b.csn && (a.epoch, a.fingerprint) != (b.epoch, b.fingerprint)
    };
    if let Some(pair) = records.windows(2).find(|pair| differ(&pair[0], &pair[1])) {
        let what = format!(
            "two different records have the same CSN, in log {} of {:?} and log {} of {:?}",
            pair[0].log, pair[0].epoch, pair[1].log, pair[1].epoch
        );
        return Err(Error::corruption(what).at(Location::Transaction(pair[0].csn)));
    }
    records.dedup_by_key(|record| record.csn);
    Ok(())
}

/// Refuses a record that no writer can have written.
#[inline]
fn check_record(decided: &Decided<'_>, record: &FoundRecord) -> Result<()> {
    let (mut first, mut last) = (decided.first_csn, Csn::LIMIT);
    if record.epoch != decided.epoch {
        let entry = decided.entry(record.epoch);
        first = entry.map_or(Csn::ZERO, |entry| entry.first_csn);
        // An epoch without an entry is older than the checkpoint, or older than one that is.
        last = entry.map_or(Csn(decided.first_csn.0.saturating_sub(1)), |entry| entry.last_csn);
    }
    let rules = [
        (record.csn >= first && record.csn <= last && record.csn < Csn::LIMIT, "is outside its epoch"),
        (record.epoch <= record.block_epoch, "is of a later epoch than its block"),
        (record.dsn < record.csn, "depends on itself or a later transaction"),
        (record.watermark <= record.csn, "stores a watermark above its own CSN"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => {
            let what = format!("the record in log {} ({:?}) {what}", record.log, record.block_epoch);
            Err(Error::corruption(what).at(Location::Transaction(record.csn)))
        }
    }
}
