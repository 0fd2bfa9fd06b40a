//! Escapes of bytes in lines and on the command line.
//!
//! | bytes | written as |
//! |---|---|
//! | tab, newline, carriage return, backslash | `\t` `\n` `\r` `\\` |
//! | other control and invisible format characters, bytes that are not UTF-8 | `\xNN` for each byte |
//! | all other characters | UTF-8, as they are |
//!
//! Reading accepts raw bytes, too: only a backslash begins an escape.

use std::fmt;

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

/// Returns whether a character may be written as it is. Control characters change the state of a
/// terminal. Invisible format characters change the order of the text around them, or cannot be
/// seen.
pub fn is_plain(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    !character.is_control() && !is_format
}

/// Appends `bytes`, escaped.
pub fn escape_into(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let utf8 = character.encode_utf8(&mut utf8).as_bytes();
            match character {
                '\t' => out.extend(b"\\t"),
                '\n' => out.extend(b"\\n"),
                '\r' => out.extend(b"\\r"),
                '\\' => out.extend(b"\\\\"),
                _ if is_plain(character) => out.extend(utf8),
                _ => hexadecimal(utf8, out),
            }
        }
        hexadecimal(chunk.invalid(), out);
    }
}

fn hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.extend(b"\\x");
        push_hex(byte, out);
    }
}

/// Appends the two hexadecimal digits of a byte.
pub fn push_hex(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// Returns `bytes`, escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(bytes, &mut out);
    String::from_utf8_lossy(&out).into_owned()
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

/// Returns the bytes that `text` stands for.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(text.len());
    unescape_into(text, &mut out)?;
    Ok(out)
}
