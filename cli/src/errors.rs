//! Errors on standard error: as one line, or as one JSON object.

use quenchdb::{Error, ErrorKind};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit codes; [`HELP`] explains them.
const COULD_NOT: u8 = 2;
const BUSY: u8 = 3;

/// The exit codes, for `--help`.
pub const HELP: &str = "\
Exit codes:
  0    done
  1    done, and something is wrong: not found, bad lines skipped, damage, a broken promise
  2    could not be done: a wrong call, no such database, a failed device
  3    busy: another process has the database open, or uses the table; try again later
  130  ended by a signal";

/// Whether errors are JSON objects.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes errors JSON objects from now on.
pub fn use_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Prints one line to standard error. Ignores a closed standard error.
pub fn complain(what: &str) {
    let line: String = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "quench: {line}");
}

/// Reports a bug of this program.
pub fn report_bug(what: &str) {
    let what = format!("internal error, please report it: {what}");
    if JSON.load(Ordering::Relaxed) {
        print_object("internal", &what, None, "report it");
    } else {
        complain(&what);
    }
}

/// Reports wrong arguments as a JSON object.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    print_object("usage", lines.join(" ").trim_start_matches("error: "), None, "see `quench --help`");
    ExitCode::from(COULD_NOT)
}

/// Prints the error that ended a command. Returns the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if JSON.load(Ordering::Relaxed) {
        let engine = engine_error(error);
        let place = engine.and_then(Error::location).map(ToString::to_string);
        let advice = engine.map_or("see the message", Error::advice);
        print_object(code(error), &message(error), place.as_deref(), advice);
    } else {
        complain(&one_line(error));
    }
    ExitCode::from(if engine_error(error).is_some_and(|e| e.kind() == ErrorKind::Busy) {
        BUSY
    } else {
        COULD_NOT
    })
}

fn print_object(code: &str, message: &str, place: Option<&str>, advice: &str) {
    let object = object(code, message, place, advice);
    let _ = writeln!(std::io::stderr(), "{object}");
}

fn object(code: &str, message: &str, place: Option<&str>, advice: &str) -> Value {
    json!({"error": {"code": code, "message": message, "place": place, "advice": advice}})
}

fn engine_error(error: &anyhow::Error) -> Option<&Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Returns the code of the engine's error, `io` for an error of the system, or `failed`.
fn code(error: &anyhow::Error) -> &'static str {
    let Some(engine) = engine_error(error) else {
        let is_io = error.chain().any(|cause| cause.is::<std::io::Error>());
        return if is_io { "io" } else { "failed" };
    };
    engine.code()
}

/// Returns the error with its contexts. An error of the engine names its own sources, so the chain
/// ends there.
pub fn one_line(error: &anyhow::Error) -> String {
    parts(error, ToString::to_string)
}

/// Returns the error with its contexts, without the place and the advice of the engine's error.
fn message(error: &anyhow::Error) -> String {
    parts(error, |engine| engine.duplicate().message().to_string())
}

fn parts(error: &anyhow::Error, engine_text: impl Fn(&Error) -> String) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        match cause.downcast_ref::<Error>() {
            Some(engine) => {
                parts.push(engine_text(engine));
                break;
            }
            None => parts.push(cause.to_string()),
        }
    }
    parts.join(": ")
}

/// Returns whether the reader of the output closed the pipe. A connection of the engine that was
/// closed is no such pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    engine_error(error).is_none()
        && error.chain().any(|cause| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        })
}
