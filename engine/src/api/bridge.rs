//! Statistics for the crate `metrics`.

use super::sample::Value;
use super::statistics::Statistics;

impl Statistics {
    /// Gives every number to the recorder of the crate `metrics`: counters as `quenchdb_NAME`,
    /// absolutely, levels as gauges. Of a latency: gauges `quenchdb_NAME_seconds` with a label
    /// `quantile`, and the counter `quenchdb_NAME_seconds_count`. Call it every few seconds.
    pub fn record_metrics(&self) {
        for sample in self.samples() {
            let name = format!("quenchdb_{}", sample.name);
            match sample.value {
                Value::Count(number) => match sample.label {
                    Some((label, value)) => {
                        metrics::counter!(name, label => value.into_owned()).absolute(number as u64)
                    }
                    None => metrics::counter!(name).absolute(number as u64),
                },
                Value::Level(number) => metrics::gauge!(name).set(number),
                Value::Times(times) => {
                    metrics::counter!(format!("{name}_count")).absolute(times.count);
                    let quantiles = [
                        ("0.5", times.p50_us),
                        ("0.9", times.p90_us),
                        ("0.99", times.p99_us),
                        ("0.999", times.p999_us),
                    ];
                    for (quantile, us) in quantiles {
                        metrics::gauge!(name.clone(), "quantile" => quantile).set(us / 1e6);
                    }
                }
            }
        }
    }
}
