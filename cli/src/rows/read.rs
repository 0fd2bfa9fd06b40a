//! Reads rows, and names the lines that are none.

use super::csv::{self as fields, Columns, Names};
use super::escape::{Malformed, unescape_into};
use super::records::{Next, Record, Records, ends_within_character};
use super::{BYTE_ORDER_MARK, Format, Row, json};
use anyhow::{Context, Error, Result, bail};
use std::io::{BufRead, BufReader, Chain, Cursor, Read};

/// What follows in the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A row.
    Row,
    /// A line that is no row, and why.
    Bad(String),
    /// The end.
    End,
}

/// Longest line, in bytes: a line of a longer row is refused before it fills the memory. JSON
/// writes a control character as six bytes.
pub const LONGEST: u64 = 6 * quenchdb::VALUE_BYTES_MAX + (1 << 20);

/// What is said of a NUL byte. `dump` writes none.
pub const NUL: &str = "a NUL byte; write \\x00, or convert a file in UTF-16 to UTF-8";

const BUFFER_BYTES: usize = 1 << 15;

/// An input without its byte order mark.
pub type Input = BufReader<Chain<Cursor<Vec<u8>>, Box<dyn Read>>>;

/// Reads rows.
pub struct RowReader {
    /// Name of the input, for errors.
    name: String,
    from: From,
    has_tables: bool,
    /// First and last line of what was read last.
    lines: (u64, u64),
}

enum From {
    Lines(Lines),
    Csv { records: Box<Records>, columns: Option<Columns>, names: Names, bad: Option<String> },
}

/// An input of lines.
struct Lines {
    input: Input,
    /// The line that was read last, without its end.
    line: Vec<u8>,
    /// Whether that line ended with the input.
    is_unended: bool,
    bytes: u64,
    is_json: bool,
}

/// How an input is read.
#[derive(Clone, Debug)]
pub struct Layout {
    pub format: Format,
    /// Rows of several tables.
    pub has_tables: bool,
    /// A CSV file begins with a header.
    pub has_header: bool,
    /// Columns of a CSV file.
    pub names: Names,
}

/// Drops the byte order mark.
fn without_mark(mut input: Box<dyn Read>) -> Result<Input> {
    let mut start = Vec::new();
    input.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start)?;
    if start == BYTE_ORDER_MARK {
        start.clear();
    } else if !start.is_empty() && BYTE_ORDER_MARK.starts_with(&start) {
        bail!("the file ends within a byte order mark");
    }
    Ok(BufReader::with_capacity(BUFFER_BYTES, Cursor::new(start).chain(input)))
}

impl RowReader {
    /// Reads rows of `input`, which errors call `name`.
    ///
    /// # Errors
    /// Of the input; columns that cannot be.
    pub fn new(name: String, input: Box<dyn Read>, layout: Layout) -> Result<RowReader> {
        let Layout { format, has_tables, has_header, names } = layout;
        if names.is_chosen() && format != Format::Csv {
            bail!("--key-column and --value-column are for CSV; give --format csv");
        }
        let columns = if has_header { None } else { Some(Columns::without_header(has_tables, &names)) };
        let columns = columns.transpose().map_err(Error::msg)?;
        let input = without_mark(input).with_context(|| format!("cannot read {name}"))?;
        let from = match format {
            Format::Tsv | Format::Json => From::Lines(Lines {
                input,
                line: Vec::new(),
                is_unended: false,
                bytes: 0,
                is_json: format == Format::Json,
            }),
            Format::Csv => {
                let records = Box::new(Records::new(name.clone(), input));
                From::Csv { records, columns, names, bad: None }
            }
        };
        Ok(RowReader { name, from, has_tables, lines: (0, 0) })
    }

    /// Returns the first and the last line of what was read last.
    pub fn lines(&self) -> (u64, u64) {
        self.lines
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        match &self.from {
            From::Lines(lines) => lines.bytes,
            From::Csv { records, .. } => records.bytes,
        }
    }

    /// Reads the next line, or the next record of CSV. Returns false at the end.
    ///
    /// # Errors
    /// Of the input; a line that is too long; an open quote; a wrong header.
    pub fn advance(&mut self) -> Result<bool> {
        match &mut self.from {
            From::Lines(lines) => {
                let is_there = lines.advance(&self.name, self.lines.1 + 1)?;
                if is_there {
                    self.lines = (self.lines.1 + 1, self.lines.1 + 1);
                }
                Ok(is_there)
            }
            From::Csv { records, columns, names, bad } => {
                if columns.is_none() {
                    let header = match records.read()? {
                        Next::End => return Ok(false),
                        Next::Bad(what) => Err(what),
                        Next::Record => Columns::of(&records.record, self.has_tables, names),
                    };
                    let place = || format!("{} line {}", self.name, records.lines.0);
                    *columns = Some(header.map_err(Error::msg).with_context(place)?);
                }
                let next = records.read()?;
                self.lines = records.lines;
                let is_there = next != Next::End;
                *bad = if let Next::Bad(what) = next { Some(what) } else { None };
                Ok(is_there)
            }
        }
    }

    /// Reads the next row.
    ///
    /// # Errors
    /// As [`RowReader::advance`].
    pub fn next(&mut self, row: &mut Row) -> Result<Found> {
        if !self.advance()? {
            return Ok(Found::End);
        }
        let has_tables = self.has_tables;
        let decoded = match &mut self.from {
            From::Lines(lines) => lines.decode(has_tables, row),
            From::Csv { bad: Some(what), .. } => Err(std::mem::take(what)),
            From::Csv { records, columns: Some(columns), .. } => {
                csv_row(columns, &records.record, has_tables, row)
            }
            From::Csv { columns: None, .. } => Ok(()),
        };
        Ok(match decoded {
            Err(what) => Found::Bad(what),
            Ok(()) if has_tables && row.table.is_empty() => Found::Bad("a table without a name".into()),
            Ok(()) if row.key.is_empty() && !(has_tables && row.value.is_empty()) => {
                Found::Bad("an empty key".into())
            }
            Ok(()) => Found::Row,
        })
    }
}

/// Returns the place of lines in an input, for errors.
pub fn place(name: &str, (first, last): (u64, u64)) -> String {
    if first == last { format!("{name} line {first}") } else { format!("{name} lines {first} to {last}") }
}

impl Lines {
    /// Reads the line `number`. Returns false at the end.
    fn advance(&mut self, name: &str, number: u64) -> Result<bool> {
        self.line.clear();
        let read = self.input.by_ref().take(LONGEST).read_until(b'\n', &mut self.line);
        let read = read.with_context(|| format!("cannot read {name}"))? as u64;
        self.bytes += read;
        if read == LONGEST {
            bail!("{name} line {number}: longer than {LONGEST} bytes");
        }
        self.is_unended = self.line.last() != Some(&b'\n');
        if !self.is_unended {
            self.line.pop();
            // The end of a line in files of other systems.
            self.line.pop_if(|last| *last == b'\r');
        }
        Ok(read > 0)
    }

    fn decode(&self, has_tables: bool, row: &mut Row) -> Result<(), String> {
        if self.is_unended && ends_within_character(&self.line) {
            return Err(format!("column {}: the input ends within a character of UTF-8", self.line.len()));
        }
        if self.is_json {
            json::decode(&self.line, has_tables, row)
        } else {
            tsv(&self.line, has_tables, row)
        }
    }
}

fn table_name(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "the name of the table is not UTF-8".into())
}

fn csv_row(columns: &mut Columns, record: &Record, has_tables: bool, row: &mut Row) -> Result<(), String> {
    let all = columns.fields(record)?;
    if has_tables {
        let mut table = Vec::new();
        fields::decode(all.table, &mut table)?;
        row.table = table_name(table)?;
    }
    fields::decode(all.key, &mut row.key)?;
    fields::decode(all.value, &mut row.value)
}

/// Reads a line without its newline.
fn tsv(line: &[u8], has_tables: bool, row: &mut Row) -> Result<(), String> {
    if let Some(at) = line.iter().position(|byte| matches!(byte, 0 | b'\r')) {
        let what = if line[at] == 0 { NUL } else { "a carriage return that ends no line; write \\r" };
        return Err(Malformed { column: at + 1, what }.to_string());
    }
    let tabs = 1 + usize::from(has_tables);
    let mut columns = line.splitn(tabs + 1, |byte| *byte == b'\t');
    let mut place = 0;
    let mut next = |out: &mut Vec<u8>| {
        let Some(text) = columns.next() else {
            let what = if has_tables {
                "no tab between table, key and value"
            } else {
                "no tab between key and value"
            };
            return Err(Malformed { column: line.len() + 1, what });
        };
        out.clear();
        // Only the last column can have one.
        let read = match text.iter().position(|byte| *byte == b'\t') {
            Some(tab) => Err(Malformed { column: tab + 1, what: "a second tab; inside a value write \\t" }),
            None => unescape_into(text, out),
        };
        let read = read.map_err(|malformed| Malformed { column: malformed.column + place, ..malformed });
        place += text.len() + 1;
        read
    };
    if has_tables {
        let mut table = Vec::new();
        next(&mut table).map_err(|malformed| malformed.to_string())?;
        row.table = table_name(table)?;
    }
    next(&mut row.key).and_then(|()| next(&mut row.value)).map_err(|malformed| malformed.to_string())
}
