//! Lamport clocks of pages, transactions and logs: the rules GSN and GSN with remote flush
//! avoidance (RFA).
//!
//! Each row is on a page of its own. A record's GSN is above the clocks of all pages that its
//! transaction met, and above those of the log before it. A transaction waits until every log is
//! durable up to its GSN. With RFA one that met only pages last changed through its own log waits
//! for those before it in that log that wait for others.

use crate::scenario::{ClockScan, Dependencies, LogId, ReadersClock, Rules, Scenario, TransactionId};
use crate::state::{Phase, State};

/// A Lamport clock.
pub type Gsn = u8;

/// All clocks. Without such a rule they stand still.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Clocks {
    /// Per log.
    pub logs: Vec<Gsn>,
    /// Per log: the GSN of its newest transaction that waits for others.
    pub waiting: Vec<Gsn>,
    /// Per row: the clock of its page, and the log of the transaction that raised this clock.
    pub pages: Vec<(Gsn, LogId)>,
    /// Every log is durable up to here, as far as the last scan found.
    pub reach: Gsn,
}

impl Clocks {
    /// As a run of the database begins.
    #[must_use]
    pub fn new(logs: usize, pages: usize) -> Clocks {
        Clocks { logs: vec![1; logs], waiting: vec![0; logs], pages: vec![(0, 0); pages], reach: 1 }
    }
}

/// The clock of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TransactionClock {
    /// The highest of what it met; once drawn its record's GSN.
    pub gsn: Gsn,
    /// It met something that may not be durable everywhere and was last changed through another
    /// log.
    pub remote: bool,
    /// Once drawn: every log has to be durable up to here.
    pub needs: Gsn,
}

impl Rules {
    /// Whether the rule goes by clocks.
    #[must_use]
    pub fn goes_by_clocks(&self) -> bool {
        matches!(self.dependencies, Dependencies::Gsn | Dependencies::GsnRfa | Dependencies::GsnRfaTransitive)
    }
}

impl Scenario {
    /// What `id` has met when it has read and is about to write.
    #[must_use]
    pub fn clock_after_reading(&self, state: &State, id: TransactionId) -> TransactionClock {
        let (mut clock, transaction) = (TransactionClock::default(), self.transaction(id));
        if !self.rules.goes_by_clocks() {
            return clock;
        }
        let read = transaction.reads.iter().filter(|_| self.rules.readers_clock == ReadersClock::Raised);
        for key in read.chain(transaction.writes) {
            let (gsn, log) = state.clocks.pages[usize::from(*key)];
            clock.gsn = clock.gsn.max(gsn);
            clock.remote |= log != transaction.log && gsn > state.clocks.reach;
        }
        clock
    }

    /// `id` draws: its record, its log and the pages that it wrote get one GSN.
    pub fn draw_gsn(&self, state: &mut State, id: TransactionId) {
        if !self.rules.goes_by_clocks() {
            return;
        }
        let (transaction, clock) = (self.transaction(id), state.progress(id).clock);
        let clocks = &mut state.clocks;
        let log = usize::from(transaction.log);
        let gsn = clocks.logs[log].max(clock.gsn) + 1;
        clocks.logs[log] = gsn;
        for key in transaction.writes {
            clocks.pages[usize::from(*key)] = (gsn, transaction.log);
        }
        let alone = self.rules.dependencies != Dependencies::Gsn && !clock.remote;
        if !alone {
            clocks.waiting[log] = gsn;
        }
        let needs = match self.rules.dependencies {
            Dependencies::GsnRfaTransitive if alone => 0,
            _ => clocks.waiting[log],
        };
        state.progress_mut(id).clock = TransactionClock { gsn, needs, ..clock };
    }

    /// A scan: raises every clock to the highest, so that whatever is drawn later is above it, and
    /// finds how far all logs are durable.
    pub fn scan_clocks(&self, state: &mut State) {
        let highest = state.clocks.logs.iter().copied().max().unwrap_or(0);
        if self.rules.clock_scan == ClockScan::RaisesClocks {
            state.clocks.logs.fill(highest);
        }
        let drawn = |id: &TransactionId| {
            let progress = state.progress(*id);
            state.is_current(*id) && progress.phase >= Phase::Drawn && progress.csn > 0
        };
        let volatile = self.ids().filter(drawn).filter(|id| !self.is_durable(state, *id));
        let floor = volatile.map(|id| state.progress(id).clock.gsn - 1).min().unwrap_or(Gsn::MAX);
        state.clocks.reach = state.clocks.reach.max(highest.min(floor));
    }

    /// True if `id` is committed by its clock.
    #[must_use]
    pub fn is_committed_by_clock(&self, state: &State, id: TransactionId) -> bool {
        state.recovered.contains(id)
            || self.is_durable(state, id) && state.progress(id).clock.needs <= state.clocks.reach
    }
}
