//! `dump`: a table as lines, in key order; what `load` reads.

use super::SourceArgs;
use crate::output::Outcome;
use crate::rows::write_rows;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// `quench dump`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench dump mydb words > words.tsv\n  quench dump mydb words | head -3\n  \
                        quench dump mydb words --json"
)]
pub struct DumpArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Table
    table: String,
    /// File to write, or - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// Runs it.
pub fn run(args: &DumpArgs, as_json: bool) -> Result<Outcome> {
    let (_database, table, snapshot) = args.source.table(&args.table)?;
    let sink: Box<dyn Write> = if args.file == Path::new("-") {
        Box::new(std::io::stdout().lock())
    } else {
        Box::new(File::create(&args.file).with_context(|| format!("cannot create {}", args.file.display()))?)
    };
    let mut out = BufWriter::with_capacity(1 << 18, sink);
    write_rows(snapshot.range::<&[u8]>(&table, ..), as_json, &mut out)?;
    Ok(Outcome::Done)
}
