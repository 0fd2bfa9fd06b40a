//! A test that is left out, because this machine lacks something, says so. It passes, so what it
//! would have shown is not shown: whoever runs the tests can have a list of these, in the file that
//! `QUENCH_SKIPPED` names. With `QUENCH_SKIP=deny` it fails instead.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says that the calling test is left out, and why.
#[track_caller]
pub fn skip(why: &dyn Display) {
    // The harness names a test's thread after it.
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {}\n", thread.name().unwrap_or("a test"), why.to_string().trim());
    // Not `eprintln`, which is captured.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("QUENCH_SKIPPED") {
        let list = OpenOptions::new().append(true).create(true).open(path);
        let _ = list.and_then(|mut list| list.write_all(line.as_bytes()));
    }
    let denied = std::env::var("QUENCH_SKIP").is_ok_and(|skip| skip == "deny");
    assert!(!denied, "QUENCH_SKIP=deny, but {why}");
}
