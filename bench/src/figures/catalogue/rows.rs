//! The rows of the files, and the figures that they describe. The text of a row is short: names and
//! flags are separated by bars, values of an axis by blanks or commas, and words in braces stand
//! for flags that the file spells out once.

use crate::figures::claim::{At, Claim, Ours, Published};
use crate::figures::spec::{Axis, Chart, Choice, Content, Figure, Measure, Part, Shape};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Name of the parts that the event model computes, for larger machines.
const MODEL: &str = "model of a larger machine";
/// Names of the percentiles of a picture.
const TAIL: [&str; 5] = ["p50", "p90", "p99", "p99.9", "p99.99"];
/// A claim compares with the largest other variant, wherever the quotient is smallest.
const BEST: &str = "the best other one";
/// Measured time of a point in seconds, of `--quick` and `--full`.
const SECONDS: [f64; 2] = [1.0, 1.0];

/// A file of the catalogue.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// What words in braces stand for.
    #[serde(default)]
    words: BTreeMap<String, String>,
    /// Lists of measures: `name | unit | path in the report | factor`.
    #[serde(default)]
    measures: BTreeMap<String, Vec<String>>,
    /// Lists of variants: `name | flags`.
    #[serde(default)]
    variants: BTreeMap<String, Vec<String>>,
    /// Parts that several figures show.
    #[serde(default)]
    parts: BTreeMap<String, PartRow>,
    /// The figures in their order.
    #[serde(default)]
    figure: Vec<FigureRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureRow {
    id: String,
    title: String,
    /// The published setting.
    #[serde(default)]
    there: String,
    /// What is smaller here.
    #[serde(default)]
    here: String,
    /// Why nothing is measured.
    absent: Option<String>,
    /// Why claims are not reproduced, unless a claim says it.
    #[serde(default)]
    because: String,
    #[serde(default)]
    part: Vec<PartRow>,
    #[serde(default)]
    claims: Vec<ClaimRow>,
    #[serde(default)]
    shown: Vec<ClaimRow>,
    #[serde(default)]
    modelled: Vec<ClaimRow>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct PartRow {
    /// A part of the file, of which this row replaces what it gives.
    like: Option<String>,
    name: Option<String>,
    run: Option<String>,
    /// More flags of this figure.
    more: Option<String>,
    /// A part for each of these: `name | more of the command`.
    each: Option<Vec<String>>,
    /// `name | flags of a value, {} | values`; those for `--full` only in brackets.
    axis: Option<String>,
    /// `name | flags`, or names of lists.
    variants: Option<Vec<String>>,
    /// Names of lists.
    measures: Option<Vec<String>>,
    /// `lines`, `bars`, `stack` and a measure, or `tail`; `log` before it.
    charts: Option<Vec<String>>,
    /// Value of the axis at which bars are drawn, and at which claims compare.
    at: Option<String>,
    seconds: Option<[f64; 2]>,
    /// A part of the event model: `figure | axis | values | series, series`.
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimRow {
    says: String,
    #[serde(default)]
    place: String,
    /// A number with its unit, or `more` or `less`.
    #[serde(default)]
    published: String,
    /// The number without effect; default: 1 x, 0 %.
    without: Option<f64>,
    measure: Option<String>,
    of: Option<String>,
    to: Option<String>,
    /// Beside the best other one, counts the values of the axis at which it is so near, in percent.
    within: Option<u8>,
    at: Option<String>,
    #[serde(rename = "in")]
    part: Option<String>,
    to_measure: Option<String>,
    to_at: Option<String>,
    because: Option<String>,
    /// Why nothing is measured for this claim.
    absent: Option<String>,
    #[serde(default)]
    headline: bool,
}

/// The same in all files.
pub(super) struct Common<'a> {
    pub(super) common: &'a File,
    pub(super) file: &'a File,
}

fn cells(text: &str) -> Vec<&str> {
    text.split('|').map(str::trim).collect()
}

impl Common<'_> {
    fn find<'s, T>(
        &'s self,
        what: &str,
        name: &str,
        of: impl Fn(&'s File) -> &'s BTreeMap<String, T>,
    ) -> Result<&'s T> {
        let found = of(self.file).get(name).or_else(|| of(self.common).get(name));
        found.with_context(|| format!("`{name}` is none of the {what}"))
    }

    /// Replaces words in braces by what they stand for.
    fn spelled(&self, text: &str) -> String {
        let mut text = text.to_string();
        // Words may contain words.
        for _ in 0..4 {
            for (word, meaning) in self.file.words.iter().chain(&self.common.words) {
                text = text.replace(&format!("{{{word}}}"), meaning);
            }
        }
        text
    }

    fn measures(&self, lists: &[String]) -> Result<Vec<Measure>> {
        let mut all = Vec::new();
        for list in lists {
            for row in self.find("measures", list, |file| &file.measures)? {
                let [name, unit, path, factor] = cells(row)[..] else { bail!("`{row}` is no measure") };
                let factor = factor.parse().with_context(|| format!("`{row}` has no factor"))?;
                all.push(Measure { name: name.into(), unit: unit.into(), path: path.into(), factor });
            }
        }
        Ok(all)
    }

    fn variants(&self, rows: &[String]) -> Result<Vec<Choice>> {
        let mut all = Vec::new();
        for row in rows {
            match cells(row)[..] {
                [list] if !list.is_empty() => {
                    all.extend(self.variants(self.find("variants", list, |file| &file.variants)?)?);
                }
                [""] => all.push(Choice::new("", "")),
                [name, flags] => all.push(Choice::new(name, &self.spelled(flags))),
                [name, flags, key] => all.push(Choice::new(name, &self.spelled(flags)).keyed(key)),
                _ => bail!("`{row}` is no variant"),
            }
        }
        Ok(all)
    }

    fn axis(&self, row: &str) -> Result<Axis> {
        let [name, flags, values] = cells(row)[..] else { bail!("`{row}` is no axis") };
        let values: Vec<&str> = match values.contains(',') {
            true => values.split(',').map(str::trim).collect(),
            false => values.split_whitespace().collect(),
        };
        let value = |text: &str| {
            let bare = text.trim_start_matches('(').trim_end_matches(')');
            let (name, key) = bare.split_once('=').unwrap_or((bare, bare));
            let choice = Choice::new(name, &self.spelled(&flags.replace("{}", key))).keyed(key);
            if bare == text { choice } else { choice.full_only() }
        };
        Ok(Axis { name: name.into(), values: values.into_iter().map(value).collect() })
    }

    /// Returns the row with what it takes over from a part of the file.
    fn whole(&self, row: &PartRow) -> Result<PartRow> {
        let Some(name) = &row.like else { return Ok(row.clone()) };
        let like = self.whole(self.find("parts", name, |file| &file.parts)?)?;
        let row = row.clone();
        Ok(PartRow {
            like: None,
            name: row.name.or(like.name),
            run: row.run.or(like.run),
            more: row.more.or(like.more),
            each: row.each.or(like.each),
            axis: row.axis.or(like.axis),
            variants: row.variants.or(like.variants),
            measures: row.measures.or(like.measures),
            charts: row.charts.or(like.charts),
            at: row.at.or(like.at),
            seconds: row.seconds.or(like.seconds),
            model: row.model.or(like.model),
        })
    }

    /// Returns the parts of a row: one, or one for each of `each`.
    fn parts(&self, row: &PartRow) -> Result<Vec<Part>> {
        if let Some(model) = &row.model {
            return Ok(vec![self.modelled(model, row)?]);
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (at, run) = (text(&row.at), format!("{} {}", text(&row.run), text(&row.more)));
        let axis = row.axis.as_deref().map_or_else(|| Ok(Axis::none()), |axis| self.axis(axis))?;
        let default = [String::new()];
        let part = Part {
            name: text(&row.name),
            command: self.spelled(&run),
            axis,
            variants: self.variants(row.variants.as_deref().unwrap_or(&default))?,
            measures: self.measures(row.measures.as_deref().context("a part has no measures")?)?,
            charts: row.charts.iter().flatten().map(|chart| chart_of(chart, &at)).collect::<Result<_>>()?,
            seconds: row.seconds.unwrap_or(SECONDS).into(),
            modelled: false,
        };
        let Some(each) = &row.each else { return Ok(vec![part]) };
        let one = |row: &String| {
            let [name, more] = cells(row)[..] else { bail!("`{row}` is no part") };
            let command = format!("{} {}", part.command, self.spelled(more));
            Ok(Part { name: name.into(), command, ..part.clone() })
        };
        each.iter().map(one).collect()
    }

    /// Returns the part that the event model computes: `quench bench model --figure`.
    fn modelled(&self, text: &str, row: &PartRow) -> Result<Part> {
        let [figure, axis, values, series] = cells(text)[..] else { bail!("`{text}` is no model") };
        let names = series.split("; ").map(|name| Choice::new(name.trim(), "")).collect();
        let first = values.split_whitespace().next().unwrap_or_default();
        let charts = row.charts.iter().flatten().map(|chart| chart_of(chart, first));
        Ok(Part {
            name: row.name.clone().unwrap_or_else(|| MODEL.into()),
            command: format!("model --figure {figure}"),
            axis: Axis {
                name: axis.into(),
                values: values.split_whitespace().map(|value| Choice::new(value, "")).collect(),
            },
            variants: names,
            measures: self.measures(&["modelled".to_string()])?,
            charts: charts.collect::<Result<_>>()?,
            seconds: (1.0, 1.0),
            modelled: true,
        })
    }

    /// Returns the figure of a row.
    fn figure(&self, row: &FigureRow) -> Result<Figure> {
        let content = match &row.absent {
            Some(reason) => Content::Absent(self.spelled(reason)),
            None => {
                let rows = row.part.iter().map(|part| self.whole(part)).collect::<Result<Vec<_>>>()?;
                let at = rows.iter().find_map(|part| part.at.clone()).unwrap_or_default();
                let parts = rows.iter().map(|part| self.parts(part)).collect::<Result<Vec<_>>>()?.concat();
                let (measured, modelled): (Vec<&Part>, Vec<&Part>) =
                    parts.iter().partition(|part| !part.modelled);
                let claims = |rows: &[ClaimRow], parts: &[&Part], judged: bool| {
                    let place = Place { parts, at: &at, because: row.because.clone(), judged };
                    let claim = |row: &ClaimRow| {
                        let claim = place.claim(row).with_context(|| format!("claim `{}`", row.says))?;
                        Ok(Claim { because: self.spelled(&claim.because), ..claim })
                    };
                    rows.iter().map(claim).collect::<Result<Vec<Claim>>>()
                };
                Content::Regenerated {
                    claims: claims(&row.claims, &measured, true)?,
                    shown: claims(&row.shown, &measured, false)?,
                    modelled: claims(&row.modelled, &modelled, false)?,
                    scaled: self.spelled(&row.here),
                    parts,
                }
            }
        };
        let (id, title) = (row.id.clone(), row.title.clone());
        Ok(Figure { id, title, setting: self.spelled(&row.there), content })
    }

    /// Returns the figures of the file.
    pub(super) fn figures(&self) -> Result<Vec<Figure>> {
        let figure =
            |row: &FigureRow| self.figure(row).with_context(|| format!("figure {} of the catalogue", row.id));
        self.file.figure.iter().map(figure).collect()
    }
}

fn chart_of(text: &str, at: &str) -> Result<Chart> {
    let (log, rest) = text.strip_prefix("log ").map_or((false, text), |rest| (true, rest));
    let (kind, measure) = rest.split_once(' ').unwrap_or((rest, ""));
    let measures = |separated: &str| separated.split("; ").map(String::from).collect();
    let chart = |shape, measures| Chart { shape, measures, at: at.into(), log };
    Ok(match kind {
        "lines" => chart(Shape::Lines, vec![measure.into()]),
        "bars" => chart(Shape::Bars, vec![measure.into()]),
        "stack" => chart(Shape::Stacked, measures(measure)),
        "tail" => chart(Shape::Across, TAIL.map(String::from).to_vec()),
        _ => bail!("`{text}` is no chart"),
    })
}

/// Returns the number and the unit of `26.1 %`; `more` and `less` are ratios.
fn published_of(text: &str) -> Result<(Published, String)> {
    Ok(match text {
        "" => (Published::Nothing, String::new()),
        "more" => (Published::More, "x".into()),
        "less" => (Published::Less, "x".into()),
        _ => {
            let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
            let number = number.parse().with_context(|| format!("`{text}` is no number with a unit"))?;
            (Published::Number(number), unit.into())
        }
    })
}

/// Where the claims of a figure find their numbers.
struct Place<'a> {
    parts: &'a [&'a Part],
    /// Value of the axis, unless a row names another one.
    at: &'a str,
    /// The reason, unless a row has another one.
    because: String,
    /// Whether the claims get a verdict.
    judged: bool,
}

impl Place<'_> {
    fn claim(&self, row: &ClaimRow) -> Result<Claim> {
        let (published, unit) = published_of(&row.published)?;
        let without = match (row.without, unit.as_str()) {
            (Some(without), _) => without,
            (None, "%") => 0.0,
            (None, "x") => 1.0,
            _ if !self.judged => 1.0,
            _ => bail!("it does not say what the number is without the effect"),
        };
        let (ours, measured) = self.ours(row, &unit)?;
        Ok(Claim {
            text: row.says.clone(),
            place: row.place.clone(),
            unit: if published == Published::Nothing { measured } else { unit },
            published,
            without,
            ours,
            because: row.absent.clone().or(row.because.clone()).unwrap_or_else(|| self.because.clone()),
            headline: row.headline,
        })
    }

    /// Returns where our number is, and the unit of its measure.
    fn ours(&self, row: &ClaimRow, unit: &str) -> Result<(Ours, String)> {
        if row.absent.is_some() {
            return Ok((Ours::Absent, String::new()));
        }
        let part = match &row.part {
            Some(name) => self.parts.iter().find(|part| part.name == *name),
            None => self.parts.first(),
        };
        let part = part.context("it names no part of its figure")?;
        let has = |x: &str| part.axis.values.iter().any(|value| value.name == x);
        // A part without the usual value has an axis of its own.
        let usual = if has(self.at) { self.at } else { "" };
        let (x, variant) = (row.at.as_deref().unwrap_or(usual), row.of.as_deref().unwrap_or_default());
        let name = row.measure.as_deref().context("it names no measure")?;
        let measure = part.measures.iter().find(|one| one.name == name);
        let measured = measure.map(|measure| measure.unit.clone()).unwrap_or_default();
        let named = |variant: &str, x: &str, measure: &str| {
            let known = has(x)
                && part.measures.iter().any(|one| one.name == measure)
                && part.variants.iter().any(|one| one.name == variant);
            if !known {
                bail!("its part has no `{measure}` of `{variant}` at `{x}`");
            }
            let [x, variant, measure] = [x, variant, measure].map(String::from);
            Ok(At { part: part.name.clone(), x, variant, measure })
        };
        if row.to.as_deref() == Some(BEST)
            && let Some(percent) = row.within
        {
            let ours = Ours::CountAgainstOthers(named(variant, x, name)?, percent);
            return Ok((ours, "rows".into()));
        }
        if row.to.as_deref() == Some(BEST) {
            return Ok((Ours::LeastAgainstOthers(named(variant, x, name)?), measured));
        }
        let one = named(variant, x, name)?;
        if row.to.is_none() && row.to_at.is_none() && row.to_measure.is_none() {
            return Ok((Ours::Value(one), measured));
        }
        let other = named(
            row.to.as_deref().unwrap_or(variant),
            row.to_at.as_deref().unwrap_or(x),
            row.to_measure.as_deref().unwrap_or(name),
        )?;
        let ours = if unit == "%" { Ours::Change(one, other) } else { Ours::Ratio(one, other) };
        Ok((ours, measured))
    }
}
