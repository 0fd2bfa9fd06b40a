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
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

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

/// As [`EpochCell`], for bytes. One piece of memory holds the length and the bytes.
#[derive(Debug, Default)]
pub struct EpochBytes {
    /// Null, or made by [`Piece::new`].
    piece: AtomicPtr<Piece>,
}

/// The head of a piece of memory: so many bytes follow it.
struct Piece {
    len: usize,
}

impl Piece {
    fn layout(len: usize) -> Layout {
        let (layout, _) = Layout::array::<u8>(len)
            .and_then(|bytes| Layout::new::<Piece>().extend(bytes))
            .expect("what a slice holds fits in the address space");
        layout
    }

    /// Returns a new piece with the bytes of both slices, one behind the other.
    fn new(head: &[u8], body: &[u8]) -> *mut Piece {
        let len = head.len() + body.len();
        let layout = Piece::layout(len);
        // SAFETY: the layout has the size of the head at least.
        let piece = unsafe { alloc(layout) }.cast::<Piece>();
        if piece.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the memory has the layout of the head and of `len` bytes behind it, and is of no
        // other owner.
        unsafe {
            piece.write(Piece { len });
            let bytes = piece.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(head.as_ptr(), head.len());
            bytes.add(head.len()).copy_from_nonoverlapping(body.as_ptr(), body.len());
        }
        piece
    }

    /// # Safety
    /// [`Piece::new`] made `piece`, and it is not freed as long as the result is used.
    unsafe fn bytes<'p>(piece: *mut Piece) -> &'p [u8] {
        // SAFETY: `new` wrote the head and all bytes.
        unsafe { std::slice::from_raw_parts(piece.add(1).cast::<u8>(), (*piece).len) }
    }

    /// # Safety
    /// [`Piece::new`] made `piece`, which is freed once, and not used any more.
    unsafe fn free(piece: *mut Piece) {
        // SAFETY: the layout is that of the allocation.
        unsafe { dealloc(piece.cast(), Piece::layout((*piece).len)) };
    }
}

impl EpochBytes {
    /// Returns the bytes, or none if the cell is empty. Pairs with the release store of
    /// [`EpochBytes::replace`].
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g [u8]> {
        let piece = self.piece.load(Ordering::Acquire);
        // SAFETY: the piece lives as long as in `EpochCell::load`.
        (!piece.is_null()).then(|| unsafe { Piece::bytes(piece) })
    }

    /// Puts the bytes of both slices in the cell, one behind the other, and retires the old bytes.
    #[inline]
    pub fn replace(&self, value: Option<(&[u8], &[u8])>, guard: &Guard) {
        let new = value.map_or(null_mut(), |(head, body)| Piece::new(head, body));
        let old = self.piece.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: `old` was taken out of the cell by this swap alone, so it is freed once, and
            // new readers can no longer reach it. Any thread may free it.
            unsafe { guard.defer_unchecked(move || Piece::free(old)) };
        }
    }
}

impl Drop for EpochBytes {
    fn drop(&mut self) {
        let piece = *self.piece.get_mut();
        if !piece.is_null() {
            // SAFETY: as in `EpochCell::drop`.
            unsafe { Piece::free(piece) };
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
