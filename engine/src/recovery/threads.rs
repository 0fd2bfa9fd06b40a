//! Work side by side, that ends with the call.

use crate::base::{Error, Result};

/// Threads that recovery uses: what redo does fills a processor.
pub fn count() -> usize {
    crate::sync::thread::processors()
}

/// Runs `work` for each of `items`, each in a thread of its own; a single one in this thread.
///
/// # Errors
/// The first of `work`.
pub fn each<I: Send, T: Send>(
    items: impl ExactSizeIterator<Item = I>,
    work: impl Fn(I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if items.len() == 1 {
        return items.map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let panicked = || Error::corruption("a thread of recovery panicked");
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}
