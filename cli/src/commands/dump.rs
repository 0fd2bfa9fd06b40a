//! `dump`: a table as lines, in key order; what `load` reads.

use super::SourceArgs;
use crate::output::{Outcome, Progress};
use crate::rows::write_rows;
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use std::fs::{File, Metadata};
use std::io::BufWriter;
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
    /// File to write, or - for standard output. It takes the place of one that is there when it is complete
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// Runs it.
pub fn run(args: &DumpArgs, as_json: bool) -> Result<Outcome> {
    let (_database, table, snapshot) = args.source.table(&args.table)?;
    let range = snapshot.range::<&[u8]>(&table, ..);
    if args.file == Path::new("-") {
        let progress = Progress::beside_output();
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
        let written = write_rows(progress.rows(&args.table, range), as_json, &mut out);
        progress.finish();
        written?;
    } else {
        let progress = Progress::new();
        let written =
            write_file(&args.file, |out| write_rows(progress.rows(&args.table, range), as_json, out));
        progress.finish();
        written.with_context(|| format!("cannot dump to {}", args.file.display()))?;
    }
    Ok(Outcome::Done)
}

const BUFFER_BYTES: usize = 1 << 18;

/// Has a file written. One that is there under this name stays as it is until the new one is complete and durable.
fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        there => Some(there?),
    };
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        // A pipe, a device: nothing else can be in its place.
        return write(&mut BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?));
    }
    // Not the link is replaced, but what it leads to.
    let path = if there.is_some() { path.canonicalize()? } else { path.to_path_buf() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = Scratch::within(parent, "dump")?;
    let new = scratch.path().join("rows");
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(&new)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    if let Some(permissions) = there.as_ref().map(Metadata::permissions) {
        file.set_permissions(permissions)?;
    }
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    Ok(File::open(parent)?.sync_all()?)
}
