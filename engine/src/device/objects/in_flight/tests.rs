//! The count, and waits for its end.

use super::InFlight;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn the_last_end_makes_the_count_idle() {
    let writes = InFlight::default();
    assert!(writes.is_idle());
    writes.begin(2);
    writes.begin(1);
    assert!(!writes.end());
    assert!(!writes.end());
    assert!(!writes.is_idle());
    assert!(writes.end());
    assert!(writes.is_idle());
    assert!(writes.wait(None));
    assert!(writes.wait(Some(Duration::ZERO)));
}

#[test]
fn a_wait_ends_after_the_last_end() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 200;
    let (writes, ended) = (Arc::new(InFlight::default()), Arc::new(AtomicUsize::new(0)));
    for round in 1..=ROUNDS {
        writes.begin(WRITERS);
        let writers = [(); WRITERS].map(|()| {
            let (writes, ended) = (writes.clone(), ended.clone());
            thread::spawn(move || {
                ended.fetch_add(1, Ordering::Relaxed);
                writes.end();
            })
        });
        if round % 2 == 0 {
            assert!(writes.wait(None));
        } else {
            assert!(writes.wait(Some(Duration::from_secs(60))));
        }
        assert_eq!(ended.load(Ordering::Relaxed), round * WRITERS);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer does not panic"));
    }
}

#[test]
fn a_limited_wait_ends_while_a_write_is_in_flight() {
    let writes = InFlight::default();
    writes.begin(1);
    let begun = Instant::now();
    assert!(!writes.wait(Some(Duration::from_millis(20))));
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "what ends has begun")]
fn an_end_without_a_beginning_is_a_bug() {
    InFlight::default().end();
}
