//! `get`, `put`, `delete`, `scan`: rows by key.

use super::create::Writable;
use super::range::Asked;
use super::source::{SourceArgs, open_to_write};
use crate::errors::complain;
use crate::output::{Outcome, print_json, print_text};
use crate::rows::write::RowWriter;
use crate::rows::{Format, escape, json_bytes, unescape};
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Write};
use std::path::PathBuf;

/// A row of a database.
#[derive(clap::Args)]
pub struct RowArgs {
    /// Database directory
    directory: PathBuf,
    /// Table
    table: String,
    /// Key; \t \n \r \\ \xNN are escapes
    key: String,
}

impl RowArgs {
    fn key(&self) -> Result<Vec<u8>> {
        unescape(self.key.as_bytes()).context("the key")
    }
}

/// `quench get`
#[derive(clap::Args)]
pub struct GetArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Table
    table: String,
    /// Key; \t \n \r \\ and \xNN are escapes
    key: String,
    /// Write the value's bytes as they are, without escapes and newline
    #[arg(long)]
    raw: bool,
}

/// `quench put`
#[derive(clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    row: RowArgs,
    /// Value with the same escapes, or - for the bytes of standard input as they are
    #[arg(allow_hyphen_values = true, required_unless_present = "file", conflicts_with = "file")]
    value: Option<String>,
    /// Read the value from this file, or - for standard input, without escapes
    #[arg(long)]
    file: Option<PathBuf>,
}

/// `quench delete`
#[derive(clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    row: RowArgs,
}

/// `quench scan`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench scan mydb t --from a --to b\n  quench scan mydb t --prefix user: --limit 10\n  \
                        quench scan mydb t --reverse --limit 1    the last row"
)]
pub struct ScanArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Table
    table: String,
    /// First key of the range (with the same escapes)
    #[arg(long)]
    from: Option<String>,
    /// End of the range: keys below this one
    #[arg(long)]
    to: Option<String>,
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Most rows
    #[arg(long)]
    limit: Option<usize>,
    /// Format of the rows [default: tsv; json with --json]
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// Runs `get`.
pub fn get(args: &GetArgs, as_json: bool) -> Result<Outcome> {
    let key = unescape(args.key.as_bytes()).context("the key")?;
    let (_database, table, snapshot) = args.source.table(&args.table)?;
    if args.raw && !as_json {
        // Piece by piece: the value may be as large as a file.
        let Some(mut value) = snapshot.read_value(&table, &key)? else {
            return Ok(not_found(&args.key, as_json));
        };
        let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
        std::io::copy(&mut value, &mut out)?;
        out.flush()?;
        return Ok(Outcome::Done);
    }
    let value = snapshot.get(&table, &key)?;
    if as_json {
        let mut object = Map::new();
        json_bytes(&mut object, "key", &key);
        object.insert("found".into(), value.is_some().into());
        if let Some(value) = &value {
            json_bytes(&mut object, "value", value);
        }
        print_json(&object)?;
    } else if let Some(value) = &value {
        print_text(&(escape(value) + "\n"))?;
    }
    Ok(if value.is_some() { Outcome::Done } else { not_found(&args.key, as_json) })
}

fn not_found(key: &str, as_json: bool) -> Outcome {
    if !as_json {
        crate::errors::complain(&format!("no row has the key `{key}`"));
    }
    Outcome::Wrong
}

/// Prints a key with more members as one JSON object.
fn print_row(key: &[u8], members: impl IntoIterator<Item = (&'static str, Value)>) -> Result<()> {
    let mut object = Map::new();
    json_bytes(&mut object, "key", key);
    object.extend(members.into_iter().map(|(name, value)| (name.to_string(), value)));
    print_json(&object)
}

/// Runs `put`.
pub fn put(args: &PutArgs, as_json: bool) -> Result<Outcome> {
    let key = args.row.key()?;
    let mut value: Box<dyn Read> = match (&args.file, &args.value) {
        (Some(file), _) if file.as_os_str() != "-" => {
            Box::new(File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
        }
        (None, Some(text)) if text != "-" => {
            Box::new(Cursor::new(unescape(text.as_bytes()).context("the value")?))
        }
        _ => Box::new(std::io::stdin().lock()),
    };
    let mut writable = Writable::open_or_create(&args.row.directory)?;
    let table = writable.table_or_create(&args.row.table)?;
    let mut transaction = writable.database()?.begin()?;
    let value_bytes = transaction.insert_from(&table, &key, &mut value)?;
    let csn = transaction.commit()?;
    let created = writable.close()?;
    if as_json {
        print_row(
            &key,
            [
                ("value_bytes", value_bytes.into()),
                ("csn", csn.0.into()),
                ("created_database", created.database.is_some().into()),
                ("created_table", (!created.tables.is_empty()).into()),
            ],
        )?;
    } else if let Some(created) = created.sentence() {
        complain(&created);
    }
    Ok(Outcome::Done)
}

/// Runs `delete`.
pub fn delete(args: &DeleteArgs, as_json: bool) -> Result<Outcome> {
    let key = args.row.key()?;
    let database = open_to_write(&args.row.directory, false)?;
    let table = database.table(&args.row.table)?;
    let mut transaction = database.begin()?;
    let found = transaction.remove(&table, &key)?;
    transaction.commit()?;
    database.close()?;
    if as_json {
        print_row(&key, [("found", found.into())])?;
    }
    Ok(if found { Outcome::Done } else { not_found(&args.row.key, as_json) })
}

fn asked(args: &ScanArgs) -> Result<Asked> {
    let decode = |text: &Option<String>| {
        text.as_ref().map(|text| unescape(text.as_bytes())).transpose().context("the range")
    };
    Ok(Asked { from: decode(&args.from)?, to: decode(&args.to)?, prefix: decode(&args.prefix)? })
}

/// Runs `scan`.
pub fn scan(args: &ScanArgs, as_json: bool) -> Result<Outcome> {
    let bounds = asked(args)?.bounds();
    let (_database, table, snapshot) = args.source.table(&args.table)?;
    let range = snapshot.range(&table, bounds);
    let rows: Box<dyn Iterator<Item = _>> =
        if args.reverse { Box::new(range.rev()) } else { Box::new(range) };
    let format = args.format.unwrap_or(if as_json { Format::Json } else { Format::Tsv });
    let mut writer = RowWriter::new(BufWriter::new(std::io::stdout().lock()), format, false)?;
    writer.rows(&args.table, rows.take(args.limit.unwrap_or(usize::MAX)))?;
    writer.flush()?;
    Ok(Outcome::Done)
}
