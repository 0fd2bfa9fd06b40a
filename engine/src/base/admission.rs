//! Where memory is asked for that the bounds may refuse: a place for a page, a version, more changes of a transaction.
//!
//! Each of these places asks here first. A simulation can have the Nth of them refused, and some after it; without one nothing is.

/// Whether the calling thread is to be refused memory although there is some.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
#[must_use]
pub const fn is_refused() -> bool {
    false
}

/// Whether the calling thread is to be refused memory although there is some.
#[cfg(feature = "simulation")]
#[must_use]
pub fn is_refused() -> bool {
    super::surroundings::Surroundings::of_this_thread()
        .is_some_and(|surroundings| surroundings.refuses_memory())
}
