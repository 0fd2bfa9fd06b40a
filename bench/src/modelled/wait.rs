//! How a thread waits for a moment: asleep, but for the last part of short waits.
//!
//! A thread that sleeps wakes up 20 to 50 us late on a virtual machine, even with the kernel's
//! timer slack at its least. That does not matter for a disk, but distorts an 11 us write. So a
//! thread spends the last 50 us of a wait below 1 ms in a way that depends on the number of threads
//! of this process that do so at the same time:
//!
//! | waiting | how | why |
//! |---|---|---|
//! | up to half of the cores | spin | exact; half of the cores remain for threads that compute |
//! | up to all, or one core | the others sleep | late by 20 to 50 us; a yield by hundreds |
//! | more | yield to each other | no thread computes; spinning would delay finished waits |
//!
//! Waits of a few microseconds stand for a store that keeps its core busy, and always spin.

use quenchdb::internals::base::clock::{Clock, Nanos};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longer waits only sleep: the delay is a few percent of them.
const LONG: Duration = Duration::from_millis(1);
/// The last part of a shorter wait: about the delay of a wake-up.
const LAST: Duration = Duration::from_micros(50);
/// Waits up to this stand for a store that occupies the core, and always spin.
const STORE: Duration = Duration::from_micros(3);

/// Number of threads of this process in the last part of a wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Number of these threads that spin.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Spin,
    Sleep,
    Yield,
}

/// One thread in the last part of a wait.
struct Waiting(Way);

impl Waiting {
    fn begin(cores: usize) -> Waiting {
        let more = |spinning| (spinning < cores / 2).then_some(spinning + 1);
        if WAITING.fetch_add(1, Ordering::Relaxed) >= cores && cores > 1 {
            Waiting(Way::Yield)
        } else if SPINNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            Waiting(Way::Spin)
        } else {
            Waiting(Way::Sleep)
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        if self.0 == Way::Spin {
            SPINNING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Sets the timer slack of this thread to its minimum. Threads that never wait keep 50 us.
fn be_exact() {
    thread_local! {
        static EXACT: Cell<bool> = const { Cell::new(false) };
    }
    if !EXACT.replace(true) {
        // After a refusal wake-ups are 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

fn spin_until(clock: &Clock, moment: Nanos) {
    while clock.now() < moment {
        std::hint::spin_loop();
    }
}

/// Waits until the real clock `clock` has reached `moment`.
pub fn wait_until(clock: &Clock, moment: Nanos) {
    let left = moment.since(clock.now());
    if left <= STORE {
        return spin_until(clock, moment);
    }
    let long = left >= LONG;
    if long || left > LAST {
        be_exact();
        std::thread::sleep(if long { left } else { left - LAST });
    }
    let waiting = Waiting::begin(cores());
    match waiting.0 {
        Way::Spin => spin_until(clock, moment),
        Way::Yield => {
            while clock.now() < moment {
                std::thread::yield_now();
            }
        }
        Way::Sleep => {
            be_exact();
            std::thread::sleep(moment.since(clock.now()));
        }
    }
}

#[cfg(test)]
mod tests;
