//! Epochs of a simulation: what its threads retire is freed by them, or when it is over, and nothing else is.
//!
//! The library's own epochs are the process's. With them it would depend on earlier simulations when something is freed, and the
//! engine asks what is free.

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::cell::RefCell;

thread_local! {
    static OWN: RefCell<Option<LocalHandle>> = const { RefCell::new(None) };
}

/// See the module's text.
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

/// The calling thread will leave the simulation. What it frees here may wait for other threads, and enter an epoch once more.
pub(super) fn leave() {
    let own = OWN.take();
    drop(own);
}

/// False while the calling thread leaves, and for one that takes part in no simulation.
pub(super) fn takes_part() -> bool {
    OWN.try_with(|own| own.borrow().is_some()).unwrap_or(false)
}

/// Enters an epoch of the calling thread's simulation. Returns `None` if the thread takes part in none.
pub(super) fn pin_own() -> Option<Guard> {
    OWN.try_with(|own| own.borrow().as_ref().map(LocalHandle::pin)).ok().flatten()
}
