//! The emulated store of a point that keeps its database in one: `{s3-express}` and
//! `{s3-standard}` in a command are URLs of buckets with the latency of these stores.

use anyhow::Result;
use std::process::Command;

/// A store that runs as long as its point.
pub(super) struct Emulated {
    words: Vec<String>,
    #[cfg(feature = "emulator")]
    running: Option<quench_emulator::Emulator>,
}

#[cfg(feature = "emulator")]
impl Emulated {
    /// Starts the store that the words of a command name, if they name one.
    pub(super) fn start(words: Vec<String>) -> Result<Emulated> {
        use quench_emulator::{Emulator, Latency, Options};
        let stores = [
            ("{s3-express}", Latency::S3Express, Options::DIRECTORY_BUCKET),
            ("{s3-standard}", Latency::S3Standard, Options::BUCKET),
        ];
        let named = stores.into_iter().find(|(name, ..)| words.iter().any(|word| word == name));
        let Some((name, latency, bucket)) = named else { return Ok(Emulated { words, running: None }) };
        let running = Emulator::start(Options { latency, ..Options::default() })?;
        let url = format!("s3://{bucket}/point");
        let words = words.into_iter().map(|word| if word == name { url.clone() } else { word }).collect();
        Ok(Emulated { words, running: Some(running) })
    }

    /// Gives a program the words, and what leads it to the store.
    pub(super) fn lead(&self, program: &mut Command) {
        program.args(&self.words);
        if let Some(running) = &self.running {
            program.envs(running.environment());
        }
    }
}

#[cfg(not(feature = "emulator"))]
impl Emulated {
    pub(super) fn start(words: Vec<String>) -> Result<Emulated> {
        if words.iter().any(|word| ["{s3-express}", "{s3-standard}"].contains(&word.as_str())) {
            anyhow::bail!("needs an emulated store: build the program with --features stores");
        }
        Ok(Emulated { words })
    }

    pub(super) fn lead(&self, program: &mut Command) {
        program.args(&self.words);
    }
}
