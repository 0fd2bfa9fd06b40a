//! Each model against the figures that `docs/guide/benchmark.md` gives for it. The tests ask for
//! completion times and do not wait.

use super::*;
use crate::modelled::figures::FIGURES;

const US: f64 = 1e3;
const MS: f64 = 1e6;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Accesses that are enough for a 99.9th percentile.
const MANY: usize = 50_000;

fn device(name: &str) -> Device {
    Device::new(Figures::named(name).expect("a model"), 7)
}

/// Returns the nanoseconds of each of `count` accesses, one after the other.
fn alone(name: &str, access: Access, bytes: u64, count: usize) -> Vec<f64> {
    let (device, mut now) = (device(name), Nanos(5));
    let mut taken: Vec<f64> = (0..count)
        .map(|_| {
            let done = device.completion(now, access, bytes);
            let taken = done.since(now).as_nanos() as f64;
            now = done;
            taken
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken
}

fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * quantile) as usize]
}

#[track_caller]
fn expect(seen: f64, figure: f64, within: f64) {
    assert!((seen / figure - 1.0).abs() <= within, "{seen} instead of {figure}");
}

#[track_caller]
fn expect_median(name: &str, access: Access, bytes: u64, figure: f64) {
    expect(quantile(&alone(name, access, bytes, 2001), 0.5), figure, 0.03);
}

/// The last of `count` accesses that arrive at once.
fn together(name: &str, access: Access, bytes: u64, count: usize) -> f64 {
    let device = device(name);
    let done = (0..count).map(|_| device.completion(Nanos(0), access, bytes).0);
    done.max().unwrap_or(0) as f64
}

/// Accesses per second of `clients` that each have one under way, for `count` accesses.
fn per_second(name: &str, access: Access, bytes: u64, clients: usize, count: usize) -> f64 {
    let device = device(name);
    let mut free = vec![Nanos(0); clients];
    for _ in 0..count {
        let next = free.iter_mut().min().expect("a client");
        *next = device.completion(*next, access, bytes);
    }
    count as f64 * 1e9 / free.iter().min().expect("a client").0 as f64
}

#[test]
fn enterprise_nvme_writes_take_11_us_to_64_kib() {
    let name = "sim:nvme-enterprise";
    for bytes in [4 * KIB, 16 * KIB, 64 * KIB] {
        expect_median(name, Access::Write, bytes, 11.0 * US);
    }
    expect_median(name, Access::Write, 512 * MIB, 87.0 * MS);
    expect_median(name, Access::Read, 4 * KIB, 92.0 * US);
}

#[test]
fn enterprise_nvme_sixteen_writers_share_only_the_bandwidth() {
    let name = "sim:nvme-enterprise";
    assert!(together(name, Access::Write, 4 * KIB, 16) < 1.1 * 11.0 * US);
    let (one, sixteen) = (
        per_second(name, Access::Write, 4 * KIB, 1, 10_000),
        per_second(name, Access::Write, 4 * KIB, 16, 10_000),
    );
    assert!(sixteen > 14.0 * one, "{one} {sixteen}");
    let bytes_per_second = per_second(name, Access::Write, MIB, 64, 10_000) * MIB as f64;
    expect(bytes_per_second, 6.17e9, 0.02);
}

#[test]
fn consumer_nvme_flushes_take_100_us_to_1_ms() {
    let name = "sim:nvme-consumer";
    expect_median(name, Access::Write, 4 * KIB, 17.0 * US);
    expect_median(name, Access::Read, 4 * KIB, 53.0 * US);
    let (device, mut now) = (device(name), Nanos(0));
    let mut flushes: Vec<f64> = (0..5000)
        .map(|_| {
            let done = device.flushed(now);
            let taken = done.since(now).as_nanos() as f64;
            now = done;
            taken
        })
        .collect();
    flushes.sort_by(f64::total_cmp);
    assert!(flushes[0] >= 99.0 * US && flushes[4999] <= 1001.0 * US);
    expect(quantile(&flushes, 0.01), 102.0 * US, 0.03);
    expect(quantile(&flushes, 0.5), 316.0 * US, 0.05);
    expect(quantile(&flushes, 0.99), 977.0 * US, 0.03);
    let durable = device.durable(now, 4 * KIB).since(now).as_nanos() as f64;
    assert!((115.0 * US..1020.0 * US).contains(&durable), "{durable}");
}

#[test]
fn flushes_that_arrive_while_one_runs_share_the_next() {
    let device = device("sim:nvme-consumer");
    let first = device.flushed(Nanos(0));
    let second = device.flushed(Nanos(10));
    assert!(second > first);
    for late in 11..50 {
        assert_eq!(device.flushed(Nanos(late)), second);
    }
    let third = device.flushed(Nanos(first.0 + 1));
    assert!(third > second, "the second runs already");
    let idle = Nanos(third.0 + 1_000_000_000);
    assert!(device.flushed(idle).since(idle).as_nanos() <= 1_001_000);
}

#[test]
fn completed_writes_of_all_others_are_durable() {
    for figures in FIGURES.iter().filter(|figures| figures.name != "sim:nvme-consumer") {
        let (flushing, writing) = (Device::new(figures, 1), Device::new(figures, 1));
        assert_eq!(flushing.flushed(Nanos(9)), Nanos(9), "{}", figures.name);
        let write = writing.completion(Nanos(9), Access::Write, 4096);
        assert_eq!(flushing.durable(Nanos(9), 4096), write, "{}", figures.name);
    }
}

#[test]
fn a_disk_makes_its_accesses_one_at_a_time_however_many_wait() {
    for (name, rate) in [("sim:disk-170iops", 170.0), ("sim:disk-10ms", 100.0)] {
        for clients in [1, 16] {
            let seen = per_second(name, Access::Write, 4 * KIB, clients, 5000);
            expect(seen, rate, 0.02);
        }
        expect_median(name, Access::Read, 4 * KIB, 1e9 / rate);
        expect_median(name, Access::Write, 15 * MIB, 1e9 / rate + 15.0 * MIB as f64 / 0.15);
    }
}

#[test]
fn volumes_keep_their_latency_requests_and_bandwidth() {
    for (name, latency, requests, bandwidth) in [
        ("sim:ebs-gp3", 1.0 * MS, 3_000.0, 125.0 * MIB as f64),
        ("sim:ebs-io2", 0.5 * MS, 64_000.0, 4000.0 * MIB as f64),
    ] {
        for access in [Access::Read, Access::Write] {
            expect_median(name, access, 16 * KIB, latency);
            expect(per_second(name, access, 4 * KIB, 64, 20_000), requests, 0.05);
            let bytes_per_second = per_second(name, access, MIB, 64, 5_000) * MIB as f64;
            expect(bytes_per_second, bandwidth, 0.03);
        }
    }
}

#[test]
fn s3_express_is_flat_to_1_mib_then_linear_and_has_a_tail() {
    let name = "sim:s3-express";
    for bytes in [4 * KIB, 512 * KIB, MIB] {
        expect_median(name, Access::Write, bytes, 8.0 * MS);
    }
    expect_median(name, Access::Write, 2 * MIB, 22.0 * MS);
    let of = |mib: u64| quantile(&alone(name, Access::Write, mib * MIB, 2001), 0.5);
    expect((of(9) - of(5)) / (of(5) - of(1)), 1.0, 0.05);
    for bytes in [4 * KIB, 256 * KIB, MIB] {
        expect_median(name, Access::Read, bytes, 5.0 * MS);
    }
    let sorted = alone(name, Access::Write, 512 * KIB, MANY);
    assert!(quantile(&sorted, 0.98) < 1.11 * 8.0 * MS);
    expect(quantile(&sorted, 0.999), 8.0 * MS * 10f64.powf(0.5), 0.15);
    expect(quantile(&sorted, 0.9999), 8.0 * MS * 10.0, 0.5);
    assert!(sorted[MANY - 1] < 1.11 * 30.0 * 8.0 * MS);
}

#[test]
fn object_stores_of_a_region_take_77_ms() {
    for bytes in [4 * KIB, 2 * MIB] {
        expect_median("sim:s3-standard", Access::Write, bytes, 77.0 * MS);
    }
    expect_median("sim:s3-standard", Access::Write, 10 * MIB, 77.0 * MS + 8.0 * MIB as f64 / 0.085);
    expect_median("sim:s3-standard", Access::Read, 4 * KIB, 100.0 * MS);
    assert!(together("sim:s3-standard", Access::Write, 64 * KIB, 100) < 77.0 * MS * 1.2 * 30.0);
}

#[test]
fn memory_write_takes_the_given_time_for_any_length() {
    for (name, write) in [("sim:memory-0us", 0.0), ("sim:memory-1.2us", 1.2 * US)] {
        for bytes in [8, 4 * KIB, MIB] {
            assert_eq!(together(name, Access::Write, bytes, 16), write);
            assert_eq!(together(name, Access::Read, bytes, 16), 0.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_times_and_another_one_others() {
    for figures in FIGURES.iter().filter(|figures| figures.jitter > 0.0) {
        let times = |seed| {
            let device = Device::new(figures, seed);
            [4096, 8192, 4096].map(|bytes| device.durable(Nanos(0), bytes))
        };
        assert_eq!(times(3), times(3), "{}", figures.name);
        assert_ne!(times(3), times(4), "{}", figures.name);
    }
}

#[test]
fn names_are_distinct_and_say_that_the_device_is_not_real() {
    let mut names: Vec<&str> = FIGURES.iter().map(|figures| figures.name).collect();
    assert!(names.iter().all(|name| name.starts_with("sim:")));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FIGURES.len());
    assert!(Figures::named("sim:").is_none() && Figures::named("nvme-enterprise").is_none());
}
