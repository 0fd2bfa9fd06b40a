//! The flags of `quench bench figures`.

use quench_bench::figures::spec::Depth;
use std::path::PathBuf;

/// Flags of `figures`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Figures")]
pub struct FiguresArgs {
    /// Measure the fewest values, once, so that no verdict knows the noise: at most 15 minutes for
    /// all figures; the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure all values, three times in rotation: about an hour and a half for all figures
    #[arg(long)]
    full: bool,
    /// Directory of the report and of all measured points; a later call continues with the points
    /// that are missing. Default: figures
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Print the figures and what each measures, and measure nothing
    #[arg(long)]
    pub(super) list: bool,
    /// Use points in --out that another build of this program measured
    #[arg(long)]
    pub(super) any_build: bool,
    /// Makes this process end when its parent does
    #[arg(long, hide = true)]
    pub(super) point: bool,
}

impl FiguresArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--quick", self.quick),
            ("--full", self.full),
            ("--out", self.out.is_some()),
            ("--list", self.list),
            ("--any-build", self.any_build),
        ];
        flags.into_iter().find(|flag| flag.1).map(|flag| flag.0)
    }

    /// Returns how much is measured.
    pub(super) fn depth(&self, seconds: Option<f64>) -> Depth {
        Depth { full: self.full, seconds }
    }

    /// Returns how often each point is measured.
    pub(super) fn runs(&self) -> usize {
        if self.full { 3 } else { 1 }
    }
}
