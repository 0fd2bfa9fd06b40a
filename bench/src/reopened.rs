//! The result of an open after a run.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Figures of the open, and of the sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reopened {
    /// `killed` or `closed`.
    pub after: String,
    /// Time of the close with its checkpoint, in seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub close_seconds: Option<f64>,
    /// Time of the open until transactions could begin, in seconds.
    pub open_seconds: f64,
    /// True without recovery.
    pub clean: bool,
    /// Transactions replayed.
    pub replayed: u64,
    /// Records discarded, none of them acknowledged.
    pub discarded: u64,
    /// Log bytes read.
    pub replay_log_bytes: u64,
    /// Most memory of this process while it opened the database and read the sample; of a database
    /// closed and opened by one process what the allocator still keeps of before is included.
    pub rss_bytes_max: u64,
    /// Rows of the sample.
    pub sampled: u64,
    /// Rows found with a value of their key.
    pub found: u64,
    /// Rows absent although durable; must be 0.
    pub missing: u64,
    /// Rows with a value that no transaction wrote; must be 0.
    pub wrong: u64,
    /// Point reads of the sample per second by one thread, pages coming from the device as they are
    /// needed.
    pub sample_reads_per_second: f64,
}

impl Reopened {
    /// Returns true without missing or wrong rows.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.missing == 0 && self.wrong == 0
    }
}

impl fmt::Display for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.after)?;
        if let Some(seconds) = self.close_seconds {
            write!(f, " in {seconds:.3} s")?;
        }
        writeln!(
            f,
            ", then reopened in {:.3} s, {} transactions replayed from {:.1} MB of log",
            self.open_seconds,
            self.replayed,
            self.replay_log_bytes as f64 / 1e6
        )?;
        if self.sampled == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  sample of {}: {} found, {} missing, {} wrong; {:.0} reads/s by one thread",
            self.sampled, self.found, self.missing, self.wrong, self.sample_reads_per_second
        )
    }
}
