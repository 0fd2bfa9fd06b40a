//! What is inside does the work: contents, completions and errors are its own.

use super::*;
use crate::modelled::figures::Figures;
use quenchdb::internals::device::counted::CountedFile;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::{AlignedBuffer, SECTOR_BYTES, WriteRequest};
use std::time::{Duration, Instant};

fn modelled(name: &str, trust: DeviceTrust) -> ModelledStorage {
    let device = Device::new(Figures::named(name).expect("a model"), 1);
    ModelledStorage::new(Arc::new(MemoryStorage::new()), device, trust)
}

const CREATE: OpenMode = OpenMode { create: true, read_only: false, direct: true };

#[test]
fn modelled_write_is_read_back_and_takes_its_time() {
    let storage = modelled("sim:nvme-consumer", DeviceTrust::Auto);
    let file = storage.open("log/a", CREATE).expect("memory");
    let began = Instant::now();
    file.write_durable_at(0, &[3; 4096]).expect("memory");
    assert!(began.elapsed() >= Duration::from_micros(110), "a write and a flush");
    file.write_at(4096, &[4; 100]).expect("memory");
    file.flush().expect("memory");
    let mut bytes = [0; 200];
    let began = Instant::now();
    file.read_at(3996, &mut bytes).expect("there");
    assert!(began.elapsed() >= Duration::from_micros(45));
    assert_eq!((bytes[..100].to_vec(), bytes[100..].to_vec()), (vec![3; 100], vec![4; 100]));
    file.read_at(4100, &mut bytes).expect_err("beyond the end");
    assert_eq!(storage.list("log").expect("memory"), ["a"]);
    assert_eq!(storage.facts().name, "sim:nvme-consumer");
}

#[test]
fn volatile_cache_is_of_model_or_inner_unless_trust_is_given() {
    let facts = |name, trust| {
        let storage = modelled(name, trust);
        (storage.facts().volatile_cache, storage.durability())
    };
    let (volatile, durable) = ((true, DurabilityMethod::Dsync), (false, DurabilityMethod::Plain));
    assert_eq!(facts("sim:nvme-consumer", DeviceTrust::Auto), volatile);
    assert_eq!(facts("sim:nvme-enterprise", DeviceTrust::Auto), durable);
    assert_eq!(facts("sim:nvme-enterprise", DeviceTrust::Flush), volatile);
    assert_eq!(facts("sim:nvme-consumer", DeviceTrust::Device), durable);
}

#[test]
fn queued_writes_overlap_and_complete_when_the_device_is_done() {
    let storage = modelled("sim:s3-express", DeviceTrust::Auto);
    let (file, traffic) = CountedFile::wrap(storage.open("pages", CREATE).expect("memory"));
    let mut queue = storage.write_queue(8).expect("memory");
    let began = Instant::now();
    for token in 0..8u64 {
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        buffer[0] = token as u8 + 1;
        let (file, offset) = (file.clone(), token * SECTOR_BYTES as u64);
        let request =
            WriteRequest { file, offset, buffer, len: SECTOR_BYTES, durable: true, token: 100 + token };
        queue.submit(request).expect("memory");
    }
    let mut done = Vec::new();
    queue.reap(false, &mut done).expect("memory");
    assert!(done.len() < 8 || began.elapsed() > Duration::from_millis(7), "the device takes 8 ms");
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done).expect("memory");
    }
    assert!(began.elapsed() >= Duration::from_millis(7));
    let mut tokens: Vec<u64> = done.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (100..108).collect::<Vec<u64>>());
    assert!(done.iter().all(|completion| completion.result.is_ok()));
    for completion in &done {
        assert_eq!(u64::from(completion.buffer[0]), completion.token - 99, "each its own buffer");
    }
    let mut bytes = [0; 1];
    file.read_at(7 * SECTOR_BYTES as u64, &mut bytes).expect("there");
    assert_eq!(bytes, [8]);
    assert_eq!(traffic.writes.get(), 0, "the submitter counts the write");
}

#[test]
fn a_queue_refuses_files_of_another_storage() {
    let (one, other) = (modelled("sim:memory-0us", DeviceTrust::Auto), MemoryStorage::new());
    let file = other.open("f", CREATE).expect("memory");
    let buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    let request = WriteRequest { file, offset: 0, buffer, len: SECTOR_BYTES, durable: false, token: 1 };
    let mut queue = one.write_queue(1).expect("memory");
    queue.submit(request).expect_err("not ours");
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn zeros_take_bandwidth_on_volumes_one_request_on_object_stores() {
    let zeroed = |name| {
        let file = modelled(name, DeviceTrust::Auto).open("f", CREATE).expect("memory");
        let began = Instant::now();
        file.zero_extend(4 << 20, &mut |_| ()).expect("memory");
        assert_eq!(file.len().expect("memory"), 4 << 20);
        began.elapsed()
    };
    assert!(zeroed("sim:ebs-gp3") >= Duration::from_millis(31), "4 MiB at 125 MiB/s");
    assert!(zeroed("sim:s3-express") >= Duration::from_millis(7));
}
