//! Tests of `tpcb`.

use super::*;
use crate::tpcc::random::{chi_square, chi_square_bound};

#[test]
fn rows_are_as_long_as_the_specification_wants() {
    assert_eq!((holder::BYTES, history::BYTES), (100, 50));
}

#[test]
fn branches_are_self_similar_and_accounts_mostly_at_home() {
    let (draws, branches) = (400_000u32, 1000);
    for h in [0.5, 0.4, 0.2] {
        let tpcb = Tpcb { branches, accounts: 100, skew: h, branch_update: BranchUpdate::Last, seed: 1 };
        let (mut random, mut seen) = (Random::from_seed(5), vec![0u64; branches as usize]);
        let mut elsewhere = 0;
        for _ in 0..draws {
            let input = tpcb.input(&mut random);
            seen[input.branch as usize] += 1;
            elsewhere += u32::from(input.account_branch != input.branch);
            assert!(input.account_branch < branches && input.account < 100 && input.teller < TELLERS);
            assert!(input.delta.unsigned_abs() <= DELTA_MAX);
        }
        // P(value < x) is (x / MAX) ^ (ln(1 - h) / ln h): for each tenth of the branches.
        let below = |x: f64| x.powf((1.0 - h).ln() / h.ln());
        let expected: Vec<f64> = (0..10)
            .map(|tenth| {
                let from = f64::from(tenth) / 10.0;
                (below(from + 0.1) - below(from)) * f64::from(draws)
            })
            .collect();
        let tenths: Vec<u64> = seen.chunks(100).map(|tenth| tenth.iter().sum()).collect();
        let chi = chi_square(&tenths, &expected);
        assert!(chi < chi_square_bound(9), "h {h}: {chi} {tenths:?} {expected:?}");
        let share: u64 = seen[..(f64::from(branches) * h) as usize].iter().sum();
        assert!((share as f64 / f64::from(draws) - (1.0 - h)).abs() < 0.01, "h {h}: {share}");
        assert!((0.145..0.155).contains(&(f64::from(elsewhere) / f64::from(draws))), "{elsewhere}");
    }
}
