//! The reports of all points that were measured so far, and numbers from them.

use super::claim::{At, Ours};
use super::runs::Summary;
use super::spec::{Choice, Depth, Part, Point, filled};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the number at a path. A step is a field, an index, or a field with the conditions that
/// choose one element of its array: `/writes[bytes=4096&durable=true]/mean_us`. A step without a
/// field chooses from the array itself. `/a over /b` is a quotient.
#[must_use]
pub fn find(report: &Value, path: &str) -> Option<f64> {
    if let Some((one, other)) = path.split_once(" over ") {
        return Some(find(report, one)? / find(report, other)?);
    }
    let mut at = report;
    for step in path.split('/').skip(1) {
        let (field, conditions) = match step.split_once('[') {
            Some((field, rest)) => (field, Some(rest.strip_suffix(']')?)),
            None => (step, None),
        };
        at = match (at, field.parse::<usize>()) {
            (Value::Array(all), Ok(index)) => all.get(index)?,
            _ if field.is_empty() => at,
            _ => at.get(field)?,
        };
        if let Some(conditions) = conditions {
            let meets = |one: &&Value| {
                conditions.split('&').all(|condition| {
                    condition.split_once('=').is_some_and(|(key, wanted)| match one.get(key) {
                        Some(Value::String(text)) => text == wanted,
                        // A whole number may be written with a fraction, or without.
                        Some(Value::Number(number)) => number.as_f64() == wanted.parse().ok(),
                        Some(Value::Bool(flag)) => wanted.parse() == Ok(*flag),
                        Some(_) => false,
                        None => false,
                    })
                })
            };
            at = at.as_array()?.iter().find(meets)?;
        }
    }
    at.as_f64()
}

/// The reports by command.
#[derive(Clone, Debug, Default)]
pub struct Results {
    points: BTreeMap<String, Vec<Value>>,
}

impl Results {
    /// Adds the report of one more run of a command.
    pub fn add(&mut self, command: &[String], report: Value) {
        self.points.entry(command.join(" ")).or_default().push(report);
    }

    /// Returns the reports of a command.
    #[must_use]
    pub fn reports(&self, command: &[String]) -> &[Value] {
        self.points.get(&command.join(" ")).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of runs of a command.
    #[must_use]
    pub fn runs(&self, command: &[String]) -> usize {
        self.points.get(&command.join(" ")).map_or(0, Vec::len)
    }

    /// Returns a number of a point.
    #[must_use]
    pub fn summary(
        &self,
        part: &Part,
        command: &[String],
        (x, variant): (&Choice, &Choice),
        measure: &str,
    ) -> Option<Summary> {
        let measure = part.measure(measure)?;
        let path = filled(&measure.path, x, variant);
        let reports = self.points.get(&command.join(" "))?;
        let runs = reports.iter().filter_map(|report| Some(find(report, &path)? * measure.factor));
        Summary::of(runs.collect())
    }

    /// Returns a number of ours over all runs.
    fn at(&self, parts: &[Part], depth: Depth, at: &At) -> Option<Summary> {
        let part = parts.iter().find(|part| part.name == at.part)?;
        let choices = |point: &Point| (&part.axis.values[point.x], &part.variants[point.variant]);
        let is_it = |point: &&Point| {
            let (x, variant) = choices(point);
            x.name == at.x && variant.name == at.variant
        };
        let points = part.points(depth);
        let point = points.iter().find(is_it)?;
        self.summary(part, &point.command, choices(point), &at.measure)
    }

    /// Returns the quotients over the axis of a variant and the largest other one; nothing if a
    /// point was not measured.
    fn against_others(&self, parts: &[Part], depth: Depth, at: &At) -> Option<Vec<Summary>> {
        let part = parts.iter().find(|part| part.name == at.part)?;
        let points = part.points(depth);
        let value = |point: &Point| {
            let choices = (&part.axis.values[point.x], &part.variants[point.variant]);
            self.summary(part, &point.command, choices, &at.measure)
        };
        let is_own = |point: &Point| part.variants[point.variant].name == at.variant;
        let quotient = |own: &Point| {
            let others = points.iter().filter(|point| point.x == own.x && !is_own(point));
            let others = others.map(value).collect::<Option<Vec<Summary>>>()?;
            let best = others.into_iter().max_by(|one, other| one.median.total_cmp(&other.median))?;
            paired(&value(own)?, &best, |own, best| own / best)
        };
        points.iter().filter(|point| is_own(point)).map(quotient).collect()
    }

    fn least_against_others(&self, parts: &[Part], depth: Depth, at: &At) -> Option<Summary> {
        let quotients = self.against_others(parts, depth, at)?;
        quotients.into_iter().min_by(|one, other| one.median.total_cmp(&other.median))
    }

    /// Counts in the medians, and in each round of runs.
    fn count_against_others(&self, parts: &[Part], depth: Depth, at: &At, percent: u8) -> Option<Summary> {
        let quotients = self.against_others(parts, depth, at)?;
        let least = 1.0 - f64::from(percent) / 100.0;
        let count = |of: &dyn Fn(&Summary) -> Option<f64>| {
            quotients.iter().filter(|one| of(one).is_some_and(|quotient| quotient >= least)).count() as f64
        };
        let rounds = quotients.iter().map(|one| one.runs.len()).min()?;
        let rounds = (0..rounds).map(|round| count(&|one| one.runs.get(round).copied()));
        let rounds = Summary::of(rounds.collect())?;
        Some(Summary { median: count(&|one| Some(one.median)), ..rounds })
    }

    /// Computes a number of ours: of the medians, and of each round of runs. Nothing if one of the
    /// points was not measured.
    #[must_use]
    pub fn ours(&self, parts: &[Part], depth: Depth, ours: &Ours) -> Option<Summary> {
        let at = |at| self.at(parts, depth, at);
        let number = match ours {
            Ours::Absent => return None,
            Ours::Value(one) => at(one)?,
            Ours::Ratio(one, other) => paired(&at(one)?, &at(other)?, |one, other| one / other)?,
            Ours::Change(one, other) => {
                paired(&at(one)?, &at(other)?, |one, other| (one / other - 1.0) * 100.0)?
            }
            Ours::LeastAgainstOthers(at) => self.least_against_others(parts, depth, at)?,
            Ours::CountAgainstOthers(at, percent) => self.count_against_others(parts, depth, at, *percent)?,
        };
        number.median.is_finite().then_some(number)
    }
}

/// Returns what `of` makes of two medians, and of the runs of each round: the points of a figure
/// are measured in rotation, so the runs of a round had the same neighbors.
fn paired(one: &Summary, other: &Summary, of: impl Fn(f64, f64) -> f64) -> Option<Summary> {
    let rounds = one.runs.iter().zip(&other.runs).map(|(one, other)| of(*one, *other));
    let rounds = Summary::of(rounds.collect())?;
    Some(Summary { median: of(one.median, other.median), ..rounds })
}

#[cfg(test)]
mod tests;
