//! Errors as one line on standard error.

use std::io::Write;

/// Prints one line to standard error. Ignores a closed standard error.
pub fn complain(what: &str) {
    let line: String = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "quench: {line}");
}

/// Returns the error with its contexts. An error of the engine names its own sources, so the chain
/// ends there.
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

/// Returns whether the reader of the output closed the pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
