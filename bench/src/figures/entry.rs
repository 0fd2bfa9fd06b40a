//! A figure as it was measured: what the page, the tables and the JSON show.

use super::claim::{Claim, Published, Verdict};
use super::results::Results;
use super::runs::Summary;
use super::spec::{Chart, Choice, Content, Depth, Figure, Part, Point, Shape};
use serde::{Deserialize, Serialize};

/// The values of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name of the variant, or of the stacked measure.
    pub name: String,
    /// One for each label of the chart.
    pub values: Vec<Option<Summary>>,
}

/// How values are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Lines with marks.
    Lines,
    /// Bars beside each other.
    Bars,
    /// Bars on top of each other.
    Stacked,
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Name of the vertical axis with its unit.
    pub y_name: String,
    /// Labels of the horizontal axis.
    pub labels: Vec<String>,
    /// How it is drawn.
    pub form: Form,
    /// Logarithmic height.
    pub log: bool,
    /// The lines or bars.
    pub series: Vec<Series>,
}

/// A row of the table of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the part.
    pub part: String,
    /// Value of the axis.
    pub x: String,
    /// Variant.
    pub variant: String,
    /// Measure.
    pub measure: String,
    /// Unit.
    pub unit: String,
    /// Over all runs.
    pub value: Summary,
}

/// A statement of a paper beside our number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The statement.
    pub text: String,
    /// Where it stands in the paper.
    pub place: String,
    /// Unit of all numbers.
    pub unit: String,
    /// The published number; none if the paper states only a direction.
    pub published: Option<f64>,
    /// The published direction, if the paper states only that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub direction: Option<String>,
    /// The number without the effect, and the band that reproduces the claim; none if the
    /// statement is not judged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub band: Option<Band>,
    /// Ours over all rounds of runs, if it was measured.
    pub ours: Option<Summary>,
    /// Our effect as a multiple of the published one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub strength: Option<f64>,
    /// None if the statement is not judged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<Verdict>,
    /// Why ours is another number, unless it reproduces the claim; what a model assumes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub because: Option<String>,
    /// True if it is a headline of the paper.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub headline: bool,
}

/// What our number is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The number without the effect.
    pub without: f64,
    /// The smallest number that reproduces the claim.
    pub least: Option<f64>,
    /// The largest one.
    pub most: Option<f64>,
}

impl Comparison {
    /// Returns a statement and our number, without a verdict.
    fn shown(claim: &Claim, ours: Option<Summary>) -> Comparison {
        let direction = match claim.published {
            Published::More => Some("more"),
            Published::Less => Some("less"),
            Published::Number(_) | Published::Nothing => None,
        };
        Comparison {
            text: claim.text.clone(),
            place: claim.place.clone(),
            unit: claim.unit.clone(),
            published: match claim.published {
                Published::Number(number) => Some(number),
                _ => None,
            },
            direction: direction.map(String::from),
            band: None,
            ours,
            strength: None,
            verdict: None,
            because: Some(claim.because.clone()).filter(|because| !because.is_empty()),
            headline: claim.headline,
        }
    }

    /// Returns a claim with its verdict.
    pub(super) fn judged(claim: &Claim, ours: Option<Summary>) -> Comparison {
        let (verdict, strength) = claim.verdict(ours.as_ref());
        let (least, most) = claim.band();
        let shown = Comparison::shown(claim, ours);
        Comparison {
            band: Some(Band { without: claim.without, least, most }),
            strength,
            because: shown.because.filter(|_| verdict != Verdict::Reproduced),
            verdict: Some(verdict),
            ..shown
        }
    }
}

/// What became of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All points were measured.
    Measured,
    /// A point is missing.
    Incomplete,
    /// It cannot be regenerated here.
    Absent,
}

/// A figure as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Paper and number.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The published setting.
    pub setting: String,
    /// What is smaller here, or why the figure is absent.
    pub scaled: String,
    /// What became of it.
    pub state: State,
    /// Claims of the paper, with a verdict each.
    pub claims: Vec<Comparison>,
    /// Numbers that are only shown.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shown: Vec<Comparison>,
    /// What the event model computes for a larger machine.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub modelled: Vec<Comparison>,
    /// The pictures.
    pub pictures: Vec<Picture>,
    /// All numbers.
    pub rows: Vec<Row>,
    /// One command of each part, with `X` and the flags of the variants.
    pub commands: Vec<String>,
    /// Runs of each point: the smallest number.
    pub runs: usize,
    /// Errors of points.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<String>,
}

/// A report of several figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// `quick` or `full`.
    pub depth: String,
    /// The day, UTC.
    pub date: String,
    /// Processors, memory, kernel.
    pub machine: String,
    /// In the order of the papers.
    pub figures: Vec<Entry>,
}

/// One part while its entry is made.
struct Measured<'a> {
    part: &'a Part,
    points: Vec<Point>,
    results: &'a Results,
}

impl Measured<'_> {
    fn choices(&self, point: &Point) -> (&Choice, &Choice) {
        (&self.part.axis.values[point.x], &self.part.variants[point.variant])
    }

    fn summary(&self, point: &Point, measure: &str) -> Option<Summary> {
        self.results.summary(self.part, &point.command, self.choices(point), measure)
    }

    /// Returns the indices of the measured variants, in their order.
    fn variants(&self) -> Vec<usize> {
        let mut variants: Vec<usize> = self.points.iter().map(|point| point.variant).collect();
        variants.sort_unstable();
        variants.dedup();
        variants
    }

    fn at(&self, x: &str, variant: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.variant == variant && self.choices(point).0.name == x)
    }

    fn name(&self, variant: usize) -> String {
        self.part.variants[variant].name.clone()
    }

    fn title(&self, text: &str, at: &str) -> String {
        let axis = &self.part.axis.name;
        let at = if at.is_empty() { String::new() } else { format!("{axis} {at}") };
        [&*self.part.name, text, &at]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn unit(&self, measure: &str) -> &str {
        self.part.measure(measure).map_or("", |measure| &measure.unit)
    }

    fn picture(&self, chart: &Chart) -> Picture {
        match chart.shape {
            Shape::Lines => self.lines(chart),
            Shape::Across => self.across(chart),
            Shape::Stacked | Shape::Bars => self.bars(chart),
        }
    }

    /// Returns a line for each variant over the axis.
    fn lines(&self, chart: &Chart) -> Picture {
        let measure = chart.measures.first().map_or("", String::as_str);
        let mut places: Vec<usize> = self.points.iter().map(|point| point.x).collect();
        places.dedup();
        let labels: Vec<String> =
            places.iter().map(|place| self.part.axis.values[*place].name.clone()).collect();
        let values = |variant: usize| {
            let value = |x: &String| self.summary(self.at(x, variant)?, measure);
            labels.iter().map(value).collect()
        };
        let series = |variant: &usize| Series { name: self.name(*variant), values: values(*variant) };
        Picture {
            title: self.title(measure, ""),
            x_name: self.part.axis.name.clone(),
            y_name: self.unit(measure).into(),
            form: Form::Lines,
            log: chart.log,
            series: self.variants().iter().map(series).collect(),
            labels,
        }
    }

    /// Returns a line for each variant over several measures.
    fn across(&self, chart: &Chart) -> Picture {
        let value = |variant, measure: &String| self.summary(self.at(&chart.at, variant)?, measure);
        let series = |variant: &usize| Series {
            name: self.name(*variant),
            values: chart.measures.iter().map(|measure| value(*variant, measure)).collect(),
        };
        Picture {
            title: self.title("", &chart.at),
            x_name: String::new(),
            y_name: chart.measures.first().map_or("", |measure| self.unit(measure)).into(),
            labels: chart.measures.clone(),
            form: Form::Lines,
            log: chart.log,
            series: self.variants().iter().map(series).collect(),
        }
    }

    /// Returns bars: a label for each variant, a series for each measure.
    fn bars(&self, chart: &Chart) -> Picture {
        let variants = self.variants();
        let value = |variant: &usize, measure: &str| self.summary(self.at(&chart.at, *variant)?, measure);
        let series = |measure: &String| Series {
            name: measure.clone(),
            values: variants.iter().map(|variant| value(variant, measure)).collect(),
        };
        let title = if let [measure] = &chart.measures[..] { measure } else { "" };
        Picture {
            title: self.title(title, &chart.at),
            x_name: String::new(),
            y_name: chart.measures.first().map_or("", |measure| self.unit(measure)).into(),
            labels: variants.iter().map(|variant| self.name(*variant)).collect(),
            form: if chart.shape == Shape::Stacked { Form::Stacked } else { Form::Bars },
            log: chart.log,
            series: chart.measures.iter().map(series).collect(),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for point in &self.points {
            let (x, variant) = self.choices(point);
            for measure in &self.part.measures {
                let Some(value) = self.summary(point, &measure.name) else { continue };
                rows.push(Row {
                    part: self.part.name.clone(),
                    x: x.name.clone(),
                    variant: variant.name.clone(),
                    measure: measure.name.clone(),
                    unit: measure.unit.clone(),
                    value,
                });
            }
        }
        rows
    }
}

/// Returns the commands of a part: what is shared, and the flags of each variant.
fn commands(part: &Part) -> Vec<String> {
    let axis = part.axis.values.first().filter(|value| !value.flags.is_empty());
    let axis = axis.map(|value| value.flags.replace(&value.key, "X")).unwrap_or_default();
    let line = |variant: &Choice| {
        let command = format!("quench bench {} {axis} {}", part.command, variant.flags);
        let command = command.replace("{x}", "X").replace("{v}", &variant.key);
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        if variant.name.is_empty() { command } else { format!("{}: {command}", variant.name) }
    };
    part.variants.iter().map(line).collect()
}

impl Entry {
    /// Returns the entry of a figure from the reports measured so far. `errors` are those of its
    /// points.
    #[must_use]
    pub fn of(figure: &Figure, depth: Depth, results: &Results, errors: Vec<String>) -> Entry {
        let mut entry = Entry {
            id: figure.id.clone(),
            title: figure.title.clone(),
            setting: figure.setting.clone(),
            scaled: String::new(),
            state: State::Absent,
            claims: Vec::new(),
            shown: Vec::new(),
            modelled: Vec::new(),
            pictures: Vec::new(),
            rows: Vec::new(),
            commands: Vec::new(),
            runs: 0,
            errors,
        };
        let (parts, claims, shown, modelled) = match &figure.content {
            Content::Absent(reason) => return Entry { scaled: reason.clone(), ..entry },
            Content::Regenerated { parts, claims, shown, modelled, scaled } => {
                entry.scaled.clone_from(scaled);
                (parts, claims, shown, modelled)
            }
        };
        let mut runs = usize::MAX;
        for part in parts {
            let measured = Measured { part, points: part.points(depth), results };
            entry.pictures.extend(part.charts.iter().map(|chart| measured.picture(chart)));
            entry.rows.extend(measured.rows());
            entry.commands.extend(commands(part));
            // The model computes the same numbers each time.
            let counted = measured.points.iter().filter(|_| !part.modelled);
            runs = counted.map(|point| results.runs(&point.command)).fold(runs, usize::min);
        }
        entry.runs = runs;
        let ours = |claim: &Claim| results.ours(parts, depth, &claim.ours);
        entry.claims = claims.iter().map(|claim| Comparison::judged(claim, ours(claim))).collect();
        entry.shown = shown.iter().map(|claim| Comparison::shown(claim, ours(claim))).collect();
        entry.modelled = modelled.iter().map(|claim| Comparison::shown(claim, ours(claim))).collect();
        let missing = entry.claims.iter().any(|claim| claim.verdict == Some(Verdict::NotMeasured))
            || entry.shown.iter().any(|shown| shown.ours.is_none());
        entry.state = if runs == 0 || missing { State::Incomplete } else { State::Measured };
        entry
    }
}
