//! Is this still the process that opened the database?
//!
//! A child of `fork` has a copy of the memory and all descriptors of its parent, and none of its
//! threads. What the child wrote would go to the files of the parent, over what the parent writes
//! there. A lock that another thread held at the fork stays locked in the child for ever. So a
//! child may do nothing with a database that its parent opened: not write, not wait, not close.
//!
//! 1. [`Process::is_forked`] is one load and one comparison. The kernel clears the word in every
//!    child (`MADV_WIPEONFORK`), however the child was made; where the kernel cannot, the handler
//!    of `pthread_atfork` changes the word.
//! 2. A child never drops a value in [`Ours`]: no thread is waited for, no file is removed.
//! 3. A lock of a file belongs to the parent's descriptor *and* to the child's copy. The handler
//!    replaces copies that are [`NotInherited`], so the lock ends with the parent. A child that was
//!    made without libc keeps them until it ends or executes a program.
//!
//! The handler only uses atomics and system calls, as a handler after a fork must.

use crate::base::{Error, Result};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The number of this process among its ancestors that used the engine. Only a child changes it.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The word that distinguishes processes: `NUMBER`, or 0 in a child that does not know its number
/// yet. Null before the first use.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The descriptors of [`NotInherited`], a list that only grows.
static DESCRIPTORS: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

/// The process that made something.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    word: &'static AtomicU64,
    number: u64,
}

impl Default for Process {
    fn default() -> Process {
        Process::current()
    }
}

impl Process {
    /// Returns the calling process.
    #[must_use]
    pub fn current() -> Process {
        let word = word();
        loop {
            let number = word.load(Ordering::Acquire);
            if number != 0 {
                return Process { word, number };
            }
            // A child that no handler was called in.
            let number = NUMBER.fetch_add(1, Ordering::AcqRel) + 1;
            let _ = word.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Returns whether the calling process is a forked child of this one.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != self.number
    }

    /// Refuses a call in a forked child.
    ///
    /// # Errors
    /// `InvalidArgument`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_forked() { Err(forked()) } else { Ok(()) }
    }
}

/// Returns the error of every call in a forked child.
#[cold]
fn forked() -> Error {
    Error::invalid(
        "this process was forked from the one that opened the database, and can only ignore it: open the \
         database after the fork, in the process that uses it",
    )
}

/// A static value of which a forked child makes its own: that of its parent may stay locked.
pub struct PerProcess<T: 'static> {
    value: AtomicPtr<(Process, T)>,
}

impl<T: Sync + Send + 'static> PerProcess<T> {
    /// Returns a place without a value.
    #[must_use]
    pub const fn new() -> PerProcess<T> {
        PerProcess { value: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the value of this process, which the first call makes.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let known = self.value.load(Ordering::Acquire);
        // SAFETY: null, or a value that was leaked below.
        match unsafe { known.as_ref() } {
            Some((process, value)) if !process.is_forked() => value,
            _ => self.make(known, make()),
        }
    }

    #[cold]
    fn make(&self, known: *mut (Process, T), value: T) -> &'static T {
        let new = Box::into_raw(Box::new((Process::current(), value)));
        let made = self.value.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire);
        // Another thread may have been faster: its value counts, and this one is wasted.
        // SAFETY: both were leaked, and no value is ever given back.
        unsafe { &(*made.map_or_else(|faster| faster, |_| new)).1 }
    }
}

impl<T: Sync + Send + 'static> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

/// A value that is dropped only by the process that made it. A forked child leaks it.
#[derive(Debug)]
pub struct Ours<T> {
    value: ManuallyDrop<T>,
    process: Process,
}

impl<T> Ours<T> {
    /// Wraps a value that the calling process has made.
    pub fn new(value: T) -> Ours<T> {
        Ours { value: ManuallyDrop::new(value), process: Process::current() }
    }

    /// Returns the process that made the value.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// Returns the value.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child, which leaks the value.
    pub fn into_inner(self) -> Result<T> {
        self.process.check()?;
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used any more, so the value is taken once.
        Ok(unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T: Clone> Clone for Ours<T> {
    fn clone(&self) -> Ours<T> {
        Ours { value: self.value.clone(), process: self.process }
    }
}

impl<T> Deref for Ours<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Ours<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Ours<T> {
    fn drop(&mut self) {
        if !self.process.is_forked() {
            // SAFETY: dropped once, here, because `into_inner` forgets the wrapper.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// A place in the list of descriptors.
struct Node {
    is_used: AtomicBool,
    /// Negative for none.
    descriptor: AtomicI32,
    /// The number of the process that put the descriptor here.
    process: AtomicU64,
    next: AtomicPtr<Node>,
}

/// While this lives, a forked child gets a descriptor without meaning instead of a copy, so that no
/// lock outlives the parent. To be dropped before the descriptor is closed.
#[derive(Debug)]
pub struct NotInherited {
    node: &'static Node,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "descriptor {}", self.descriptor.load(Ordering::Relaxed))
    }
}

impl NotInherited {
    /// Keeps a descriptor from forked children.
    pub fn new(descriptor: &impl AsRawFd) -> NotInherited {
        // Makes sure that there is a handler.
        let process = Process::current();
        let node = free_node();
        node.process.store(process.number, Ordering::Relaxed);
        node.descriptor.store(descriptor.as_raw_fd(), Ordering::Release);
        NotInherited { node }
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        self.node.descriptor.store(-1, Ordering::Release);
        self.node.is_used.store(false, Ordering::Release);
    }
}

/// Returns an unused place in the list, a new one if there is none.
fn free_node() -> &'static Node {
    if let Some(node) = nodes().find(|node| !node.is_used.swap(true, Ordering::AcqRel)) {
        return node;
    }
    let node = Box::leak(Box::new(Node {
        is_used: AtomicBool::new(true),
        descriptor: AtomicI32::new(-1),
        process: AtomicU64::new(0),
        next: AtomicPtr::new(std::ptr::null_mut()),
    }));
    let pointer: *mut Node = node;
    let mut first = DESCRIPTORS.load(Ordering::Acquire);
    loop {
        node.next.store(first, Ordering::Relaxed);
        match DESCRIPTORS.compare_exchange(first, pointer, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return node,
            Err(other) => first = other,
        }
    }
}

fn nodes() -> impl Iterator<Item = &'static Node> {
    let at = |pointer: *mut Node| {
        // SAFETY: null, or a node that was leaked by `free_node`, whose fields are all atomic.
        unsafe { pointer.as_ref() }
    };
    std::iter::successors(at(DESCRIPTORS.load(Ordering::Acquire)), move |node| {
        at(node.next.load(Ordering::Acquire))
    })
}

/// Returns the word that distinguishes processes. The first call makes it, and sets the handler.
fn word() -> &'static AtomicU64 {
    let known = WORD.load(Ordering::Acquire);
    // SAFETY: null, or a word that is never given back.
    if let Some(word) = unsafe { known.as_ref() } {
        return word;
    }
    let word = new_word();
    word.store(NUMBER.load(Ordering::Relaxed), Ordering::Relaxed);
    let pointer = std::ptr::from_ref(word).cast_mut();
    match WORD.compare_exchange(std::ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            set_handler();
            word
        }
        // Another thread was faster: its word counts, and a page is wasted.
        // SAFETY: as above.
        Err(other) => unsafe { &*other },
    }
}

/// Returns a word that the kernel clears in a child, if it can.
#[cfg(not(miri))]
fn new_word() -> &'static AtomicU64 {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (access, len) = (ProtFlags::READ | ProtFlags::WRITE, rustix::param::page_size());
    // SAFETY: a new anonymous mapping at an address of the system's choice overlaps nothing.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
    let Ok(page) = mapped else { return Box::leak(Box::default()) };
    // SAFETY: the page is ours. Without the advice the handler alone changes the word.
    let _ = unsafe { madvise(page, len, Advice::LinuxWipeOnFork) };
    // SAFETY: the mapping is aligned, zero, and never unmapped.
    unsafe { &*page.cast::<AtomicU64>() }
}

#[cfg(miri)]
fn new_word() -> &'static AtomicU64 {
    Box::leak(Box::default())
}

#[cfg(not(miri))]
fn set_handler() {
    // SAFETY: the handler lives as long as the program, and does only what is allowed in a child.
    let set = unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
    if set != 0 {
        tracing::warn!(error = set, "a forked child keeps locks of this process");
    }
}

#[cfg(miri)]
fn set_handler() {}

/// Runs in a child, before `fork` returns there.
#[cfg(not(miri))]
extern "C" fn begin_child() {
    let parent = NUMBER.fetch_add(1, Ordering::AcqRel);
    // SAFETY: as in `word`.
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() } {
        word.store(parent + 1, Ordering::Release);
    }
    // SAFETY: creates a descriptor of its own.
    let substitute: RawFd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if substitute < 0 {
        return;
    }
    for node in nodes().filter(|node| node.process.load(Ordering::Relaxed) == parent) {
        let descriptor = node.descriptor.load(Ordering::Acquire);
        if descriptor >= 0 {
            // SAFETY: replaces the copy of a descriptor that nothing in the child uses.
            unsafe { libc::dup3(substitute, descriptor, libc::O_CLOEXEC) };
        }
    }
    // SAFETY: it was made here.
    unsafe { libc::close(substitute) };
}

#[cfg(all(test, not(any(miri, loom, feature = "shuttle"))))]
mod tests;
