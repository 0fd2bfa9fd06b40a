//! The whole commit layer on a disk that loses what was not made durable.
#![cfg_attr(feature = "shuttle", allow(dead_code))]

#[cfg(not(feature = "shuttle"))]
mod behaviour;
#[cfg(not(feature = "shuttle"))]
mod collector;
#[cfg(not(feature = "shuttle"))]
mod consolidate;
mod disk;
#[cfg(not(feature = "shuttle"))]
mod exact;
#[cfg(not(feature = "shuttle"))]
mod failure;
#[cfg(not(feature = "shuttle"))]
mod futures;
#[cfg(not(feature = "shuttle"))]
mod held_up;
mod mapped;
#[cfg(not(feature = "shuttle"))]
mod passive;
#[cfg(feature = "shuttle")]
mod preempting;
#[cfg(feature = "shuttle")]
mod schedules;
#[cfg(not(feature = "shuttle"))]
mod space;
#[cfg(not(feature = "shuttle"))]
mod stealing;
#[cfg(not(feature = "shuttle"))]
mod stress;

use super::core::log_writer::LogWriter;
use super::start::QUEUE_ENTRIES;
use super::*;
use crate::base::checksum::crc;
use crate::base::clock::{Clock, Nanos, WaitTimer};
use crate::base::depth::spread;
use crate::base::settings::{
    Acknowledger, AcknowledgerOptions, AcknowledgmentOptions, Append, Dependency, Durability, Preset, Queue,
    WorkerOptions, Writer, WriterOptions,
};
use crate::base::{Csn, Epoch, ErrorKind, Gsn, SegmentId};
use crate::device::Storage;
use crate::log::memory::LogMemory;
use crate::log::memory::{MemoryId, MemoryState, find, needed_bytes};
use crate::log::{BufferSize, Log, RecordKind, SegmentPool};
use crate::sync::Mutex;
use disk::Disk;
use mapped::Mapped;
use std::collections::BTreeSet;
use std::task::Waker;
use std::time::Duration;

/// A commit layer, its disk, and the tickets its callers hold.
pub struct World {
    pub disk: Disk,
    /// With `passive`.
    pub mapped: Option<Arc<Mapped>>,
    pub commit: Arc<Commit>,
    pub clock: Clock,
    /// Of each record.
    pub body_bytes: usize,
}

/// A preset with as many logs as it is about, and little enough of everything for a scheduler that
/// explores.
pub fn settings(preset: Preset) -> Settings {
    let several = matches!(preset, Preset::Autonomous | Preset::Restricted);
    // A scheduler that explores has no time that passes.
    let flush_interval = cfg!(feature = "shuttle").then_some(Duration::ZERO);
    Settings { preset, logs: if several { 2 } else { 1 }, ..Settings::default() }.with_protocol(|axes| {
        let interval = axes.flush_interval;
        axes.flush_interval = flush_interval.unwrap_or(interval);
    })
}

/// Each worker acknowledges for its own log.
const ALONE: AcknowledgerOptions =
    AcknowledgerOptions::Workers(AcknowledgmentOptions { group: 1, ..AcknowledgmentOptions::DEFAULT });

/// Every preset that writes, and points between them: each writer, acknowledger, rule and queue is
/// in it. For mapped memory see `passive`.
pub fn all() -> Vec<Settings> {
    let writes = |preset: &Preset| *preset != Preset::Passive;
    let mut all: Vec<_> = Preset::ALL.into_iter().filter(writes).map(settings).collect();
    let of = |preset, change: fn(&mut Axes)| settings(preset).with_protocol(change);
    let worker = |change: fn(&mut Axes, &mut WorkerOptions)| {
        settings(Preset::Autonomous).with_protocol(|axes| {
            let mut options = WorkerOptions::DEFAULT;
            change(axes, &mut options);
            axes.writer = WriterOptions::Worker(options);
        })
    };
    all.extend([
        of(Preset::Group, |axes| axes.gather_mut().expect("leaders gather").most = Some(1)),
        of(Preset::Pipelined, |axes| axes.queue = Queue::Latched),
        of(Preset::Pipelined, |axes| axes.append = Append::Consolidated),
        of(Preset::Group, |axes| axes.set_acknowledger(Acknowledger::Background)),
        of(Preset::Autonomous, |axes| {
            axes.set_writer(Writer::Leader);
            axes.dependency = Some(Dependency::Csn);
        }),
        of(Preset::Autonomous, |axes| {
            axes.set_writer(Writer::Leader);
            axes.set_acknowledger(Acknowledger::Leader);
        }),
        worker(|axes, _| {
            axes.dependency = Some(Dependency::Csn);
            axes.acknowledger = ALONE;
        }),
        worker(|axes, options| (axes.queue, options.writes_in_flight) = (Queue::Latched, 3)),
        worker(|axes, options| {
            axes.acknowledger = AcknowledgerOptions::Workers(AcknowledgmentOptions { group: 2, odds: 3 });
            (options.stealing_group, options.idle_max) = (Some(2), Duration::ZERO);
        }),
        of(Preset::Autonomous, |axes| {
            axes.set_writer(Writer::Collector);
            axes.set_acknowledger(Acknowledger::Leader);
        }),
        of(Preset::Restricted, |axes| axes.dependency = Some(Dependency::Csn)),
        worker(|_, options| options.stealing_group = Some(2)).with(|s| s.lab.flush_unit_bytes = 4096),
        worker(|axes, options| {
            (axes.dependency, options.stealing_group) = (Some(Dependency::Exact), Some(2));
        }),
        of(Preset::Autonomous, |axes| axes.dependency = Some(Dependency::Exact)),
        of(Preset::Pipelined, |axes| axes.dependency = Some(Dependency::Exact)),
        of(Preset::Autonomous, |axes| axes.dependency = Some(Dependency::Gsn)),
        of(Preset::Restricted, |axes| axes.dependency = Some(Dependency::Gsn)),
        of(Preset::Autonomous, |axes| axes.dependency = Some(Dependency::GsnRfa)),
        worker(|axes, _| (axes.dependency, axes.acknowledger) = (Some(Dependency::Exact), ALONE)),
        of(Preset::Autonomous, |axes| axes.set_writer(Writer::Background)),
        of(Preset::Autonomous, |axes| {
            axes.set_writer(Writer::Background);
            axes.shared_flush = Some(true);
        }),
    ]);
    for settings in &all {
        settings.validate().expect("a point on the axes");
        presets::check(settings, presets::log_count(settings, 2)).expect("a point on the axes");
    }
    let few = spread(all.len() as u64, 8);
    few.map(|n| all[n as usize].clone()).collect()
}

/// Waits until `condition` holds; fails the test after half a minute.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Drop for World {
    /// The disk's files refer to the disk.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A test that failed has it hold something, perhaps.
            self.disk.release();
        }
        self.disk.forget();
    }
}

impl World {
    pub fn new(preset: Preset, logs: usize) -> World {
        World::with(Settings { preset, logs, ..Settings::default() }, Hooks::default())
    }

    pub fn with(settings: Settings, hooks: Hooks) -> World {
        World::with_clock(settings, hooks, Clock::real())
    }

    pub fn with_clock(mut settings: Settings, hooks: Hooks, clock: Clock) -> World {
        if settings.preset == Preset::Passive {
            // A buffer in ordinary memory is copied to a mapped one.
            settings.lab.log_buffer_bytes = MAPPED_BYTES as usize;
        }
        let disk = Disk::default();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let count = presets::log_count(&settings, 2);
        let mapped = (settings.preset == Preset::Passive)
            .then(|| Arc::new(Mapped::new(needed_bytes(count, MAPPED_BYTES))));
        let memory = mapped.clone().map(|mapped| {
            let memory = LogMemory::prepare(mapped, DATABASE, MemoryId(5), count, MAPPED_BYTES, 1 << 20);
            Arc::new(memory.expect("large enough"))
        });
        let segments =
            SegmentPool::new(storage.clone(), SEGMENT_BYTES, 1 << 40, 1).expect("the disk is whole");
        segments.start().expect("threads");
        segments.await_ready(1).expect("the disk is whole");
        let logs = (0..count)
            .map(|i| {
                let id = LogId(i as u32);
                Arc::new(Log::new(
                    id,
                    DATABASE,
                    Epoch(1),
                    BufferSize::up_to(settings.log_buffer_bytes(), Axes::of(&settings).flush_unit_bytes()),
                    segments.clone(),
                    Arc::default(),
                ))
            })
            .collect();
        let start = Start {
            storage,
            logs,
            memory,
            segments,
            first_csn: Csn(1),
            epoch: Epoch(1),
            clock: clock.clone(),
            hooks,
        };
        let commit = Commit::start(&settings, start).expect("starts");
        World { disk, mapped, commit, clock, body_bytes: 40 }
    }

    pub fn pending(&self, dsn: Csn, durability: Durability, waits: bool) -> Pending {
        let now = self.clock.now();
        let mut predecessors = Predecessors::default();
        if dsn != Csn::ZERO && dsn != Pending::EVERYTHING {
            predecessors.add(dsn);
        }
        Pending {
            dsn,
            predecessors,
            alone: false,
            durability,
            begun: now,
            ready: now,
            waits,
            holds_locks: false,
        }
    }

    pub fn precommit(&self, log: u32, mut pending: Pending) -> Result<Ticket> {
        let gsn = self.meet(LogId(log), &mut pending);
        let mut body = vec![log as u8; self.body_bytes];
        for csn in self.commit.listing().listed_in(&pending).unwrap_or_default() {
            body.extend(csn.0.to_le_bytes());
        }
        let record =
            Record { body: &body, body_crc: crc(&body), operations: 1, gsn, kind: RecordKind::Whole };
        Ok(self.commit.precommit(LogId(log), record, &pending, || true)?.expect("not withdrawn"))
    }

    /// As [`World::precommit`], with a fragment in each of the first two logs.
    pub fn precommit_divided(&self, mut pending: Pending) -> Result<Ticket> {
        pending.alone = false;
        let gsn = self.meet(LogId(0), &mut pending);
        let bodies: Vec<Vec<u8>> = (0..2)
            .map(|number| {
                let mut body = crate::log::Fragment { number, count: 2 }.encode().to_vec();
                body.resize(self.body_bytes, number as u8);
                if number == 0 {
                    for csn in self.commit.listing().listed_in(&pending).unwrap_or_default() {
                        body.extend(csn.0.to_le_bytes());
                    }
                }
                body
            })
            .collect();
        let fragments: Vec<_> = (0..)
            .zip(&bodies)
            .map(|(log, body)| {
                let (body_crc, kind) = (crc(body), RecordKind::Fragment);
                (LogId(log), Record { body, body_crc, operations: 1, gsn, kind })
            })
            .collect();
        Ok(self.commit.precommit_fragments(&fragments, &pending, || true)?.expect("not withdrawn"))
    }

    /// Where there are clocks: that of a transaction that met its predecessors.
    fn meet(&self, log: LogId, pending: &mut Pending) -> Gsn {
        let (mut gsn, read) = (Gsn(0), pending.predecessors);
        if self.commit.listing().goes_by_clocks() {
            pending.alone = true;
            for csn in read
                .all()
                .unwrap_or_default()
                .iter()
                .filter(|csn| self.commit.listing().is_to_be_listed(**csn))
            {
                match self.commit.listing().clock_of(*csn) {
                    Some((of, other)) => {
                        gsn = gsn.max(of);
                        pending.alone &= other == log;
                    }
                    None => pending.predecessors.overflow(),
                }
            }
        }
        gsn
    }

    pub fn blocking(&self, log: u32, dsn: Csn) -> Result<Ticket> {
        let pending = self.pending(dsn, Durability::Durable, true);
        let ticket = self.precommit(log, pending)?;
        self.commit.waits().finish(ticket, &pending).map(|_| ticket)
    }

    pub fn asynchronous(&self, log: u32, dsn: Csn, durability: Durability) -> Result<Ticket> {
        self.precommit(log, self.pending(dsn, durability, false))
    }

    /// CSNs in the gap-free prefixes of blocks that a power cut would leave.
    pub fn durable_csns(&self) -> BTreeSet<Csn> {
        // Both at one moment: no other thread runs in between.
        let (files, mapped) = (self.disk.durable(), self.mapped.as_ref().map(|m| m.after_power_cut()));
        let left = crate::device::memory::MemoryStorage::new();
        let mode = crate::device::OpenMode { create: true, read_only: false, direct: false };
        for (path, bytes) in files {
            crate::device::Directory::open(&left, &path, mode)
                .expect("memory")
                .write_at(0, &bytes)
                .expect("memory");
        }
        let left: Arc<dyn Storage> = Arc::new(left);
        let memory = mapped.and_then(|mapped| {
            let left = LogMemory::look(Arc::new(mapped)).expect("ours");
            let MemoryState::Formatted(DATABASE, left) = left else { panic!("{left:?}") };
            find(&left, Epoch(1), Csn::ZERO, SegmentId(1 << 30)).expect("readable")
        });
        let options = crate::log::ScanOptions {
            database: DATABASE,
            covered: Csn::ZERO,
            threads: 1,
            read_only: true,
            piece_bytes: 4096,
            keep_bytes: 0,
        };
        let scan = crate::log::scan(&left, options, memory.as_ref(), &|_, _| {}).expect("readable");
        let blocks = scan.chains.iter().flat_map(|chain| crate::log::load_all(chain.accepted()));
        let csns = |block: crate::log::LoadedBlock| {
            block.records().map(|record| record.expect("whole").1.header.csn).collect::<Vec<_>>()
        };
        blocks.flat_map(|block| csns(block.expect("readable"))).collect()
    }
}

const DATABASE: crate::base::DatabaseId = crate::base::DatabaseId(7);
const SEGMENT_BYTES: u64 = if cfg!(feature = "shuttle") { 64 << 10 } else { 4 << 20 };
/// Of a mapped buffer: the least there is.
const MAPPED_BYTES: u64 = 64 << 10;
