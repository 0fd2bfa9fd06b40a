//! What the Python package and the C interface have in common: settings by their names, errors by
//! their codes, rows of a range in batches, change feeds, reports. A thin layer over the engine's
//! API, which knows neither language.

#![warn(missing_docs)]

mod settings;
mod rows;
mod feed;
pub mod reports;
#[cfg(test)]
mod tests;

pub use feed::{Feed, Fields, KINDS, fields};
pub use rows::{Ahead, Range, Rows, range};
pub use settings::{Refused, Value, option, set};

use quenchdb::{Error, ErrorKind};

/// The beginning of the engine's error for every call in a forked child.
const FORKED: &str = "this process was forked";

/// Returns the code of an error: that of the engine, or "forked" for a call in a forked child.
#[must_use]
pub fn code(error: &Error) -> &'static str {
    let is_forked = error.kind() == ErrorKind::InvalidArgument && error.message().starts_with(FORKED);
    if is_forked { "forked" } else { error.code() }
}

/// Returns the text of a panic.
#[must_use]
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    format!("the library has a bug: {text}; report this, then close and reopen the database")
}
