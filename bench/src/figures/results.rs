//! The reports of all points that were measured so far, and numbers from them.

use super::spec::{At, Choice, Depth, Ours, Part, Point, filled};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A number of a point, over all runs of the point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median; of an even number of runs the mean of the middle two.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// In the order of the runs.
    pub runs: Vec<f64>,
}

impl Summary {
    /// Returns nothing for no run.
    #[must_use]
    pub fn of(runs: Vec<f64>) -> Option<Summary> {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max, count) = (*sorted.first()?, *sorted.last()?, sorted.len());
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        Some(Summary { median, min, max, runs })
    }
}

/// Returns the number at a path. A step is a field, an index, or a field with the conditions that
/// choose one element of its array: `/writes[bytes=4096&durable=true]/mean_us`. A step without a
/// field chooses from the array itself.
#[must_use]
pub fn find(report: &Value, path: &str) -> Option<f64> {
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
        let path = filled(measure.path, x, variant);
        let reports = self.points.get(&command.join(" "))?;
        let runs = reports.iter().filter_map(|report| Some(find(report, &path)? * measure.factor));
        Summary::of(runs.collect())
    }

    /// Returns the values of a variant over the axis.
    fn over_axis(&self, parts: &[Part], depth: Depth, at: At) -> Vec<(String, f64)> {
        let Some(part) = parts.iter().find(|part| part.name == at.part) else { return Vec::new() };
        let points = part.points(depth);
        let of_variant = points.iter().filter(|point| part.variants[point.variant].name == at.variant);
        let value = |point: &Point| {
            let (x, variant) = (&part.axis.values[point.x], &part.variants[point.variant]);
            let summary = self.summary(part, &point.command, (x, variant), at.measure)?;
            Some((x.name.clone(), summary.median))
        };
        of_variant.filter_map(value).collect()
    }

    fn value(&self, parts: &[Part], depth: Depth, at: At) -> Option<f64> {
        let values = self.over_axis(parts, depth, at);
        values.iter().find(|(x, _)| x == at.x).map(|(_, value)| *value)
    }

    /// Returns the smallest quotient over the axis of a variant and the largest other one; nothing
    /// if a point was not measured.
    fn least_against_others(&self, parts: &[Part], depth: Depth, at: At) -> Option<f64> {
        let part = parts.iter().find(|part| part.name == at.part)?;
        let points = part.points(depth);
        let value = |point: &Point| {
            let choices = (&part.axis.values[point.x], &part.variants[point.variant]);
            Some(self.summary(part, &point.command, choices, at.measure)?.median)
        };
        let is_own = |point: &Point| part.variants[point.variant].name == at.variant;
        let mut least = f64::INFINITY;
        for own in points.iter().filter(|point| is_own(point)) {
            let others = points.iter().filter(|point| point.x == own.x && !is_own(point));
            let others = others.map(value).collect::<Option<Vec<f64>>>()?;
            least = least.min(value(own)? / others.into_iter().reduce(f64::max)?);
        }
        Some(least)
    }

    /// Computes a number of ours; nothing if one of the points was not measured.
    #[must_use]
    pub fn ours(&self, parts: &[Part], depth: Depth, ours: Ours) -> Option<f64> {
        let value = |at| self.value(parts, depth, at);
        let all = |at| self.over_axis(parts, depth, at).into_iter().map(|(_, value)| value);
        let most = |at| all(at).reduce(f64::max);
        let number = match ours {
            Ours::Value(at) => value(at)?,
            Ours::Ratio(one, other) => value(one)? / value(other)?,
            Ours::Percent(one, other) => value(one)? / value(other)? * 100.0,
            Ours::Change(one, other) => (value(one)? / value(other)? - 1.0) * 100.0,
            Ours::Spread(at) => most(at)? / all(at).reduce(f64::min)?,
            Ours::Most(at) => most(at)?,
            Ours::LeastAgainstOthers(at) => self.least_against_others(parts, depth, at)?,
        };
        number.is_finite().then_some(number)
    }
}

#[cfg(test)]
mod tests;
