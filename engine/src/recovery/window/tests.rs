//! Windows of the log.

use super::*;
use crate::base::Epoch;
use crate::log::test_world::World;
use crate::recovery::select::Decided;

/// CSNs of each window of six blocks with two records each, and what is kept before and after it.
fn windows(keep_bytes: u64, limits: WindowLimits) -> (Vec<Vec<u64>>, Vec<u64>, u64) {
    let mut world = World::new();
    for block in 0..6 {
        for _ in 0..2 {
            world.append(block % 2, 100);
        }
        world.seal(block % 2);
    }
    let decided = Decided {
        checkpoint: Csn::ZERO,
        covered: Csn::ZERO,
        epoch: Epoch(1),
        first_csn: Csn(1),
        next_csn: Csn(1),
        epochs: &[],
    };
    let chains = world.scan_keeping(keep_bytes).chains;
    let bounds = Bounds::new(decided, chains.iter().map(found).collect());
    let mut windows = Windows::new(chains, &bounds, limits);
    assert_eq!(windows.record_count(), 12);
    let (mut all, mut kept) = (Vec::new(), vec![windows.kept_bytes()]);
    while let Some(window) = windows.next().expect("readable") {
        let mut csns: Vec<u64> = window.records.iter().map(|record| record.csn.0).collect();
        csns.sort_unstable();
        all.push(csns);
        kept.push(windows.kept_bytes());
    }
    (all, kept, windows.bytes_read_again())
}

#[test]
fn a_window_keeps_its_limits_and_releases_kept_segments() {
    let pairs: Vec<Vec<u64>> = (0..6).map(|block| vec![2 * block + 1, 2 * block + 2]).collect();
    let fours: Vec<Vec<u64>> = pairs.chunks(2).map(<[_]>::concat).collect();
    let blocks = |counts: &[u64]| -> Vec<u64> { counts.iter().map(|blocks| blocks * 4096).collect() };
    let limits = |bytes, records| WindowLimits { bytes, records, threads: 1 };
    // Kept by the scan: only the number of records counts.
    let kept = windows(1 << 20, limits(0, 4));
    assert_eq!(kept, (fours.clone(), blocks(&[6, 4, 2, 0]), 0));
    // At least one block, whatever the limits.
    assert_eq!(windows(1 << 20, limits(0, 1)), (pairs.clone(), blocks(&[6, 5, 4, 3, 2, 1, 0]), 0));
    // Read again: bytes count, too.
    assert_eq!(windows(0, limits(2 * 4096, 12)), (fours, blocks(&[0; 4]), 6 * 4096));
    assert_eq!(windows(0, limits(2 * 4096 - 1, 12)), (pairs, blocks(&[0; 7]), 6 * 4096));
}
