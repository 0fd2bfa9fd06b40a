//! The loop over events, and the figures at its end.

use super::input::{ModelInput, RowLocks};
use super::report::{ModelReport, Utilization};
use super::world::{Event, Next, Role, World};
use crate::arrivals::{Arrivals, Clients, Gaps, Rate};
use crate::latencies::Counted;
use crate::modelled::Figures;
use crate::modelled::figures::{Curve, UNLIMITED};
use anyhow::{Result, anyhow, bail};
use quenchdb::{Dependency, Writer};

/// Refuses what has no meaning.
fn check(input: &ModelInput) -> Result<()> {
    if input.workers == 0 {
        bail!("the model needs at least one worker");
    }
    if !(input.seconds > 0.0 && input.seconds <= 3600.0) {
        bail!("the model measures more than 0 and at most 3600 simulated seconds, not {}", input.seconds);
    }
    let costs_nothing = input.costs.execute_ns <= 0.0 && input.rate_tps.is_none();
    if costs_nothing && !input.protocol.blocking {
        bail!("a closed loop of asynchronous transactions that take no time never ends; set execute_ns");
    }
    if input.protocol.writer == Writer::Collector || input.protocol.dependency == Dependency::Gsn {
        bail!("the model has no writer = collector and no dependency = gsn; choose others");
    }
    if let Some(RowLocks { h, locked_share, .. }) = input.locks
        && !(0.0 < h && h <= 0.5 && (0.0..=1.0).contains(&locked_share))
    {
        bail!("row locks need 0 < h <= 0.5 and a locked share from 0 to 1");
    }
    Ok(())
}

/// Returns the figures of the device, with the factors of the input.
fn device_of(input: &ModelInput) -> Result<Figures> {
    let mut figures = *Figures::parse(&input.device).map_err(|error| anyhow!(error))?;
    let time = |ns: u64, factor: f64| (ns as f64 * factor) as u64;
    let rate = |rate: u64| if rate == UNLIMITED { rate } else { (rate as f64 * input.rate_factor) as u64 };
    let Curve { flat_ns, flat_bytes, bytes_per_second } = figures.write;
    figures.write = Curve {
        flat_ns: time(flat_ns, input.write_factor),
        flat_bytes,
        bytes_per_second: rate(bytes_per_second),
    };
    let flush = |(shortest, longest)| {
        (time(shortest, input.flush_factor).max(1), time(longest, input.flush_factor).max(1))
    };
    figures.flush_ns = figures.flush_ns.map(flush);
    figures.write_bytes_per_second = rate(figures.write_bytes_per_second);
    if let Some(limit) = &mut figures.requests {
        limit.per_second = rate(limit.per_second).max(1);
    }
    Ok(figures)
}

impl World<'_> {
    fn step(&mut self, thread: usize) -> Next {
        loop {
            let next = match self.threads[thread].role {
                Role::Worker { .. } => self.worker_step(thread),
                Role::Flusher { number } => self.flusher_step(thread, number),
                Role::Acknowledger => Some(self.acknowledger_step()),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Handles the events until `end`.
    fn run_until(&mut self, end: u64) {
        while let Some((at, event)) = self.events.pop() {
            if at > end {
                self.events.push(at, event);
                break;
            }
            self.now = at;
            match event {
                Event::Ran { core, thread } => self.advance(core, thread, World::step),
                Event::Wakes { thread, token, late } if self.threads[thread].token == token => {
                    self.rouse(thread, late);
                }
                Event::Wakes { .. } => {}
            }
        }
        self.now = end;
    }

    fn begin_measuring(&mut self) {
        self.tally.measure(self.now);
        self.rows.reset(self.now);
        self.draw.busy_ns = 0;
        self.logs.iter_mut().for_each(|log| log.latch.busy_ns = 0);
        self.threads.iter_mut().for_each(|thread| thread.busy = 0);
    }

    fn utilization(&self, figures: &Figures, seconds: f64) -> Utilization {
        let of = |ns: u64| ns as f64 / 1e9 / seconds;
        let waiting = |thread: &super::world::Thread| !matches!(thread.role, Role::Worker { .. });
        let flushers = self.threads.iter().filter(|thread| waiting(thread)).map(|thread| thread.busy);
        let bytes = self.tally.write_bytes as f64 / figures.write_bytes_per_second as f64 / seconds;
        let requests = figures
            .requests
            .map_or(0.0, |limit| self.tally.writes as f64 / limit.per_second as f64 / seconds);
        let slots = of(self.tally.write_ns) / figures.slots as f64;
        let flush = figures.flush_ns.map_or(0.0, |(shortest, longest)| {
            let ratio = longest as f64 / shortest as f64;
            let mean = if ratio > 1.0 { (longest - shortest) as f64 / ratio.ln() } else { shortest as f64 };
            self.tally.flushes as f64 * mean / 1e9 / seconds
        });
        Utilization {
            processors: of(self.tally.busy_ns) / self.cores() as f64,
            busiest_flusher: of(flushers.max().unwrap_or(0)).min(1.0),
            log_latch: of(self.logs.iter().map(|log| log.latch.busy_ns).max().unwrap_or(0)).min(1.0),
            csn_counter: of(self.draw.busy_ns).min(1.0),
            device: bytes.max(requests).max(slots).max(flush).min(1.0),
            hottest_row: of(self.rows.longest_ns(self.now)).min(1.0),
        }
    }
}

/// Runs the model.
///
/// # Errors
/// The input has no meaning: no worker, an unknown device.
pub fn run(input: &ModelInput) -> Result<ModelReport> {
    check(input)?;
    let figures = device_of(input)?;
    let mut world = World::new(input, &figures);
    if let Some(per_second) = input.rate_tps {
        let rate = Rate { per_second, gaps: Gaps::Poisson, clients: Clients::default() };
        for index in 0..input.workers {
            world.threads[index].arrivals = Some(Arrivals::new(rate, index, input.workers, input.seed, 0));
        }
    }
    for thread in 0..world.threads.len() {
        world.rouse(thread, 0);
    }
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    world.run_until(ns(input.warm_up_seconds));
    world.begin_measuring();
    let end = ns(input.warm_up_seconds) + ns(input.seconds);
    world.run_until(end);
    world.tally.end(end);
    Ok(report(&world, &figures))
}

fn report(world: &World<'_>, figures: &Figures) -> ModelReport {
    let (input, tally, seconds) = (world.input, &world.tally, world.input.seconds);
    let per = |count: u64, of: u64| (of > 0).then(|| count as f64 / of as f64);
    let summary = |latencies| Counted::of(std::iter::once(latencies)).summary_with_stdev();
    let flushes = if input.protocol.writer == Writer::Memory { 0 } else { tally.flushes };
    ModelReport {
        protocol: input.protocol.name.clone(),
        workers: input.workers,
        committed: tally.committed,
        throughput_tps: tally.committed as f64 / seconds,
        commit_latency_us: summary(&tally.commit),
        total_latency_us: summary(&tally.total),
        commits_per_write: per(tally.written_commits, tally.writes).filter(|_| tally.written_commits > 0),
        commits_per_flush: per(tally.written_commits, flushes),
        writes_per_second: tally.writes as f64 / seconds,
        writes_in_flight: tally.write_ns as f64 / 1e9 / seconds,
        device_bytes_per_second: tally.write_bytes as f64 / seconds,
        stolen_blocks: tally.stolen,
        wakeups_per_transaction: per(tally.wakes, tally.committed).unwrap_or(0.0),
        switches_per_transaction: per(tally.switches, tally.committed).unwrap_or(0.0),
        row_wait_us: tally.row_wait_ns as f64 / 1e3 / tally.committed.max(1) as f64,
        in_system: tally.in_system_ns as f64 / 1e9 / seconds,
        utilization: world.utilization(figures, seconds),
    }
}
