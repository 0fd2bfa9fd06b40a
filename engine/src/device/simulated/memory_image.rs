//! The bytes of simulated mapped memory: stores are visible at once, and durable after a fence or
//! barrier. A power cut keeps or loses each other word.
//!
//! ```text
//!   store ──▶ visible, its write-back started ──fence by the same thread, or barrier──▶ durable
//!                └─ power cut: each word is the durable one, or any stored since
//! ```
//!
//! The operations are in the journal of the disk, so a crash stops both at the same operation.

use super::image::Image;
use crate::base::random::Random;
use crate::device::mapped::WORD_BYTES;
use std::collections::BTreeMap;

type Word = [u8; WORD_BYTES];

/// The visible and the durable bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryImage {
    visible: Image,
    durable: Image,
    /// By word: the values stored since the durable one, oldest first.
    pending: BTreeMap<usize, Vec<Word>>,
    /// By thread and word: how many of the pending values the thread's next fence makes durable.
    started: BTreeMap<u64, BTreeMap<usize, usize>>,
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
        let started = self.started.entry(thread).or_default();
        for (i, word) in words(bytes).enumerate() {
            let at = start / WORD_BYTES + i;
            let stored = self.pending.entry(at).or_default();
            stored.push(word);
            started.insert(at, stored.len());
        }
    }

    /// Makes the started write-backs of `thread` durable, or with `None` those of all threads.
    pub(super) fn fence(&mut self, thread: Option<u64>) {
        let threads: Vec<u64> = match thread {
            Some(thread) => vec![thread],
            None => self.started.keys().copied().collect(),
        };
        for thread in threads {
            for (at, count) in self.started.remove(&thread).unwrap_or_default() {
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
        for started in self.started.values_mut() {
            if let Some(count) = started.get_mut(&at) {
                *count = count.saturating_sub(done.len());
            }
        }
    }

    /// Makes everything visible durable.
    pub(super) fn make_all_durable(&mut self) {
        self.pending.clear();
        self.started.clear();
        self.durable.clone_from(&self.visible);
    }

    /// Ends the threads; their stores stay visible.
    pub(super) fn kill(&mut self) {
        self.started.clear();
    }

    /// Keeps about `survives` in 16 of the volatile words, by word or by cache line. Returns true
    /// if some are lost.
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
        self.started.clear();
        self.visible.clone_from(&self.durable);
        lost
    }
}
