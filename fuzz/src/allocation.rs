//! Measures the largest allocation: it shows a parser that trusts a length before it has checked
//! it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The allocator of the system; records the largest request of each thread.
#[derive(Clone, Copy, Debug)]
pub struct Noting;

impl Noting {
    fn note(bytes: usize) {
        // A thread that ends has no record any more.
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    }
}

// SAFETY: the allocator of the system gets the same arguments; the record allocates nothing.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Noting::note(layout.size());
        // SAFETY: the caller keeps the contract of the same function of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Noting::note(layout.size());
        // SAFETY: the caller keeps the contract of the same function of the system allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Noting::note(bytes);
        // SAFETY: the caller keeps the contract of the same function of the system allocator.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same function of the system allocator.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Returns the largest request of the calling thread during `work`; 0 if [`Noting`] is not the
/// allocator.
pub fn largest(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

/// Runs a target and checks its largest allocation: at most its constant plus 64 bytes for each
/// byte of input.
///
/// # Panics
/// The allocation was larger.
pub fn run_bounded(target: crate::Target, data: &[u8]) {
    let largest = largest(|| (target.run)(data));
    if let Some(constant) = target.allocates {
        let bound = constant + 64 * data.len();
        assert!(largest <= bound, "{}: {largest} bytes at once for {} of input", target.name, data.len());
    }
}
