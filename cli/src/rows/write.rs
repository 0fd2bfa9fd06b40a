//! Writes rows.

use super::escape::escape_into;
use super::{Format, csv as fields, json};
use anyhow::Result;
use std::io::Write;

/// Writes the rows of one table, or of several if it `has_tables`.
pub struct RowWriter<W: Write> {
    to: To<W>,
    has_tables: bool,
}

enum To<W: Write> {
    Tsv(W, Vec<u8>),
    Json(W),
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> RowWriter<W> {
    /// Writes the header, if the format has one.
    ///
    /// # Errors
    /// Of the output.
    pub fn new(out: W, format: Format, has_tables: bool) -> Result<RowWriter<W>> {
        let to = match format {
            Format::Tsv => To::Tsv(out, Vec::new()),
            Format::Json => To::Json(out),
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new().from_writer(out);
                writer.write_record(fields::header(has_tables)).map_err(as_io)?;
                To::Csv(Box::new(writer))
            }
        };
        Ok(RowWriter { to, has_tables })
    }

    fn write(&mut self, table: &str, row: Option<(&[u8], &[u8])>) -> Result<()> {
        let (key, value) = row.unwrap_or_default();
        match &mut self.to {
            To::Json(out) => writeln!(out, "{}", json::object(self.has_tables.then_some(table), row))?,
            To::Tsv(out, line) => {
                line.clear();
                if self.has_tables {
                    escape_into(table.as_bytes(), line);
                    line.push(b'\t');
                }
                escape_into(key, line);
                line.push(b'\t');
                escape_into(value, line);
                line.push(b'\n');
                out.write_all(line)?;
            }
            To::Csv(writer) => {
                if self.has_tables {
                    writer.write_field(fields::field(table.as_bytes())).map_err(as_io)?;
                }
                let table = self.has_tables.then_some(table);
                let key = match fields::is_header(table, key, value) {
                    true => fields::hexadecimal(key).into(),
                    false => fields::field(key),
                };
                writer.write_field(key).map_err(as_io)?;
                writer.write_field(fields::field(value)).map_err(as_io)?;
                writer.write_record(None::<&[u8]>).map_err(as_io)?;
            }
        }
        Ok(())
    }

    /// Writes all rows of a table. Returns their number. An empty table gets a line of its own if
    /// the file has several tables.
    ///
    /// # Errors
    /// Of the rows and of the output.
    pub fn rows(
        &mut self,
        table: &str,
        rows: impl Iterator<Item = quenchdb::Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        let mut count = 0;
        for row in rows {
            let (key, value) = row?;
            self.write(table, Some((&key, &value)))?;
            count += 1;
        }
        if count == 0 && self.has_tables {
            self.write(table, None)?;
        }
        Ok(count)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Of the output.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.to {
            To::Tsv(out, _) | To::Json(out) => out.flush()?,
            To::Csv(writer) => writer.flush()?,
        }
        Ok(())
    }
}

/// Returns the error of the output below an error of the library, so that a closed pipe is found.
fn as_io(error: csv::Error) -> std::io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => std::io::Error::other(format!("{other:?}")),
    }
}
