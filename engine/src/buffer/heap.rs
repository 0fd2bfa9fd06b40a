//! Makes the allocator give free memory back to the system.

/// Gives free memory of the allocator back to the system. Returns false if there is no way to ask
/// for that. Takes some milliseconds for each 100 MB, during which threads that allocate may wait.
///
/// This asks the C library's allocator, which is Rust's default. An allocator that the program
/// chooses is not asked: the known ones give memory back by themselves after a while.
#[must_use]
pub fn free_memory_to_system() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // SAFETY: any thread may call it at any time; allocated memory is not touched.
        unsafe { libc::malloc_trim(0) };
        true
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    false
}
