//! Seeds of the simulation as detectors.

use super::{Caught, Outcome, PATIENCE, must_be_sound};
use crate::processes;
use anyhow::{Context, Result};
use quenchdb::internals::base::planted::Bug;
use std::ops::RangeInclusive;
use std::time::Instant;

/// Runs `seeds` with `bug` planted until one notices; returns that seed.
pub fn ask(seeds: RangeInclusive<u64>, bug: Bug, processor: usize) -> Result<(Outcome, Option<u64>)> {
    let (begun, first) = (Instant::now(), *seeds.start());
    for seed in seeds {
        let (outcome, seconds) = (one(seed, Some(bug), processor)?, begun.elapsed().as_secs_f64());
        if let Outcome::Noticed(caught) = outcome {
            must_be_sound(&caught.by, &one(seed, None, processor)?)?;
            return Ok((Outcome::Noticed(Caught { runs: seed - first + 1, seconds, ..caught }), Some(seed)));
        }
    }
    Ok((Outcome::Nothing(""), None))
}

fn one(seed: u64, bug: Option<Bug>, processor: usize) -> Result<Outcome> {
    let program = std::env::current_exe().context("this program's own path")?;
    let batch = processes::Batch {
        seeds: seed..seed + 1,
        until: None,
        processes: 1,
        twice: 0,
        points: crate::POINTS,
        patience: PATIENCE,
        planted: bug,
        interrupts: true,
    };
    let said = match processes::one(&program, seed, processor, &batch)? {
        Ok(_) => return Ok(Outcome::Nothing("")),
        Err(said) if said.starts_with("no end") => return Ok(Outcome::Nothing(" (hangs)")),
        Err(said) => said,
    };
    // The place of a panic comes first, its message is the next line.
    let line = said.lines().nth(1).or(said.lines().next()).unwrap_or_default();
    let said = line.chars().take(super::table::SAID_LENGTH).collect();
    Ok(Outcome::Noticed(Caught { by: format!("seed {seed}"), runs: 1, tries: 1, seconds: 0.0, said }))
}
