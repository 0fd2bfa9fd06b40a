//! `probe`: finds out whether a store of objects can keep databases.

use super::source::is_url;
use crate::output::{Outcome, print_json, print_text};
use anyhow::{Result, bail};
use quenchdb::internals::device::objects::{Rounds, connect, explain_zonal, probe, probe_races};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// `quench probe`
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quench probe s3://bucket/prefix --rounds 1000\n\n\
                        A server whose conditions fail once in a while, when requests race, loses rows. Each open of a new\n\
                        database runs 24 rounds; more rounds find rarer faults. The probe removes its objects.")]
pub struct ProbeArgs {
    /// URL of a store of objects; a database there is not touched
    url: PathBuf,
    /// Races of each kind of request; four times as often an object is read while it is replaced
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
}

/// Replacements of an object that is read, for each race.
const READS: u32 = 4;

/// Runs `probe`.
pub fn run(args: &ProbeArgs, as_json: bool) -> Result<Outcome> {
    if !is_url(&args.url) {
        bail!("{} is no URL: write s3://bucket/prefix, az://, gs:// or file://", args.url.display());
    }
    let store = connect(&args.url.to_string_lossy())?;
    let began = Instant::now();
    let facts = probe(&*store).map_err(|error| explain_zonal(&args.url.to_string_lossy(), error))?;
    let rounds = Rounds { races: args.rounds, reads: args.rounds.saturating_mul(READS) };
    probe_races(&*store, &facts, rounds)?;
    let seconds = began.elapsed().as_secs_f64();
    if as_json {
        print_json(&json!({
            "name": facts.name,
            "endpoint": facts.endpoint,
            "appends": facts.appends,
            "streams": facts.streams,
            "rounds": args.rounds,
            "seconds": seconds,
        }))?;
    } else {
        let appends = match (facts.streams, facts.appends) {
            (true, _) => "takes appends over streams",
            (false, true) => "takes appends",
            (false, false) => "takes no appends",
        };
        print_text(&format!(
            "{}: {} rounds of races passed in {seconds:.1} s; the store {appends}\n",
            facts.name, args.rounds
        ))?;
    }
    Ok(Outcome::Done)
}
