//! Injected allocation failures: a simulation lets the Nth request for bounded memory fail.
//!
//! Each place that asks for bounded memory (a frame for a page, a version, more changes of a
//! transaction) asks here first. Without a simulation no request fails here.

/// Returns true if the request of the calling thread fails although memory is free.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
#[must_use]
pub const fn is_injected() -> bool {
    false
}

/// Returns true if the request of the calling thread fails although memory is free.
#[cfg(feature = "simulation")]
#[must_use]
pub fn is_injected() -> bool {
    super::environment::Environment::current().is_some_and(|environment| environment.fails_allocation())
}
