//! Pictures and pages of runs: `--plot`, `--report`, and `quench report`.

use super::options::BenchArgs;
use crate::output::{Outcome, print_text};
use anyhow::{Context, Result, bail};
use quench_bench::plot;
use quench_bench::report::Report;
use quench_bench::run_report::{Named, page};
use std::path::{Path, PathBuf};

/// `quench report`
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Reports that `quench bench --json` printed, one in each file
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The page to write
    #[arg(long, short, value_name = "FILE.html")]
    output: PathBuf,
}

fn write(path: &Path, runs: &[Named]) -> Result<()> {
    std::fs::write(path, page(runs)?).with_context(|| format!("cannot write {}", path.display()))
}

/// Draws a run into the files that the flags name.
pub(super) fn draw(args: &BenchArgs, run: &Report) -> Result<()> {
    if let Some(path) = &args.plot {
        plot::draw(run, path)?;
    }
    match &args.report {
        Some(path) => write(path, &[Named { name: run.workload.clone(), report: run.clone() }]),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Named> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // A soak prints the run with what was found after it.
    let run = |value: serde_json::Value| match value.get("run") {
        Some(run) => serde_json::from_value(run.clone()),
        None => serde_json::from_value(value),
    };
    let report = serde_json::from_str(&text).and_then(run);
    let report = report.with_context(|| {
        format!("{} is no report of a workload, as `quench bench WORKLOAD --json` prints it", path.display())
    })?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Named { name, report })
}

/// Writes a page that shows runs beside each other.
///
/// # Errors
/// A file is no report; the page cannot be written.
pub fn report(args: &ReportArgs, json: bool) -> Result<Outcome> {
    let runs = args.files.iter().map(|path| read(path)).collect::<Result<Vec<Named>>>()?;
    if runs.iter().enumerate().any(|(at, run)| runs[..at].iter().any(|other| other.name == run.name)) {
        bail!("two files have the same name, and the page names runs by their files");
    }
    write(&args.output, &runs)?;
    if !json {
        print_text(&format!("{} shows {} runs", args.output.display(), runs.len()))?;
    }
    Ok(Outcome::Done)
}
