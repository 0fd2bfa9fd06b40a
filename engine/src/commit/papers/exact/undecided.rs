//! Which pre-committed transactions above W are committed, by what they really depend on?
//!
//! A transaction is committed if its record is durable and all its direct predecessors are
//! committed, hence theirs, and so on. Those that were committed when it met them are forgotten at
//! once, so most transactions have none; the others it **lists**.
//!
//! ```text
//!   CSN         41        42        43        44        W = 41
//!   log, list   0: -      1: -      1: 42     0: 43
//!   durable     no        yes       yes       yes       42 has no predecessors: committed. 43 lists 42: committed. 44 lists 43: committed
//! ```
//!
//! One word for each CSN, in a ring, says in which log its record is and how many predecessors it
//! lists; the list is in a line of its own. Both are written under the log's latch, before the
//! transaction's versions become visible. The thread that needs an answer resolves the chain
//! itself, at that moment, so queues are never searched for waiters. For a transaction without a
//! list, one look at how far its log is durable is enough. A transaction that was found committed
//! is marked, so that its chain is resolved once.
//!
//! Why it is sound:
//! 1. *Only what is true for ever is concluded*: "durable" and "committed" never become false.
//! 2. *A word that was overwritten says nothing.* It has the upper part of its CSN. It is
//!    overwritten by a CSN that is higher by the size of the ring, and so much is never undecided
//!    (`Watermark::has_room`): by then W has passed it.
//! 3. *A line that was overwritten says nothing.* There are fewer lines than CSNs in the ring; each
//!    names its owner before and after its content is read. Only a log's own producer writes its
//!    lines, under the latch.
//! 4. *Saying nothing means "not yet"*: then W decides, which passes every CSN. Likewise for a
//!    transaction with more predecessors than can be listed, or that depends on all before it: it
//!    needs W above its DSN, and its record says so.
//! 5. *A predecessor that is not listed leaves no gap*: it was committed, so it is durable with all
//!    it depends on. Recovery takes a record if it took all that the record lists; by the same
//!    argument, it takes the unlisted predecessors, too.

use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::base::{Csn, LogId};
use crate::commit::core::pending::DependsOn;
use crate::commit::core::predecessors::{PREDECESSORS, Predecessors};
use crate::commit::core::rule::{Above, Drawn, Facts, Obstacle};
use crate::commit::core::watermark::{Latched, RingSize};
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Lines of all logs together.
const LINES: usize = SCALE.undecided_lines;
/// Lines of one log, at least.
const LINES_PER_LOG_MIN: usize = SCALE.undecided_lines_per_log_min;
/// Transactions of one chain that are looked at before the way is forgotten and found again.
const DEPTH: usize = 16;
/// Transactions that are looked at to find whose records a waiter needs.
const SEARCHED: usize = 64;

/// A word's lower bits hold the log, and the number of listed predecessors or one of these kinds.
const COMMITTED: u64 = 0xff;
const NEEDS_WATERMARK: u64 = 0xfe;
/// A fragment that is not the first: what it depends on is the fragment before it, with the CSN
/// below its own.
const FOLLOWS: u64 = 0xfd;
const NO_WORD: u64 = u64::MAX;
const KIND_SHIFT: u32 = 8;
const ROUND_SHIFT: u32 = 16;
/// No CSN owns a line that is being written.
const NO_OWNER: u64 = 0;

/// The ring of transactions above W, and their lists. See the module's text.
#[derive(Debug)]
pub struct Undecided {
    words: Box<[AtomicU64]>,
    size: RingSize,
    /// By log. Written under its latch.
    lines: Box<[Box<[Line]>]>,
}

/// The predecessors that a transaction lists, or the CSN that W has to pass.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    owner: AtomicU64,
    csns: [AtomicU64; PREDECESSORS],
}

/// What a transaction needs besides its own record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// These, and what is committed.
    Listed(Predecessors),
    /// Perhaps everything up to here.
    UpTo(Csn),
}

impl Needs {
    /// Returns a dependency on `csn` alone.
    fn after(csn: Csn) -> Needs {
        let mut listed = Predecessors::default();
        listed.add(csn);
        Needs::Listed(listed)
    }
}

/// The ring's answer about a CSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Nothing.
    Nothing,
    Committed(LogId),
    Drawn(LogId, Needs),
}

/// What keeps one transaction from being committed.
enum Open {
    /// For nothing.
    None,
    /// For its record, or that of a predecessor, or for W.
    Something,
    /// For predecessors of this one, perhaps.
    Through(Csn),
}

/// Overwrites an empty word, or that of a CSN that W has passed.
#[inline]
fn overwrite(place: &AtomicU64, word: u64) {
    if cfg!(loom) {
        // Loom could place a store between what a compare-and-swap read and what it wrote; the
        // language rules that out.
        place.swap(word, Ordering::Release);
    } else {
        place.store(word, Ordering::Release);
    }
}

impl Undecided {
    /// Returns a ring in which nothing is known.
    pub fn new(logs: usize, size: RingSize) -> Undecided {
        let each = (LINES / logs.max(1)).next_power_of_two().max(LINES_PER_LOG_MIN);
        let line =
            || Line { owner: AtomicU64::new(NO_OWNER), csns: std::array::from_fn(|_| AtomicU64::new(0)) };
        Undecided {
            words: (0..size.get()).map(|_| AtomicU64::new(NO_WORD)).collect(),
            size,
            lines: (0..logs).map(|_| (0..each).map(|_| line()).collect()).collect(),
        }
    }

    fn word_of(&self, csn: Csn) -> &AtomicU64 {
        &self.words[self.size.place(csn)]
    }

    fn word(&self, csn: Csn, log: LogId, kind: u64) -> u64 {
        debug_assert!(kind <= COMMITTED && log.0 <= 0xff, "each part of a word has its own bits");
        self.size.round(csn) << ROUND_SHIFT | kind << KIND_SHIFT | u64::from(log.0 & 0xff)
    }

    /// Whether `known` is the word of `csn`, and not of another CSN with the same place.
    fn is_of(&self, csn: Csn, known: u64) -> bool {
        known != NO_WORD && known >> ROUND_SHIFT == self.size.round(csn)
    }

    fn line_of(&self, log: LogId, csn: Csn) -> Option<&Line> {
        let lines = self.lines.get(log.0 as usize)?;
        lines.get(csn.0 as usize & (lines.len() - 1))
    }

    /// Enters `csn`, just drawn for a record of `log`, before the transaction's versions become
    /// visible.
    #[inline]
    fn publish(&self, csn: Csn, log: LogId, on: Needs) {
        let kind = match on {
            Needs::Listed(listed) => match listed.all().unwrap_or_default() {
                [] => 0,
                csns => self.write_line(csn, log, csns),
            },
            Needs::UpTo(dsn) => {
                self.write_line(csn, log, &[dsn]);
                NEEDS_WATERMARK
            }
        };
        overwrite(self.word_of(csn), self.word(csn, log, kind));
    }

    /// As `publish`, for a fragment that was drawn together with the one before it.
    fn publish_follower(&self, csn: Csn, log: LogId) {
        overwrite(self.word_of(csn), self.word(csn, log, FOLLOWS));
    }

    /// Returns the log and the kind in the word of `csn`; `None` if the ring has forgotten it.
    fn known(&self, csn: Csn) -> Option<(LogId, u64)> {
        let known = self.word_of(csn).load(Ordering::Acquire);
        self.is_of(csn, known).then_some((LogId((known & 0xff) as u32), known >> KIND_SHIFT & 0xff))
    }

    /// The log of the record of `csn`; none if the ring has forgotten it.
    pub fn log_of(&self, csn: Csn) -> Option<LogId> {
        Some(self.known(csn)?.0)
    }

    /// Returns true if `csn` is a fragment that is not the first of its transaction, and not known
    /// to be committed.
    #[inline]
    pub fn follows(&self, csn: Csn) -> bool {
        self.known(csn).is_some_and(|(_, kind)| kind == FOLLOWS)
    }

    fn write_line(&self, csn: Csn, log: LogId, csns: &[Csn]) -> u64 {
        debug_assert!(!csns.is_empty() && csns.len() <= PREDECESSORS, "a line lists a few CSNs");
        debug_assert!(csns.iter().all(|listed| *listed < csn), "predecessors are older");
        if let Some(line) = self.line_of(log, csn) {
            line.owner.store(NO_OWNER, Ordering::Relaxed);
            // A reader that sees the new content also sees that the line has no owner, or another
            // one. Pairs with the fence in `read_line`.
            fence(Ordering::Release);
            for (to, csn) in line.csns.iter().zip(csns) {
                to.store(csn.0, Ordering::Relaxed);
            }
            line.owner.store(csn.0, Ordering::Release);
        }
        csns.len() as u64
    }

    /// Remembers that `csn` is committed, if it is still asked for.
    pub fn mark_committed(&self, csn: Csn) {
        let place = self.word_of(csn);
        let known = place.load(Ordering::Relaxed);
        if self.is_of(csn, known) {
            let committed = known | COMMITTED << KIND_SHIFT;
            // If it was overwritten meanwhile W has passed it.
            let _ = place.compare_exchange(known, committed, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The log of a transaction above W, and up to where W has to come for it if it cannot list
    /// what it depends on.
    pub fn drawn_in(&self, csn: Csn) -> Option<(LogId, Option<Csn>)> {
        match self.said(csn) {
            Known::Nothing => None,
            Known::Drawn(log, Needs::Listed(_)) if self.follows(csn) => {
                // The first fragment holds the dependencies of the transaction.
                let mut first = csn;
                while self.follows(first) {
                    first = Csn(first.0 - 1);
                }
                let (_, up_to) = self.drawn_in(first)?;
                Some((log, up_to))
            }
            Known::Committed(log) | Known::Drawn(log, Needs::Listed(_)) => Some((log, None)),
            Known::Drawn(log, Needs::UpTo(dsn)) => Some((log, Some(dsn))),
        }
    }

    #[inline]
    fn said(&self, csn: Csn) -> Known {
        let Some((log, kind)) = self.known(csn) else { return Known::Nothing };
        match kind {
            FOLLOWS => Known::Drawn(log, Needs::after(Csn(csn.0 - 1))),
            COMMITTED => Known::Committed(log),
            0 => Known::Drawn(log, Needs::Listed(Predecessors::default())),
            _ => self.read_line(csn, log, kind).map_or(Known::Nothing, |on| Known::Drawn(log, on)),
        }
    }

    #[cold]
    fn read_line(&self, csn: Csn, log: LogId, kind: u64) -> Option<Needs> {
        let line = self.line_of(log, csn)?;
        if line.owner.load(Ordering::Acquire) != csn.0 {
            return None;
        }
        let count = if kind == NEEDS_WATERMARK { 1 } else { kind as usize };
        let mut listed = Predecessors::default();
        line.csns.iter().take(count).for_each(|csn| listed.add(Csn(csn.load(Ordering::Relaxed))));
        let first = Csn(line.csns[0].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if line.owner.load(Ordering::Relaxed) != csn.0 {
            return None;
        }
        Some(if kind == NEEDS_WATERMARK { Needs::UpTo(first) } else { Needs::Listed(listed) })
    }

    /// Follows the chain of `root` down to what is not committed, or until `root` is found
    /// committed. Goes down one predecessor at a time and marks what it finds, so it comes to an
    /// end.
    #[cold]
    fn resolve(&self, root: Csn, facts: &dyn Facts) -> bool {
        let (mut way, mut depth) = ([root; DEPTH], 1);
        loop {
            let at = way[depth - 1];
            match self.open(at, facts) {
                Open::Something => return false,
                Open::Through(predecessor) => {
                    debug_assert!(predecessor < at, "chains lead to older transactions");
                    if depth == DEPTH {
                        // Forget how it came here; the next time the way is shorter by what was
                        // marked.
                        depth = 0;
                    }
                    way[depth] = predecessor;
                    depth += 1;
                }
                Open::None => {
                    self.mark_committed(at);
                    if at == root {
                        return true;
                    }
                    depth -= 1;
                    if depth == 0 {
                        (way[0], depth) = (root, 1);
                    }
                }
            }
        }
    }

    /// Returns what keeps `csn` itself from being committed.
    fn open(&self, csn: Csn, facts: &dyn Facts) -> Open {
        if csn < facts.watermark() {
            return Open::None;
        }
        let (log, on) = match self.said(csn) {
            Known::Committed(_) => return Open::None,
            Known::Nothing => return Open::Something,
            Known::Drawn(log, on) => (log, on),
        };
        if csn > facts.durable(log) {
            return Open::Something;
        }
        let listed = match on {
            Needs::Listed(listed) => listed,
            Needs::UpTo(dsn) if dsn < facts.watermark() => return Open::None,
            Needs::UpTo(_) => return Open::Something,
        };
        let mut through = Open::None;
        for csn in listed.all().unwrap_or_default() {
            if *csn < facts.watermark() {
                continue;
            }
            match self.said(*csn) {
                Known::Committed(_) => {}
                Known::Nothing => return Open::Something,
                Known::Drawn(log, _) if *csn > facts.durable(log) => {
                    return Open::Something;
                }
                Known::Drawn(_, Needs::Listed(listed)) if listed.is_empty() => {}
                Known::Drawn(..) if planted::is(Bug::DirectPredecessorsOnly) => {}
                Known::Drawn(..) => through = Open::Through(*csn),
            }
        }
        through
    }

    /// Calls `each` with every obstacle to the commit of `root`, or of a transaction that it
    /// depends on, as far as they can be seen now.
    pub fn obstacles(&self, root: Csn, facts: &dyn Facts, mut each: impl FnMut(Obstacle)) {
        let (mut open, mut count, mut next) = ([root; SEARCHED], 1, 0);
        while next < count {
            let csn = open[next];
            next += 1;
            if csn < facts.watermark() {
                continue;
            }
            let (log, on) = match self.said(csn) {
                Known::Committed(_) => continue,
                Known::Nothing => {
                    each(Obstacle::Watermark(csn));
                    continue;
                }
                Known::Drawn(log, on) => (log, on),
            };
            if csn > facts.durable(log) {
                each(Obstacle::Volatile(log, csn));
            }
            match on {
                Needs::UpTo(dsn) => {
                    if dsn >= facts.watermark() {
                        each(Obstacle::Watermark(dsn));
                    }
                }
                Needs::Listed(listed) => {
                    for csn in listed.all().unwrap_or_default() {
                        if open[..count].contains(csn) {
                            continue;
                        }
                        match open.get_mut(count) {
                            Some(place) => (*place, count) = (*csn, count + 1),
                            // Too many to look at all: W passes them, too.
                            None => each(Obstacle::Watermark(*csn)),
                        }
                    }
                }
            }
        }
    }
}

impl Above for Undecided {
    #[inline]
    fn enter(&self, record: &Drawn<'_>, _latch: &dyn Latched) {
        let Drawn { csn, log, .. } = *record;
        match record.on {
            DependsOn::Listed(listed) => self.publish(csn, log, Needs::Listed(*listed)),
            DependsOn::UpTo(dsn) => self.publish(csn, log, Needs::UpTo(dsn)),
            DependsOn::Fragment => self.publish_follower(csn, log),
            // Nothing waits for a chunk but the last part of its transaction, by W.
            DependsOn::Chunk => {}
        }
    }

    #[inline]
    fn fragment_before(&self, csn: Csn) -> Option<(LogId, Csn)> {
        if !self.follows(csn) {
            return None;
        }
        let before = Csn(csn.0 - 1);
        Some((self.log_of(before)?, before))
    }

    #[inline]
    fn is_committed(&self, csn: Csn, facts: &dyn Facts) -> bool {
        if csn < facts.watermark() {
            return true;
        }
        match self.said(csn) {
            Known::Committed(_) => true,
            Known::Nothing => false,
            Known::Drawn(log, Needs::Listed(listed)) if listed.is_empty() => csn <= facts.durable(log),
            Known::Drawn(..) => self.resolve(csn, facts),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
