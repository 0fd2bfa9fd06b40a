//! The one open question about zonal buckets: is what a flush confirmed always in the finalized
//! object, also when two writers take it over at the same time? Here against the emulator, and by
//! hand against the live service:
//!
//! ```sh
//! QUENCH_LIVE_GCS_RAPID='gs://zonal/p?rest=gs://bucket/p' \
//!     cargo test -p quench-emulator --test emulator -- --ignored --nocapture live_service
//! ```
//!
//! It leaves no object behind, and prints zone, date and outcome.

use crate::rapid::{odds, start};
use quench_emulator::{RapidLatency, RapidMistake, RapidOptions};
use quenchdb::internals::device::objects::rapid::RapidStore;
use quenchdb::internals::device::objects::{
    CloudOptions, FailureKind, ObjectStore, ObjectUrl, Reply, Request, Version, connect, perform, probe,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const VARIABLE: &str = "QUENCH_LIVE_GCS_RAPID";
const HEADER_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 3000;
/// Blocks that are in flight together.
const WINDOW: u64 = 8;
/// The service takes about one change of an object a second, so a takeover is tried for some time.
const TRIED_MAX: Duration = Duration::from_secs(60);

/// What all rounds found.
#[derive(Default, Debug)]
struct Found {
    rounds: u32,
    confirmed: u64,
    /// Blocks in finalized objects that were not confirmed.
    unconfirmed: u64,
    /// Rounds in which both finalized, or found finalized.
    takeovers: u32,
    /// Rounds in which the first writer took its object back.
    taken_back: u32,
    /// Confirmed bytes that are missing, and other contradictions.
    violations: Vec<String>,
}

/// Returns byte `at` of every object.
fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

/// One machine: a client of its own.
struct Machine {
    store: RapidStore,
    name: String,
    version: Version,
}

impl Machine {
    fn open(&self, takes_over: bool) -> Result<Reply, FailureKind> {
        let (name, version) = (self.name.clone(), self.version.clone());
        let open = Request::Open { name, version, takes_over };
        perform(&self.store, open).map_err(|failure| failure.kind)
    }

    fn head(&self) -> Option<Reply> {
        perform(&self.store, Request::Head { name: self.name.clone() }).ok()
    }

    /// Appends until an append fails, with several in flight. Notes in `confirmed` what is.
    fn append_from(&self, mut end: u64, confirmed: &Arc<AtomicU64>, ends: &AtomicBool) -> FailureKind {
        let (ended, outcomes) = mpsc::channel();
        let mut in_flight = 0;
        let mut failure = None;
        while failure.is_none() || in_flight > 0 {
            let is_over = ends.load(Ordering::SeqCst) && in_flight == 0;
            if is_over {
                return failure.unwrap_or(FailureKind::Refused);
            }
            if failure.is_none() && in_flight < WINDOW && !ends.load(Ordering::SeqCst) {
                let (offset, body) = (end, bytes(end, end + BLOCK_BYTES).into());
                end += BLOCK_BYTES;
                let (at, confirmed, ended) = (end, confirmed.clone(), ended.clone());
                let append = Request::Append { name: self.name.clone(), offset, body, version: None };
                let done = move |outcome: Result<Reply, quenchdb::internals::device::objects::Failure>| {
                    if outcome.is_ok() {
                        confirmed.fetch_max(at, Ordering::SeqCst);
                    }
                    // The thread waits for all.
                    let _ = ended.send(outcome.map(drop).map_err(|failure| failure.kind));
                };
                self.store.start(append, Box::new(done));
                in_flight += 1;
                continue;
            }
            in_flight -= 1;
            failure = outcomes.recv().expect("each append ends").err().or(failure);
        }
        failure.unwrap_or(FailureKind::Refused)
    }

    /// Takes the object over and finalizes it at the length of the answer, until it is finalized.
    /// Returns that length.
    fn end(&self) -> Option<u64> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(5);
        while begun.elapsed() < TRIED_MAX {
            let ended = self.open(true).and_then(|opened| {
                let (name, version) = (self.name.clone(), self.version.clone());
                let finalize = Request::Finalize { name, version, len: opened.len };
                perform(&self.store, finalize).map_err(|failure| failure.kind)
            });
            match ended {
                Ok(reply) => return Some(reply.len),
                Err(FailureKind::Absent) => return None,
                Err(_) => {}
            }
            if let Some(head) = self.head().filter(|head| head.is_final) {
                return Some(head.len);
            }
            std::thread::sleep(pause.mul_f64(0.5 + f64::from(fastrand::u8(..)) / 256.0));
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        None
    }
}

/// One writer appends, two others take the object over at the same time.
fn contend(machine: &dyn Fn() -> RapidStore, round: u32, found: &mut Found) {
    let name = format!("probe/log-contention-{:016x}", fastrand::u64(..));
    let create = || Request::Create { name: name.clone(), body: bytes(0, HEADER_BYTES).into() };
    let first = machine();
    let Ok(created) = perform(&first, create()) else { return };
    let version = created.version.expect("a generation");
    let machine_of = |store| Machine { store, name: name.clone(), version: version.clone() };
    let first = machine_of(first);
    let others = [machine_of(machine()), machine_of(machine())];
    let (confirmed, ends) = (Arc::new(AtomicU64::new(HEADER_BYTES)), AtomicBool::new(false));
    // In every second round the writer behaves as one whose handle has expired.
    let takes_back = round % 2 == 1;
    let lens: Vec<Option<u64>> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            first.append_from(HEADER_BYTES, &confirmed, &ends);
            if let Ok(opened) = first.open(takes_back) {
                found.taken_back += u32::from(takes_back);
                first.append_from(opened.len, &confirmed, &ends);
            }
        });
        std::thread::sleep(Duration::from_millis(20 + u64::from(round % 7) * 5));
        let enders = others.each_ref().map(|other| scope.spawn(|| other.end()));
        let lens = enders.map(|ender| ender.join().expect("no panic"));
        ends.store(true, Ordering::SeqCst);
        writer.join().expect("no panic");
        lens.to_vec()
    });
    let confirmed = confirmed.load(Ordering::SeqCst);
    let mut violate = |what: String| found.violations.push(format!("round {round}: {what}"));
    let lens: Vec<u64> = lens.into_iter().flatten().collect();
    match perform(&first.store, Request::Get { name: name.clone(), range: None }) {
        Err(failure) => violate(format!("the object cannot be read: {}", failure.what)),
        Ok(reply) => {
            let len = reply.body.len() as u64;
            if lens.is_empty() || lens.iter().any(|other| *other != len) {
                violate(format!("the object has {len} bytes, and was finalized at {lens:?}"));
            }
            if confirmed > len {
                violate(format!("{confirmed} bytes were confirmed, and {len} are in the finalized object"));
            }
            if reply.body != bytes(0, len) {
                violate("the object has other bytes than those that were sent".into());
            }
            found.confirmed += (confirmed - HEADER_BYTES) / BLOCK_BYTES;
            found.unconfirmed += len.saturating_sub(confirmed) / BLOCK_BYTES;
        }
    }
    found.takeovers += u32::from(lens.len() == 2);
    found.rounds += 1;
    // Otherwise the next probe of an operator shows it.
    let _ = perform(&first.store, Request::Delete { name });
}

/// Lets writers contend for `rounds` objects.
fn check(machine: &dyn Fn() -> RapidStore, rounds: u32) -> Found {
    let mut found = Found::default();
    (0..rounds).for_each(|round| contend(machine, round, &mut found));
    found
}

/// The whole check of a live service: of the URL of a database, with the settings of a client.
fn check_live(url: &str, settings: &[(String, String)], rounds: u32) -> Found {
    let url = ObjectUrl::parse(url).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    let zonal = ObjectUrl { rest: None, ..url };
    let machine = || {
        let options = CloudOptions { settings: settings.to_vec(), ..CloudOptions::default() };
        RapidStore::connect(&zonal, &options).unwrap_or_else(|error| panic!("{zonal}: {error}"))
    };
    let zone = machine().zone().unwrap_or("an unknown zone").to_string();
    let found = check(&machine, rounds);
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    println!(
        "{zonal} in {zone}, {}: {} rounds, {} confirmed blocks, {} unconfirmed ones in the objects, {} \
         double takeovers, {} taken back, {} violations {:?}",
        day(date),
        found.rounds,
        found.confirmed,
        found.unconfirmed,
        found.takeovers,
        found.taken_back,
        found.violations.len(),
        found.violations
    );
    found
}

/// Returns the day of a second since 1970, as `2026-11-28`.
fn day(seconds: u64) -> String {
    let shifted = seconds / 86_400 + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{of_month:02}", year + era * 400 + next)
}

#[test]
fn confirmed_flushes_are_in_the_finalized_object() {
    assert_eq!((day(0), day(951_782_400)), ("1970-01-01".into(), "2000-02-29".into()));
    let faults = "before=0.01,after=0.01,torn=0.02,late=0.02,redirect=0.03,throttle=0.02";
    for (faults, mistakes) in [("", vec![]), (faults, vec![]), ("", vec![RapidMistake::NoRevocation])] {
        let emulator = start(RapidOptions { faults: odds(faults), mistakes, ..RapidOptions::default() });
        let settings = emulator.environment().map(|(name, value)| (name.to_string(), value));
        let url = format!("gs://{}/live?rest=gs://regional/live", RapidOptions::BUCKET);
        let found = check_live(&url, &settings, 30);
        assert!(found.violations.is_empty(), "{found:?}");
        assert!(found.rounds >= 20 && found.takeovers > 10 && found.confirmed > 100, "{found:?}");
    }
}

/// The check finds out a service that confirms what it has not flushed, or loses the end.
#[test]
fn contention_check_finds_a_service_that_loses_confirmed_bytes() {
    for mistake in [RapidMistake::UnflushedReported, RapidMistake::FinalizesShort] {
        // Without the time of a flush, nothing is ever unflushed.
        let (mistakes, latency) = (vec![mistake], RapidLatency::GcsRapid);
        let emulator = start(RapidOptions { mistakes, latency, ..RapidOptions::default() });
        let settings = emulator.environment().map(|(name, value)| (name.to_string(), value));
        let found = check_live(&format!("gs://{}/live", RapidOptions::BUCKET), &settings, 12);
        assert!(!found.violations.is_empty(), "{mistake:?}: {found:?}");
    }
}

#[test]
#[ignore = "set QUENCH_LIVE_GCS_RAPID to gs://zonal/p?rest=gs://bucket/p, and run it by hand"]
fn live_service_keeps_what_it_confirms() {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("{VARIABLE} names no database"));
    let store = connect(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let facts = probe(&*store).unwrap_or_else(|error| panic!("{url}: {error}"));
    println!("{url} passes the probe: {facts:?}");
    let found = check_live(&url, &[], 30);
    assert!(found.violations.is_empty(), "{found:?}");
}
