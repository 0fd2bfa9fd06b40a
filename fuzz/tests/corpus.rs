//! Every committed input, and mutations of them for some seconds: what cargo-fuzz does with the
//! nightly toolchain and a guide, without both.
//!
//! As many targets at a time as there are processors. `QUENCH_FUZZ_SECONDS=N` for another time than
//! 10 seconds for each target, `QUENCH_FUZZ_SEED=N` for other mutations, `QUENCH_FUZZ_TARGET=NAME`
//! for one target.

use quench_fuzz::allocation::{Noting, run_bounded};
use quench_fuzz::{TARGETS, Target, target};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Noting = Noting;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("readable"))).collect()
}

/// Runs it, and says which input it was if it panics.
fn run(target: Target, data: &[u8], what: &str) {
    let outcome = std::panic::catch_unwind(|| run_bounded(target, data));
    if let Err(panic) = outcome {
        let path = std::env::temp_dir().join(format!("quench-fuzz-{}-{}", target.name, std::process::id()));
        std::fs::write(&path, data).expect("writable");
        println!("{}: {what}: the input is in {}", target.name, path.display());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn committed_inputs_do_no_harm() {
    for target in TARGETS {
        let inputs = corpus(&target);
        assert!(!inputs.is_empty(), "{} has no inputs", target.name);
        for (path, data) in &inputs {
            run(target, data, &path.display().to_string());
        }
        run(target, &[], "nothing");
    }
}

/// Changes a few bytes, cuts, repeats, or takes a part of another input.
fn mutate(data: &mut Vec<u8>, others: &[(PathBuf, Vec<u8>)], random: &mut Random) {
    const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() as u64 + 1) as usize;
        let len = (1 + random.below(16) as usize).min(data.len() - at);
        match random.below(8) {
            0 | 1 if at < data.len() => data[at] ^= 1 << random.below(8),
            2 if at < data.len() => data[at] = random.next_u64() as u8,
            3 => {
                let number = NUMBERS[random.below(8) as usize].to_le_bytes();
                let width = (1 << random.below(4)).min(data.len() - at);
                data[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => drop(data.drain(at..at + len)),
            5 => {
                let piece = data[at..at + len].to_vec();
                data.splice(at..at, piece);
            }
            6 => {
                let (_, other) = &others[random.below(others.len() as u64) as usize];
                let from = random.below(other.len() as u64 + 1) as usize;
                let piece = &other[from..(from + 64).min(other.len())];
                let end = (at + piece.len()).min(data.len());
                data.splice(at..end, piece.iter().copied());
            }
            7 if random.chance(1, 4) => data.truncate(at),
            _ => {}
        }
    }
}

/// For each target at the whole depth; otherwise it has [`runs_least`] inputs.
fn seconds() -> f64 {
    std::env::var("QUENCH_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(if is_deep() {
        10.0
    } else {
        0.0
    })
}

/// Returns how many mutated inputs a target gets at least, however long a busy machine takes.
fn runs_least(target: &Target) -> u64 {
    match target.name {
        _ if is_deep() => 21,
        "api" => 100,
        _ => 3000,
    }
}

fn run_mutated(target: Target, seed: u64) {
    let inputs = corpus(&target);
    let mut random = Random::from_seed(seed);
    let (begun, mut runs) = (Instant::now(), 0);
    while runs < runs_least(&target) || begun.elapsed() < Duration::from_secs_f64(seconds()) {
        let mut data = inputs[random.below(inputs.len() as u64) as usize].1.clone();
        mutate(&mut data, &inputs, &mut random);
        run(target, &data, &format!("seed {seed}, run {runs}"));
        runs += 1;
    }
    println!("{}: {runs} mutated inputs", target.name);
}

/// What a target allocates is noted for each thread, so targets may run side by side.
#[test]
fn mutated_inputs_do_no_harm() {
    let seed: u64 = std::env::var("QUENCH_FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let only = std::env::var("QUENCH_FUZZ_TARGET").ok();
    let is_wanted = |target: &Target| only.as_deref().is_none_or(|only| only == target.name);
    let targets: Vec<Target> = TARGETS.into_iter().filter(is_wanted).collect();
    assert!(!targets.is_empty(), "there is no such target");
    let (next, processors) =
        (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, |n| n.get()));
    std::thread::scope(|scope| {
        for _ in 0..processors.min(targets.len()) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_mutated(*target, seed);
                }
            });
        }
    });
}

#[test]
fn allocations_are_noticed() {
    let bytes = quench_fuzz::allocation::largest(|| drop(std::hint::black_box(vec![1u8; 300_000])));
    assert!((300_000..400_000).contains(&bytes), "{bytes}");
    assert_eq!(target("load").name, "load");
}
