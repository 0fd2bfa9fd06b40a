//! Reads records of CSV as RFC 4180 has them, and says what is no record.
//!
//! A field that begins with a quote ends with one; two quotes inside are one. Elsewhere a quote is
//! a character. A record ends with LF, CRLF, or the end of the input; with CR if the first line of
//! the input ends so. Empty lines between records are skipped.
//!
//! | input | answer |
//! |---|---|
//! | text after a closing quote, a NUL byte, a CR that ends no line, half a character at the end | a bad record |
//! | an open quote at the end of the input, a record that is too long | an error with the line of the quote |

use super::read::{Input, LONGEST, NUL};
use anyhow::{Context, Result, bail};
use std::io::BufRead;

/// Fields of a record, without their quotes.
#[derive(Default, Debug)]
pub struct Record {
    bytes: Vec<u8>,
    /// End of each field in `bytes`.
    ends: Vec<usize>,
}

impl Record {
    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a field.
    pub fn get(&self, field: usize) -> Option<&[u8]> {
        let end = *self.ends.get(field)?;
        let start = if field == 0 { 0 } else { self.ends[field - 1] };
        self.bytes.get(start..end)
    }

    /// Returns the fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|field| self.get(field))
    }
}

/// What follows in the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Record,
    /// A record that is none, and why.
    Bad(String),
    End,
}

/// A line and a byte of it, both from 1.
#[derive(Clone, Copy, Default, Debug)]
struct Place {
    line: u64,
    column: u64,
}

/// Where the reader is inside a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Within {
    /// At the begin of a field.
    Start,
    /// In a field without quotes.
    Plain,
    /// Between quotes.
    Quoted,
    /// Behind a quote that ends the field, or is the first of two.
    Quote,
}

/// Reads records.
pub struct Records {
    /// Name of the input, for errors.
    name: String,
    input: Input,
    pub record: Record,
    /// First and last line of the record.
    pub lines: (u64, u64),
    /// Bytes read so far.
    pub bytes: u64,
    /// Place of the next byte.
    at: Place,
    /// Whether CR ends a line; unknown before the end of the first line.
    ends_with_cr: Option<bool>,
    /// Where the last quoted field begins.
    quote: Place,
    /// What is wrong with the record.
    fault: Option<String>,
}

impl Records {
    pub fn new(name: String, input: Input) -> Records {
        Records {
            name,
            input,
            record: Record::default(),
            lines: (0, 0),
            bytes: 0,
            at: Place { line: 1, column: 1 },
            ends_with_cr: None,
            quote: Place::default(),
            fault: None,
        }
    }

    /// Returns the next bytes; none at the end of the input.
    fn buffer(&mut self) -> Result<&[u8]> {
        let name = &self.name;
        self.input.fill_buf().with_context(|| format!("cannot read {name}"))
    }

    fn take(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.bytes += bytes as u64;
        self.at.column += bytes as u64;
    }

    /// Takes the LF behind a CR, if there is one. Returns whether there was.
    fn take_lf(&mut self) -> Result<bool> {
        let is_there = self.buffer()?.first() == Some(&b'\n');
        if is_there {
            self.take(1);
        }
        Ok(is_there)
    }

    /// Appends the next bytes up to one with a meaning. Returns false if there are none.
    fn take_plain(&mut self) -> Result<bool> {
        let name = &self.name;
        let buffer = self.input.fill_buf().with_context(|| format!("cannot read {name}"))?;
        let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\r' | b'\n' | 0);
        let plain = buffer.iter().position(special).unwrap_or(buffer.len());
        self.record.bytes.extend_from_slice(&buffer[..plain]);
        self.take(plain);
        Ok(plain > 0)
    }

    fn begin_line(&mut self) {
        self.at = Place { line: self.at.line + 1, column: 1 };
    }

    /// Records what is wrong at the byte that was taken last, unless something was before.
    fn blame(&mut self, what: &str) {
        let Place { line, column } = self.at;
        let line = if line == self.lines.0 { String::new() } else { format!("line {line}, ") };
        self.fault.get_or_insert_with(|| format!("{line}column {}: {what}", column - 1));
    }

    fn end_field(&mut self) {
        self.record.ends.push(self.record.bytes.len());
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// Of the input; a quote that is not closed; a record that is too long.
    pub fn read(&mut self) -> Result<Next> {
        while !self.buffer()?.is_empty() {
            if self.read_line()? {
                self.end_field();
                return Ok(self.fault.take().map_or(Next::Record, Next::Bad));
            }
        }
        Ok(Next::End)
    }

    /// Reads a record without the end of its last field. Returns false for an empty line.
    fn read_line(&mut self) -> Result<bool> {
        self.record.bytes.clear();
        self.record.ends.clear();
        self.fault = None;
        self.lines = (self.at.line, self.at.line);
        let begin = self.bytes;
        let mut within = Within::Start;
        loop {
            if self.bytes - begin > LONGEST {
                let quote = if within == Within::Quoted { self.open_quote() } else { String::new() };
                bail!("{} line {}: a record is longer than {LONGEST} bytes{quote}", self.name, self.lines.0);
            }
            if within != Within::Quote && self.take_plain()? {
                within = if within == Within::Quoted { within } else { Within::Plain };
                continue;
            }
            let Some(byte) = self.buffer()?.first().copied() else {
                self.lines.1 = self.at.line;
                return self.end_of_input(within).map(|()| true);
            };
            self.take(1);
            if within != Within::Quoted && self.is_end_of_line(byte)? {
                self.lines.1 = self.at.line;
                self.begin_line();
                return Ok(within != Within::Start || self.record.len() > 0);
            }
            within = self.step(within, byte)?;
        }
    }

    /// Takes a byte of a record that does not end a line outside of quotes.
    fn step(&mut self, within: Within, byte: u8) -> Result<Within> {
        if byte == 0 {
            self.blame(NUL);
        }
        Ok(match (within, byte) {
            (Within::Start, b'"') => {
                self.quote = Place { column: self.at.column - 1, ..self.at };
                Within::Quoted
            }
            (Within::Quoted, b'"') => Within::Quote,
            (Within::Quoted, _) => {
                self.record.bytes.push(byte);
                match byte {
                    b'\n' => self.begin_line(),
                    b'\r' => {
                        if self.take_lf()? {
                            self.record.bytes.push(b'\n');
                        }
                        self.begin_line();
                    }
                    _ => {}
                }
                Within::Quoted
            }
            (Within::Quote, b'"') => {
                self.record.bytes.push(byte);
                Within::Quoted
            }
            (_, b',') => {
                self.end_field();
                Within::Start
            }
            _ => {
                if within == Within::Quote {
                    let Place { line, column } = self.quote;
                    let what = format!(
                        "text after the end of the quoted field that begins in line {line}, column {column}; \
                         write \"\" for a quote inside"
                    );
                    self.blame(&what);
                }
                self.record.bytes.push(byte);
                Within::Plain
            }
        })
    }

    /// Returns whether a byte outside of quotes ends the line. Takes the LF behind a CR.
    fn is_end_of_line(&mut self, byte: u8) -> Result<bool> {
        let is_end = match byte {
            b'\n' => true,
            b'\r' if self.take_lf()? => true,
            b'\r' if *self.ends_with_cr.get_or_insert(true) => return Ok(true),
            b'\r' => {
                self.blame("a carriage return that ends no line; quote the field");
                false
            }
            _ => false,
        };
        if is_end {
            self.ends_with_cr.get_or_insert(false);
        }
        Ok(is_end)
    }

    fn open_quote(&self) -> String {
        let Place { line, column } = self.quote;
        format!(": the quote in line {line}, column {column} is not closed")
    }

    /// Checks what the input ends with.
    fn end_of_input(&mut self, within: Within) -> Result<()> {
        if within == Within::Quoted {
            let Place { line, column } = self.quote;
            bail!("{} line {line}: column {column}: the quote that begins here is not closed", self.name);
        }
        if ends_within_character(&self.record.bytes) {
            let what = "the input ends within a character of UTF-8";
            self.fault.get_or_insert_with(|| what.into());
        }
        Ok(())
    }
}

/// Returns whether the last bytes are the first of a longer character.
pub fn ends_within_character(bytes: &[u8]) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    (0..tail.len()).any(|at| {
        std::str::from_utf8(&tail[at..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    })
}
