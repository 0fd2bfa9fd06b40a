//! What a database of the simulation lies on, seen as a sequence of changes. A crash keeps the
//! first of them.

use quenchdb::internals::device::objects::Request;
use quenchdb::internals::device::objects::simulated::{Event, SimulatedStore};
use quenchdb::internals::device::simulated::SimulatedStorage;
use std::fmt::Debug;
use std::time::Duration;

/// See the module's text.
pub trait Medium: Debug + Send + Sync {
    /// Returns the number of changes so far: operations of a disk, or changes of a store of
    /// objects.
    fn changes(&self) -> usize;

    /// Returns the longest time of a log write without faults, waits included; `None` = unknown,
    /// because faults only delay writes.
    fn write_time(&self) -> Option<Duration>;

    /// Returns a line for each change, without the first `from` ones.
    fn describe(&self, from: usize) -> Vec<String>;
}

impl Medium for SimulatedStorage {
    fn changes(&self) -> usize {
        self.operations()
    }

    fn write_time(&self) -> Option<Duration> {
        Some(Duration::from_millis(10))
    }

    fn describe(&self, from: usize) -> Vec<String> {
        SimulatedStorage::describe(self, from)
    }
}

impl Medium for SimulatedStore {
    fn changes(&self) -> usize {
        SimulatedStore::changes(self)
    }

    fn write_time(&self) -> Option<Duration> {
        None
    }

    fn describe(&self, from: usize) -> Vec<String> {
        let took_effect = |event: Event| matches!(event, Event::Effect(None));
        let (mut lines, mut before) = (Vec::new(), 0);
        for record in self.journal() {
            if took_effect(record.event) && record.changes > before {
                before = record.changes;
                if record.changes > from {
                    lines.push(format!("machine {} {}", record.client, describe(&record.request)));
                }
            }
        }
        lines
    }
}

fn describe(request: &Request) -> String {
    let (kind, name) = (request.kind().name(), request.name());
    match request {
        Request::Put { body, .. } | Request::Create { body, .. } => {
            format!("{kind} {name}, {} bytes", body.len())
        }
        Request::Append { offset, body, .. } => format!("{kind} {name}, {} bytes at {offset}", body.len()),
        _ => format!("{kind} {name}"),
    }
}
