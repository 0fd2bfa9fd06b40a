//! Makes the allocator give free memory back to the system.

/// Gives free memory of the allocator back to the system. Returns by how many bytes the memory of
/// the process fell, `None` if there is no way to ask for that. The allocator keeps free memory
/// that shares a page with memory in use. Takes some milliseconds for each 100 MB, during which
/// threads that allocate may wait.
///
/// This asks the C library's allocator, which is Rust's default. An allocator that the program
/// chooses is not asked: the known ones give memory back by themselves after a while.
///
/// In a simulation the system gets back whatever it is asked for: what a process has depends on its
/// build and its environment.
#[must_use]
pub fn free_memory_to_system() -> Option<u64> {
    #[cfg(feature = "simulation")]
    if crate::base::environment::Environment::current().is_some() {
        return Some(u64::MAX);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        let before = resident_bytes()?;
        // SAFETY: any thread may call it at any time; allocated memory is not touched.
        unsafe { libc::malloc_trim(0) };
        Some(before.saturating_sub(resident_bytes()?))
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    None
}

/// Returns the memory of the process that is resident.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
fn resident_bytes() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
