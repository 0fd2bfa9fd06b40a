//! The trace of a run for people: the actions of threads, among the operations of the disk.

use crate::medium::Medium;
use quenchdb::internals::sync::simulation;
use std::fmt::{Debug, Display};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// An action of a thread.
#[derive(Clone, Debug)]
struct Event {
    /// The number of disk operations before it.
    at: usize,
    thread: String,
    action: String,
}

/// The trace; clones share it. Every run records its trace, printed or not, so that a seed always
/// behaves the same.
#[derive(Clone, Default)]
pub struct Trace {
    /// A mutex of the system, not of the simulation: the scheduler must not switch threads here.
    events: Arc<Mutex<Vec<Event>>>,
}

impl Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trace")
    }
}

impl Trace {
    /// Records that `thread` did `action` now.
    pub fn note(&self, medium: &dyn Medium, thread: impl Display, action: impl Display) {
        let at = simulation::aside(|| medium.changes());
        let event = Event { at, thread: thread.to_string(), action: action.to_string() };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Returns lines for the disk operations in `range`, with the actions among them. Operation n
    /// is the first one that a crash after n operations discards; a mark for `crash` stands before
    /// it.
    pub fn lines(
        &self,
        medium: &dyn Medium,
        range: Range<usize>,
        crash: Option<(usize, String)>,
    ) -> Vec<String> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut lines, mut events) = (Vec::new(), events.into_iter().peekable());
        let operations = medium.describe(range.start).into_iter().map(Some).chain([None]);
        for (number, operation) in (range.start..=range.end).zip(operations) {
            while let Some(event) = events.next_if(|event| event.at <= number) {
                // Earlier events are outside of the range.
                if event.at >= range.start {
                    lines.push(format!("        | {}: {}", event.thread, event.action));
                }
            }
            if let Some((_, what)) = crash.as_ref().filter(|(at, _)| *at == number) {
                lines.push(format!("  ----- {what}"));
            }
            if let Some(operation) = operation.filter(|_| number < range.end) {
                lines.push(format!("  {number:>5} {operation}"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quenchdb::internals::device::simulated::SimulatedStorage;
    use quenchdb::internals::device::{Directory, OpenMode};

    #[test]
    fn actions_stand_among_operations_and_a_crash_before_its_first() {
        let (disk, trace) = (SimulatedStorage::new(1), Trace::default());
        let create = |path| {
            disk.open(path, OpenMode { create: true, read_only: false, direct: true }).expect("created");
        };
        trace.note(&disk, "thread 0", "begins");
        create("a");
        create("b");
        trace.note(&disk, "thread 0", "returned");
        create("c");
        let begin = ["        | thread 0: begins", "      0 create a", "      1 create b"];
        let returned = "        | thread 0: returned";
        assert_eq!(trace.lines(&disk, 0..3, None), [&begin[..], &[returned, "      2 create c"]].concat());
        let crashed = trace.lines(&disk, 1..2, Some((2, "kill".into())));
        assert_eq!(crashed, ["      1 create b", returned, "  ----- kill"]);
        // The range excludes later events; a crash at the end of the trace is marked.
        assert_eq!(trace.lines(&disk, 3..3, Some((3, "kill".into()))), ["  ----- kill"]);
    }
}
