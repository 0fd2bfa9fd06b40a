//! The order of the threads in the runs of this process.

use quenchdb::internals::sync::simulation::Plan;
use std::sync::atomic::{AtomicBool, Ordering};

static UNINTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Lets all later runs of this process be uninterrupted: the order of threads, and so that of disk
/// operations, depends only on where threads wait.
pub fn leave_uninterrupted() {
    UNINTERRUPTED.store(true, Ordering::Relaxed);
}

/// Returns whether threads are interrupted between operations of `sync`. Otherwise nothing of a
/// seed may depend on the number of these operations, or of allocations.
pub fn is_interrupted() -> bool {
    !UNINTERRUPTED.load(Ordering::Relaxed)
}

/// Returns the plan of `seed`.
pub fn of(seed: u64) -> Plan {
    if is_interrupted() { Plan::of(seed) } else { Plan::uninterrupted(seed) }
}
