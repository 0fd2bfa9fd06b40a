//! What happened in a life, for people: what threads did and were told, among the operations of the disk.

use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::simulation;
use std::fmt::{Debug, Display};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Something that a thread did.
#[derive(Clone, Debug)]
struct Event {
    /// The number of disk operations by then.
    at: usize,
    who: String,
    what: String,
}

/// All of it. Cloning shares it. It is always written down, and not only when somebody wants to read it, so that a seed goes the same way.
#[derive(Clone, Default)]
pub struct Story {
    /// Not the simulation's mutex: nobody waits for it, and it is no place for a thread to be switched.
    events: Arc<Mutex<Vec<Event>>>,
}

impl Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Story")
    }
}

impl Story {
    /// `who` did it now.
    pub fn tell(&self, disk: &SimulatedStorage, who: impl Display, what: impl Display) {
        let at = simulation::aside(|| disk.operations());
        let event = Event { at, who: who.to_string(), what: what.to_string() };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Lines for the operations of the disk with numbers in `range`, with what happened among them. The operation number n is the first
    /// that a crash after n operations takes away; `crash` is marked before it.
    pub fn lines(
        &self,
        disk: &SimulatedStorage,
        range: Range<usize>,
        crash: Option<(usize, String)>,
    ) -> Vec<String> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut lines, mut events) = (Vec::new(), events.into_iter().peekable());
        let operations = disk.describe(range.start).into_iter().map(Some).chain([None]);
        for (number, operation) in (range.start..=range.end).zip(operations) {
            while let Some(event) = events.next_if(|event| event.at <= number) {
                // Of an earlier moment: not asked for.
                if event.at >= range.start {
                    lines.push(format!("        | {}: {}", event.who, event.what));
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
    use quenchdb::internals::device::{OpenMode, Storage};

    #[test]
    fn what_threads_did_stands_among_the_operations_and_a_crash_before_the_first_that_it_takes_away() {
        let (disk, story) = (SimulatedStorage::new(1), Story::default());
        let create = |path| {
            disk.open(path, OpenMode { create: true, read_only: false, direct: true }).expect("created");
        };
        story.tell(&disk, "thread 0", "begins");
        create("a");
        create("b");
        story.tell(&disk, "thread 0", "was told");
        create("c");
        let begin = ["        | thread 0: begins", "      0 create a", "      1 create b"];
        let told = "        | thread 0: was told";
        assert_eq!(story.lines(&disk, 0..3, None), [&begin[..], &[told, "      2 create c"]].concat());
        let crashed = story.lines(&disk, 1..2, Some((2, "kill".into())));
        assert_eq!(crashed, ["      1 create b", told, "  ----- kill"]);
        // The end of the range cuts off what comes after it; a crash at the end of all is marked, too.
        assert_eq!(story.lines(&disk, 3..3, Some((3, "kill".into()))), ["  ----- kill"]);
    }
}
