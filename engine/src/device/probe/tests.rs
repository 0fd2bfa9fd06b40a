//! Unit tests of `probe`.

use super::*;
use crate::device::memory::MemoryStorage;

#[test]
fn raw_writes_are_counted_and_leave_no_file() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let raw = raw_durable_write(&storage, 5000, 3, Duration::from_millis(5)).expect("memory");
    assert!(raw.latency.len() >= 3 && raw.writes_per_second > 0.0);
    assert!(storage.list("").expect("memory").is_empty());
}

#[test]
fn a_choice_is_kept_for_its_device_only() {
    let report = ProbeReport { measured: Vec::new(), chosen: MethodSetting::Flusher };
    let bytes = report.encode(7);
    assert_eq!(ProbeReport::decode(&bytes, 7), Some(MethodSetting::Flusher));
    assert_eq!(ProbeReport::decode(&bytes, 8), None);
    assert_eq!(ProbeReport::decode(&[], 7), None);
}

#[test]
fn worker_method_is_chosen_only_if_clearly_faster() {
    let of = |method, p50_us, p99_us, computation_left| MethodMeasured {
        method,
        p50_us,
        p99_us,
        computation_left,
    };
    let measured = [
        of(MethodSetting::WorkerDsync, 143.0, 4066.0, 0.78),
        of(MethodSetting::WorkerFlush, 148.0, 380.0, 0.5),
        of(MethodSetting::Flusher, 105.0, 176.0, 0.72),
    ];
    assert_eq!(best(&measured), MethodSetting::Flusher);
    let dsync = |p50_us, p99_us| {
        let flusher = of(MethodSetting::Flusher, 19.0, 45.0, 0.7);
        best(&[of(MethodSetting::WorkerDsync, p50_us, p99_us, 0.9), flusher])
    };
    assert_eq!(dsync(20.0, 40.0), MethodSetting::Flusher);
    assert_eq!(dsync(10.0, 15.0), MethodSetting::WorkerDsync);
}
