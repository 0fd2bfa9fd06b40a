//! What monitoring systems take of the statistics: names, meanings, numbers.

use super::health::Health;
use super::latency::LatencySummary;
use crate::base::Csn;
use crate::device::{BucketStatistics, ObjectRequests};
use std::borrow::Cow;

/// One number or distribution.
pub(super) struct Sample<'a> {
    /// As the field of [`Statistics`](super::Statistics), with its unit.
    pub(super) name: String,
    /// The meaning, as in the documentation.
    pub(super) help: &'static str,
    /// A part of the field: the label's name and value.
    pub(super) label: Option<(&'static str, Cow<'a, str>)>,
    pub(super) value: Value<'a>,
}

/// The value of a sample.
pub(super) enum Value<'a> {
    /// It only grows.
    Count(f64),
    /// It is that of the moment.
    Level(f64),
    /// A distribution.
    Times(&'a LatencySummary),
}

/// What grew since an earlier moment.
pub(super) trait Change {
    /// Returns the difference; 0 if the number was reset in between.
    fn since(&self, earlier: &Self) -> Self;
}

impl Change for u64 {
    fn since(&self, earlier: &u64) -> u64 {
        self.saturating_sub(*earlier)
    }
}

impl Change for f64 {
    fn since(&self, earlier: &f64) -> f64 {
        (self - earlier).max(0.0)
    }
}

impl Change for Vec<u64> {
    fn since(&self, earlier: &Vec<u64>) -> Vec<u64> {
        let then = |at: usize| earlier.get(at).copied().unwrap_or(0);
        self.iter().enumerate().map(|(at, now)| now.saturating_sub(then(at))).collect()
    }
}

impl Change for LatencySummary {
    fn since(&self, earlier: &LatencySummary) -> LatencySummary {
        LatencySummary::since(self, earlier)
    }
}

impl Change for Option<ObjectRequests> {
    fn since(&self, earlier: &Option<ObjectRequests>) -> Option<ObjectRequests> {
        self.map(|now| earlier.map_or(now, |then| now.since(&then)))
    }
}

/// A field of the statistics that is a number.
pub(super) trait Figure {
    /// Adds the samples of a field that only grows.
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>);

    /// Adds the samples of a field that is that of the moment.
    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>);
}

macro_rules! figures {
    ($($type:ty: $convert:expr;)*) => { $(
        impl Figure for $type {
            fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
                let number: fn(&$type) -> f64 = $convert;
                let (name, value) = (name.to_string(), Value::Count(number(self)));
                samples.push(Sample { name, help, label: None, value });
            }

            fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
                let number: fn(&$type) -> f64 = $convert;
                let (name, value) = (name.to_string(), Value::Level(number(self)));
                samples.push(Sample { name, help, label: None, value });
            }
        }
    )* };
}

figures! {
    u64: |number| *number as f64;
    usize: |number| *number as f64;
    f64: |number| *number;
    bool: |is| f64::from(u8::from(*is));
    Csn: |csn| csn.0 as f64;
}

/// One number for each log.
impl Figure for Vec<u64> {
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        samples.extend(self.iter().enumerate().map(|(log, number)| Sample {
            name: name.to_string(),
            help,
            label: Some(("log", Cow::Owned(log.to_string()))),
            value: Value::Count(*number as f64),
        }));
    }

    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.count(name, help, samples);
    }
}

impl Figure for LatencySummary {
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.level(name, help, samples);
    }

    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        samples.push(Sample {
            name: format!("{name}_seconds"),
            help,
            label: None,
            value: Value::Times(self),
        });
    }
}

/// A number for the state, and one for each reason, whose text is a label.
impl Figure for Health {
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.level(name, help, samples);
    }

    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        let state = Value::Level(self.state as u8 as f64);
        samples.push(Sample { name: name.to_string(), help, label: None, value: state });
        let seconds = Value::Level(self.seconds as f64);
        let oldest = "Seconds since the oldest known reason began.";
        samples.push(Sample { name: format!("{name}_seconds"), help: oldest, label: None, value: seconds });
        samples.extend(self.reasons.iter().map(|reason| Sample {
            name: format!("{name}_reason"),
            help: "Why the database is not healthy.",
            label: Some(("reason", Cow::Borrowed(reason.as_str()))),
            value: Value::Level(1.0),
        }));
    }
}

impl Figure for Vec<BucketStatistics> {
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.level(name, help, samples);
    }

    fn level<'a>(&'a self, _name: &str, _help: &'static str, samples: &mut Vec<Sample<'a>>) {
        let mut add = |name: &str, help, value: fn(&BucketStatistics) -> f64, is_count: bool| {
            samples.extend(self.iter().map(|bucket| Sample {
                name: name.into(),
                help,
                label: Some(("bucket", Cow::Borrowed(bucket.name.as_str()))),
                value: if is_count { Value::Count(value(bucket)) } else { Value::Level(value(bucket)) },
            }));
        };
        add(
            "bucket_counts",
            "Whether the bucket counts: 0 or 1.",
            |b| f64::from(u8::from(b.is_counted)),
            false,
        );
        add(
            "bucket_whole",
            "Whether the bucket lacks nothing: 0 or 1.",
            |b| f64::from(u8::from(b.is_whole)),
            false,
        );
        let missing = "Objects that the bucket is known to lack.";
        add("bucket_missing_objects", missing, |b| b.missing_objects as f64, false);
        let copied = "Objects and blocks that were copied to the bucket.";
        add("bucket_copied_objects", copied, |b| b.copied_objects as f64, true);
        add("bucket_copied_bytes", "Bytes of these objects.", |b| b.copied_bytes as f64, true);
        let waiting = "Bytes that were sent to the bucket and are not confirmed.";
        add("bucket_waiting_bytes", waiting, |b| b.waiting_bytes as f64, false);
        let seconds = |b: &BucketStatistics| b.read_latency.map_or(0.0, |latency| latency.as_secs_f64());
        add("bucket_read_seconds", "How long reads of the bucket take; 0 if unknown.", seconds, false);
    }
}

impl Figure for Option<ObjectRequests> {
    fn count<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        let Some(requests) = self else { return };
        let kinds = [
            ("puts", requests.puts),
            ("appends", requests.appends),
            ("gets", requests.gets),
            ("heads", requests.heads),
            ("lists", requests.lists),
            ("deletes", requests.deletes),
        ];
        let mut add = |name: String, help, label, number: u64| {
            samples.push(Sample { name, help, label, value: Value::Count(number as f64) });
        };
        for (kind, number) in kinds {
            add(name.to_string(), help, Some(("kind", Cow::Borrowed(kind))), number);
        }
        let sent = "Bytes put and appended.";
        add("object_sent_bytes".into(), sent, None, requests.sent_bytes);
        add("object_received_bytes".into(), "Bytes read from objects.", None, requests.received_bytes);
        let throttled = "Requests after which the store asked for fewer.";
        add("object_requests_throttled".into(), throttled, None, requests.throttled);
        let unknown = "Requests without a known outcome.";
        add("object_requests_unknown".into(), unknown, None, requests.unknown);
    }

    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.count(name, help, samples);
    }
}
