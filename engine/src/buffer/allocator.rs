//! Making the allocator give back what is free.

/// Makes the allocator give memory back to the system that is allocated to nobody; false if there is no way to ask it. Takes some
/// milliseconds for each 100 MB, during which threads that allocate may wait.
///
/// This speaks to the C library's allocator, which is Rust's default. One that the program brings along is not asked: those that
/// are known give back by themselves after a while.
#[must_use]
pub fn free_memory_to_system() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // SAFETY: may be called by any thread at any time; what is allocated stays as it is.
        unsafe { libc::malloc_trim(0) };
        true
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    false
}
