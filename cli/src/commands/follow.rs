//! `follow`: a standby of a database, or a backup that is kept up to date, with its lag.

use super::source::shown;
use crate::output::{Outcome, pause, print_json, print_text};
use crate::parse::positive_seconds;
use crate::signals::{self, Interruptible};
use crate::units::count;
use anyhow::{Context, Result};
use quenchdb::{Database, Standby, StandbyStatistics};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Waits for a signal so long at a time.
const SLICE: Duration = Duration::from_millis(100);
/// A peer of the metrics has so long for its request.
const PATIENCE: Duration = Duration::from_secs(2);

/// `quench follow`
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quench follow s3://bucket/db\n  \
                        quench follow s3://bucket/db --serve-metrics 127.0.0.1:9464 > /dev/null\n  \
                        quench follow s3://bucket/db --into /backup/db\n\n\
                        The writer does not wait for a standby. Ends with a signal, or when nothing reads its output.")]
pub struct FollowArgs {
    /// Database directory or URL
    database: PathBuf,
    /// Keep the copy in this directory, as a database that is kept up to date and continues after
    /// a kill
    #[arg(long, value_name = "DIRECTORY")]
    into: Option<PathBuf>,
    /// Answer HTTP requests at this address with the figures in the format of Prometheus
    #[arg(long, value_name = "ADDRESS")]
    serve_metrics: Option<String>,
    /// Seconds between two lines
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive_seconds)]
    every: f64,
    /// Directory for scratch files; default: the one of the system for temporary files
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    /// Memory of the copy, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
}

/// Set by the first signal.
#[derive(Default)]
struct Interrupted(AtomicBool);

impl Interruptible for Interrupted {
    fn interrupt(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

fn as_json(statistics: &StandbyStatistics) -> serde_json::Value {
    json!({
        "csn": statistics.csn.0,
        "newest_csn": statistics.newest_csn.0,
        "lag_csns": statistics.lag_csns,
        "lag_seconds": statistics.lag.as_secs_f64(),
        "transactions": statistics.transactions,
        "new_bases": statistics.new_bases,
        "base_csn": statistics.base_csn.0,
        "failure": statistics.failure.as_ref().map(ToString::to_string),
    })
}

fn as_text(statistics: &StandbyStatistics, before: u64, seconds: f64) -> String {
    let rate = (statistics.transactions - before) as f64 / seconds.max(0.001);
    let mut text = format!(
        "csn {}  lag {} CSNs, {:.3} s  {} transactions/s",
        statistics.csn,
        count(statistics.lag_csns),
        statistics.lag.as_secs_f64(),
        count(rate as u64)
    );
    if let Some(failure) = &statistics.failure {
        text += &format!("  cannot follow: {failure}");
    }
    text
}

/// Answers one request, whatever it asks.
fn answer(mut peer: TcpStream, text: &str) -> std::io::Result<()> {
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; 4096];
    let mut read = 0;
    while read < request.len() && !request[..read].windows(4).any(|end| end == b"\r\n\r\n") {
        match peer.read(&mut request[read..])? {
            0 => break,
            more => read += more,
        }
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
    write!(peer, "{head}Content-Length: {}\r\n\r\n{text}", text.len())
}

/// Answers requests until the standby is gone.
fn serve(address: &str, standby: &Arc<Standby>) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let standby = Arc::downgrade(standby);
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let Some(standby) = standby.upgrade() else { return };
            let text = standby.statistics().prometheus();
            drop(standby);
            // A peer that does not behave gets no answer.
            let _ = peer.and_then(|peer| answer(peer, &text));
        }
    });
    Ok(())
}

/// Returns a callback that prints how many pages of the first copy are there, once a second.
fn print_progress() -> impl FnMut(&str, u64, u64) + Send {
    let mut printed = Instant::now();
    move |what, done, all| {
        if printed.elapsed() >= Duration::from_secs(1) {
            printed = Instant::now();
            // Beside the lines of the output, which a program may read.
            let _ = writeln!(std::io::stderr(), "{what}: {} of {}", count(done), count(all));
        }
    }
}

/// Runs `follow`.
pub fn run(args: &FollowArgs, json: bool) -> Result<Outcome> {
    let mut builder = Database::builder().memory_bytes(args.memory << 20);
    if let Some(scratch) = &args.scratch {
        builder = builder.scratch_directory(scratch);
    }
    if let Some(directory) = &args.into {
        builder = builder.copy_directory(directory).on_recovery(Box::new(print_progress()));
    }
    let opened = builder.open_standby(&args.database);
    let standby = Arc::new(opened.with_context(|| format!("cannot follow {}", shown(&args.database)))?);
    let interrupted = Arc::new(Interrupted::default());
    signals::handle();
    signals::interrupt_first(&interrupted);
    if let Some(address) = &args.serve_metrics {
        serve(address, &standby)?;
    }
    let (mut before, mut since) = (standby.statistics().transactions, Instant::now());
    loop {
        let until = since + Duration::from_secs_f64(args.every);
        while Instant::now() < until && !interrupted.0.load(Ordering::SeqCst) {
            if !pause(SLICE.min(until.saturating_duration_since(Instant::now())))? {
                return Ok(Outcome::Done);
            }
        }
        if interrupted.0.load(Ordering::SeqCst) {
            return Ok(Outcome::Done);
        }
        let statistics = standby.statistics();
        match json {
            true => print_json(&as_json(&statistics))?,
            false => print_text(&as_text(&statistics, before, since.elapsed().as_secs_f64()))?,
        }
        (before, since) = (statistics.transactions, Instant::now());
    }
}
