//! Unit tests of events.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn every_sleeper_wakes() {
    let shared = Arc::new((Event::new(), AtomicBool::new(false)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                loop {
                    let ticket = shared.0.ticket();
                    if shared.1.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.0.wait(ticket, None);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    shared.1.store(true, Ordering::SeqCst);
    shared.0.notify_all();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(!shared.0.notify_all(), "nobody sleeps any more");
}

#[test]
fn wait_returns_after_its_timeout() {
    let event = Event::new();
    let start = std::time::Instant::now();
    event.wait(event.ticket(), Some(Duration::from_millis(5)));
    assert!(start.elapsed() >= Duration::from_millis(4));
}
