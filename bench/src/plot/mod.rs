//! Pictures as SVG: of a run over time, and of a comparison.

mod axes;
mod bars;
mod run;

pub(crate) use axes::short;
pub use bars::draw_comparison;
pub use run::draw;
