//! `buckets`: the buckets of a database in several, their repair, and the replacement of one.

use super::source::shown;
use crate::output::{Outcome, Progress, pause, print_json, print_text};
use crate::units::{count, size};
use anyhow::{Context, Result, bail};
use quenchdb::{BucketStatistics, Database, Place};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the progress of a repair is looked at.
const SLICE: Duration = Duration::from_millis(50);

/// `quench buckets`
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quench buckets s3://a/db,s3://b/db,s3://c/db\n  \
                        quench buckets s3://a/db,s3://b/db,s3://c/db --repair\n  \
                        quench buckets s3://a/db,s3://b/db,s3://c/db --replace s3://c/db=s3://d/db\n\n\
                        A list only reads. `--repair` and `--replace` open the database for writing, which ends a\n\
                        program that has it open. Such a program repairs by itself, and replaces a bucket if it\n\
                        is opened again with `Builder::replace_bucket`.")]
pub struct BucketsArgs {
    /// Database URLs, with commas between them
    database: PathBuf,
    /// Wait until every bucket has everything
    #[arg(long)]
    repair: bool,
    /// Let the bucket NEW take the place of OLD, which the list names
    #[arg(long, value_name = "OLD=NEW", value_parser = replacement)]
    replace: Option<(String, String)>,
    /// Give up after so many seconds without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = crate::parse::positive_seconds)]
    patience: f64,
}

fn replacement(text: &str) -> Result<(String, String), String> {
    // A URL may have an equals sign of its own, so the one before a scheme counts.
    let at = text.match_indices('=').find(|(at, _)| text[at + 1..].contains("://"));
    let (old, new) =
        at.map(|(at, _)| (&text[..at], &text[at + 1..])).ok_or("this is not OLD=NEW, two URLs")?;
    match old.contains("://") && !old.is_empty() {
        true => Ok((old.into(), new.into())),
        false => Err("OLD is not a URL".into()),
    }
}

/// Returns the list with one bucket in the place of another.
fn replaced(list: &Path, (old, new): &(String, String)) -> Result<String> {
    let list = list.to_str().context("the URLs are not UTF-8")?;
    let names: Vec<&str> = list.split(',').collect();
    if !names.iter().any(|name| name.trim_end_matches('/') == old.trim_end_matches('/')) {
        bail!("the list does not name {old}, which is to be replaced");
    }
    let rename = |name: &&str| {
        if name.trim_end_matches('/') == old.trim_end_matches('/') { new.clone() } else { (*name).into() }
    };
    Ok(names.iter().map(rename).collect::<Vec<String>>().join(","))
}

/// Returns the buckets as a list. `is_open` says that the database was open for writing, so that it
/// is known what each lacks.
pub fn as_json(buckets: &[BucketStatistics], is_open: bool) -> Value {
    let bucket = |bucket: &BucketStatistics| {
        json!({
            "name": bucket.name,
            "counts": bucket.is_counted,
            "whole": is_open.then_some(bucket.is_whole),
            "problem": bucket.problem,
            "copied_objects": bucket.copied_objects,
            "copied_bytes": bucket.copied_bytes,
        })
    };
    buckets.iter().map(bucket).collect()
}

/// Returns what is known of a bucket. `is_open` is as for [`as_json`].
pub fn state_of(bucket: &BucketStatistics, is_open: bool) -> String {
    let mut text = String::from(match (bucket.is_counted, bucket.is_whole) {
        (true, true) => "has everything",
        (true, false) if is_open => "counts, and lacks something",
        (true, false) => "counts",
        (false, _) => "does not count",
    });
    if let Some(problem) = &bucket.problem {
        let _ = write!(text, ": {problem}");
    }
    if bucket.copied_objects > 0 {
        let copied = (count(bucket.copied_objects), size(bucket.copied_bytes));
        let _ = write!(text, "; {} objects copied, {}", copied.0, copied.1);
    }
    text
}

fn as_text(buckets: &[BucketStatistics], is_open: bool) -> String {
    let line = |bucket: &BucketStatistics| format!("{}\t{}\n", bucket.name, state_of(bucket, is_open));
    buckets.iter().map(line).collect()
}

/// Waits until all buckets have everything.
fn wait_until_whole(database: &Database, patience: Duration) -> Result<Vec<BucketStatistics>> {
    let (progress, mut last, mut since) = (Progress::new(), None, Instant::now());
    loop {
        let buckets = database.statistics().buckets;
        if buckets.iter().all(|bucket| bucket.is_whole) {
            progress.finish();
            return Ok(buckets);
        }
        let copied: u64 = buckets.iter().map(|bucket| bucket.copied_objects).sum();
        let missing: u64 = buckets.iter().map(|bucket| bucket.missing_objects).sum();
        progress.at("copying objects", copied, copied + missing);
        if last.replace(copied) != Some(copied) {
            since = Instant::now();
        }
        if since.elapsed() > patience {
            progress.finish();
            let what = as_text(&buckets, true);
            bail!("no object was copied for {} s; the buckets are:\n{}", patience.as_secs(), what.trim_end());
        }
        if !pause(SLICE)? {
            bail!("interrupted; what was copied stays, and the next attempt continues");
        }
    }
}

/// Runs `buckets`.
pub fn run(args: &BucketsArgs, json: bool) -> Result<Outcome> {
    let place = shown(&args.database);
    let (buckets, is_open) = if args.repair || args.replace.is_some() {
        let mut builder = Database::builder().create(false);
        let mut list = args.database.clone();
        if let Some((old, new)) = &args.replace {
            list = replaced(&args.database, &(old.clone(), new.clone()))?.into();
            builder = builder.replace_bucket(old, new);
        } else {
            Place::from(&list).buckets().with_context(|| format!("cannot repair {place}"))?;
        }
        let database = builder.open(&list).with_context(|| format!("cannot open {}", shown(&list)))?;
        let buckets = wait_until_whole(&database, Duration::from_secs_f64(args.patience))?;
        database.close()?;
        (buckets, true)
    } else {
        let found = Place::from(&args.database).buckets();
        (found.with_context(|| format!("cannot look at the buckets of {place}"))?, false)
    };
    match json {
        true => print_json(&json!({"buckets": as_json(&buckets, is_open)}))?,
        false => print_text(&as_text(&buckets, is_open))?,
    }
    Ok(Outcome::Done)
}
