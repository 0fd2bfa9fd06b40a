//! A figure of a paper, described as runs of this program.
//!
//! ```text
//!   Figure ─┬─ Part ─┬─ axis: values of one parameter  ┐
//!           │        ├─ variants: protocols, devices   ├─▶ a point for each pair: one command
//!           │        ├─ measures: numbers of a report  ┘
//!           │        └─ charts
//!           └─ Claim: what the paper states and where, and where our number is found
//! ```
//!
//! The figures are rows of the files of [`super::catalogue`].

use super::claim::Claim;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Depth {
    /// All values instead of those marked as quick.
    pub full: bool,
    /// Measured time of each point in seconds, instead of the point's own.
    pub seconds: Option<f64>,
}

impl Depth {
    /// The values marked as quick, for about a second each.
    pub const QUICK: Depth = Depth { full: false, seconds: None };
    /// All values, for about two seconds each.
    pub const FULL: Depth = Depth { full: true, seconds: None };

    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self.full { "full" } else { "quick" }
    }
}

/// One value of an axis, or one variant.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Name in tables and pictures.
    pub name: String,
    /// What `{x}` in flags and paths stands for.
    pub key: String,
    /// Arguments that make it.
    pub flags: String,
    /// True if `--quick` measures it, too.
    pub quick: bool,
}

impl Choice {
    /// Returns a choice with these arguments, which its name describes.
    #[must_use]
    pub fn new(name: &str, flags: &str) -> Choice {
        Choice { name: name.into(), key: name.into(), flags: flags.into(), quick: true }
    }

    /// Returns the choice with another key.
    #[must_use]
    pub fn keyed(self, key: &str) -> Choice {
        Choice { key: key.into(), ..self }
    }

    /// Returns the choice, measured by `--full` only.
    #[must_use]
    pub fn full_only(self) -> Choice {
        Choice { quick: false, ..self }
    }

    fn is_in(&self, depth: Depth) -> bool {
        self.quick || depth.full
    }
}

/// A parameter and its values.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name with unit.
    pub name: String,
    /// In the order of the picture.
    pub values: Vec<Choice>,
}

impl Axis {
    /// Returns an axis with a single value without arguments.
    #[must_use]
    pub fn none() -> Axis {
        Axis { name: String::new(), values: vec![Choice::new("", "")] }
    }
}

/// A number of a report.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Name in tables and claims.
    pub name: String,
    /// Unit of the number after the factor was applied.
    pub unit: String,
    /// Path in the JSON of the report: see [`super::results::find`].
    pub path: String,
    /// Factor from the unit of the report.
    pub factor: f64,
}

/// How a picture shows the variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A line for each variant over the axis.
    Lines,
    /// A line for each variant over several measures of one unit, such as percentiles.
    Across,
    /// A bar for each variant: measures of one unit on top of each other.
    Stacked,
    /// A bar for each variant.
    Bars,
}

/// A picture of a part.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Lines or bars.
    pub shape: Shape,
    /// Names of the measures; of a stack the lowest first.
    pub measures: Vec<String>,
    /// Value of the axis, except of lines over the axis.
    pub at: String,
    /// Logarithmic height.
    pub log: bool,
}

/// Runs with one varied parameter and several variants.
#[derive(Clone, Debug)]
pub struct Part {
    /// Name in tables and claims; empty if the figure has one part.
    pub name: String,
    /// Arguments that all points share, from the workload on. `{here}` is a directory of the
    /// point, `{s3-express}` and `{s3-standard}` are buckets of an emulated store of the point.
    pub command: String,
    /// The varied parameter.
    pub axis: Axis,
    /// What is compared.
    pub variants: Vec<Choice>,
    /// What is read from the reports.
    pub measures: Vec<Measure>,
    /// What is drawn.
    pub charts: Vec<Chart>,
    /// Measured time of a point in seconds, of `--quick` and `--full`.
    pub seconds: (f64, f64),
    /// True if the event model computes the part: its numbers decide no verdict.
    pub modelled: bool,
}

/// A point: one value of the axis, one variant, one command.
#[derive(Clone, Debug)]
pub struct Point {
    /// Index of the value.
    pub x: usize,
    /// Index of the variant.
    pub variant: usize,
    /// Arguments after `quench bench`.
    pub command: Vec<String>,
    /// Measured time.
    pub seconds: f64,
    /// True if the event model computes it: each run gives the same numbers.
    pub modelled: bool,
}

/// Replaces `{x}` by the key of the axis, `{x/2}` by half of it, `{x<8}` by at most 8 of it, and
/// `{v}` by the key of the variant.
pub(super) fn filled(text: &str, x: &Choice, variant: &Choice) -> String {
    let number = x.key.parse::<u64>().unwrap_or(0);
    let (half, eight) = ((number / 2).max(1).to_string(), number.min(8).to_string());
    let text = text.replace("{x}", &x.key).replace("{x/2}", &half).replace("{x<8}", &eight);
    text.replace("{v}", &variant.key)
}

impl Part {
    /// Returns the points that a run of this depth measures.
    #[must_use]
    pub fn points(&self, depth: Depth) -> Vec<Point> {
        let own = if depth.full { self.seconds.1 } else { self.seconds.0 };
        let seconds = depth.seconds.unwrap_or(own);
        let mut points = Vec::new();
        for (x, value) in self.axis.values.iter().enumerate().filter(|(_, value)| value.is_in(depth)) {
            for (variant, choice) in
                self.variants.iter().enumerate().filter(|(_, choice)| choice.is_in(depth))
            {
                let command = format!("{} {} {}", self.command, value.flags, choice.flags);
                let command = filled(&command, value, choice);
                let mut command: Vec<String> = command.split_whitespace().map(String::from).collect();
                command.extend(["--seconds".to_string(), seconds.to_string()]);
                points.push(Point { x, variant, command, seconds, modelled: self.modelled });
            }
        }
        points
    }

    /// Returns the measure with this name.
    #[must_use]
    pub fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }
}

/// What the report shows of a figure.
#[derive(Clone, Debug)]
pub enum Content {
    /// Runs of this program.
    Regenerated {
        /// What is measured.
        parts: Vec<Part>,
        /// What the paper states, and is judged.
        claims: Vec<Claim>,
        /// Numbers that are only shown beside ours.
        shown: Vec<Claim>,
        /// What the event model computes for a larger machine, which is not judged.
        modelled: Vec<Claim>,
        /// What is smaller than in the paper, and what that changes.
        scaled: String,
    },
    /// Nothing is measured, for this reason.
    Absent(String),
}

/// A figure or table of a paper.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Paper and number: `AC-F9a`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The published setting.
    pub setting: String,
    /// What the report shows.
    pub content: Content,
}
