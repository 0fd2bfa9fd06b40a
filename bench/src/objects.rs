//! The floor of a store of objects: appends or puts, one after the other, without a database.

use anyhow::{Context, Result, anyhow, bail};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::objects::{
    Condition, ObjectStore, Options, Request, connect, open_url, perform,
};
use quenchdb::internals::device::probe::{RawWrites, histogram};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens the database at `url` for reading, as a storage. Claims nothing.
///
/// # Errors
/// The URL is wrong, or the store does not answer.
pub fn storage(url: &str) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(open_url(url, true, Options::default())?))
}

/// One writer's object, or objects, below `probe/`, which a database ignores.
struct Writer<'a> {
    store: &'a dyn ObjectStore,
    name: String,
    /// Length of the object that takes appends, or the number of the next object.
    next: u64,
}

impl Writer<'_> {
    fn name(&self, number: u64) -> String {
        format!("{}/{number}", self.name)
    }

    /// Writes `body` as a commit does: an append, or a new object where none are taken.
    fn write(&mut self, body: &bytes::Bytes) -> Result<()> {
        let appends = self.store.facts().appends;
        let request = if appends && self.next > 0 {
            Request::Append { name: self.name(0), offset: self.next, body: body.clone(), version: None }
        } else {
            let name = self.name(if appends { 0 } else { self.next });
            Request::Put { name, body: body.clone(), condition: Condition::Absent }
        };
        perform(self.store, request).map_err(|failure| anyhow!(failure.what))?;
        self.next += if appends { body.len() as u64 } else { 1 };
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let objects = if self.store.facts().appends { self.next.min(1) } else { self.next };
        for number in 0..objects {
            // An object that stays is one of a probe.
            let _ = perform(self.store, Request::Delete { name: self.name(number) });
        }
    }
}

/// Measures durable writes of `bytes` by `writers` threads for `duration`.
///
/// # Errors
/// The store fails; the floor is measured without retries.
pub fn raw_durable_write(url: &str, bytes: usize, writers: usize, duration: Duration) -> Result<RawWrites> {
    let store = connect(url)?;
    let (body, run) = (bytes::Bytes::from(vec![7; bytes]), Random::from_entropy().next_u64());
    let began = Instant::now();
    let work = |writer: usize| -> Result<_> {
        let mut latency = histogram();
        let mut writer = Writer { store: &*store, name: format!("probe/floor-{run:016x}-{writer}"), next: 0 };
        while began.elapsed() < duration {
            let begun = Instant::now();
            writer.write(&body)?;
            latency.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Ok((latency, began.elapsed()))
    };
    let results: Vec<Result<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let (mut latency, mut elapsed) = (histogram(), Duration::ZERO);
    for result in results {
        let (one, took) = result.with_context(|| format!("the floor of {url} cannot be measured"))?;
        latency.add(one)?;
        elapsed = elapsed.max(took);
    }
    let writes_per_second = latency.len() as f64 / elapsed.as_secs_f64();
    Ok(RawWrites { latency, writes_per_second })
}
