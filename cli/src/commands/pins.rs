//! `pins`: the readers of checkpoints in a store of objects.

use super::source::shown;
use crate::output::{Outcome, print_json, print_text};
use anyhow::{Context, Result};
use quenchdb::Place;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// `quench pins`
#[derive(clap::Args)]
#[command(
    after_help = "A reader that dies leaves its pin, and the writer keeps its checkpoint until the pin ends.\n\
                        A reader that is alive fails when its pin is removed, and reads nothing wrong."
)]
pub struct PinsArgs {
    /// Database URL
    database: PathBuf,
    /// Remove this pin; may be repeated
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
}

/// Runs `pins`.
pub fn run(args: &PinsArgs, as_json: bool) -> Result<Outcome> {
    let place = Place::from(&args.database);
    for name in &args.remove {
        place.remove_pin(name).with_context(|| format!("cannot remove {name}"))?;
    }
    let found = place.pins();
    let pins = found.with_context(|| format!("cannot list the pins of {}", shown(&args.database)))?;
    if as_json {
        let listed = pins
            .iter()
            .map(|pin| json!({"name": pin.name, "owner": pin.owner, "expires": pin.expires}))
            .collect::<Vec<_>>();
        print_json(&json!({"pins": listed}))?;
        return Ok(Outcome::Done);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut text = String::new();
    for pin in &pins {
        let hours = pin.expires.saturating_sub(now) / 3600;
        let _ = writeln!(text, "{}\t{}, ends in {hours} hours", pin.name, pin.owner);
    }
    if !text.is_empty() {
        print_text(&text)?;
    }
    Ok(Outcome::Done)
}
