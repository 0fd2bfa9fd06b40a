//! How much is allocated in one piece: a parser that believes a length before it has looked shows here.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, and a note of the largest piece that each thread asked for.
#[derive(Clone, Copy, Debug)]
pub struct Noting;

impl Noting {
    fn note(bytes: usize) {
        // A thread that ends has none any more.
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    }
}

// SAFETY: everything is done by the system's allocator with the arguments as they come; noting a number allocates nothing.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Noting::note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Noting::note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Noting::note(bytes);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

/// The largest piece that the calling thread asked for while `work` ran; 0 if [`Noting`] is not the allocator.
pub fn largest(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

/// Runs a target, and looks at what it allocated: at most its constant and 64 bytes for each of the input.
///
/// # Panics
/// If it was more.
pub fn run_bounded(target: crate::Target, data: &[u8]) {
    let largest = largest(|| (target.run)(data));
    if let Some(constant) = target.allocates {
        let bound = constant + 64 * data.len();
        assert!(largest <= bound, "{}: {largest} bytes at once for {} of input", target.name, data.len());
    }
}
