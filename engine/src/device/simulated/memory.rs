//! Simulated mapped memory: stores are visible at once, and durable after a fence or barrier. A power cut keeps of the rest what it likes,
//! word by word.
//!
//! ```text
//!   store ──▶ visible, its write-back under way ──fence by the same thread, or barrier──▶ durable
//!                └─ power cut: each word is what was durable, or anything stored there since
//! ```
//!
//! Its operations are in the journal of the disk, so a crash finds both at one moment.

use super::image::Image;
use super::journal::Change;
use super::{OperationKind, SimulatedStorage};
use crate::base::random::Random;
use crate::device::mapped::{MappedMemory, MemoryFacts, Primitive, Survives, WORD_BYTES};
use crate::device::memory::OWN_MEMORY;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Word = [u8; WORD_BYTES];

/// The memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryImage {
    visible: Image,
    durable: Image,
    /// By word: what was stored since it was durable, oldest first.
    pending: BTreeMap<usize, Vec<Word>>,
    /// By thread: words under way, with how many of their values are.
    under_way: BTreeMap<u64, BTreeMap<usize, usize>>,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = Word> {
    bytes.chunks_exact(WORD_BYTES).map(|word| word.try_into().expect("a whole word"))
}

impl MemoryImage {
    pub(super) fn len(&self) -> u64 {
        self.visible.len() as u64
    }

    pub(super) fn resize(&mut self, len: u64) {
        self.visible.resize(len as usize);
        self.durable.resize(len as usize);
    }

    pub(super) fn visible(&self) -> &Image {
        &self.visible
    }

    pub(super) fn store(&mut self, thread: u64, offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        self.visible.write(offset, bytes);
        let under_way = self.under_way.entry(thread).or_default();
        for (i, word) in words(bytes).enumerate() {
            let at = start / WORD_BYTES + i;
            let stored = self.pending.entry(at).or_default();
            stored.push(word);
            under_way.insert(at, stored.len());
        }
    }

    /// What `thread`, or with `None` any thread, has under way is durable.
    pub(super) fn fence(&mut self, thread: Option<u64>) {
        let threads: Vec<u64> = match thread {
            Some(thread) => vec![thread],
            None => self.under_way.keys().copied().collect(),
        };
        for thread in threads {
            for (at, count) in self.under_way.remove(&thread).unwrap_or_default() {
                self.make_durable(at, count);
            }
        }
    }

    fn make_durable(&mut self, at: usize, count: usize) {
        let Some(stored) = self.pending.get_mut(&at) else { return };
        let done: Vec<Word> = stored.drain(..count.min(stored.len())).collect();
        if let Some(last) = done.last() {
            self.durable.write((at * WORD_BYTES) as u64, last);
        }
        if stored.is_empty() {
            self.pending.remove(&at);
        }
        for under_way in self.under_way.values_mut() {
            if let Some(count) = under_way.get_mut(&at) {
                *count = count.saturating_sub(done.len());
            }
        }
    }

    /// Everything visible is durable.
    pub(super) fn settle(&mut self) {
        self.pending.clear();
        self.under_way.clear();
        self.durable.clone_from(&self.visible);
    }

    /// The threads are gone; what they stored stays visible.
    pub(super) fn kill(&mut self) {
        self.under_way.clear();
    }

    /// Keeps about `survives` in 16 of what was not durable: of single words, or of whole cache lines. True if it lost some.
    pub(super) fn power_cut(&mut self, survives: u64, random: &mut Random) -> bool {
        const LINE_WORDS: usize = 8;
        let by_line = random.chance(1, 2);
        let mut line = (usize::MAX, false);
        let mut lost = false;
        for (at, stored) in std::mem::take(&mut self.pending) {
            if line.0 != at / LINE_WORDS || !by_line {
                line = (at / LINE_WORDS, random.chance(survives, 16));
            }
            if line.1 {
                let newest = stored.len() - 1;
                let which = if by_line { newest } else { random.below(stored.len() as u64) as usize };
                self.durable.write((at * WORD_BYTES) as u64, &stored[which]);
            } else {
                lost = true;
            }
        }
        self.under_way.clear();
        self.visible.clone_from(&self.durable);
        lost
    }
}

/// The memory of a [`SimulatedStorage`].
#[derive(Debug)]
pub(super) struct SimulatedMemory {
    pub(super) storage: SimulatedStorage,
    pub(super) latency: Duration,
}

/// A number of the calling thread.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl SimulatedMemory {
    /// A memory that fails does not say so; when the machine is gone nothing happens any more.
    fn change(&self, change: Change) {
        let _ = self.storage.change(OperationKind::Memory, OWN_MEMORY, 0, change);
    }
}

impl MappedMemory for SimulatedMemory {
    fn facts(&self) -> MemoryFacts {
        MemoryFacts {
            path: OWN_MEMORY.into(),
            bytes: self.bytes(),
            survives: Survives::PowerCut,
            reason: "simulated".into(),
            primitive: Primitive::Unknown,
            latency: self.latency,
        }
    }

    fn bytes(&self) -> u64 {
        self.storage.shared.world.lock().disk.memory().len()
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let world = self.storage.shared.world.lock();
        world.disk.memory().visible().read(offset, into).expect("inside the memory");
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let aligned = offset.is_multiple_of(WORD_BYTES as u64) && bytes.len().is_multiple_of(WORD_BYTES);
        assert!(aligned && offset + bytes.len() as u64 <= self.bytes(), "whole words inside the memory");
        self.change(Change::Store { thread: this_thread(), offset, bytes: bytes.into() });
    }

    fn fence(&self) {
        if !self.storage.shared.world.lock().ignore_fences {
            self.change(Change::Fence { thread: Some(this_thread()) });
        }
    }

    fn barrier(&self) {
        if !self.storage.shared.world.lock().ignore_fences {
            self.change(Change::Fence { thread: None });
        }
    }

    fn flush(&self) {
        self.change(Change::FlushMemory);
    }
}
