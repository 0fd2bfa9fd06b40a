//! Statistics as text for Prometheus and other systems that read its format (version 0.0.4).

use super::latency::LatencySummary;
use super::sample::{Sample, Value};
use super::statistics::Statistics;
use std::fmt::Write;

/// Every name begins with this.
const PREFIX: &str = "quenchdb";

impl Statistics {
    /// Returns the statistics as text for Prometheus: counters as `quenchdb_NAME_total`, levels as
    /// `quenchdb_NAME`, latencies as histograms `quenchdb_NAME_seconds`, and `quenchdb_info` with
    /// the protocol as labels. The content type is `text/plain; version=0.0.4`.
    ///
    /// ```
    /// # fn main() -> quenchdb::Result<()> {
    /// let db = quenchdb::Database::builder().open_in_memory()?;
    /// assert!(db.statistics().prometheus().contains("quenchdb_committed_total 0"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::with_capacity(64 << 10);
        let mut before = String::new();
        for sample in self.samples() {
            let (suffix, kind) = match sample.value {
                Value::Count(_) => ("_total", "counter"),
                Value::Level(_) => ("", "gauge"),
                Value::Times(_) => ("", "histogram"),
            };
            let name = format!("{PREFIX}_{}{suffix}", sample.name);
            if name != before {
                let help = sample.help.trim().replace('\\', "\\\\");
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            write_values(&mut text, &name, &sample);
            before = name;
        }
        let facts = [
            ("preset", self.preset.name()),
            ("layout", self.layout.name()),
            ("writer", self.writer.name()),
            ("acknowledger", self.acknowledger.name()),
            ("dependency", self.dependency.name()),
        ];
        let _ = writeln!(text, "# HELP {PREFIX}_info The commit protocol.\n# TYPE {PREFIX}_info gauge");
        let labels: Vec<String> = facts.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let _ = writeln!(text, "{PREFIX}_info{{{}}} 1", labels.join(","));
        text
    }
}

fn write_values(text: &mut String, name: &str, sample: &Sample<'_>) {
    let label = sample.label.as_ref().map_or(String::new(), |(label, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{{{label}=\"{value}\"}}")
    });
    let _ = match sample.value {
        Value::Count(number) | Value::Level(number) => writeln!(text, "{name}{label} {number}"),
        Value::Times(times) => {
            let mut sum = 0;
            for (bound, values) in LatencySummary::bounds_us().zip(times.buckets.as_flattened()) {
                sum += values;
                let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {sum}", bound / 1e6);
            }
            let (count, seconds) = (times.count, times.sum_us() / 1e6);
            writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {seconds}\n{name}_count {count}")
        }
    };
}
