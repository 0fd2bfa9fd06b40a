//! Fields of CSV. Text is written as it is; a field of other bytes is `\x` and hexadecimal digits.

use super::escape::{escape, is_plain, push_hex};
use super::records::Record;
use std::borrow::Cow;

/// Begins a field in hexadecimal.
const HEX: &[u8] = b"\\x";

/// Returns bytes as a field.
pub fn field(bytes: &[u8]) -> Cow<'_, [u8]> {
    let is_text = |text: &str| text.chars().all(|c| is_plain(c) || matches!(c, '\t' | '\n' | '\r'));
    if !bytes.starts_with(HEX) && std::str::from_utf8(bytes).is_ok_and(is_text) {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(hexadecimal(bytes))
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
    if digits.is_empty() {
        return Err("`\\x` begins a field in hexadecimal: pairs of digits must follow".into());
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for pair in digits.chunks(2) {
        let (Some(high), Some(low)) = (digit(pair[0]), pair.get(1).and_then(|&low| digit(low))) else {
            return Err("`\\x` begins a field in hexadecimal: pairs of digits must follow".into());
        };
        out.push((high * 16 + low) as u8);
    }
    Ok(())
}

/// Names of the columns with the key and the value.
#[derive(Clone, PartialEq, Eq, Debug, Default, clap::Args)]
pub struct Names {
    /// Column of a CSV file with the key: its name in the header, or its number with --no-header
    /// [default: key]. Columns that are neither key nor value are left out
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// Column of a CSV file with the value
    #[arg(long, value_name = "COLUMN")]
    value_column: Option<String>,
}

impl Names {
    /// Returns whether the user named a column.
    pub fn is_chosen(&self) -> bool {
        self.key_column.is_some() || self.value_column.is_some()
    }
}

/// The columns of a file.
#[derive(Clone, Debug)]
pub struct Columns {
    table: Option<usize>,
    key: usize,
    value: usize,
    /// Columns of each record; unknown before the first record of a file without a header whose
    /// columns the user named.
    count: Option<usize>,
    /// The header. A record with the same fields is refused: two files were put together.
    header: Vec<Vec<u8>>,
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

/// Returns whether a row reads as the header. Its key is written in hexadecimal.
pub fn is_header(table: Option<&str>, key: &[u8], value: &[u8]) -> bool {
    table.is_none_or(|table| table == "table") && key == b"key" && value == b"value"
}

/// Returns a field in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEX.len() + 2 * bytes.len());
    out.extend(HEX);
    bytes.iter().for_each(|byte| push_hex(*byte, &mut out));
    out
}

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// Says which header is needed.
    pub fn of(record: &Record, has_tables: bool, names: &Names) -> Result<Columns, String> {
        let place = |name: &str| -> Result<Option<usize>, String> {
            let mut places = (0..).zip(record.iter()).filter(|(_, field)| *field == name.as_bytes());
            match (places.next(), places.next()) {
                (_, Some(_)) => Err(format!("the header has two columns `{name}`")),
                (first, None) => Ok(first.map(|(place, _)| place)),
            }
        };
        let key = names.key_column.as_deref().unwrap_or("key");
        let value = names.value_column.as_deref().unwrap_or("value");
        let wanted = || {
            let table = if has_tables { "table," } else { "" };
            match names.is_chosen() {
                true => format!("the header has no column {}", missing(record, &[key, value])),
                false => format!(
                    "the first line must be the header `{table}key,value`: add it, give --no-header, or name \
                     columns with --key-column and --value-column"
                ),
            }
        };
        let table = place("table")?;
        let (Some(key), Some(value)) = (place(key)?, place(value)?) else { return Err(wanted()) };
        if key == value {
            return Err("one column cannot be both the key and the value".into());
        }
        let count = record.len();
        match (table, has_tables) {
            (None, true) => return Err(wanted()),
            (Some(_), false) if !names.is_chosen() => {
                return Err("the header has a column `table`; --all reads rows of several tables".into());
            }
            _ if count != header(has_tables).len() && !names.is_chosen() => return Err(wanted()),
            _ => {}
        }
        let header = record.iter().map(<[u8]>::to_vec).collect();
        Ok(Columns { table: table.filter(|_| has_tables), key, value, count: Some(count), header })
    }

    /// Returns the columns of a file without a header.
    ///
    /// # Errors
    /// A chosen column is no number.
    pub fn without_header(has_tables: bool, names: &Names) -> Result<Columns, String> {
        let first = usize::from(has_tables);
        let column = |name: &Option<String>, default: usize| match name {
            None => Ok(default),
            Some(name) => match name.parse::<usize>() {
                Ok(number) if number > 0 => Ok(number - 1),
                _ => Err(format!("with --no-header a column is a number from 1, not `{name}`")),
            },
        };
        let key = column(&names.key_column, first)?;
        let value = column(&names.value_column, first + 1)?;
        if key == value || has_tables && (key == 0 || value == 0) {
            return Err("one column cannot be two of table, key and value".into());
        }
        let count = (!names.is_chosen()).then_some(first + 2);
        Ok(Columns { table: has_tables.then_some(0), key, value, count, header: Vec::new() })
    }

    /// Returns the fields of a record.
    ///
    /// # Errors
    /// Says how many fields are needed; a record that repeats the header.
    pub fn fields<'a>(&mut self, record: &'a Record) -> Result<Fields<'a>, String> {
        let found = record.len();
        if found <= self.key.max(self.value) && self.count.is_none() {
            return Err(format!("{}, and column {} is wanted", counted(found), self.key.max(self.value) + 1));
        }
        let count = *self.count.get_or_insert(found);
        if found != count {
            return Err(format!("{} instead of {count}", counted(found)));
        }
        if !self.header.is_empty() && record.iter().eq(self.header.iter().map(Vec::as_slice)) {
            return Err("the header again, as if two files were put together; a row with these texts has \
                        its key in hexadecimal: \\x6b6579"
                .into());
        }
        let field = |column: usize| record.get(column).unwrap_or_default();
        Ok(Fields { table: self.table.map_or(&[], field), key: field(self.key), value: field(self.value) })
    }
}

fn counted(fields: usize) -> String {
    if fields == 1 { "1 field".into() } else { format!("{fields} fields") }
}

/// Returns the names that the header lacks, and those that it has.
fn missing(header: &Record, names: &[&str]) -> String {
    let has = |name: &str| header.iter().any(|field| field == name.as_bytes());
    let lacking: Vec<_> = names.iter().filter(|name| !has(name)).map(|name| format!("`{name}`")).collect();
    let there: Vec<_> = header.iter().map(escape).collect();
    format!("{}; it has `{}`", lacking.join(" and no column "), there.join("`, `"))
}
