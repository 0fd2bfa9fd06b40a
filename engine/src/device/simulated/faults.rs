//! Faults that tests arm, and a count of everything that went wrong.
//!
//! A [`Fault`] is an operation that fails and says so. A [`Mishap`] goes wrong without saying so, or takes its time:
//!
//! | mishap | what happens | what the engine owes |
//! |---|---|---|
//! | `Short` | a part of the write is there before the rest is | nothing is lost |
//! | `Interrupted` | a part of it is done, then all of it again: what a driver does after EINTR | nothing is lost |
//! | `TryAgain` | nothing of it is done, then all of it, a moment later: what a driver does after EAGAIN | nothing is lost |
//! | `Slow` | it takes so long | nothing is lost, others go on |
//! | `Stuck` | it does not end until [`release_stuck`](super::SimulatedStorage::release_stuck) | deadlines of callers are kept, reads of what is in memory go on; nothing is lost |
//! | `Duplicated` | a write is done once more at some later time, over whatever is there then | beyond promises: detected where it hits something, or harmless |
//! | `Lost` | a write is reported as done and is not | the same |
//! | `Torn` | the same, but the first sectors of 512 bytes are there | the same |
//! | `Misdirected` | the same, and its bytes are at another place | the same |
//! | `Rot` | a bit of what is read has flipped at rest | the same |
//! | `LyingFlush` | a flush is reported as done; the next one that is honest does its work | after a power cut the same |
//!
//! Of mapped memory a store is `Lost`, all but one word of it is there (`Torn`), or a fence is a `LyingFlush`: where they are armed for
//! [`OperationKind::Memory`] only.
//!
//! "Beyond promises" is a disk that breaks what `docs/assumptions.md` believes of it: then no wrong bytes are served as right ones, where
//! checksums, places and sequence numbers can tell.

use crate::device::mapped::WORD_BYTES;
use std::collections::BTreeMap;
use std::time::Duration;

/// An operation that a fault can strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Opening, creating or removing a file, and handing a write to a queue.
    Open,
    /// Removing a file alone.
    Remove,
    /// Reading, and asking for a length or for names.
    Read,
    /// A write that is not durable at once.
    Write,
    /// A write that is.
    DurableWrite,
    /// A flush of a file or directory.
    Flush,
    /// Extending a file with zeros.
    ZeroExtend,
    /// Mapped memory. It has no errors to tell of: a store or fence that a fault strikes does nothing.
    Memory,
    /// To arm a fault for any of them that has errors to tell of, so all but `Memory`.
    Any,
    /// To arm a fault for any of them that needs space: `Write`, `DurableWrite`, `ZeroExtend`, and `Open`.
    AnyThatGrows,
}

impl OperationKind {
    /// Whether a fault armed for `self` counts `other`.
    fn covers(self, other: OperationKind) -> bool {
        use OperationKind::{Any, AnyThatGrows, DurableWrite, Memory, Open, Remove, Write, ZeroExtend};
        match self {
            Any => other != Memory,
            AnyThatGrows => matches!(other, Open | Remove | Write | DurableWrite | ZeroExtend),
            Open => matches!(other, Open | Remove),
            one => one == other,
        }
    }
}

/// How often a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Once.
    Once,
    /// From then on always.
    ForEver,
}

/// Strikes the operation number `after` (from 0) of `operation`, counted from when it is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations are counted.
    pub operation: OperationKind,
    /// How many of them still succeed.
    pub after: u64,
    /// Once or for ever.
    pub kind: FaultKind,
    /// The operating system's error number: 5 is EIO, 28 is ENOSPC.
    pub error: i32,
}

/// What goes wrong without an error. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the table above")]
pub enum MishapKind {
    Short,
    Interrupted,
    TryAgain,
    Slow(Duration),
    Stuck,
    Duplicated,
    Lost,
    Torn,
    Misdirected,
    Rot,
    LyingFlush,
}

/// Strikes the operation number `after` (from 0) of those that it can strike, once, counted from when it is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mishap {
    /// Which operations are counted, of those that it can strike.
    pub operation: OperationKind,
    /// How many of them still go well.
    pub after: u64,
    /// What happens.
    pub kind: MishapKind,
}

impl MishapKind {
    /// All of them, with a millisecond for the slow one.
    pub const ALL: [MishapKind; 11] = [
        MishapKind::Short,
        MishapKind::Interrupted,
        MishapKind::TryAgain,
        MishapKind::Slow(Duration::from_millis(1)),
        MishapKind::Stuck,
        MishapKind::Duplicated,
        MishapKind::Lost,
        MishapKind::Torn,
        MishapKind::Misdirected,
        MishapKind::Rot,
        MishapKind::LyingFlush,
    ];

    /// Its name among [`HAPPENINGS`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MishapKind::Short => "short write",
            MishapKind::Interrupted => "interrupted",
            MishapKind::TryAgain => "try again",
            MishapKind::Slow(_) => "slow",
            MishapKind::Stuck => "stuck",
            MishapKind::Duplicated => "duplicated write",
            MishapKind::Lost => "lost write",
            MishapKind::Torn => "torn write",
            MishapKind::Misdirected => "misdirected write",
            MishapKind::Rot => "bit rot",
            MishapKind::LyingFlush => "lying flush",
        }
    }

    /// Whether it keeps what a device promises: then the engine loses nothing.
    #[must_use]
    pub fn keeps_promises(self) -> bool {
        use MishapKind::{Interrupted, Short, Slow, Stuck, TryAgain};
        matches!(self, Short | Interrupted | TryAgain | Slow(_) | Stuck)
    }

    fn fits(self, operation: OperationKind, bytes: usize) -> bool {
        use OperationKind::{DurableWrite, Flush, Memory, Read, Write};
        let writes = matches!(operation, Write | DurableWrite) && bytes > 0;
        let sectors = writes && bytes > super::journal::SECTOR;
        let (stores, fences) = (operation == Memory && bytes > 0, operation == Memory && bytes == 0);
        match self {
            MishapKind::Short => sectors,
            MishapKind::Torn => sectors || stores && bytes > WORD_BYTES,
            MishapKind::Lost => writes || stores,
            MishapKind::Duplicated | MishapKind::Misdirected => writes,
            MishapKind::Rot => operation == Read && bytes > 0,
            MishapKind::LyingFlush => matches!(operation, Flush | DurableWrite) || fences,
            MishapKind::TryAgain => writes || operation == Read && bytes > 0,
            MishapKind::Interrupted | MishapKind::Slow(_) | MishapKind::Stuck => operation != Memory,
        }
    }
}

/// Everything that is counted in [`FaultCounts`]: first what tests arm, then what crashes bring with them.
pub const HAPPENINGS: [&str; 31] = [
    "open error",
    "read error",
    "write error",
    "flush error",
    "open error for ever",
    "read error for ever",
    "write error for ever",
    "flush error for ever",
    "full disk",
    "short write",
    "interrupted",
    "try again",
    "slow",
    "stuck",
    "duplicated write",
    "lost write",
    "torn write",
    "misdirected write",
    "bit rot",
    "lying flush",
    "out-of-order completion",
    "power cut",
    "kill",
    "write lost by a power cut",
    "write torn by a power cut",
    "writes reordered by a power cut",
    "writes reordered across logs by a power cut",
    "name lost by a power cut",
    "memory words lost by a power cut",
    "write torn by a kill",
    "late write",
];

/// How often each of the [`HAPPENINGS`] was, on one disk. Those of the crash that made the disk are counted on the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<&'static str, u64>);

impl FaultCounts {
    /// How often.
    #[must_use]
    pub fn of(&self, happening: &str) -> u64 {
        self.0.get(happening).copied().unwrap_or(0)
    }

    /// Those that were, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }

    /// Adds what happened elsewhere.
    pub fn merge(&mut self, other: &FaultCounts) {
        other.iter().for_each(|(name, count)| *self.0.entry(name).or_default() += count);
    }

    pub(super) fn count(&mut self, happening: &'static str) {
        debug_assert!(HAPPENINGS.contains(&happening), "{happening} has no name");
        *self.0.entry(happening).or_default() += 1;
    }
}

/// Of some writes that a power cut found: the first of those that lost something, and the last of those that are whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cut {
    first_lost: Option<u64>,
    last_kept: Option<u64>,
}

impl Cut {
    pub(super) fn lost(&mut self, order: u64) {
        self.first_lost = Some(self.first_lost.map_or(order, |first| first.min(order)));
    }

    pub(super) fn kept(&mut self, order: u64) {
        self.last_kept = self.last_kept.max(Some(order));
    }

    /// Whether one lost something that was written before one of the others that is whole.
    pub(super) fn lost_before(&self, others: &Cut) -> bool {
        matches!((self.first_lost, others.last_kept), (Some(lost), Some(kept)) if lost < kept)
    }
}

/// What a power cut did to the blocks of each log.
pub(super) type CutLogs = BTreeMap<u32, Cut>;

/// Whether a block lost something that was written before a block of another log that is whole.
pub(super) fn are_reordered(logs: &CutLogs) -> bool {
    let later = |log: &u32, cut: &Cut| logs.iter().any(|(other, kept)| other != log && cut.lost_before(kept));
    logs.iter().any(|(log, cut)| later(log, cut))
}

/// What befalls an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Well,
    Error(i32),
    Mishap(MishapKind),
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<Fault>,
    mishaps: Vec<Mishap>,
    struck: u64,
    pub(super) counts: FaultCounts,
}

/// Counts down; true when it is there.
fn is_due(after: &mut u64) -> bool {
    let due = *after == 0;
    *after = after.saturating_sub(1);
    due
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    pub(super) fn arm_mishap(&mut self, mishap: Mishap) {
        self.mishaps.push(mishap);
    }

    pub(super) fn disarm(&mut self) {
        self.armed.clear();
        self.mishaps.clear();
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts an operation that moves `bytes`, and says what befalls it. An error goes before a mishap.
    pub(super) fn strikes(&mut self, kind: OperationKind, bytes: usize) -> Fate {
        let mut error = None;
        self.armed.retain_mut(|fault| {
            if !fault.operation.covers(kind) {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            error = Some((fault.error, fault.kind));
            fault.kind == FaultKind::ForEver
        });
        let mut fate = Fate::Well;
        self.mishaps.retain_mut(|mishap| {
            let strikes = mishap.operation.covers(kind)
                && mishap.kind.fits(kind, bytes)
                && error.is_none()
                && fate == Fate::Well
                && is_due(&mut mishap.after);
            if strikes {
                fate = Fate::Mishap(mishap.kind);
            }
            !strikes
        });
        if let Some((error, how_often)) = error {
            self.count_error(kind, error, how_often);
            fate = Fate::Error(error);
        }
        if let Fate::Mishap(kind) = fate {
            self.counts.count(kind.name());
        }
        self.struck += u64::from(fate != Fate::Well);
        fate
    }

    fn count_error(&mut self, kind: OperationKind, error: i32, how_often: FaultKind) {
        let for_ever = how_often == FaultKind::ForEver;
        self.counts.count(match kind {
            _ if error == super::ENOSPC => "full disk",
            OperationKind::Open | OperationKind::Remove if for_ever => "open error for ever",
            OperationKind::Open | OperationKind::Remove => "open error",
            OperationKind::Read if for_ever => "read error for ever",
            OperationKind::Read => "read error",
            OperationKind::Flush if for_ever => "flush error for ever",
            OperationKind::Flush => "flush error",
            _ if for_ever => "write error for ever",
            _ => "write error",
        });
    }
}
