//! Fences beside the latch under loom: whatever counts as durable is fenced.

use super::*;
use crate::base::checksum::crc;
use crate::base::clock::Clock;
use crate::base::settings::{Preset, Queue, Settings};
use crate::base::{DatabaseId, Epoch, Gsn, LogId, SegmentId};
use crate::commit::core::environment::Hooks;
use crate::commit::start::{Start, components};
use crate::device::Storage;
use crate::device::mapped::{MappedMemory, MemoryFacts, Primitive, Survives};
use crate::device::memory::MemoryStorage;
use crate::log::memory::{LogMemory, MemoryId, needed_bytes};
use crate::log::{
    BufferSize, DependencyRule, Log, RecordHeader, RecordKind, Reserve, Segment, SegmentPool, record_bytes,
};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread;
use loom::thread::{Builder, JoinHandle};
use std::time::Duration;

const BODY: [u8; 40] = [7; 40];
const BUFFER_BYTES: u64 = 64 << 10;
const SEGMENT_BYTES: u64 = 64 << 10;
const DATABASE: DatabaseId = DatabaseId(7);
/// CSNs in a model, from 0.
const CSNS: usize = 4;
/// Times that the scheduler interrupts a thread in one execution. More would take hours.
const PREEMPTIONS: usize = 3;
/// Words of the stack of a thread: a world takes more than loom gives.
const STACK: usize = 64 << 10;

/// Memory that knows which records are fenced.
#[derive(Debug)]
struct Memory {
    /// The thread that stored each record, and its CSN. No scheduler interrupts its holders.
    stored: std::sync::Mutex<Vec<(u64, usize)>>,
    /// By CSN.
    fenced: [AtomicBool; CSNS],
}

impl Memory {
    fn fence_those(&self, of: impl Fn(u64) -> bool) {
        let stored = self.stored.lock().expect("no panic").clone();
        for (_, csn) in stored.into_iter().filter(|(by, _)| of(*by)) {
            self.fenced[csn].store(true, Ordering::SeqCst);
        }
    }
}

impl MappedMemory for Memory {
    fn facts(&self) -> MemoryFacts {
        MemoryFacts {
            path: "mapped".into(),
            bytes: self.bytes(),
            survives: Survives::PowerCut,
            reason: "a test".into(),
            primitive: Primitive::Unknown,
            latency: Duration::ZERO,
        }
    }

    fn bytes(&self) -> u64 {
        needed_bytes(1, BUFFER_BYTES)
    }

    fn load(&self, _offset: u64, into: &mut [u8]) {
        into.fill(0);
    }

    /// All that is stored besides records has another length.
    fn store(&self, _offset: u64, bytes: &[u8]) {
        if bytes.len() == record_bytes(BODY.len()) {
            let csn = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes"));
            self.stored.lock().expect("no panic").push((thread::number(), csn as usize));
        }
    }

    fn fence(&self) {
        let own = thread::number();
        self.fence_those(|by| by == own);
    }

    fn barrier(&self) {
        self.fence_those(|_| true);
    }

    fn flush(&self) {
        self.barrier();
    }
}

/// One log in mapped memory.
struct World {
    memory: Arc<Memory>,
    durability: Arc<Durability>,
    mapped: MappedLogs,
}

impl World {
    fn new() -> Arc<World> {
        let log_memory = Some("mapped".into());
        let settings = Settings { preset: Preset::Passive, logs: 1, log_memory, ..Settings::default() };
        // A ring has too many words for a model.
        let settings = settings.with_protocol(|axes| axes.queue = Queue::Latched);
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let segments = SegmentPool::new(storage.clone(), SEGMENT_BYTES, 1 << 30, 0).expect("memory");
        let file = storage.segments().create(SegmentId(1)).expect("memory");
        // Instead of the thread that prepares segments.
        segments.put_back(Segment { id: SegmentId(1), file, len: SEGMENT_BYTES, uses: 0 });
        let fenced = std::array::from_fn(|_| AtomicBool::new(false));
        let memory = Arc::new(Memory { stored: std::sync::Mutex::default(), fenced });
        let size = BufferSize::fixed(BUFFER_BYTES as usize);
        let log = Log::new(LogId(0), DATABASE, Epoch(1), size, segments.clone(), Arc::default());
        let prepared = LogMemory::prepare(memory.clone(), DATABASE, MemoryId(5), 1, BUFFER_BYTES, 1 << 20);
        let prepared = Arc::new(prepared.expect("large enough"));
        let start = Start {
            storage,
            logs: vec![Arc::new(log)],
            memory: Some(prepared.clone()),
            segments,
            first_csn: Csn(1),
            epoch: Epoch(1),
            clock: Clock::manual(),
            hooks: Hooks::default(),
        };
        let axes = Axes::of(&settings);
        let writes = components(&settings, start, &axes).writes;
        let (environment, durability) = (writes.environment.clone(), writes.durability.clone());
        let acknowledgments = writes.acknowledgments.clone();
        let waits = Waits::new(&axes, &settings);
        let mapped =
            MappedLogs::new(environment, durability.clone(), acknowledgments, prepared, &axes, waits);
        let world = World { memory, durability, mapped };
        // Takes a buffer and the segment.
        world.make_room(&mut world.log().log.lock());
        Arc::new(world)
    }

    fn log(&self) -> &LogWriter {
        self.durability.log(LogId(0))
    }

    fn make_room(&self, latch: &mut LogGuard<'_>) {
        assert_eq!(latch.reserve(record_bytes(BODY.len()), &mut None), Reserve::Ready);
    }

    /// Appends a record and does not fence it.
    fn append(&self) {
        let mut latch = self.log().log.lock();
        self.make_room(&mut latch);
        let header = RecordHeader {
            epoch: Epoch(1),
            csn: self.durability.watermark.draw(LogId(0), &latch),
            gsn: Gsn(0),
            dsn: Csn::ZERO,
            watermark: Csn(1),
            body_crc: crc(&BODY),
            op_count: 1,
            rule: DependencyRule::Dsn,
            kind: RecordKind::Whole,
        };
        latch.append(&header, &BODY);
    }

    fn commit(&self) {
        self.append();
        self.mapped.fence_beside(&[self.log()]);
    }

    /// Checks that all records below W, and up to the durable position of the log, are fenced.
    fn check(&self) {
        let (w, durable) = (self.durability.rescan(), self.log().log.durable_csn());
        for csn in 1..w.max(durable.next()).0 {
            let fenced = self.memory.fenced[csn as usize].load(Ordering::SeqCst);
            assert!(fenced, "{csn} is not fenced, but W is {w}, and the log is durable up to {durable}");
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().stack_size(STACK).spawn(work).expect("loom has one")
}

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || spawn(model).join().expect("no panic"));
}

#[test]
fn a_fence_beside_the_latch_hardens_no_other_record() {
    explore(|| {
        let world = World::new();
        let committers = [world.clone(), world.clone()].map(|world| spawn(move || world.commit()));
        world.check();
        committers.into_iter().for_each(|committer| committer.join().expect("no panic"));
        world.check();
        assert_eq!(world.durability.watermark.get(), Csn(3));
    });
}

/// The straggler appends beside the drain, too: a barrier covers what was stored before it.
#[test]
fn a_drain_beside_fences_hardens_what_its_barrier_covers() {
    explore(|| {
        let world = World::new();
        world.append();
        let (straggler, committer) = (world.clone(), world.clone());
        let straggler = spawn(move || straggler.append());
        let committer = spawn(move || committer.commit());
        world.mapped.drain(&mut std::iter::once(world.log()));
        world.check();
        straggler.join().expect("no panic");
        committer.join().expect("no panic");
        world.check();
        world.mapped.drain(&mut std::iter::once(world.log()));
        assert_eq!(world.durability.rescan(), Csn(4));
    });
}
