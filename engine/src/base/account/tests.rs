//! Unit tests of `account`.

use super::*;

#[test]
fn an_account_is_the_sum_of_its_charges() {
    let account = Arc::new(Account::default());
    let (one, other) = (account.charge(100), account.charge(10));
    assert_eq!(account.bytes(), 110);
    one.set(30);
    other.raise(50);
    other.raise(20);
    assert_eq!((account.bytes(), one.bytes(), other.bytes()), (80, 30, 50));
    drop(one);
    assert_eq!(account.bytes(), 50);
    other.add(7);
    assert_eq!((account.bytes(), other.bytes()), (57, 57));
    drop(other);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn pooled_charge_is_the_peak_since_the_last_trim() {
    let account = Arc::new(Account::default());
    let pooled = PooledCharge::new(&account);
    pooled.note_use(5 * STEP - 1);
    pooled.note_use(10);
    assert_eq!(account.bytes(), 5 * STEP);
    pooled.restart_peak();
    pooled.note_use(10);
    assert_eq!(account.bytes(), 5 * STEP, "the allocator has returned nothing yet");
    pooled.note_use(2 * STEP);
    assert_eq!(pooled.lower_to_peak(STEP), STEP);
    assert_eq!(account.bytes(), 4 * STEP, "the allocator has returned no more");
    assert_eq!(pooled.lower_to_peak(u64::MAX), 2 * STEP);
    assert_eq!(account.bytes(), 2 * STEP, "the peak since then");
}
