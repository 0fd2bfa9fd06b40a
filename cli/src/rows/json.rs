//! Rows as JSON objects, one a line.

use super::Row;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A row as an object. A member `null` counts as missing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    table: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

/// Adds bytes to an object: as text, or under `<name>_base64` if they are not UTF-8.
pub fn json_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Returns the object of a row. `None` for the key makes an object of the table alone.
pub fn object(table: Option<&str>, row: Option<(&[u8], &[u8])>) -> Value {
    let mut object = Map::new();
    if let Some(table) = table {
        object.insert("table".into(), table.into());
    }
    if let Some((key, value)) = row {
        json_bytes(&mut object, "key", key);
        json_bytes(&mut object, "value", value);
    }
    Value::Object(object)
}

fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("both `{name}` and `{name}_base64`")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(format!("`{name}_base64` is not base64: {error}")),
        },
        (None, None) => Ok(None),
    }
}

/// Reads a line.
///
/// # Errors
/// Says what is wrong with the line.
pub fn decode(line: &[u8], has_tables: bool, row: &mut Row) -> Result<(), String> {
    match line.trim_ascii().first() {
        None => return Err("an empty line".into()),
        Some(b'[') => return Err("column 1: an array; write one object a line".into()),
        Some(_) => {}
    }
    let object: Object = serde_json::from_slice(line).map_err(said)?;
    let key = bytes("key", object.key, object.key_base64)?;
    let value = bytes("value", object.value, object.value_base64)?;
    match (object.table, has_tables) {
        (Some(table), true) => row.table = table,
        (None, false) => {}
        (Some(_), false) => return Err("a member `table`; --all reads rows of several tables".into()),
        (None, true) => return Err("no member `table`".into()),
    }
    (row.key, row.value) = match (key, value) {
        (Some(key), Some(value)) => (key, value),
        (None, None) if has_tables => (Vec::new(), Vec::new()),
        (None, _) => return Err("no member `key`".into()),
        (_, None) => return Err("no member `value`".into()),
    };
    Ok(())
}

/// Returns the error of the parser with its column. Its line is always the first.
fn said(error: serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("column {}: {what}", error.column())
}
