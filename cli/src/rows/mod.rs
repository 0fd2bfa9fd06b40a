//! The line format of `load` and `dump`: `key<TAB>value`, any bytes.
//!
//! | bytes | written as |
//! |---|---|
//! | tab, newline, carriage return, backslash | `\t` `\n` `\r` `\\` |
//! | other control characters, and all from 0x7f | `\xNN` |
//! | the rest of ASCII | themselves |
//!
//! Reading accepts raw bytes too, so that UTF-8 text needs no escapes; writing is always plain
//! ASCII.

use serde_json::json;
use std::fmt;
use std::io::Write;

/// What is wrong with an escaped text, and at which byte (counted from 1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Byte of the text, from 1.
    pub column: usize,
    /// What was found there.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for Malformed {}

/// Appends `bytes`, escaped.
pub fn escape_into(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'\t' => out.extend(b"\\t"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\\' => out.extend(b"\\\\"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend([b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// `bytes`, escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(bytes, &mut out);
    out.into_iter().map(char::from).collect()
}

/// Appends the bytes that `text` stands for.
pub fn unescape_into(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte != b'\\' {
            out.push(byte);
            at += 1;
            continue;
        }
        let malformed = |what| Malformed { column: at + 1, what };
        match text.get(at + 1) {
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b'\\') => out.push(b'\\'),
            Some(b'x') => {
                let digit = |i: usize| text.get(at + i).and_then(|&d| char::from(d).to_digit(16));
                let (Some(high), Some(low)) = (digit(2), digit(3)) else {
                    return Err(malformed("`\\x` needs two hexadecimal digits"));
                };
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            Some(_) => return Err(malformed("unknown escape; there are \\t \\n \\r \\\\ \\xNN")),
            None => return Err(malformed("a lone backslash at the end; write \\\\")),
        }
        at += 2;
    }
    Ok(())
}

/// The bytes that `text` stands for.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(text.len());
    unescape_into(text, &mut out)?;
    Ok(out)
}

/// Reads a line (without its newline) into `key` and `value`, which are cleared first.
pub fn decode_line(line: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), Malformed> {
    key.clear();
    value.clear();
    let Some(tab) = line.iter().position(|&b| b == b'\t') else {
        return Err(Malformed { column: line.len() + 1, what: "no tab between key and value" });
    };
    if let Some(second) = line[tab + 1..].iter().position(|&b| b == b'\t') {
        return Err(Malformed { column: tab + 2 + second, what: "a second tab; inside a value write \\t" });
    }
    unescape_into(&line[..tab], key)?;
    unescape_into(&line[tab + 1..], value)
        .map_err(|malformed| Malformed { column: malformed.column + tab + 1, ..malformed })
}

/// Appends a line with its newline.
pub fn encode_line(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    escape_into(key, out);
    out.push(b'\t');
    escape_into(value, out);
    out.push(b'\n');
}

/// Writes rows to `out` in this format, or as one JSON object a line.
pub fn write_rows(
    rows: impl Iterator<Item = quenchdb::Result<(Vec<u8>, Vec<u8>)>>,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for row in rows {
        let (key, value) = row?;
        if as_json {
            writeln!(out, "{}", json!({"key": escape(&key), "value": escape(&value)}))?;
            continue;
        }
        line.clear();
        encode_line(&key, &value, &mut line);
        out.write_all(&line)?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
