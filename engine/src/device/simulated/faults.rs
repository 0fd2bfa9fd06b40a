//! Faults and mishaps that tests arm, and counts of what went wrong.
//!
//! A [`Fault`] makes an operation fail with an error. A [`Mishap`] makes it go wrong without an
//! error, or delays it:
//!
//! | mishap | what happens | what the engine owes |
//! |---|---|---|
//! | `Short` | a part of the write is visible before the rest | nothing is lost |
//! | `Interrupted` | a part is written, then all of it: a retry after EINTR | nothing is lost |
//! | `TryAgain` | nothing is done, then all of it a moment later: a retry after EAGAIN | nothing is lost |
//! | `Slow` | the operation takes this long | nothing is lost, other operations proceed |
//! | `Stuck` | the operation does not end until `release_stuck` | deadlines hold, reads from memory proceed; nothing is lost |
//! | `Duplicated` | a write is repeated at some later time, over later data | beyond the contract: detected, or harmless |
//! | `Lost` | a write is reported as done but is not | the same |
//! | `Torn` | as `Lost`, but the first sectors of 512 bytes are written | the same |
//! | `Misdirected` | as `Lost`, and the bytes are at another place | the same |
//! | `Rot` | a bit of the bytes read has flipped at rest | the same |
//! | `LyingFlush` | a flush is reported as done but is not; the next honest flush does its work | the same after a power cut |
//!
//! Armed for [`OperationKind::Memory`], a store to mapped memory is `Lost` or lacks one word
//! (`Torn`), or a fence is a `LyingFlush`.
//!
//! "Beyond the contract": the disk breaks what `docs/guide/assumptions.md` expects of it. Then the
//! engine never returns wrong bytes as right ones where checksums, identities and sequence numbers
//! can detect them.

use super::device::SECTOR;
use crate::device::fault_counts::FaultCounts;
use crate::device::mapped::WORD_BYTES;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const EIO: i32 = 5;
pub(super) const ENOSPC: i32 = 28;

/// An operation that a fault can strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Opening, creating or removing a file, and submitting a write to a queue.
    Open,
    /// Removing a file alone.
    Remove,
    /// Reading bytes, a length or names.
    Read,
    /// A write that is not durable at once.
    Write,
    /// A durable write.
    DurableWrite,
    /// A flush of a file or directory.
    Flush,
    /// Extending a file with zeros.
    ZeroExtend,
    /// Mapped memory, which reports no errors: a store or fence that a fault strikes does nothing.
    Memory,
    /// In a fault: any operation that can report an error, so all but `Memory`.
    Any,
    /// In a fault: any operation that needs space: `Write`, `DurableWrite`, `ZeroExtend` and
    /// `Open`.
    AnyThatGrows,
}

impl OperationKind {
    /// Returns whether a fault armed for `self` counts the operation `other`.
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
    /// From then on, always.
    ForEver,
}

/// An error of operation number `after` (from 0) of kind `operation`, counted from the arming.
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

/// What goes wrong without an error: see the table of this file.
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

/// A mishap of operation number `after` (from 0) of those that it can strike, once, counted from
/// the arming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mishap {
    /// Which of the operations that it can strike are counted.
    pub operation: OperationKind,
    /// How many of them still succeed.
    pub after: u64,
    /// What happens.
    pub kind: MishapKind,
}

impl MishapKind {
    /// All mishaps; the slow one takes a millisecond.
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

    /// Returns the name, one of [`EVENT_NAMES`].
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

    /// Returns whether the device still keeps its contract: then the engine loses nothing.
    #[must_use]
    pub fn keeps_promises(self) -> bool {
        use MishapKind::{Interrupted, Short, Slow, Stuck, TryAgain};
        matches!(self, Short | Interrupted | TryAgain | Slow(_) | Stuck)
    }

    fn fits(self, operation: OperationKind, bytes: usize) -> bool {
        use OperationKind::{DurableWrite, Flush, Memory, Read, Write};
        let writes = matches!(operation, Write | DurableWrite) && bytes > 0;
        let sectors = writes && bytes > SECTOR;
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

/// The names of all events in the counts of a disk, which include those of the crash that made the
/// disk: first those that tests arm, then those of crashes.
pub const EVENT_NAMES: [&str; 31] = [
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

/// What a power cut did to a sequence of writes: the first write that lost bytes, and the last
/// whole write.
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

    /// Returns whether a write of `self` lost bytes although a later write of `others` is whole.
    pub(super) fn lost_before(&self, others: &Cut) -> bool {
        matches!((self.first_lost, others.last_kept), (Some(lost), Some(kept)) if lost < kept)
    }
}

/// What a power cut did to the blocks, by log.
pub(super) type CutLogs = BTreeMap<u32, Cut>;

/// Returns whether a block lost bytes although a later block of another log is whole.
pub(super) fn are_reordered(logs: &CutLogs) -> bool {
    let later = |log: &u32, cut: &Cut| logs.iter().any(|(other, kept)| other != log && cut.lost_before(kept));
    logs.iter().any(|(log, cut)| later(log, cut))
}

/// What happens to an operation.
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

/// Counts down. Returns true if the count was zero.
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

    /// Counts an operation that moves `bytes`, and returns its fate. An error precedes a mishap.
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
            _ if error == ENOSPC => "full disk",
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
