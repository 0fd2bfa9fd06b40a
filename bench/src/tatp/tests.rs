//! Tests of `tatp`.

use super::*;
use crate::store::QuenchTransaction;
use crate::tpcc::random::{chi_square, chi_square_bound};

fn tatp(subscribers: u32) -> Tatp {
    Tatp { subscribers, uniform: false, only: None, population_seed: 1, seed: 2 }
}

#[test]
fn subscribers_are_chosen_as_the_formula_says() {
    let (tatp, draws) = (tatp(1000), 500_000u64);
    let (mut random, mut seen) = (Random::from_seed(3), vec![0u64; 1000]);
    for _ in 0..draws {
        seen[tatp.choose(&mut random) as usize - 1] += 1;
    }
    // The exact distribution, by counting all pairs.
    let mut weights = vec![0u64; 1000];
    for x in 0..=65_535u64 {
        for y in 1..=1000u64 {
            weights[((x | y) % 1000) as usize] += 1;
        }
    }
    let all = 65_536_000.0;
    let expected: Vec<f64> = weights.iter().map(|weight| *weight as f64 / all * draws as f64).collect();
    let chi = chi_square(&seen, &expected);
    assert!(chi < chi_square_bound(999), "{chi}");
}

#[test]
fn the_mix_has_its_percentages() {
    let database = quenchdb::Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let mut worker = tatp(1000).worker(&database, Seat::default()).expect("tables");
    let mut seen = [0u64; 7];
    for _ in 0..200_000 {
        let intent = worker.prepare();
        seen[intent.kind] += 1;
        assert_eq!(intent.reads_only, intent.kind < 3);
    }
    let expected: Vec<f64> = WEIGHTS.iter().map(|weight| *weight as f64 * 2000.0).collect();
    assert!(chi_square(&seen, &expected) < chi_square_bound(6), "{seen:?}");
}

#[test]
fn every_thread_of_every_run_does_something_else() {
    let database = quenchdb::Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let mut drawn = std::collections::HashSet::new();
    for seat in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(run, index)| Seat { run, index }) {
        let mut worker = tatp(1_000_000).worker(&database, seat).expect("tables");
        let subscribers: Vec<u32> = (0..4)
            .map(|_| {
                worker.prepare();
                worker.s
            })
            .collect();
        assert!(drawn.insert(subscribers), "{seat:?}");
    }
}

#[test]
fn subscriber_has_one_to_four_rows_equally_often() {
    let (mut random, mut seen) = (Random::from_seed(6), [0u64; 4]);
    for _ in 0..40_000 {
        let (mut types, count) = kinds(&mut random);
        seen[count - 1] += 1;
        types.sort_unstable();
        assert_eq!(types, [1, 2, 3, 4]);
    }
    assert!(chi_square(&seen, &[10_000.0; 4]) < chi_square_bound(3), "{seen:?}");
}

/// Share of Get-New-Destination that finds a number in a fresh population, by the rules of the
/// description:
///
/// - the facility exists: 1 to 4 of 4 types, so 5/8; it is active: 85/100;
/// - of its hours 0, 8, 16 it has 0 to 3, each number as often and each choice of them; one that
///   begins at h ends at h + 1 to h + 8;
/// - a forwarding that begins at the drawn hour (0, 8, 16) or before ends after another drawn hour,
///   1 to 24.
///
/// Of the forwardings that have begun the latest ends last, so it alone decides. With e(h) = (h +
/// 3.5) / 24 for the share of drawn hours before its end, and 1/2, 1/6, 1/12 for the latest one
/// being 0, 1, 2 places before the drawn hour:
///
/// ```text
///   drawn  0:                        e(0)/2
///   drawn  8:           e(8)/2  +  e(0)/6
///   drawn 16: e(16)/2 + e(8)/6  +  e(0)/12     mean of the three: 481/1728
/// ```
///
/// 5/8 * 17/20 * 481/1728 = 8177/55296 = 0.1479. The figure of 23.9 % that is often quoted does not
/// follow from these rules. Here all cases are counted.
fn share_with_a_new_destination() -> f64 {
    let (mut found, mut all) = (0u64, 0u64);
    // All choices of hours, as often as each must occur to make their numbers equally frequent: 1,
    // 3, 3, 1 choices.
    for hours in 0..8u32 {
        let weight = if hours == 0 || hours == 7 { 3 } else { 1 };
        for lengths in 0..512u64 {
            let ends: Vec<(u64, u64)> = (0..3)
                .filter(|place| hours & 1 << place != 0)
                .map(|place| (8 * place, 8 * place + 1 + (lengths >> (3 * place)) % 8))
                .collect();
            for (start, end) in [0, 8, 16].into_iter().flat_map(|start| (1..=24).map(move |end| (start, end)))
            {
                all += weight;
                found += weight
                    * u64::from(ends.iter().any(|forwarding| forwarding.0 <= start && end < forwarding.1));
            }
        }
    }
    0.625 * 0.85 * found as f64 / all as f64
}

#[test]
fn the_expected_share_of_transactions_finds_what_it_needs() {
    let database = quenchdb::Database::builder().memory_bytes(128 << 20).open_in_memory().expect("memory");
    let tatp = Tatp { uniform: true, ..tatp(2000) };
    tatp.populate(&database, 1, &|_, _, _| {}).expect("populated");
    let tables = Tables::open(|name| Store::table(&database, name)).expect("tables");
    let (mut client, mut random) = (Client::default(), Random::from_seed(9));
    let destinations = share_with_a_new_destination();
    assert!((destinations - 8177.0 / 55296.0).abs() < 1e-12, "{destinations}");
    // Each in a transaction that is taken back, so that the population stays as it is.
    for (kind, share) in [(1, destinations), (2, 0.625), (3, 0.625), (5, 0.3125), (6, 0.3125)] {
        let (draws, mut found) = (8000, 0);
        for _ in 0..draws {
            let s = tatp.choose(&mut random);
            let input = Input::draw(kind, tatp.subscribers, &mut random);
            let mut transaction = QuenchTransaction::from(database.begin().expect("begun"));
            let done = if input.reads_only() {
                client.read(&mut transaction, &tables, s, input).expect("read")
            } else {
                client.run(&mut transaction, &tables, s, input).expect("run") != Ending::RollBack
            };
            found += u32::from(done);
            transaction.abort();
        }
        let seen = f64::from(found) / f64::from(draws);
        assert!((seen - share).abs() < 0.025, "{}: {seen}, not {share}", KINDS[kind]);
    }
}

#[test]
fn check_finds_foreign_rows() {
    let database = quenchdb::Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let tatp = tatp(100);
    tatp.populate(&database, 2, &|_, _, _| {}).expect("populated");
    let problems =
        || tatp.check(&database, 1, &Acknowledged::new(), &|_, _, _| {}).expect("checked").problems.len();
    assert_eq!(problems(), 0);
    let tables = Tables::open(|name| Store::table(&database, name)).expect("tables");
    let change = |transaction: &mut quenchdb::Transaction| {
        transaction.remove(&tables.subscriber, subscriber_key(5))?;
        transaction.remove(&tables.number, number_of(6))?;
        transaction.insert(&tables.call_forwarding, forwarding_key(7, 5, 0), [9; 16])
    };
    database.transact(change).expect("changed");
    assert_eq!(problems(), 3);
}
