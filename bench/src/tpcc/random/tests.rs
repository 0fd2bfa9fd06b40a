//! Tests of `random`.

use super::*;

/// The exact distribution of NURand, by counting all pairs.
fn exact(a: u64, c: u64, low: u64, high: u64) -> Vec<f64> {
    let range = high - low + 1;
    let mut weights = vec![0u64; range as usize];
    for x in 0..=a {
        for y in low..=high {
            weights[(((x | y) + c) % range) as usize] += 1;
        }
    }
    let all = ((a + 1) * range) as f64;
    weights.into_iter().map(|weight| weight as f64 / all).collect()
}

#[test]
fn nurand_is_distributed_as_its_formula_says() {
    for (a, c, low, high) in [(255, 71, 0, 999), (1023, 5, 1, 3000)] {
        let (draws, mut random) = (2_000_000u64, Random::from_seed(11));
        let mut seen = vec![0u64; (high - low + 1) as usize];
        for _ in 0..draws {
            seen[(nurand(&mut random, a, c, low, high) - low) as usize] += 1;
        }
        let expected: Vec<f64> = exact(a, c, low, high).iter().map(|p| p * draws as f64).collect();
        // Values that cannot occur must not; the others are compared.
        let (mut some_seen, mut some_expected) = (Vec::new(), Vec::new());
        for (seen, expected) in seen.into_iter().zip(expected) {
            if expected < 1e-9 {
                assert_eq!(seen, 0);
            } else {
                some_seen.push(seen);
                some_expected.push(expected);
            }
        }
        let chi = chi_square(&some_seen, &some_expected);
        assert!(chi < chi_square_bound(some_seen.len() - 1), "A {a}: {chi}, {}", some_seen.len());
    }
}

#[test]
fn items_are_within_bounds_and_far_from_uniform() {
    let (mut random, mut seen) = (Random::from_seed(1), vec![0u32; 100_001]);
    for _ in 0..1_000_000 {
        seen[nurand(&mut random, 8191, 4000, 1, 100_000) as usize] += 1;
    }
    assert_eq!(seen[0], 0);
    seen.sort_unstable();
    let hottest: u32 = seen.iter().rev().take(1000).sum();
    assert!(hottest > 150_000, "the hottest hundredth gets {hottest} of a million");
}

#[test]
fn run_constant_keeps_its_distance_from_the_population() {
    for seed in 0..2000 {
        let population = Constants::of_population(seed);
        let run = population.of_run(seed + 1);
        let delta = run.last_name.abs_diff(population.last_name);
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{seed}: {delta}");
        assert!(run.last_name < 256 && run.customer < 1024 && run.item < 8192);
        assert_eq!(run, population.of_run(seed + 1));
    }
}

#[test]
fn names_are_made_of_the_three_digits() {
    assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT");
    assert_eq!(last_name(40).as_bytes(), b"BARPRESBAR");
    assert!((0..1000).all(|number| last_name(number).as_bytes().len() <= 16));
}

#[test]
fn texts_have_their_lengths_and_a_tenth_is_original() {
    let mut random = Random::from_seed(4);
    let mut lengths = [0u64; 25];
    let mut original = 0;
    for _ in 0..50_000 {
        let text = data(&mut random);
        lengths[text.as_bytes().len() - 26] += 1;
        original += u32::from(is_original(text.as_bytes()));
    }
    assert!((4700..5300).contains(&original), "{original}");
    assert!(chi_square(&lengths, &[2000.0; 25]) < chi_square_bound(24), "{lengths:?}");
    assert_eq!(digits::<16>(&mut random, 16).as_bytes().len(), 16);
    assert!(address(&mut random).ends_with(b"11111"));
}

#[test]
fn a_permutation_has_every_number_once() {
    let mut numbers = permutation(&mut Random::from_seed(5), 3000);
    assert_ne!(numbers[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=3000).collect::<Vec<u16>>());
}
