//! Epochs of a simulation: deferred frees of its threads run in them, or at the end of the
//! simulation.
//!
//! The library's default epochs belong to the process. With them the time of a free would depend on
//! earlier simulations, and the engine asks what is free.

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::cell::RefCell;

thread_local! {
    static OWN: RefCell<Option<LocalHandle>> = const { RefCell::new(None) };
}

/// The epochs of one simulation.
#[derive(Debug, Default)]
pub(super) struct Epochs(Collector);

impl Epochs {
    /// Enters an epoch for a thread that does not take part.
    pub(super) fn pin(&self) -> Guard {
        self.0.register().pin()
    }

    /// The calling thread takes part until it calls [`leave`].
    pub(super) fn enter(&self) {
        OWN.set(Some(self.0.register()));
    }
}

/// Prepares the calling thread to leave the simulation. Its deferred frees may block, and enter an
/// epoch.
pub(super) fn leave() {
    let own = OWN.take();
    drop(own);
}

/// Returns false while the calling thread leaves, and outside a simulation.
pub(super) fn takes_part() -> bool {
    OWN.try_with(|own| own.borrow().is_some()).unwrap_or(false)
}

/// Enters an epoch of the calling thread's simulation. Returns `None` if the thread takes part in
/// none.
pub(super) fn pin_own() -> Option<Guard> {
    OWN.try_with(|own| own.borrow().as_ref().map(LocalHandle::pin)).ok().flatten()
}
