//! A figure as it was measured: what the page, the tables and the JSON show.

use super::results::{Results, Summary};
use super::spec::{Chart, Choice, Content, Depth, Figure, Part, Point};
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

/// A published number beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What the number is.
    pub text: String,
    /// Unit of both.
    pub unit: String,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// Ours, if it was measured.
    pub ours: Option<f64>,
    /// Ours divided by the published number.
    pub ratio: Option<f64>,
    /// Whether the shape is the same; none if nothing was measured.
    pub holds: Option<bool>,
    /// If not, the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub because: Option<String>,
}

/// What became of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All comparisons hold.
    SameShape,
    /// One does not.
    OtherShape,
    /// A point is missing.
    Incomplete,
    /// It cannot be regenerated here.
    Absent,
}

impl Verdict {
    /// Returns the words of the report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::SameShape => "same shape",
            Verdict::OtherShape => "other shape",
            Verdict::Incomplete => "incomplete",
            Verdict::Absent => "not here",
        }
    }
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
    pub verdict: Verdict,
    /// Published numbers beside ours.
    pub comparisons: Vec<Comparison>,
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
        let axis = self.part.axis.name;
        let at = if at.is_empty() { String::new() } else { format!("{axis} {at}") };
        [self.part.name, text, &at].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    }

    fn unit(&self, measure: &str) -> &'static str {
        self.part.measure(measure).map_or("", |measure| measure.unit)
    }

    fn picture(&self, chart: Chart) -> Picture {
        let variants = self.variants();
        match chart {
            Chart::Lines { measure, log } => {
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
                    x_name: self.part.axis.name.into(),
                    y_name: self.unit(measure).into(),
                    form: Form::Lines,
                    log,
                    series: variants.iter().map(series).collect(),
                    labels,
                }
            }
            Chart::Across { measures, at, log } => {
                let value = |variant, measure: &&str| self.summary(self.at(at, variant)?, measure);
                let series = |variant: &usize| Series {
                    name: self.name(*variant),
                    values: measures.iter().map(|measure| value(*variant, measure)).collect(),
                };
                Picture {
                    title: self.title("", at),
                    x_name: String::new(),
                    y_name: measures.first().map_or("", |measure| self.unit(measure)).into(),
                    labels: measures.iter().map(ToString::to_string).collect(),
                    form: Form::Lines,
                    log,
                    series: variants.iter().map(series).collect(),
                }
            }
            Chart::Stacked { measures, at } => self.bars(measures, at, Form::Stacked, false),
            Chart::Bars { measure, at, log } => self.bars(&[measure], at, Form::Bars, log),
        }
    }

    /// Returns bars: a label for each variant, a series for each measure.
    fn bars(&self, measures: &[&str], at: &str, form: Form, log: bool) -> Picture {
        let variants = self.variants();
        let value = |variant: &usize, measure: &str| self.summary(self.at(at, *variant)?, measure);
        let series = |measure: &&str| Series {
            name: (*measure).to_string(),
            values: variants.iter().map(|variant| value(variant, measure)).collect(),
        };
        let title = if let [measure] = measures { measure } else { "" };
        Picture {
            title: self.title(title, at),
            x_name: String::new(),
            y_name: measures.first().map_or("", |measure| self.unit(measure)).into(),
            labels: variants.iter().map(|variant| self.name(*variant)).collect(),
            form,
            log,
            series: measures.iter().map(series).collect(),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for point in &self.points {
            let (x, variant) = self.choices(point);
            for measure in &self.part.measures {
                let Some(value) = self.summary(point, measure.name) else { continue };
                rows.push(Row {
                    part: self.part.name.into(),
                    x: x.name.clone(),
                    variant: variant.name.clone(),
                    measure: measure.name.into(),
                    unit: measure.unit.into(),
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
            id: figure.id.into(),
            title: figure.title.into(),
            setting: figure.setting.into(),
            scaled: String::new(),
            verdict: Verdict::Absent,
            comparisons: Vec::new(),
            pictures: Vec::new(),
            rows: Vec::new(),
            commands: Vec::new(),
            runs: 0,
            errors,
        };
        let (parts, claims) = match &figure.content {
            Content::Absent(reason) => return Entry { scaled: (*reason).into(), ..entry },
            Content::Regenerated { parts, claims, scaled } => {
                entry.scaled = (*scaled).into();
                (parts, claims)
            }
        };
        let mut runs = usize::MAX;
        for part in parts {
            let measured = Measured { part, points: part.points(depth), results };
            entry.pictures.extend(part.charts.iter().map(|chart| measured.picture(*chart)));
            entry.rows.extend(measured.rows());
            entry.commands.extend(commands(part));
            let least = measured.points.iter().map(|point| results.runs(&point.command)).min();
            runs = runs.min(least.unwrap_or(0));
        }
        entry.runs = runs;
        entry.comparisons = claims
            .iter()
            .map(|claim| {
                let ours = results.ours(parts, depth, claim.ours);
                let holds = ours.map(|ours| claim.holds.of(ours));
                Comparison {
                    text: claim.text.to_string(),
                    unit: claim.unit.into(),
                    published: claim.published,
                    ours,
                    ratio: claim.published.zip(ours).map(|(published, ours)| ours / published),
                    holds,
                    because: (holds == Some(false)).then(|| claim.otherwise.into()),
                }
            })
            .collect();
        let any = |wanted| entry.comparisons.iter().any(|comparison| comparison.holds == wanted);
        entry.verdict = match () {
            () if runs == 0 || any(None) => Verdict::Incomplete,
            () if any(Some(false)) => Verdict::OtherShape,
            () => Verdict::SameShape,
        };
        entry
    }
}
