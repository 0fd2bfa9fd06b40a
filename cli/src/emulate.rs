//! `emulate`: a server that behaves like S3, or like a zonal bucket of Google, on this machine.

use crate::output::{Outcome, print_json, print_text};
use crate::signals;
use anyhow::Result;
use quench_emulator::{
    Emulator, Faults, Latency, Mistake, Options, Place, RapidEmulator, RapidFaults, RapidLatency,
    RapidMistake, RapidOptions,
};
use serde_json::json;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// `quench emulate`
#[derive(clap::Args)]
pub struct EmulateArgs {
    #[command(subcommand)]
    store: Store,
}

#[derive(clap::Subcommand)]
enum Store {
    /// S3 with a directory bucket that takes appends, and a general purpose bucket that does not
    S3(S3Args),
    /// A zonal bucket of Google (class Rapid), whose objects take flushed appends over streams
    GcsRapid(RapidArgs),
}

/// `quench emulate gcs-rapid`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quench emulate gcs-rapid --model gcs-rapid    prints what to set, and runs until Ctrl-C
  quench emulate gcs-rapid --directory /tmp/log keeps objects for the next emulator
  quench emulate gcs-rapid --faults torn=0.02,late=0.01,expire=0.05

It has the log of a database. Everything else goes to a regional bucket, or to a directory:
  quench demo 'gs://quench-zonal/demo?rest=file:///tmp/rest/demo'

Faults (probability of each step that they fit):
  before, after       the stream ends before or after the effect, without an answer
  late, torn          the effect comes later; a part of an append takes effect
  throttle, redirect  the service asks for fewer requests; the stream is to be opened elsewhere
  expire              the handle of a writer is no longer known
  deny                the service refuses the credentials, and nothing happens

A directory survives a kill of this process, not a power cut. What was not flushed is lost then, or a part of it.")]
struct RapidArgs {
    /// Address; port 0 chooses a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Keep objects in memory, and in this directory for the next emulator
    #[arg(long)]
    directory: Option<PathBuf>,
    /// How long requests take: none, gcs-rapid
    #[arg(long, default_value = "none")]
    model: RapidLatency,
    /// What goes wrong, and how often
    #[arg(long, default_value = "", value_name = "SPEC")]
    faults: RapidFaults,
    /// Seed of latencies and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name of the bucket
    #[arg(long, default_value = RapidOptions::BUCKET, value_name = "NAME")]
    bucket: String,
    /// A promise that this server breaks, to see clients refuse it
    #[arg(long = "mistake", value_name = "NAME")]
    mistakes: Vec<RapidMistake>,
    /// Behave as Google's server for tests, which does not revoke a stream that is open
    #[arg(long)]
    as_testbench: bool,
    /// Refuse to delete an object that is not finalized, as the service did in 2025
    #[arg(long)]
    keeps_open_objects: bool,
}

/// `quench emulate s3`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quench emulate s3 --model s3-express          prints what to set, and runs until Ctrl-C
  quench emulate s3 --directory /tmp/s3         keeps objects for the next emulator
  quench emulate s3 --faults lost=0.01,error-after=0.01,late=0.01:2s
  curl -X PUT --data throttle=0.2 http://127.0.0.1:PORT/.emulator/faults
  curl http://127.0.0.1:PORT/.emulator/counts   requests since the start

Faults (probability of each request for an object):
  throttle, deny, error-before         nothing happens: 503, 403, 500
  reset, cut                           nothing happens: connection closed, read cut short
  error-after, lost, twice             it takes effect: 500, connection closed, carried out twice
  late:TIME, slow:TIME                 it takes effect later; its answer takes longer

A directory survives a kill of this process, not a power cut. Do not keep anything here that matters.")]
struct S3Args {
    /// Address; port 0 chooses a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Keep objects in memory, and in this directory for the next emulator
    #[arg(long, conflicts_with = "memory")]
    directory: Option<PathBuf>,
    /// Keep objects in memory only (the default)
    #[arg(long)]
    memory: bool,
    /// How long requests take: none, s3-express, s3-standard
    #[arg(long, default_value = "none")]
    model: Latency,
    /// What goes wrong, and how often
    #[arg(long, default_value = "", value_name = "SPEC")]
    faults: Faults,
    /// Seed of latencies and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Create another bucket; names that end with --x-s3 are directory buckets
    #[arg(long = "bucket", value_name = "NAME")]
    buckets: Vec<String>,
    /// A promise that this server breaks, to see clients refuse it
    #[arg(long = "mistake", value_name = "NAME")]
    mistakes: Vec<Mistake>,
    /// How long a session of a directory bucket lasts
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    session: u64,
}

/// Ends the command at the first signal.
struct UntilSignal(Sender<()>);

impl signals::Interruptible for UntilSignal {
    fn interrupt(&self) -> bool {
        self.0.send(()).is_ok()
    }
}

/// Runs the emulator until a signal ends it.
pub fn run(args: EmulateArgs, json: bool) -> Result<Outcome> {
    match args.store {
        Store::S3(args) => run_s3(args, json),
        Store::GcsRapid(args) => run_rapid(args, json),
    }
}

/// Returns what ends when a signal comes.
fn until_signal() -> (Arc<UntilSignal>, Receiver<()>) {
    let (interrupted, ended) = channel();
    let until_signal = Arc::new(UntilSignal(interrupted));
    signals::handle();
    signals::interrupt_first(&until_signal);
    (until_signal, ended)
}

fn run_rapid(args: RapidArgs, json: bool) -> Result<Outcome> {
    let options = RapidOptions {
        listen: args.listen,
        directory: args.directory,
        latency: args.model,
        faults: args.faults,
        seed: args.seed,
        bucket: args.bucket,
        mistakes: args.mistakes,
        as_testbench: args.as_testbench,
        keeps_open_objects: args.keeps_open_objects,
        ..RapidOptions::default()
    };
    let bucket = options.bucket.clone();
    let (_until_signal, ended) = until_signal();
    let emulator = RapidEmulator::start(options)?;
    let environment = emulator.environment();
    if json {
        let variables: serde_json::Map<String, serde_json::Value> =
            environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let address = emulator.address().to_string();
        print_json(&json!({ "address": address, "environment": variables, "buckets": [bucket] }))?;
    } else {
        let mut text = format!("an emulator of a zonal bucket at {}; Ctrl-C ends it\n\n", emulator.address());
        for (name, value) in environment {
            let _ = writeln!(text, "export {name}={value}");
        }
        let _ = writeln!(text, "\nquench demo 'gs://{bucket}/demo?rest=file:///tmp/rest/demo'");
        print_text(&text)?;
    }
    // An error only means that no signal can come any more.
    let _ = ended.recv();
    let counts = emulator.counts();
    if json {
        print_json(&counts)?;
    } else {
        let all: Vec<String> = counts.iter().map(|(method, count)| format!("{count} {method}")).collect();
        print_text(&format!("{}\n", all.join(", ")))?;
    }
    Ok(Outcome::Done)
}

fn run_s3(args: S3Args, json: bool) -> Result<Outcome> {
    let defaults = Options::default();
    let place = args.directory.map_or(Place::Memory, Place::Directory);
    let options = Options {
        listen: args.listen,
        place,
        latency: args.model,
        faults: args.faults,
        mistakes: args.mistakes,
        seed: args.seed,
        buckets: defaults.buckets.iter().cloned().chain(args.buckets).collect(),
        session: Duration::from_secs(args.session),
        ..defaults
    };
    let buckets = options.buckets.clone();
    let (_until_signal, ended) = until_signal();
    let emulator = Emulator::start(options)?;
    describe(&emulator, &buckets, json)?;
    // An error only means that no signal can come any more.
    let _ = ended.recv();
    let counts = emulator.counts();
    if json {
        print_json(&counts)?;
    } else {
        let requests: u64 = counts.requests.values().sum();
        print_text(&format!("{requests} requests, {} with a fault\n", counts.faults))?;
    }
    Ok(Outcome::Done)
}

/// Prints where the emulator is and how to use it.
fn describe(emulator: &Emulator, buckets: &[String], json: bool) -> Result<()> {
    let environment = emulator.environment();
    if json {
        let variables: serde_json::Map<String, serde_json::Value> =
            environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        return print_json(&json!({
            "url": emulator.url(),
            "environment": variables,
            "buckets": buckets,
        }));
    }
    let mut text = format!("an emulator of S3 at {}; Ctrl-C ends it\n\n", emulator.url());
    for (name, value) in environment {
        let _ = writeln!(text, "export {name}={value}");
    }
    let _ = writeln!(text);
    for bucket in buckets {
        let _ = writeln!(text, "quench demo s3://{bucket}/demo");
    }
    print_text(&text)
}
