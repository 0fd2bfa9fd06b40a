//! Tests of `contention`.

use super::*;

#[test]
fn failures_without_another_reason_are_conflicts() {
    let locks = LockFigures {
        failed: 20,
        deadlocks: 3,
        timeouts: 4,
        changed_keys: 5,
        changed_ranges: 6,
        waits: 7,
        wait_seconds: 1.0,
        ..LockFigures::default()
    };
    let contention = Contention::of(None, Some(locks), 0.5, 8.0);
    let aborts = contention.aborts.expect("counted");
    assert_eq!((aborts.conflict, aborts.deadlock, aborts.timeout), (2, 3, 4));
    assert_eq!((aborts.validation_key, aborts.validation_range), (5, 6));
    let waits = contention.locks.expect("counted");
    assert_eq!((waits.count, waits.percent_of_time, contention.retry_percent_of_time), (7, 12.5, 6.25));
    let text = contention.to_string();
    assert!(
        text.contains("2 conflicts, 3 deadlocks, 4 timeouts, 5 changed keys, 6 changed ranges"),
        "{text}"
    );
    assert_eq!(Contention::of(None, None, 0.0, 8.0).to_string(), "", "nothing happened");
}
