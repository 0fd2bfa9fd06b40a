//! Which transactions are true after a crash: a pure decision, no I/O.
//!
//! Input is what the manifest had decided before and what a scan found in the logs. Output is the set to replay, what is
//! void from now on, and what the next manifest must say, or the finding that committed data is lost.
//!
//! ```text
//!   csn     1 ... checkpoint | 41   42   43   44   45   46   47          stored watermark 44
//!   found                    | yes  yes  yes  yes   -   yes  yes         F = 45: the first that is missing
//!   dsn                      |  40   0   41   43        44   45
//!   result     in the pages  | replay replay ...   void replay void      46 depends on nothing at or above F; 47 may
//! ```
//!
//! # Rules, each with the interleaving that it prevents
//!
//! 1. **Only what an epoch's entry accepts.** Blocks of an earlier epoch count up to the accepted end that its entry
//!    names for their log; a log or an epoch without an entry counts not at all. *Prevents:* a write in flight at SIGKILL
//!    lands after the recovery's scan; its transaction was discarded, its CSN drawn again; the next recovery must not see
//!    it.
//! 2. **Of the running epoch the gap-free run.** Of each log the blocks count from the first one with a transaction above
//!    the checkpoint up to the first hole. (Blocks before that may be gone: segments covered by the checkpoint are reused
//!    in any order.) Blocks of a later epoch than the manifest's are what an interrupted recovery wrote: nothing of that
//!    epoch was served, they do not count. *Prevents:* believing a block that the commit protocol had not counted as
//!    durable; a second attempt at recovery taking the first attempt's copies for its own.
//! 3. **One (epoch, CSN), one content.** Re-appended copies are byte-identical to the originals; copies that differ, or
//!    two epochs that used one CSN, are corruption. *Prevents:* replaying whichever of two histories was scanned last.
//! 4. **The checkpoint covers.** Nothing at or below its CSN is replayed, missing or void. *Prevents:* refusing a
//!    database whose log was recycled.
//! 5. **Once void, always void.** A CSN that an earlier recovery discarded is not replayed even if its record is whole.
//!    *Prevents:* A lost, B (depends on A) whole but discarded; the next recovery finds A's CSN void, hence not missing,
//!    and replays B without A.
//! 6. **F and DSN.** F is the smallest CSN above the checkpoint that is neither found nor void. A transaction is replayed
//!    if and only if its DSN is below F. *Prevents:* losing acknowledged work: the commit rule acknowledges when dsn < W,
//!    and W never passes a CSN that is not durable, so W <= F. And it keeps the set closed: all below F are there.
//! 7. **Stored watermarks (I10).** A record stores the watermark computed before its own draw. If F lies strictly below
//!    any stored watermark, F was durable once: committed data is lost, refuse. Watermarks of records behind a hole count,
//!    their transactions do not. At F equal to the watermark nothing is lost: W is the first that was *not* durable.
//!    *Prevents:* opening with a hole in the middle as if it were a torn tail.
//! 8. **The epoch's first CSN is a watermark.** Everything below it was decided and made durable before the epoch served
//!    anybody. *Prevents:* the same loss when the epoch has written no record yet.
//! 9. **Everything up to the last CSN is decided.** Void = above the checkpoint, at or below the highest CSN that was
//!    found anywhere (behind holes too) or announced in the manifest, and not replayed. CSNs go on above it. *Prevents:* a
//!    void CSN with bytes on the disk being drawn again.
//! 10. **Re-append from the highest watermark.** Replayed transactions at or above it may be in a volatile cache only
//!     (after SIGKILL); they are to be copied into the new epoch and flushed before anything is served. Those below it
//!     were durable when the watermark was computed. *Prevents:* new work depending on a record that the next power cut
//!     removes.

use crate::base::{Csn, Epoch, Error, Location, LogId, Result};
use crate::store::{AcceptedEnd, CSN_LIMIT, CsnSet, EpochEntry, Manifest};

#[cfg(test)]
mod history;
#[cfg(test)]
mod tests;

/// A whole record, as far as the decision needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// The epoch that drew the CSN; for a re-appended copy lower than that of the block.
    pub epoch: Epoch,
    /// The transaction.
    pub csn: Csn,
    /// The highest CSN that it read or overwrote.
    pub dsn: Csn,
    /// The watermark computed before `csn` was drawn.
    pub watermark: Csn,
    /// Sequence number of the block that holds it.
    pub sequence: u64,
    /// Equal for equal bytes: a checksum and the length of the record.
    pub fingerprint: u64,
    /// Where it is; only handed back.
    pub position: u64,
}

/// What the scan found of one log in one epoch (the epoch of the blocks).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScannedLog {
    /// The log.
    pub log: LogId,
    /// The epoch in the blocks' headers.
    pub epoch: Epoch,
    /// Records of all whole blocks, those behind holes included, in any order.
    pub records: Vec<FoundRecord>,
}

/// What was decided before: from the manifest.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// In the page images.
    pub checkpoint: Csn,
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

/// A transaction to replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The transaction.
    pub csn: Csn,
    /// The epoch that drew it.
    pub epoch: Epoch,
    /// [`FoundRecord::position`] of one of its copies.
    pub position: u64,
}

/// What is true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    /// To be replayed, ascending by CSN.
    pub replay: Vec<Replay>,
    /// `replay[reappend_from..]` must be appended again in the new epoch (rule 10).
    pub reappend_from: usize,
    /// F (rule 6).
    pub frontier: Csn,
    /// The highest watermark (rules 7, 8).
    pub watermark: Csn,
    /// Highest decided CSN; the new epoch draws above it (rule 9).
    pub last_csn: Csn,
    /// All void CSNs above the checkpoint, old and new (rule 9).
    pub voids: CsnSet,
    /// What was taken of the running epoch.
    pub accepted: Vec<AcceptedEnd>,
    /// Whole records that are void only now.
    pub discarded: u64,
}

impl Selection {
    /// The entry that the next manifest must hold for the epoch that was running, besides the earlier entries.
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

/// A scanned log, divided.
struct Divided<'a> {
    scan: &'a ScannedLog,
    running: bool,
    /// Sequence number of the last block that counts (rules 1, 2).
    end: Option<u64>,
}

impl<'a> Divided<'a> {
    fn new(decided: &Decided<'_>, scan: &'a ScannedLog) -> Divided<'a> {
        let running = scan.epoch == decided.epoch;
        let end = if running {
            end_of_run(decided.checkpoint, scan)
        } else {
            decided.entry(scan.epoch).and_then(|entry| entry.accepted_end(scan.log))
        };
        Divided { scan, running, end }
    }

    /// Records that count. Of an earlier epoch a hole below the accepted end does not matter: the recovery that accepted
    /// it had seen none that did, and segments may have been reused since.
    fn counted(&self) -> impl Iterator<Item = &'a FoundRecord> {
        let end = self.end;
        self.scan.records.iter().filter(move |record| Some(record.sequence) <= end)
    }

    /// Records of the running epoch behind the hole. They passed their checksums, but nothing refers to them: what
    /// cannot be true is not believed.
    fn beyond(&self) -> impl Iterator<Item = &'a FoundRecord> {
        let (running, end) = (self.running, self.end);
        let sane = |record: &FoundRecord| record.csn < CSN_LIMIT && record.watermark <= record.csn;
        let behind = self.scan.records.iter().filter(move |record| running && Some(record.sequence) > end);
        behind.filter(move |record| sane(record))
    }
}

/// Rule 2: the last block of the run that begins with the first block above the checkpoint.
fn end_of_run(checkpoint: Csn, scan: &ScannedLog) -> Option<u64> {
    let needed = scan.records.iter().filter(|record| record.csn > checkpoint);
    let mut sequences: Vec<u64> = needed.map(|record| record.sequence).collect();
    sequences.sort_unstable();
    sequences.dedup();
    sequences.chunk_by(|a, b| a.checked_add(1) == Some(*b)).next()?.last().copied()
}

/// Decides what is true.
///
/// # Errors
/// `Corruption` if committed data is missing (rules 7, 8; names the CSN, and the log if only one can have held it) or the
/// records contradict each other or the manifest.
pub fn select(decided: &Decided<'_>, scans: &[ScannedLog]) -> Result<Selection> {
    let logs: Vec<Divided<'_>> = scans.iter().map(|scan| Divided::new(decided, scan)).collect();
    let voids = decided.voids().above(decided.checkpoint);
    let present = present(decided, &logs)?;
    let frontier = frontier(decided.checkpoint, &present, &voids);
    let watermark = watermark(decided, &logs);
    if frontier < watermark {
        return Err(lost(&logs, frontier, watermark));
    }
    let mut replay = Vec::with_capacity(present.len());
    let mut discarded = 0;
    for record in present.iter().filter(|record| !voids.contains(record.csn)) {
        if record.dsn < frontier {
            replay.push(Replay { csn: record.csn, epoch: record.epoch, position: record.position });
        } else {
            discarded += 1;
        }
    }
    let last_csn = last_csn(decided, &logs, &voids);
    Ok(Selection {
        reappend_from: replay.partition_point(|replay| replay.csn < watermark),
        frontier,
        watermark,
        last_csn,
        voids: gaps(decided.checkpoint, last_csn, &replay),
        accepted: accepted(&logs),
        discarded,
        replay,
    })
}

/// True if a set of transactions, each with its DSN, is closed under reads-from: whatever a DSN covers is in the
/// checkpoint, void, or in the set. For checkers; [`select`] must only give sets like that.
#[must_use]
pub fn is_closed(checkpoint: Csn, voids: &CsnSet, set: &[(Csn, Csn)]) -> bool {
    let members: CsnSet = set.iter().map(|(csn, _)| *csn).collect();
    let there = members.union(voids).union(&CsnSet::from_ranges([(Csn::ZERO, checkpoint)]));
    let first_absent = there.first_absent(Csn::ZERO);
    set.iter().all(|(_, dsn)| *dsn < first_absent)
}

/// The records that count above the checkpoint (rule 4), one per CSN (rule 3), ascending.
fn present(decided: &Decided<'_>, logs: &[Divided<'_>]) -> Result<Vec<FoundRecord>> {
    let mut present: Vec<(FoundRecord, LogId)> = Vec::new();
    for log in logs {
        for record in log.counted() {
            check_record(decided, log.scan, record)?;
            if record.csn > decided.checkpoint {
                present.push((*record, log.scan.log));
            }
        }
    }
    present.sort_by_key(|(record, _)| record.csn);
    for pair in present.windows(2) {
        let [(a, log_a), (b, log_b)] = pair else { continue };
        if a.csn == b.csn && (a.epoch, a.fingerprint) != (b.epoch, b.fingerprint) {
            let what = format!(
                "two different records have the same CSN, in log {log_a} of {:?} and log {log_b} of {:?}",
                a.epoch, b.epoch
            );
            return Err(Error::corruption(what).at(Location::Transaction(a.csn)));
        }
    }
    present.dedup_by_key(|(record, _)| record.csn);
    Ok(present.into_iter().map(|(record, _)| record).collect())
}

/// What no writer of ours can have written.
fn check_record(decided: &Decided<'_>, log: &ScannedLog, record: &FoundRecord) -> Result<()> {
    let (mut first, mut last) = (decided.first_csn, CSN_LIMIT);
    if record.epoch != decided.epoch {
        let entry = decided.entry(record.epoch);
        first = entry.map_or(Csn::ZERO, |entry| entry.first_csn);
        // An epoch without an entry is older than the checkpoint, or older than one that is.
        last = entry.map_or(Csn(decided.first_csn.0.saturating_sub(1)), |entry| entry.last_csn);
    }
    let rules = [
        (record.csn >= first && record.csn <= last && record.csn < CSN_LIMIT, "is outside its epoch"),
        (record.epoch <= log.epoch, "is of a later epoch than its block"),
        (record.dsn < record.csn, "depends on itself or a later transaction"),
        (record.watermark <= record.csn, "stores a watermark above its own CSN"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => {
            let what = format!("the record in log {} ({:?}) {what}", log.log, log.epoch);
            Err(Error::corruption(what).at(Location::Transaction(record.csn)))
        }
    }
}

/// Rule 6.
fn frontier(checkpoint: Csn, present: &[FoundRecord], voids: &CsnSet) -> Csn {
    let mut frontier = voids.first_absent(checkpoint.next());
    for record in present {
        if record.csn > frontier {
            break;
        }
        if record.csn == frontier {
            frontier = voids.first_absent(frontier.next());
        }
    }
    frontier
}

/// Rules 7 and 8.
fn watermark(decided: &Decided<'_>, logs: &[Divided<'_>]) -> Csn {
    let found = logs.iter().flat_map(|log| log.counted().chain(log.beyond()));
    found.map(|record| record.watermark).fold(decided.first_csn, Csn::max)
}

/// Rule 9: the highest CSN that is decided now.
fn last_csn(decided: &Decided<'_>, logs: &[Divided<'_>], voids: &CsnSet) -> Csn {
    let found = logs.iter().flat_map(|log| log.counted().chain(log.beyond()));
    let announced = Csn(decided.next_csn.0.saturating_sub(1));
    let known = [decided.checkpoint, announced, voids.last().unwrap_or(Csn::ZERO)];
    found.map(|record| record.csn).chain(known).fold(Csn::ZERO, Csn::max)
}

/// Rule 9: what is neither in the checkpoint nor replayed, up to `last`.
fn gaps(checkpoint: Csn, last: Csn, replay: &[Replay]) -> CsnSet {
    let before = std::iter::once(checkpoint).chain(replay.iter().map(|replay| replay.csn));
    let after = replay.iter().map(|replay| replay.csn).chain([last.next()]);
    // Between two neighbours; an empty range if they are adjacent.
    CsnSet::from_ranges(before.zip(after).map(|(low, high)| (low.next(), Csn(high.0 - 1))))
}

fn accepted(logs: &[Divided<'_>]) -> Vec<AcceptedEnd> {
    let running = logs.iter().filter(|log| log.running);
    let mut accepted: Vec<AcceptedEnd> =
        running.filter_map(|log| Some(AcceptedEnd { log: log.scan.log, sequence: log.end? })).collect();
    accepted.sort_by_key(|end| end.log);
    accepted
}

fn lost(logs: &[Divided<'_>], missing: Csn, watermark: Csn) -> Error {
    let mut what = format!(
        "a committed transaction is missing from the log: everything below CSN {watermark} had been durable"
    );
    let mut holes = logs.iter().filter_map(|log| Some((log.scan, hole_at(log, missing)?)));
    if let (Some((scan, sequence)), None) = (holes.next(), holes.next()) {
        what += &format!("; log {} of {:?} has a hole behind block {sequence}", scan.log, scan.epoch);
    }
    Error::corruption(what).at(Location::Transaction(missing))
}

/// The block behind which `missing` must have been if it was in this log, if a hole is there: CSNs rise within a log.
fn hole_at(log: &Divided<'_>, missing: Csn) -> Option<u64> {
    let before = log.scan.records.iter().filter(|record| record.csn < missing);
    let before = before.map(|record| record.sequence).max().unwrap_or(0);
    let after = log.scan.records.iter().filter(|record| record.csn > missing);
    let after = after.map(|record| record.sequence).min();
    // Nothing after it: a hole if an earlier recovery had seen more blocks.
    let next = after.or(if log.running { None } else { log.end.map(|end| end.saturating_add(1)) })?;
    (next > before.saturating_add(1)).then_some(before)
}
