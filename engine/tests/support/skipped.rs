//! Reports tests that are skipped because this machine lacks something. A skipped test passes
//! without showing anything. Therefore the file named by `QUENCH_SKIPPED` gets a list of skipped
//! tests. With `QUENCH_SKIP=deny` such a test fails.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Reports that the calling test is skipped, and why.
#[track_caller]
pub fn skip(why: &dyn Display) {
    // The harness names a thread after its test.
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {}\n", thread.name().unwrap_or("a test"), why.to_string().trim());
    // Written directly, because the harness captures `eprintln`.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("QUENCH_SKIPPED") {
        let list = OpenOptions::new().append(true).create(true).open(path);
        let _ = list.and_then(|mut list| list.write_all(line.as_bytes()));
    }
    let denied = std::env::var("QUENCH_SKIP").is_ok_and(|skip| skip == "deny");
    assert!(!denied, "QUENCH_SKIP=deny, but {why}");
}
