//! `dump`: one table or all tables, in key order; what `load` reads.

use super::load::{MARKERS, table_and_file};
use super::source::{SourceArgs, refuse_inside};
use crate::output::{Outcome, Progress};
use crate::rows::Format;
use crate::rows::write::RowWriter;
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use quenchdb::{Database, Snapshot, Table, TableKind};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// `quench dump`
#[derive(clap::Args)]
#[command(
    override_usage = "quench dump [OPTIONS] <DIRECTORY> <TABLE> [FILE]\n       quench dump [OPTIONS] <DIRECTORY> --all [FILE]",
    after_help = "Examples:\n  quench dump mydb words > words.tsv\n  quench dump mydb words words.csv\n  \
                        quench dump mydb --all all.jsonl\n  quench dump mydb words --json | head -3"
)]
pub struct DumpArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Table. With --all, the file
    table: Option<String>,
    /// File to write, or - for standard output. Replaces an existing file atomically once the dump
    /// is complete. The existing file must be writable; the new one keeps its owner if possible,
    /// and hard links keep the old rows
    file: Option<PathBuf>,
    /// Dump all tables without indexes; each row names its table first
    #[arg(long)]
    all: bool,
    /// Format [default: as the file's extension says, otherwise tsv; json with --json]
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// The tables to dump.
struct Dump<'a> {
    snapshot: &'a Snapshot,
    tables: Vec<Table>,
    format: Format,
    has_tables: bool,
}

impl Dump<'_> {
    fn write(&self, progress: &Progress, out: &mut impl Write) -> Result<()> {
        let mut writer = RowWriter::new(out, self.format, self.has_tables)?;
        for table in &self.tables {
            let range = self.snapshot.range(table, ..);
            writer.rows(&table.name(), progress.rows(&table.name(), range))?;
        }
        writer.flush()
    }
}

/// The table that lists indexes by numbers of tables, which are others in another database.
const INDEX_LIST: &str = "quench.indexes";

/// Returns all tables without indexes, which are built again where the dump is loaded.
fn all_tables(database: &Database) -> quenchdb::Result<Vec<Table>> {
    let names = database.tables().into_iter().filter(|name| name != MARKERS && name != INDEX_LIST);
    let tables = names.map(|name| database.table(&name)).collect::<quenchdb::Result<Vec<_>>>()?;
    let is_index = |table: &Table| {
        let kind = table.types().map(|types| types.kind());
        matches!(kind, Some(TableKind::Index | TableKind::UniqueIndex))
    };
    Ok(tables.into_iter().filter(|table| !is_index(table)).collect())
}

/// Runs `dump`.
pub fn run(args: &DumpArgs, as_json: bool) -> Result<Outcome> {
    let (table, file) = table_and_file(&args.table, &args.file, args.all)?;
    let of_flag = args.format.or(as_json.then_some(Format::Json));
    let format = of_flag.or_else(|| Format::of_file(file)).unwrap_or(Format::Tsv);
    if file != Path::new("-") {
        refuse_inside(file, &args.source.directory)?;
    }
    let database = args.source.open()?;
    let tables = match table {
        Some(table) => vec![database.table(table)?],
        None => all_tables(&database)?,
    };
    let snapshot = database.begin_read()?;
    let dump = Dump { snapshot: &snapshot, tables, format, has_tables: args.all };
    if file == Path::new("-") {
        let progress = Progress::beside_output();
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
        let written = dump.write(&progress, &mut out);
        progress.finish();
        written?;
    } else {
        let progress = Progress::new();
        let written = write_file(file, |out| dump.write(&progress, out));
        progress.finish();
        written.with_context(|| format!("cannot dump to {}", file.display()))?;
    }
    Ok(Outcome::Done)
}

const BUFFER_BYTES: usize = 1 << 18;

/// Writes a file. An existing file of this name stays as it is until the new one is complete and
/// durable.
fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let existing = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found?),
    };
    if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
        // A pipe or a device cannot be replaced.
        return write(&mut BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?));
    }
    // Replaces the target of a link, not the link.
    let path = if existing.is_some() { path.canonicalize()? } else { path.to_path_buf() };
    if existing.is_some() {
        // Does not replace a file without write permission.
        OpenOptions::new().write(true).open(&path)?;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = Scratch::within(parent, "dump")?;
    let new = scratch.path().join("rows");
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(&new)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    if let Some(existing) = &existing {
        // A user may be allowed to change only the group, or nothing. Permissions come last,
        // because chown clears some.
        let is_owners = fchown(&file, Some(existing.uid()), Some(existing.gid())).is_ok();
        let is_groups = is_owners || fchown(&file, None, Some(existing.gid())).is_ok();
        let mode = existing.permissions().mode() & if is_owners { !0 } else { !0o4000 };
        file.set_permissions(PermissionsExt::from_mode(if is_groups { mode } else { without_group(mode) }))?;
    }
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    Ok(sync_directory(parent)?)
}

/// Removes permissions of the group, unless all others have them too: the file has another group
/// now.
fn without_group(mode: u32) -> u32 {
    mode & !(0o2000 | 0o070 & !(mode << 3))
}

/// Makes a new name durable. Ignores a directory that cannot be read, and a file system that cannot
/// sync one.
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
