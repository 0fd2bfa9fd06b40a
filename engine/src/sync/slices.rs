//! Short time slices for a thread that others wait for.

use std::time::Duration;

/// Time slice of such a thread; the default is about 3 ms.
const SHORT: Duration = Duration::from_micros(100);

/// Asks the system to run the calling thread soon whenever it wakes, in slices of 100 us.
///
/// The scheduler of Linux (earliest eligible virtual deadline first) lets a thread that wakes with
/// a shorter slice run before one that computes, and gives both the same share of the processor.
/// Otherwise a flusher that shares a processor with a busy worker may wait for the end of the
/// worker's slice, with all commits of the log.
///
/// Needs no privilege. A system before Linux 6.12 ignores the slice, and one that refuses the call
/// leaves the thread as it was.
pub fn ask_for_short_slices() {
    #[cfg(feature = "simulation")]
    if super::simulation::is_simulated() {
        return;
    }
    #[cfg(all(target_os = "linux", not(any(miri, loom, feature = "shuttle"))))]
    {
        let Some(mut attributes) = attributes() else { return };
        // Those of a thread with deadlines mean something else.
        if attributes.sched_policy == libc::SCHED_OTHER as u32 {
            attributes.sched_runtime = SHORT.as_nanos() as u64;
            // SAFETY: the structure is valid for the call, which only reads it.
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) };
        }
    }
}

/// Returns the scheduling of the calling thread: its priority has to stay as it is.
#[cfg(all(target_os = "linux", not(any(miri, loom, feature = "shuttle"))))]
fn attributes() -> Option<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: numbers may be zero.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the call, which writes at most `size` bytes to it.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0_u32) };
    (result == 0).then_some(attributes)
}

#[cfg(all(test, not(any(miri, loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    /// A system that knows slices reports the one that was asked for; others report none.
    #[test]
    fn a_thread_gets_the_slices_that_it_asks_for() {
        let own = std::thread::spawn(|| {
            let before = attributes().expect("the scheduling of a thread");
            ask_for_short_slices();
            (before, attributes().expect("the scheduling of a thread"))
        });
        let (before, after) = own.join().expect("no panic");
        assert_eq!(after.sched_nice, before.sched_nice);
        assert_eq!(after.sched_policy, before.sched_policy);
        let is_known = before.sched_runtime > 0;
        assert_eq!(after.sched_runtime, if is_known { SHORT.as_nanos() as u64 } else { 0 });
    }
}
