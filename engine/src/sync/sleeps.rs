//! How often did the calling thread sleep?

/// Returns how often the calling thread has given up its processor because it waited for something
/// (a voluntary context switch): it slept, or waited for a device or a lock. A thread that is
/// preempted, interrupted, or yields gives up nothing.
///
/// Returns zero where the system does not count that, and under a model checker. In a simulation
/// time passes only while threads sleep, so that each call returns another number. Costs a system
/// call.
#[must_use]
pub fn times_slept() -> u64 {
    #[cfg(feature = "simulation")]
    if super::simulation::is_simulated() {
        static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        return CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    #[cfg(all(target_os = "linux", not(any(miri, loom, feature = "shuttle"))))]
    {
        // SAFETY: numbers may be zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is valid for the call, which only writes to it.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        if result == 0 { usage.ru_nvcsw.cast_unsigned() } else { 0 }
    }
    #[cfg(not(all(target_os = "linux", not(any(miri, loom, feature = "shuttle")))))]
    0
}

#[cfg(all(test, target_os = "linux", not(any(miri, loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_that_computes_does_not_sleep() {
        let own = std::thread::spawn(|| {
            let (before, begun) = (times_slept(), Instant::now());
            while begun.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            let computed = times_slept();
            (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            (computed - before, times_slept() - computed)
        });
        assert_eq!(own.join().expect("no panic"), (0, 5));
    }
}
