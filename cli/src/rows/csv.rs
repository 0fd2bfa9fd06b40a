//! Fields of CSV. Text is written as it is; a field of other bytes is `\x` and hexadecimal digits.

use super::escape::{is_plain, push_hex};
use std::borrow::Cow;

/// Begins a field in hexadecimal.
const HEX: &[u8] = b"\\x";

/// Returns bytes as a field.
pub fn field(bytes: &[u8]) -> Cow<'_, [u8]> {
    let is_text = |text: &str| text.chars().all(|c| is_plain(c) || matches!(c, '\t' | '\n' | '\r'));
    if !bytes.starts_with(HEX) && std::str::from_utf8(bytes).is_ok_and(is_text) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(HEX.len() + 2 * bytes.len());
    out.extend(HEX);
    bytes.iter().for_each(|byte| push_hex(*byte, &mut out));
    Cow::Owned(out)
}

/// Sets `out` to the bytes of a field.
///
/// # Errors
/// Says what is wrong with the field.
pub fn decode(field: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    out.clear();
    let Some(digits) = field.strip_prefix(HEX) else {
        out.extend(field);
        return Ok(());
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for pair in digits.chunks(2) {
        let (Some(high), Some(low)) = (digit(pair[0]), pair.get(1).and_then(|&low| digit(low))) else {
            return Err("`\\x` begins a field in hexadecimal: pairs of digits must follow".into());
        };
        out.push((high * 16 + low) as u8);
    }
    Ok(())
}

/// The columns of a header.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    table: Option<usize>,
    key: usize,
    value: usize,
    count: usize,
}

/// The fields of a record.
pub struct Fields<'a> {
    /// Name of the table; empty in a file of one table.
    pub table: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Names of the columns in a dump.
pub fn header(has_tables: bool) -> &'static [&'static str] {
    if has_tables { &["table", "key", "value"] } else { &["key", "value"] }
}

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// Says which header is needed.
    pub fn of(record: &csv::ByteRecord, has_tables: bool) -> Result<Columns, String> {
        let place = |name: &str| record.iter().position(|field| field == name.as_bytes());
        let names = header(has_tables);
        let all = names.iter().all(|name| place(name).is_some()) && record.len() == names.len();
        match (place("table"), place("key"), place("value")) {
            (table, Some(key), Some(value)) if all => Ok(Columns { table, key, value, count: names.len() }),
            (Some(_), Some(_), Some(_)) => {
                Err("the header has a column `table`; --all reads rows of several tables".into())
            }
            _ => Err(format!(
                "the first line must be the header `{}`: add it, or give --no-header",
                names.join(",")
            )),
        }
    }

    /// Returns the columns of a file without a header.
    pub fn without_header(has_tables: bool) -> Columns {
        let first = usize::from(has_tables);
        Columns { table: has_tables.then_some(0), key: first, value: first + 1, count: first + 2 }
    }

    /// Returns the fields of a record.
    ///
    /// # Errors
    /// Says how many fields are needed.
    pub fn fields<'a>(&self, record: &'a csv::ByteRecord) -> Result<Fields<'a>, String> {
        if record.len() != self.count {
            return Err(format!("{} fields instead of {}", record.len(), self.count));
        }
        let field = |column: usize| record.get(column).unwrap_or_default();
        Ok(Fields { table: self.table.map_or(&[], field), key: field(self.key), value: field(self.value) })
    }
}
