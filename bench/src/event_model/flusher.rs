//! The threads that write logs for others, and the one that only acknowledges.

use super::world::{NEVER, Next, Stage, World};
use super::writing::HORIZON_NS;
use quenchdb::{Acknowledger, Writer};

impl World<'_> {
    /// Returns the logs of flusher `number`.
    fn logs_of(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        (number..self.logs.len()).step_by(self.flushers.len().max(1))
    }

    /// Does the next step of flusher `number`; `None`: continue with the next stage.
    pub(super) fn flusher_step(&mut self, thread: usize, number: usize) -> Option<Next> {
        match self.threads[thread].stage {
            Stage::Issue => {
                let blocks = std::mem::take(&mut self.threads[thread].sealed);
                self.threads[thread].flights = self.issue(&blocks);
                self.threads[thread].stage = Stage::Flights;
                None
            }
            Stage::Flights => self.flusher_flights(thread),
            _ => self.flusher_look(thread, number),
        }
    }

    /// Completes what has completed, or waits.
    fn flusher_flights(&mut self, thread: usize) -> Option<Next> {
        if let Some(wait) = self.await_flights(thread) {
            return Some(wait);
        }
        let now = self.now;
        let flights = &mut self.threads[thread].flights;
        let done: Vec<_> = flights.extract_if(.., |flying| flying.done <= now).collect();
        if done.is_empty() {
            self.threads[thread].stage = Stage::Look;
            return None;
        }
        done.iter().for_each(|flying| self.complete(*flying));
        let took = self.publish(thread) + (self.input.costs.complete_ns * done.len() as f64) as u64;
        for flying in done {
            self.logs[flying.log].leader = None;
            self.wake_waiters(thread, flying.log);
        }
        Some(Next::Run(took))
    }

    /// Writes every log that is due, or sleeps until one is.
    fn flusher_look(&mut self, thread: usize, number: usize) -> Option<Next> {
        self.threads[thread].wakes_at = NEVER;
        if self.unfinished && self.input.protocol.acknowledger == Acknowledger::Leader {
            return Some(Next::Run(self.acknowledge(0, self.logs.len())));
        }
        if number == 0 && self.acknowledge_at <= self.now {
            self.acknowledge_at = NEVER;
            self.rescan();
            return Some(Next::Run(self.acknowledge(0, self.logs.len())));
        }
        let mut earliest = NEVER;
        for log in self.logs_of(number) {
            earliest = earliest.min(self.due(log));
        }
        if earliest > self.now {
            let at = if number == 0 { earliest.min(self.acknowledge_at) } else { earliest };
            self.threads[thread].wakes_at = at;
            let late = self.input.costs.timer_late_ns as u64;
            return Some(if at == NEVER { Next::Sleep } else { Next::Until { at, late } });
        }
        let mut took = 0;
        for log in self.logs_of(number) {
            if self.due(log) > self.now + HORIZON_NS {
                continue;
            }
            if self.input.protocol.writer == Writer::Worker {
                self.reap(log);
            }
            if let Some((sealing, block)) = self.seal(log, 0) {
                took += sealing;
                self.logs[log].leader = Some(thread);
                self.threads[thread].sealed.push(block);
            }
        }
        self.threads[thread].stage = Stage::Issue;
        if self.threads[thread].sealed.is_empty() {
            took += self.publish(thread);
        }
        Some(Next::Run(took))
    }

    /// Does the next step of the thread that only acknowledges.
    pub(super) fn acknowledger_step(&mut self) -> Next {
        let queued = |world: &Self| world.logs.iter().map(|log| log.hardened.len()).sum::<usize>();
        let waiting = queued(self);
        let took = self.acknowledge(0, self.logs.len());
        if queued(self) < waiting { Next::Run(took) } else { Next::Sleep }
    }
}
