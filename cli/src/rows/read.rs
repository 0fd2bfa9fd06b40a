//! Reads rows, and names the lines that are none.

use super::csv::{self as fields, Columns};
use super::escape::{Malformed, unescape_into};
use super::{Format, Row, json};
use anyhow::{Context, Result, bail};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

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
const LONGEST: u64 = 6 * quenchdb::VALUE_BYTES_MAX + (1 << 20);

const BUFFER_BYTES: usize = 1 << 15;

/// Reads rows.
pub struct RowReader {
    /// Name of the input, for errors.
    name: String,
    from: From,
    has_tables: bool,
    line: u64,
}

enum From {
    Lines { input: Box<dyn BufRead>, line: Vec<u8>, bytes: u64, is_json: bool },
    Csv { reader: Box<csv::Reader<Bounded>>, record: csv::ByteRecord, columns: Option<Columns> },
}

/// How an input is read.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub format: Format,
    /// Rows of several tables.
    pub has_tables: bool,
    /// A CSV file begins with a header.
    pub has_header: bool,
}

/// An input that fails after [`LONGEST`] bytes of one record.
struct Bounded {
    input: Box<dyn Read>,
    left: Rc<Cell<u64>>,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::Error::other(format!("a record is longer than {LONGEST} bytes; an open quote?")));
        }
        let read = self.input.read(into)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

impl RowReader {
    /// Reads rows of `input`, which errors call `name`.
    pub fn new(name: String, input: Box<dyn Read>, layout: Layout) -> RowReader {
        let Layout { format, has_tables, has_header } = layout;
        let from = match format {
            Format::Tsv | Format::Json => From::Lines {
                input: Box::new(BufReader::with_capacity(BUFFER_BYTES, input)),
                line: Vec::new(),
                bytes: 0,
                is_json: format == Format::Json,
            },
            Format::Csv => {
                let left = Rc::new(Cell::new(LONGEST));
                let mut builder = csv::ReaderBuilder::new();
                builder.has_headers(false).flexible(true).buffer_capacity(BUFFER_BYTES);
                From::Csv {
                    reader: Box::new(builder.from_reader(Bounded { input, left })),
                    record: csv::ByteRecord::new(),
                    columns: (!has_header).then(|| Columns::without_header(has_tables)),
                }
            }
        };
        RowReader { name, from, has_tables, line: 0 }
    }

    /// Returns the line at which what was read last begins, for errors.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the place of what was read last, for errors.
    pub fn place(&self) -> String {
        format!("{} line {}", self.name, self.line)
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        match &self.from {
            From::Lines { bytes, .. } => *bytes,
            From::Csv { reader, .. } => reader.position().byte(),
        }
    }

    /// Reads the next line, or the next record of CSV. Returns false at the end.
    ///
    /// # Errors
    /// Of the input; a line that is too long; a wrong header.
    pub fn advance(&mut self) -> Result<bool> {
        let name = &self.name;
        match &mut self.from {
            From::Lines { input, line, bytes, .. } => {
                line.clear();
                let read = input.by_ref().take(LONGEST).read_until(b'\n', line);
                let read = read.with_context(|| format!("cannot read {name}"))? as u64;
                *bytes += read;
                self.line += u64::from(read > 0);
                if read == LONGEST {
                    bail!("{name} line {}: longer than {LONGEST} bytes", self.line);
                }
                if line.last() == Some(&b'\n') {
                    line.pop();
                    // The end of a line in files of other systems.
                    line.pop_if(|last| *last == b'\r');
                }
                Ok(read > 0)
            }
            From::Csv { reader, record, columns } => {
                reader.get_ref().left.set(LONGEST);
                let mut next = |record: &mut csv::ByteRecord| {
                    let read = reader.read_byte_record(record);
                    read.map_err(io::Error::from).with_context(|| format!("cannot read {name}"))
                };
                if columns.is_none() {
                    let is_there = next(record)?;
                    let header = Columns::of(record, self.has_tables);
                    if !is_there {
                        return Ok(false);
                    }
                    *columns =
                        Some(header.map_err(anyhow::Error::msg).with_context(|| format!("{name} line 1"))?);
                }
                let is_there = next(record)?;
                self.line = record.position().map_or(0, csv::Position::line);
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
        let decoded = match &self.from {
            From::Lines { line, is_json: true, .. } => json::decode(line, has_tables, row),
            From::Lines { line, .. } => tsv(line, has_tables, row),
            From::Csv { record, columns, .. } => match columns {
                Some(columns) => csv_row(columns, record, has_tables, row),
                None => Ok(()),
            },
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

fn table_name(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "the name of the table is not UTF-8".into())
}

fn csv_row(
    columns: &Columns,
    record: &csv::ByteRecord,
    has_tables: bool,
    row: &mut Row,
) -> Result<(), String> {
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
