//! Requests to a store of objects, and what they cost.

use anyhow::{Context, Result};
use quenchdb::ObjectRequests;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Prices of a store of objects, in dollars. A file in JSON may have some of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// A million puts, appends or lists.
    pub million_puts: f64,
    /// A million gets or heads.
    pub million_gets: f64,
    /// A million deletes.
    pub million_deletes: f64,
    /// A gigabyte (10^9 bytes) put or appended.
    pub gigabyte_sent: f64,
    /// A gigabyte read.
    pub gigabyte_received: f64,
}

impl Default for Prices {
    /// Those of S3 Express One Zone in us-east-1. Storage is not among them.
    fn default() -> Prices {
        Prices {
            million_puts: 1.13,
            million_gets: 0.03,
            million_deletes: 0.0,
            gigabyte_sent: 0.0032,
            gigabyte_received: 0.0006,
        }
    }
}

impl Prices {
    /// Reads prices from a file. A missing one is that of the default.
    ///
    /// # Errors
    /// There is no such file; it is not JSON; it has another name than those of the fields.
    pub fn read(path: &Path) -> Result<Prices> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let names = "an object with numbers for million_puts, million_gets, million_deletes, gigabyte_sent \
                     or gigabyte_received";
        serde_json::from_slice(&text)
            .with_context(|| format!("{} holds no prices: write {names}", path.display()))
    }

    /// Returns what requests cost, in dollars.
    #[must_use]
    pub fn of(&self, requests: &ObjectRequests) -> f64 {
        let puts = requests.puts + requests.appends + requests.lists;
        let gets = requests.gets + requests.heads;
        let per_million = puts as f64 * self.million_puts
            + gets as f64 * self.million_gets
            + requests.deletes as f64 * self.million_deletes;
        let gigabytes = requests.sent_bytes as f64 * self.gigabyte_sent
            + requests.received_bytes as f64 * self.gigabyte_received;
        per_million / 1e6 + gigabytes / 1e9
    }
}

/// The requests of a run, and their price. In JSON the fields of the requests stand beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestReport {
    /// The requests.
    #[serde(flatten)]
    pub requests: ObjectRequests,
    /// Dollars.
    pub dollars: f64,
    /// Dollars for a million transactions like those of the run; none for no transaction.
    pub dollars_per_million_transactions: Option<f64>,
}

impl RequestReport {
    /// Returns the report of `requests` for this many transactions.
    #[must_use]
    pub fn of(requests: &ObjectRequests, prices: &Prices, transactions: u64) -> RequestReport {
        let dollars = prices.of(requests);
        let dollars_per_million_transactions =
            (transactions > 0).then(|| dollars * 1e6 / transactions as f64);
        RequestReport { requests: *requests, dollars, dollars_per_million_transactions }
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectRequests { puts, appends, gets, heads, lists, deletes, throttled, unknown, .. } =
            self.requests;
        write!(
            f,
            "requests: {appends} appends, {puts} puts, {gets} gets, {heads} heads, {lists} lists, {deletes} deletes; \
             {:.1} MB sent, {:.1} MB received; {throttled} throttled, {unknown} of unknown outcome; ${:.6}",
            self.requests.sent_bytes as f64 / 1e6,
            self.requests.received_bytes as f64 / 1e6,
            self.dollars
        )?;
        match self.dollars_per_million_transactions {
            Some(dollars) => write!(f, ", ${dollars:.4} for a million transactions"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_what_the_prices_say() {
        let mut requests = ObjectRequests::default();
        (requests.puts, requests.appends, requests.lists) = (1_000_000, 1_500_000, 500_000);
        (requests.gets, requests.heads, requests.deletes) = (4_000_000, 1_000_000, 9_000_000);
        (requests.sent_bytes, requests.received_bytes) = (10_000_000_000, 100_000_000_000);
        (requests.throttled, requests.unknown) = (3, 4);
        let expected = 3.0 * 1.13 + 5.0 * 0.03 + 10.0 * 0.0032 + 100.0 * 0.0006;
        let report = RequestReport::of(&requests, &Prices::default(), 2_000_000);
        assert!((report.dollars - expected).abs() < 1e-9, "{report:?}");
        let per_million = report.dollars_per_million_transactions.expect("there are transactions");
        assert!((per_million - expected / 2.0).abs() < 1e-9, "{report:?}");
        assert!(report.to_string().contains("1500000 appends"), "{report}");
        let json = serde_json::to_value(&report).expect("numbers");
        assert_eq!((&json["puts"], &json["unknown"]), (&1_000_000.into(), &4.into()), "{json}");
        assert_eq!(serde_json::from_value::<RequestReport>(json).expect("the same form"), report);
        assert_eq!(requests.plus(&requests).since(&requests), requests);
        assert_eq!(
            RequestReport::of(&requests, &Prices::default(), 0).dollars_per_million_transactions,
            None
        );
    }

    #[test]
    fn a_price_file_may_have_some_prices_and_no_other_names() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("prices.json");
        std::fs::write(&path, r#"{"million_puts": 5}"#).expect("written");
        let prices = Prices::read(&path).expect("right");
        assert_eq!(prices, Prices { million_puts: 5.0, ..Prices::default() });
        std::fs::write(&path, r#"{"puts": 5}"#).expect("written");
        let error = format!("{:#}", Prices::read(&path).expect_err("an unknown name"));
        assert!(error.contains("prices.json") && error.contains("million_puts"), "{error}");
    }
}
