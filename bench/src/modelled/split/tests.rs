//! The log and the data are on different devices: in time, in content, and through queues.

use super::*;
use crate::modelled::{Device, Figures};
use quenchdb::DeviceTrust;
use quenchdb::internals::base::SegmentId;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::{AlignedBuffer, SECTOR_BYTES};
use std::time::{Duration, Instant};

const CREATE: OpenMode = OpenMode { create: true, read_only: false, direct: true };

/// A write of the disk takes at least this.
const DISK: Duration = Duration::from_micros(4_600);

/// Returns the data, the log and both, with the log on a slow disk.
fn split() -> (MemoryStorage, MemoryStorage, SplitStorage) {
    let (data, log) = (MemoryStorage::new(), MemoryStorage::new());
    let device = Device::new(Figures::named("sim:disk-170iops").expect("a model"), 1);
    let modelled = ModelledStorage::new(Arc::new(log.clone()), device, DeviceTrust::Auto);
    let split = SplitStorage::new(Arc::new(data.clone()), Arc::new(modelled));
    (data, log, split)
}

#[test]
fn only_segments_are_on_the_log_device() {
    let (data, log, storage) = split();
    let segment = SegmentId(1);
    let files = [
        storage.segments().create(segment).expect("memory"),
        storage.small_file("logs", CREATE).expect("memory"),
        storage.pages(CREATE).expect("memory"),
    ];
    assert_eq!(log.segments().list().expect("memory"), [segment]);
    assert_eq!(log.names().expect("memory"), Vec::<String>::new());
    assert_eq!(data.names().expect("memory"), ["logs"]);
    assert!(data.segments().list().expect("memory").is_empty());
    assert_eq!(storage.segments().list().expect("memory"), [segment]);
    let took = files.map(|file| {
        let began = Instant::now();
        file.write_durable_at(0, &[1; 4096]).expect("memory");
        began.elapsed()
    });
    assert!(took[0] >= DISK && took[1].min(took[2]) < DISK, "{took:?}");
    let name = storage.facts().name;
    assert!(name.ends_with(", log on sim:disk-170iops") && name.starts_with("memory"), "{name}");
}

#[test]
fn one_queue_writes_to_both_devices() {
    let (_, _, storage) = split();
    let mut queue = storage.write_queue(4).expect("memory");
    let segment = storage.segments().create(SegmentId(1)).expect("memory");
    for (token, file) in [(1u64, segment), (2, storage.pages(CREATE).expect("memory"))] {
        let buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        let request = WriteRequest { file, offset: 0, buffer, len: SECTOR_BYTES, durable: true, token };
        queue.submit(request).expect("memory");
    }
    let (began, mut done) = (Instant::now(), Vec::new());
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done).expect("memory");
    }
    assert!(done.iter().all(|completion| completion.result.is_ok()));
    assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [2, 1]);
    assert!(began.elapsed() >= DISK / 2, "the log's write takes the time of the disk");
}
