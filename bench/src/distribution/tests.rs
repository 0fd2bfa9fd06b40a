//! Tests of `distribution`.

use super::*;
use std::collections::HashSet;

#[test]
fn frequencies_follow_zipfs_law() {
    // theta = 0.99 over 1000 rows. The method is exact for the first two ranks and approximates the
    // tail by an integral, so cumulative shares are compared, with a tolerance for that.
    let (rows, theta, draws) = (1000u64, 0.99, 1_000_000u64);
    let zipfian = Zipfian::new(rows, theta);
    let mut random = Random::from_seed(1);
    let mut counts = vec![0u64; rows as usize];
    for _ in 0..draws {
        counts[zipfian.rank(&mut random) as usize] += 1;
    }
    let whole: f64 = (1..=rows).map(|i| (i as f64).powf(-theta)).sum();
    for (rank, tolerance) in [(1usize, 0.003), (2, 0.003), (10, 0.03), (100, 0.03), (500, 0.03), (1000, 1e-9)]
    {
        let expected = (1..=rank).map(|i| (i as f64).powf(-theta)).sum::<f64>() / whole;
        let seen = counts[..rank].iter().sum::<u64>() as f64 / draws as f64;
        assert!((expected - seen).abs() <= tolerance, "first {rank}: expected {expected}, seen {seen}");
    }
}

#[test]
fn rows_stay_within_bounds_for_every_theta_and_size() {
    let mut random = Random::from_seed(2);
    for rows in [1u64, 2, 3, 10, 1_000_000] {
        for theta in [0.0, 0.5, 0.99, 1.2] {
            let choice = Choice::new(rows, theta);
            assert!((0..1000).all(|_| choice.row(&mut random) < rows), "rows {rows} theta {theta}");
        }
    }
}

#[test]
fn hot_rows_are_scattered_but_stay_hot() {
    let choice = Choice::new(1_000_000, 1.1);
    let mut random = Random::from_seed(3);
    let mut counts = std::collections::HashMap::new();
    for _ in 0..100_000 {
        *counts.entry(choice.row(&mut random)).or_insert(0u32) += 1;
    }
    let mut hot: Vec<_> = counts.into_iter().collect();
    hot.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    assert!(hot[0].1 > 5_000, "{:?}", hot[0]);
    assert!(hot[0].0.abs_diff(hot[1].0) > 1000, "{:?}", &hot[..2]);
}

#[test]
fn scrambling_gives_every_counter_its_own_key() {
    let keys: HashSet<u64> = (0..100_000).map(scrambled).collect();
    assert_eq!(keys.len(), 100_000);
}
