//! Work side by side, that ends with the call.

use crate::base::{Error, Result};
use crate::sync::Mutex;

/// Threads that recovery uses: what redo does fills a processor.
pub fn count() -> usize {
    crate::sync::thread::processors()
}

/// Runs `work` for each of `items`, each in a thread of its own as far as the system has any; the
/// first in this thread.
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
    let items: Vec<Mutex<Option<I>>> = items.map(|item| Mutex::new(Some(item))).collect();
    let done = crate::sync::thread::fan_out(items.len(), |index| {
        let item = items[index].lock().take();
        item.map(&work)
    });
    let panicked = || Error::corruption("a thread of recovery panicked");
    done.into_iter().map(|done| done.flatten().unwrap_or_else(|| Err(panicked()))).collect()
}
