//! Rows as text: the formats of `load` and `dump`. `load` reads exactly what `dump` writes.
//!
//! | format | a row |
//! |---|---|
//! | TSV | `key<TAB>value`, with the escapes of [`escape`](mod@escape) |
//! | CSV | a header `key,value`, then fields, quoted if needed; `\x` begins a field in hexadecimal |
//! | JSON lines | `{"key":"a","value":"1"}`; `key_base64` and `value_base64` for bytes that are not UTF-8 |
//!
//! Rows of several tables have the name of the table first: a column or a member `table`. An empty
//! table is a row with the table alone: no row of a table has an empty key.

pub mod escape;
mod json;
mod records;
mod csv;
pub mod read;
pub mod write;

pub use csv::Names;
pub use escape::{escape, unescape};
pub use json::json_bytes;

use clap::ValueEnum;
use std::path::Path;

/// A format of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Lines `key<TAB>value`; \t \n \r \\ and \xNN are escapes
    Tsv,
    /// CSV with the header `key,value`; a field that begins with `\x` is in hexadecimal
    Csv,
    /// One JSON object a line, with the members `key` and `value`, or `key_base64` and
    /// `value_base64`; also called jsonl and ndjson
    #[value(aliases = ["jsonl", "ndjson"])]
    Json,
}

impl Format {
    /// Returns the format that the extension of a file names, if any.
    pub fn of_file(file: &Path) -> Option<Format> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" | "txt" => Some(Format::Tsv),
            "csv" => Some(Format::Csv),
            "json" | "jsonl" | "ndjson" => Some(Format::Json),
            _ => None,
        }
    }
}

/// What some programs write at the begin of a text in UTF-8. It is no part of the text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A row as it lies in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Name of the table; empty in a file of one table.
    pub table: String,
    /// The key; empty if the row only says that the table exists.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

#[cfg(test)]
mod tests;
