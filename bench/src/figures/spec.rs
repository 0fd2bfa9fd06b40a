//! A figure of a paper, described as runs of this program.
//!
//! ```text
//!   Figure ─┬─ Part ─┬─ axis: values of one parameter  ┐
//!           │        ├─ variants: protocols, devices   ├─▶ a point for each pair: one command
//!           │        ├─ measures: numbers of a report  ┘
//!           │        └─ charts
//!           └─ Claim: a published number, and where ours is found
//! ```

use std::borrow::Cow;

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
    pub name: &'static str,
    /// In the order of the picture.
    pub values: Vec<Choice>,
}

impl Axis {
    /// Returns an axis with a single value without arguments.
    #[must_use]
    pub fn none() -> Axis {
        Axis { name: "", values: vec![Choice::new("", "")] }
    }

    /// Returns the axis of a flag: `values` separated by blanks, those for `--full` only in
    /// brackets.
    #[must_use]
    pub fn flag(name: &'static str, flag: &str, values: &str) -> Axis {
        let value = |text: &str| {
            let bare = text.trim_matches(['(', ')']);
            let choice = Choice::new(bare, &format!("{flag} {bare}"));
            if bare == text { choice } else { choice.full_only() }
        };
        Axis { name, values: values.split_whitespace().map(value).collect() }
    }
}

/// A number of a report.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Name in tables and claims.
    pub name: &'static str,
    /// Unit of the number after the factor was applied.
    pub unit: &'static str,
    /// Path in the JSON of the report: see [`super::results::find`].
    pub path: &'static str,
    /// Factor from the unit of the report.
    pub factor: f64,
}

/// A picture of a part.
#[derive(Clone, Copy, Debug)]
pub enum Chart {
    /// A line for each variant over the axis.
    Lines {
        /// Name of the measure.
        measure: &'static str,
        /// Logarithmic height.
        log: bool,
    },
    /// A line for each variant over several measures of one unit, such as percentiles.
    Across {
        /// Names of the measures.
        measures: &'static [&'static str],
        /// Value of the axis.
        at: &'static str,
        /// Logarithmic height.
        log: bool,
    },
    /// A bar for each variant: measures of one unit on top of each other.
    Stacked {
        /// Names of the measures, the lowest first.
        measures: &'static [&'static str],
        /// Value of the axis.
        at: &'static str,
    },
    /// A bar for each variant.
    Bars {
        /// Name of the measure.
        measure: &'static str,
        /// Value of the axis.
        at: &'static str,
        /// Logarithmic height.
        log: bool,
    },
}

/// Runs with one varied parameter and several variants.
#[derive(Clone, Debug)]
pub struct Part {
    /// Name in tables and claims; empty if the figure has one part.
    pub name: &'static str,
    /// Arguments that all points share, from the workload on. `{here}` is a directory of the
    /// point.
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
                points.push(Point { x, variant, command, seconds });
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

/// A number of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Name of the part.
    pub part: &'static str,
    /// Value of the axis.
    pub x: &'static str,
    /// Variant.
    pub variant: &'static str,
    /// Measure.
    pub measure: &'static str,
}

/// Computes a number of ours that a paper states, too.
#[derive(Clone, Copy, Debug)]
pub enum Ours {
    /// The number itself.
    Value(At),
    /// The first divided by the second.
    Ratio(At, At),
    /// The first as a percentage of the second.
    Percent(At, At),
    /// Change from the second to the first in percent of the second.
    Change(At, At),
    /// The largest value over the axis divided by the smallest, of the variant and measure.
    Spread(At),
    /// The largest value over the axis.
    Most(At),
    /// The smallest quotient over the axis of the variant and the largest other one.
    LeastAgainstOthers(At),
}

/// When the shape is the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Holds {
    /// Our number is at least this.
    AtLeast(f64),
    /// Our number is at most this.
    AtMost(f64),
    /// Our number lies between these.
    Between(f64, f64),
    /// Any number: the machines differ, and the number is only shown.
    Shown,
}

impl Holds {
    /// Returns whether a number satisfies the condition.
    #[must_use]
    pub fn of(self, ours: f64) -> bool {
        match self {
            Holds::AtLeast(least) => ours >= least,
            Holds::AtMost(most) => ours <= most,
            Holds::Between(least, most) => (least..=most).contains(&ours),
            Holds::Shown => true,
        }
    }
}

/// A published number, and ours.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What the number is.
    pub text: Cow<'static, str>,
    /// The published number; none if the paper states only the direction.
    pub published: Option<f64>,
    /// Unit of both numbers.
    pub unit: &'static str,
    /// Ours.
    pub ours: Ours,
    /// When the shape is the same.
    pub holds: Holds,
    /// Why it is another shape here, if it is.
    pub otherwise: &'static str,
}

/// What the report shows of a figure.
#[derive(Clone, Debug)]
pub enum Content {
    /// Runs of this program.
    Regenerated {
        /// What is measured.
        parts: Vec<Part>,
        /// What the paper states.
        claims: Vec<Claim>,
        /// What is smaller than in the paper, and what that changes.
        scaled: &'static str,
    },
    /// Nothing is measured, for this reason.
    Absent(&'static str),
}

/// A figure or table of a paper.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Paper and number: `AC-F9a`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The published setting.
    pub setting: &'static str,
    /// What the report shows.
    pub content: Content,
}
