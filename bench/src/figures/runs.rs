//! A number over the runs of a point.

use serde::{Deserialize, Serialize};

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
