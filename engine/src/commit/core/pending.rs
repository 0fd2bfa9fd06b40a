//! The input and output of a commit: [`Record`], [`Pending`], [`Ticket`].

use super::predecessors::Predecessors;
use crate::base::clock::Nanos;
use crate::base::settings::Durability;
use crate::base::{Csn, Gsn, LogId};
use crate::log::RecordKind;

/// A redo record without its header. The checksum is computed before the latch is taken.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The encoded operations.
    pub body: &'a [u8],
    /// CRC-32C of `body`.
    pub body_crc: u32,
    /// Number of operations.
    pub operations: u32,
    /// Lamport clock of the transaction; 0 if the rule goes by none.
    pub gsn: Gsn,
    /// Which part of its transaction it is.
    pub kind: RecordKind,
}

/// The dependencies of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependsOn<'a> {
    /// These, and what is committed.
    Listed(&'a Predecessors),
    /// Perhaps on everything up to here.
    UpTo(Csn),
    /// The fragment before it, whose CSN is one less.
    Fragment,
    /// The chunks before it in its log.
    Chunk,
}

/// The properties of a transaction that commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The highest CSN that it depends on.
    pub dsn: Csn,
    /// Its direct predecessors that may not be committed.
    pub predecessors: Predecessors,
    /// All of these, and the last changes of the pages that it met, are in its own log. Only a rule
    /// that goes by clocks asks.
    pub alone: bool,
    /// When its commit returns.
    pub durability: Durability,
    /// When it began.
    pub begun: Nanos,
    /// When it asked to commit.
    pub ready: Nanos,
    /// Its thread calls `Waiting::finish` next, so that no other thread need write or count
    /// it.
    pub waits: bool,
    /// Its thread keeps locks until the commit is durable.
    pub holds_locks: bool,
}

impl Pending {
    /// As a DSN: the transaction depends on every one before it (a change of the catalog).
    pub const EVERYTHING: Csn = Csn::MAX;

    /// Returns what it depends on. Of a change of the catalog the DSN is known once there is a CSN.
    pub fn depends_on(&self) -> DependsOn<'_> {
        if self.dsn == Pending::EVERYTHING || self.predecessors.all().is_none() {
            return DependsOn::UpTo(self.dsn);
        }
        DependsOn::Listed(&self.predecessors)
    }

    /// Returns the DSN of the transaction under the CSN `csn`.
    pub fn dsn_of(&self, csn: Csn) -> Csn {
        let dsn = if self.dsn == Pending::EVERYTHING { Csn(csn.0 - 1) } else { self.dsn };
        debug_assert!(dsn < csn, "a transaction depends on earlier ones");
        dsn
    }
}

/// A pre-committed transaction's ticket: enough to find out whether it is committed, now or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The log that holds its record.
    pub log: LogId,
    /// Its own CSN.
    pub csn: Csn,
    /// The highest CSN it depends on.
    pub dsn: Csn,
    /// It has no record, and `dsn` is the only CSN it depends on.
    pub is_exact: bool,
}

impl Ticket {
    /// Returns the CSN that has to be committed: its own or, without a record, that of the version
    /// it read.
    pub fn root(self) -> Csn {
        if self.csn == Csn::ZERO { self.dsn } else { self.csn }
    }
}
