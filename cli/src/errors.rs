//! Errors as one line on standard error.

use std::io::Write;

/// One line on standard error. A closed standard error is nobody's loss.
pub fn complain(what: &str) {
    let line: String = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "quench: {line}");
}

/// The error with its contexts. The engine's errors name their own sources, so the chain ends at the first of them.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        parts.push(cause.to_string());
        if cause.is::<quenchdb::Error>() {
            break;
        }
    }
    parts.join(": ")
}

/// The reader of our output went away: no reason to complain.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
