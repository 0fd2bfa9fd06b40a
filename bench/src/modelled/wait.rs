//! How a thread waits for a moment: asleep, but for the last part of short waits.
//!
//! A thread that sleeps wakes up 20 to 50 us late on a virtual machine, even with the kernel's timer slack at its least. That is
//! nothing for a disk and everything for an 11 us write. So the last 50 us of a wait below a millisecond are waited for
//! awake. Spinning takes a core from somebody, and where cores are few from the very threads that are measured: at most half
//! of the cores spin at a time, on a single core none does; other threads sleep, and are late. Waits of a few microseconds
//! stand for a store that keeps its core busy, and always spin.

use quenchdb::base::clock::{Clock, Nanos};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longer waits do not spin at all: lateness is a few percent of them.
const SPIN_IN_WAITS_BELOW: Duration = Duration::from_millis(1);
/// The part that is waited for awake: a sleeping thread wakes up about so much late.
const SPIN: Duration = Duration::from_micros(50);
/// A core does nothing else meanwhile, on the modelled machine too.
const STORE: Duration = Duration::from_micros(3);

/// Threads of this process that spin.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// How many may.
fn spinners_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from) / 2)
}

/// The right to spin.
struct Permit;

impl Permit {
    fn take(max: usize) -> Option<Permit> {
        let more = |spinning| (spinning < max).then_some(spinning + 1);
        SPINNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The kernel may wake this thread as exactly as it can, from now on. Threads that never waited keep their slack of 50 us.
fn be_exact() {
    thread_local! {
        static EXACT: Cell<bool> = const { Cell::new(false) };
    }
    if !EXACT.replace(true) {
        // Refused, it stays late by 50 us more.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

fn spin_until(clock: &Clock, moment: Nanos) {
    while clock.now() < moment {
        std::hint::spin_loop();
    }
}

/// Returns when `clock`, a real one, has reached `moment`; never before.
pub fn wait_until(clock: &Clock, moment: Nanos) {
    let left = moment.since(clock.now());
    if left <= STORE {
        return spin_until(clock, moment);
    }
    let spins = left < SPIN_IN_WAITS_BELOW;
    if left > SPIN || !spins {
        be_exact();
        std::thread::sleep(if spins { left - SPIN } else { left });
    }
    match Permit::take(spinners_max()) {
        Some(_permit) => spin_until(clock, moment),
        None => {
            be_exact();
            std::thread::sleep(moment.since(clock.now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_spin_than_may() {
        let first = Permit::take(usize::MAX).expect("any number may");
        assert!(Permit::take(1).is_none() && Permit::take(0).is_none());
        drop(first);
    }

    #[test]
    fn a_wait_never_ends_early() {
        let clock = Clock::real();
        for us in [0, 1, 5, 40, 120, 1500] {
            let moment = Nanos(clock.now().0 + us * 1000);
            wait_until(&clock, moment);
            assert!(clock.now() >= moment, "{us}");
        }
    }
}
