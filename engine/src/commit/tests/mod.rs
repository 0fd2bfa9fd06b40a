//! The whole room on a disk that loses what was not made durable.
#![cfg_attr(feature = "shuttle", allow(dead_code))]

#[cfg(not(feature = "shuttle"))]
mod behaviour;
mod disk;
#[cfg(feature = "shuttle")]
mod schedules;
#[cfg(not(feature = "shuttle"))]
mod stress;

use super::*;
use crate::base::Gsn;
use crate::base::checksum::crc;
use crate::base::settings::{Durability, Preset};
use disk::Disk;
use std::collections::BTreeSet;

/// A room, its disk, and what its callers were told.
pub struct World {
    pub disk: Disk,
    pub commit: Arc<Commit>,
    pub clock: Clock,
}

/// Waits until `condition` holds; fails the test after five seconds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(5), "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl World {
    pub fn new(preset: Preset, logs: usize) -> World {
        World::with(Settings { preset, logs, ..Settings::default() }, Hooks::default())
    }

    pub fn with(settings: Settings, hooks: Hooks) -> World {
        World::with_clock(settings, hooks, Clock::real())
    }

    pub fn with_clock(settings: Settings, hooks: Hooks, clock: Clock) -> World {
        let disk = Disk::default();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let segments = Arc::new(SegmentPool::default());
        let logs = (0..presets::log_count(&settings, 2))
            .map(|i| Log::create(&*storage, LogId(i as u32), segments.clone()).map(Arc::new))
            .collect::<Result<Vec<_>>>()
            .expect("the disk is whole");
        let start = Start {
            storage,
            logs,
            segments,
            first_csn: Csn(1),
            epoch: Epoch(1),
            clock: clock.clone(),
            hooks,
        };
        World { disk, commit: Commit::start(&settings, start).expect("starts"), clock }
    }

    pub fn pending(&self, dsn: Csn, durability: Durability, waits: bool) -> Pending {
        let now = self.clock.now();
        Pending { dsn, durability, begun: now, ready: now, waits }
    }

    pub fn precommit(&self, log: u32, pending: Pending) -> Result<Ticket> {
        let body = [log as u8; 40];
        let record = Record { body: &body, body_crc: crc(&body), operations: 1, gsn: Gsn(0) };
        self.commit.precommit(LogId(log), record, pending, || ())
    }

    pub fn blocking(&self, log: u32, dsn: Csn) -> Result<Ticket> {
        let pending = self.pending(dsn, Durability::Durable, true);
        let ticket = self.precommit(log, pending)?;
        self.commit.finish(ticket, pending).map(|()| ticket)
    }

    pub fn asynchronous(&self, log: u32, dsn: Csn, durability: Durability) -> Result<Ticket> {
        self.precommit(log, self.pending(dsn, durability, false))
    }

    /// CSNs in the gap-free prefixes of blocks that a power cut would leave.
    pub fn durable_csns(&self) -> BTreeSet<Csn> {
        self.disk.durable().values().flat_map(|bytes| csns(bytes)).collect()
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
}

fn csns(bytes: &[u8]) -> Vec<Csn> {
    let (mut at, mut sequence, mut found) = (0, 1, Vec::new());
    while word(bytes, at) == sequence {
        let mut record = at + 64;
        for _ in 0..word(bytes, at + 8) {
            found.push(Csn(word(bytes, record)));
            record += (word(bytes, record + 24) as usize).next_multiple_of(8);
        }
        at += word(bytes, at + 16) as usize;
        sequence += 1;
    }
    found
}
