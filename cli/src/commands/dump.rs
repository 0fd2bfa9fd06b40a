//! `dump`: a table as lines, in key order; what `load` reads.

use super::source::SourceArgs;
use crate::output::{Outcome, Progress};
use crate::rows::write_rows;
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
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
    /// File to write, or - for standard output. It takes the place of one that is there when it is complete: that has to be one that may
    /// be written, in a directory in which files may be made; its owner stays if possible, and other names of it keep the old rows
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
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        there => Some(there?),
    };
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        // A pipe, a device: nothing else can be in its place.
        return write(&mut BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?));
    }
    // Not the link is replaced, but what it leads to.
    let path = if there.is_some() { path.canonicalize()? } else { path.to_path_buf() };
    if there.is_some() {
        // What may not be written is not replaced either.
        OpenOptions::new().write(true).open(&path)?;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = Scratch::within(parent, "dump")?;
    let new = scratch.path().join("rows");
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(&new)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    if let Some(there) = &there {
        // Not everybody may give a file away, some may give it to another group of theirs. Permissions come after it, for it takes some of them.
        let is_owners = fchown(&file, Some(there.uid()), Some(there.gid())).is_ok();
        let is_groups = is_owners || fchown(&file, None, Some(there.gid())).is_ok();
        let mode = there.permissions().mode() & if is_owners { !0 } else { !0o4000 };
        file.set_permissions(PermissionsExt::from_mode(if is_groups { mode } else { without_group(mode) }))?;
    }
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    Ok(sync_directory(parent)?)
}

/// What was meant for another group is for ours only if it is for everybody.
fn without_group(mode: u32) -> u32 {
    mode & !(0o2000 | 0o070 & !(mode << 3))
}

/// So that a new name outlives a power cut, where the directory may be read and its file system knows of such a thing.
fn sync_directory(directory: &Path) -> std::io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests;
