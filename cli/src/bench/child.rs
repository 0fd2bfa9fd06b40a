//! Output of child processes.

use std::io::Read;

/// Reads a pipe to its end on a thread of its own, so that the child never waits for it.
pub(super) fn read_all(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // What could not be read is missed below.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
}
