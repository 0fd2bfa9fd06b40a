//! Tests of `input`.

use super::*;
use crate::tpcc::random::{chi_square, chi_square_bound};

fn inputs(warehouses: u16) -> Inputs {
    let constants = Constants::of_population(1).of_run(2);
    Inputs { random: Random::from_seed(3), constants, warehouses, scale: Scale::SPECIFICATION }
}

/// True if `seen` of `draws` is what `probability` gives, within 4.5 standard deviations.
fn about(seen: u32, draws: u32, probability: f64) -> bool {
    let expected = f64::from(draws) * probability;
    (f64::from(seen) - expected).abs() <= 4.5 * (expected * (1.0 - probability)).sqrt()
}

#[test]
fn orders_have_lines_rollbacks_and_remote_lines_as_specified() {
    let (mut inputs, draws) = (inputs(5), 200_000);
    let (mut rolled_back, mut lines, mut remote) = (0, 0, 0);
    let (mut counts, mut quantities) = ([0u64; 11], [0u64; 10]);
    for _ in 0..draws {
        let order = inputs.new_order(3);
        counts[order.count - 5] += 1;
        let entered = &order.lines[..order.count];
        rolled_back += u32::from(entered[order.count - 1].i == 100_001);
        for line in entered {
            lines += 1;
            remote += u32::from(line.supply_w != 3);
            quantities[usize::from(line.quantity) - 1] += 1;
            assert!((1..=5).contains(&line.supply_w) && (1..=100_001).contains(&line.i));
        }
        assert!(order.district.w == 3 && (1..=10).contains(&order.district.d));
        assert!((1..=3000).contains(&order.c));
    }
    assert!(about(rolled_back, draws, 0.01), "{rolled_back}");
    assert!(about(remote, lines, 0.01), "{remote} of {lines}");
    let even = [f64::from(draws) / 11.0; 11];
    assert!(chi_square(&counts, &even) < chi_square_bound(10), "{counts:?}");
    let even = [f64::from(lines) / 10.0; 10];
    assert!(chi_square(&quantities, &even) < chi_square_bound(9), "{quantities:?}");
}

#[test]
fn payments_have_customers_and_amounts_as_specified() {
    let (mut inputs, draws) = (inputs(5), 200_000);
    let (mut remote, mut by_name, mut amounts) = (0, 0, [0u64; 10]);
    let mut districts = [0u64; 10];
    for _ in 0..draws {
        let payment = inputs.payment(2);
        let away = payment.customer_district.w != 2;
        remote += u32::from(away);
        assert!(away || payment.customer_district == payment.district);
        by_name += u32::from(matches!(payment.customer, Customer::Name(_)));
        assert!((100..=500_000).contains(&payment.amount));
        amounts[(payment.amount as usize - 100) * 10 / 499_901] += 1;
        districts[usize::from(payment.district.d) - 1] += 1;
    }
    assert!(about(remote, draws, 0.15) && about(by_name, draws, 0.6), "{remote} {by_name}");
    let even = [f64::from(draws) / 10.0; 10];
    assert!(chi_square(&amounts, &even) < chi_square_bound(9), "{amounts:?}");
    assert!(chi_square(&districts, &even) < chi_square_bound(9), "{districts:?}");
}

#[test]
fn one_warehouse_has_no_others() {
    let mut inputs = inputs(1);
    for _ in 0..1000 {
        assert_eq!(inputs.payment(1).customer_district.w, 1);
        let order = inputs.new_order(1);
        assert!(order.lines[..order.count].iter().all(|line| line.supply_w == 1));
    }
}

#[test]
fn other_warehouses_are_all_alike() {
    let (mut inputs, mut seen) = (inputs(5), [0u64; 6]);
    for _ in 0..100_000 {
        seen[usize::from(inputs.other_warehouse(4))] += 1;
    }
    assert_eq!((seen[0], seen[4]), (0, 0));
    let others = [seen[1], seen[2], seen[3], seen[5]];
    assert!(chi_square(&others, &[25_000.0; 4]) < chi_square_bound(3), "{seen:?}");
}
