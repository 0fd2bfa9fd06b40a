//! Epoch-based reclamation behind a safe interface.
//!
//! An [`EpochCell`] owns at most one value. Readers look at it under a [`Guard`] without locks; a
//! value that is replaced is dropped when no guard that could have seen it is left. The library is
//! crossbeam-epoch; this file adds the rule that makes it safe to use without `unsafe` above: **a
//! value leaves a cell only through the cell, which retires it once**, and the references handed
//! out live no longer than the guard, nor than the cell, which frees its value when it is dropped.
//!
//! ```compile_fail,E0505
//! # use quenchdb::sync::epoch::{EpochCell, pin};
//! let (cell, guard) = (EpochCell::default(), pin());
//! cell.replace(Some(1), &guard);
//! let value = cell.load(&guard);
//! drop(cell);
//! assert_eq!(value, Some(&1));
//! ```

use super::fork::{Ours, PerProcess};
use crossbeam_epoch::{Atomic, Collector, LocalHandle, Owned, Shared};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

pub use crossbeam_epoch::Guard;

/// The epochs of this process. In those of its parent a thread may be in an epoch that a forked
/// child does not have, so nothing would ever be freed.
static COLLECTOR: PerProcess<Collector> = PerProcess::new();

thread_local! {
    static HANDLE: RefCell<Option<Ours<LocalHandle>>> = const { RefCell::new(None) };
}

fn register() -> LocalHandle {
    COLLECTOR.get(Collector::new).register()
}

/// Enters an epoch: nothing that is reachable now is freed until the guard is dropped. Cheap and
/// re-entrant.
#[must_use]
pub fn pin() -> Guard {
    // When something is freed must not depend on what the process did before the simulation.
    #[cfg(feature = "simulation")]
    if let Some(guard) = super::simulation::pin() {
        return guard;
    }
    // What is freed meanwhile may enter an epoch, too: it borrows beside.
    let pinned = HANDLE.try_with(|handle| match &*handle.borrow() {
        Some(handle) if !handle.process().is_forked() => Some(handle.pin()),
        _ => None,
    });
    pinned.ok().flatten().unwrap_or_else(pin_first)
}

/// The first [`pin`] of a thread in this process.
#[cold]
fn pin_first() -> Guard {
    let pinned = HANDLE.try_with(|handle| {
        *handle.borrow_mut() = Some(Ours::new(register()));
        handle.borrow().as_ref().map(|handle| handle.pin())
    });
    // A thread that ends has no handle any more.
    pinned.ok().flatten().unwrap_or_else(|| register().pin())
}

/// A nullable owner of a `T` that lock-free readers may look at.
#[derive(Debug)]
pub struct EpochCell<T: Send + Sync + 'static> {
    value: Atomic<T>,
}

impl<T: Send + Sync + 'static> Default for EpochCell<T> {
    fn default() -> Self {
        EpochCell { value: Atomic::null() }
    }
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    /// The value, if there is one. Pairs with the release store of [`EpochCell::replace`].
    pub fn load<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        let shared = self.value.load(Ordering::Acquire, guard);
        // SAFETY: the pointer is null or came from `Owned::new` in `replace`. What `replace` has
        // retired, once since `swap` hands each pointer out once, outlives `guard`; `Drop` frees
        // only when no reference to the cell is left, and so none to its value.
        unsafe { shared.as_ref() }
    }

    /// Puts `value` in the cell and retires the old one.
    pub fn replace(&self, value: Option<T>, guard: &Guard) {
        let new = value.map_or_else(Shared::null, |v| Owned::new(v).into_shared(guard));
        let old = self.value.swap(new, Ordering::AcqRel, guard);
        if !old.is_null() {
            // SAFETY: `old` was taken out of the cell by this swap alone, so it is retired once,
            // and new readers can no longer reach it.
            unsafe { guard.defer_destroy(old) };
        }
    }
}

/// As [`EpochCell`], for bytes: their number and they themselves are one piece of memory.
#[derive(Debug)]
pub struct EpochBytes {
    value: Atomic<[MaybeUninit<u8>]>,
}

impl Default for EpochBytes {
    fn default() -> Self {
        EpochBytes { value: Atomic::null() }
    }
}

impl EpochBytes {
    /// The bytes, if there are any. Pairs with the release store of [`EpochBytes::replace`].
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard) -> Option<&'g [u8]> {
        let shared = self.value.load(Ordering::Acquire, guard);
        // SAFETY: the pointer is null or came from `Owned::init` in `replace`, and lives as long as
        // in `EpochCell::load`. `replace` had written each byte before its release store.
        unsafe {
            shared.as_ref().map(|bytes| std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), bytes.len()))
        }
    }

    /// Puts `head` and what follows it in the cell, and retires the old bytes.
    #[inline]
    pub fn replace(&self, value: Option<(&[u8], &[u8])>, guard: &Guard) {
        let new = value.map_or_else(Shared::null, |(head, body)| {
            let mut owned = Owned::<[MaybeUninit<u8>]>::init(head.len() + body.len());
            let (to_head, to_body) = owned.split_at_mut(head.len());
            for (to, from) in [(to_head, head), (to_body, body)] {
                to.iter_mut().zip(from).for_each(|(to, byte)| _ = to.write(*byte));
            }
            owned.into_shared(guard)
        });
        let old = self.value.swap(new, Ordering::AcqRel, guard);
        if !old.is_null() {
            // SAFETY: as in `EpochCell::replace`.
            unsafe { guard.defer_destroy(old) };
        }
    }
}

impl Drop for EpochBytes {
    fn drop(&mut self) {
        // SAFETY: as in `EpochCell::drop`.
        unsafe {
            let value = std::mem::replace(&mut self.value, Atomic::null());
            drop(value.try_into_owned());
        }
    }
}

impl<T: Send + Sync + 'static> Drop for EpochCell<T> {
    fn drop(&mut self) {
        // SAFETY: `&mut self` means that no other thread holds the cell, hence neither the value:
        // `load` borrows both.
        unsafe {
            let value = std::mem::replace(&mut self.value, Atomic::null());
            drop(value.try_into_owned());
        }
    }
}

#[cfg(test)]
mod tests;
