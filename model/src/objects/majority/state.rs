//! What is in each bucket, and known to each writer? Sets of CSNs and of buckets are bits.

use super::scenario::{BUCKETS, Scenario};

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Violation {
    /// What was acknowledged is in no later state.
    AcknowledgedLost,
    /// What a writer has served is in no later state.
    ServedLost,
    /// What a writer has discarded is in a later state.
    DiscardedBack,
    /// A writer publishes after a later one.
    OlderPublished,
    /// An object that the manifest needs is missing.
    ObjectMissing,
}

/// The content of a manifest.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Body {
    /// The writer whose log may still grow.
    pub running: u8,
    /// CSNs that count of earlier writers.
    pub accepted: u8,
    /// CSNs in extents.
    pub checkpoint: u8,
}

/// A bucket.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Bucket {
    /// The last claim.
    pub promised: u8,
    /// Writer and generation of the body.
    pub turn: (u8, u8),
    /// The accepted body.
    pub body: Body,
    /// Blocks of each writer's log.
    pub log: [u8; 3],
    /// Writers whose log is fenced.
    pub fenced: u8,
    /// CSNs in extents.
    pub extents: u8,
    /// It came back old.
    pub is_old: bool,
}

/// Where a writer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub enum Phase {
    /// It collects promises.
    #[default]
    Claims,
    /// It fences and reads.
    Fences,
    /// It has read, and fences: a mistake.
    FencesLate,
    /// It puts blocks again.
    PutsAgain,
    /// It puts its manifest.
    Publishes,
    /// It serves.
    Serves,
    /// It has found a later claim.
    Ended,
}

/// A writer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Writer {
    /// Where it is.
    pub phase: Phase,
    /// Its number, from 1.
    pub epoch: u8,
    /// Buckets that have promised.
    pub promises: u8,
    /// Writer and generation of the best body among the promises.
    pub best: (u8, u8),
    /// The body from which it continues, or that it puts.
    pub body: Body,
    /// Buckets that are fenced, or read.
    pub fences: u8,
    /// Blocks of the running writer in any of them.
    pub found: u8,
    /// Blocks of the running writer in each of them.
    pub whole: u8,
    /// Blocks of all writers in any of them.
    pub all: u8,
    /// Extents in any of them.
    pub extents: u8,
    /// What it recovers.
    pub recovered: u8,
    /// What of it is put again.
    pub to_put: u8,
    /// Buckets in which that was put.
    pub put: u8,
    /// Buckets that have accepted its manifest.
    pub published: u8,
    /// Own blocks that were sent.
    pub sent: u8,
    /// In which buckets each own block is.
    pub known: [u8; 2],
    /// CSNs of own blocks that were acknowledged.
    pub acknowledged: u8,
    /// The body of its checkpoint.
    pub checkpoint: Body,
    /// Buckets that have the extents of the checkpoint.
    pub uploaded: u8,
    /// Buckets that have accepted the checkpoint.
    pub checkpointed: u8,
}

/// A state of the run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct State {
    /// All buckets.
    pub buckets: Vec<Bucket>,
    /// All writers.
    pub writers: Vec<Writer>,
    /// The watermark in each block.
    pub watermarks: [u8; 4],
    /// CSNs that were acknowledged.
    pub acknowledged: u8,
    /// Publications: the writer, and what it recovered.
    pub publications: Vec<(u8, u8)>,
    /// The broken rule.
    pub violation: Option<Violation>,
    /// A bucket came back old.
    pub was_restored: bool,
    /// A block was discarded.
    pub has_discarded: bool,
    /// A body that was not published was adopted.
    pub has_adopted: bool,
}

impl State {
    /// Returns the state in which the first writer serves.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        let body = Body { running: 1, ..Body::default() };
        let bucket = Bucket { promised: 1, turn: (1, 0), body: body.clone(), ..Bucket::default() };
        let writer = |index: usize| Writer {
            phase: if index == 0 { Phase::Serves } else { Phase::Claims },
            epoch: index as u8 + 1,
            body: if index == 0 { body.clone() } else { Body::default() },
            whole: u8::MAX,
            ..Writer::default()
        };
        State {
            buckets: vec![bucket; BUCKETS],
            writers: (0..scenario.writers).map(writer).collect(),
            watermarks: [0; 4],
            acknowledged: 0,
            publications: Vec::new(),
            violation: None,
            was_restored: false,
            has_discarded: false,
            has_adopted: false,
        }
    }

    /// Returns the least of the states that differ in the numbers of the buckets only.
    #[must_use]
    pub fn canonical(&self) -> State {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let renumbered = orders.iter().map(|order| self.renumbered(order));
        renumbered.min().unwrap_or_else(|| self.clone())
    }

    fn renumbered(&self, order: &[usize; BUCKETS]) -> State {
        let set = |set: u8| (0..BUCKETS).fold(0, |new, bucket| new | (set >> bucket & 1) << order[bucket]);
        let mut state = self.clone();
        for (bucket, number) in self.buckets.iter().zip(order) {
            state.buckets[*number] = bucket.clone();
        }
        for writer in &mut state.writers {
            let Writer { promises, fences, put, published, uploaded, checkpointed, known, .. } = writer;
            for buckets in [promises, fences, put, published, uploaded, checkpointed].into_iter().chain(known)
            {
                *buckets = set(*buckets);
            }
        }
        state
    }
}
