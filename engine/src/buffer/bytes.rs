//! The bytes of a page, read and written as atomic words.
//!
//! An optimistic reader may read a page while a writer changes it. With plain loads and stores that
//! is a data race, hence undefined behaviour, however the result is used. With atomics it is only a
//! *torn* read: every word was stored there once, but the words need not belong together.
//! [`super::latch`] finds out whether they do.
//!
//! Invariants:
//! 1. Page memory is accessed by loads and stores of whole aligned 64-bit words only, all of them
//!    relaxed. Smaller values are cut out of words, larger ones put together from them. With one
//!    access size there are no mixed-size accesses, which Miri, ThreadSanitizer and the memory
//!    model would object to.
//! 2. No offset can cause a panic or an access outside the page. Offsets come from pages, so they
//!    may be torn or corrupt. Reading outside gives zeros or nothing, writing outside does nothing
//!    and returns `false`.
//! 3. Writers exclude each other: a [`PageBytesMut`] comes only from `&mut` of an exclusive guard
//!    or of a [`ScratchPage`]. Setting part of a word is therefore a load and a store, not a
//!    read-modify-write instruction.
//!
//! Byte *k* of a word is `word >> 8 * k`, on every machine, so images are little-endian. Offsets
//! count bytes from the start of the page; aligned accesses are faster but none need be.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::cmp;
use std::ops::Deref;

/// Bytes at the start of every page that belong to the store (checksum, page id, database id,
/// checkpoint CSN).
pub const PAGE_HEADER_BYTES: usize = 32;

/// Bytes per word.
const WORD: usize = size_of::<u64>();

#[inline]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Ones in the `len` lowest bytes; `len` is at most 8.
#[inline]
fn low_bytes(len: usize) -> u64 {
    debug_assert!(len <= WORD, "a word has fewer bytes than {len}");
    if len >= WORD { u64::MAX } else { (1 << (8 * len)) - 1 }
}

/// The first (at most 8) bytes of `bytes` as a word, zeros behind.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d, e, f, g, h, ..] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        [a, b, c, d, ref rest @ ..] => {
            u64::from(u32::from_le_bytes([a, b, c, d])) | (short_word_of(rest) << 32)
        }
        _ => short_word_of(bytes),
    }
}

/// [`word_of`] for at most 3 bytes.
#[inline]
fn short_word_of(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a] => u64::from(a),
        [] => 0,
    }
}

/// A page to read. What it returns may be torn unless the guard it came from excludes writers.
#[derive(Clone, Copy)]
pub struct PageBytes<'a> {
    words: &'a [AtomicU64],
}

impl<'a> PageBytes<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        PageBytes { words }
    }

    /// The page's size in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a page is never empty
    pub fn len(self) -> usize {
        self.words.len() * WORD
    }

    /// The `index`th aligned word.
    #[inline]
    #[must_use]
    pub fn word(self, index: usize) -> u64 {
        self.words.get(index).map_or(0, load)
    }

    /// Returns how many of the `count` words from `first` on are in front, where `is_front` holds.
    /// Words behind the end of the page are not in front. The search branches on no word:
    /// processors guess such branches wrong every second time.
    #[inline]
    #[must_use]
    pub fn partition_point(self, first: usize, count: usize, is_front: impl Fn(u64) -> bool) -> usize {
        let words = match self.words.get(first..first.saturating_add(count)) {
            Some(words) => words,
            None => self.words.get(first..).unwrap_or_default(),
        };
        let (mut low, mut size) = (0, words.len());
        if size == 0 {
            return 0;
        }
        while size > 1 {
            let half = size / 2;
            let middle = low + half;
            // SAFETY: `low + size <= words.len()` before the loop and after each step, and `half`
            // is less than `size`.
            let is_front = is_front(load(unsafe { words.get_unchecked(middle) }));
            low = std::hint::select_unpredictable(is_front, middle, low);
            size -= half;
        }
        low + usize::from(is_front(load(&words[low])))
    }

    /// The byte at `offset`.
    #[cfg(test)]
    #[must_use]
    pub fn get_u8(self, offset: usize) -> u8 {
        (self.word(offset / WORD) >> (8 * (offset % WORD))) as u8
    }

    /// The two bytes at `offset`.
    #[inline]
    #[must_use]
    pub fn get_u16(self, offset: usize) -> u16 {
        if offset % WORD <= WORD - 2 {
            (self.word(offset / WORD) >> (8 * (offset % WORD))) as u16
        } else {
            self.get_u64(offset) as u16
        }
    }

    /// The four bytes at `offset`.
    #[cfg(test)]
    #[must_use]
    pub fn get_u32(self, offset: usize) -> u32 {
        if offset % WORD <= WORD - 4 {
            (self.word(offset / WORD) >> (8 * (offset % WORD))) as u32
        } else {
            self.get_u64(offset) as u32
        }
    }

    /// The eight bytes at `offset`; bytes behind the end of the page are zeros.
    #[inline]
    #[must_use]
    pub fn get_u64(self, offset: usize) -> u64 {
        let (index, shift) = (offset / WORD, 8 * (offset % WORD));
        let low = self.word(index);
        if shift == 0 { low } else { low >> shift | self.word(index + 1) << (64 - shift) }
    }

    /// Returns whether `len` bytes at `offset` are inside the page.
    #[inline]
    fn contains(self, offset: usize, len: usize) -> bool {
        offset <= self.len() && len <= self.len() - offset
    }

    /// Fills `into` with the bytes at `offset`, or with zeros if these are not all inside the page.
    #[inline]
    pub fn copy_to(self, offset: usize, into: &mut [u8]) {
        if !self.contains(offset, into.len()) {
            into.fill(0);
            return;
        }
        let words = &self.words[offset / WORD..];
        let shift = 8 * (offset % WORD);
        let (chunks, tail) = into.as_chunks_mut::<WORD>();
        let tail_offset = offset + chunks.len() * WORD;
        if shift == 0 {
            for (chunk, word) in chunks.iter_mut().zip(words) {
                *chunk = load(word).to_le_bytes();
            }
        } else if let [first, rest @ ..] = words {
            let mut low = load(first);
            for (chunk, word) in chunks.iter_mut().zip(rest) {
                let high = load(word);
                *chunk = (low >> shift | high << (64 - shift)).to_le_bytes();
                low = high;
            }
        }
        if !tail.is_empty() {
            let last = self.get_u64(tail_offset).to_le_bytes();
            tail.copy_from_slice(&last[..tail.len()]);
        }
    }

    /// Appends the `len` bytes at `offset` to `out`; nothing if they are not wholly inside the
    /// page.
    #[inline]
    pub fn append_to(self, offset: usize, len: usize, out: &mut Vec<u8>) {
        if !self.contains(offset, len) {
            return;
        }
        // More than needed, so that the last four words are stored whole, without other loops.
        let fours = len.div_ceil(4 * WORD);
        out.reserve(4 * WORD * fours);
        let start = out.len();
        let spare = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let put = |four: usize, words: [u64; 4]| {
            // SAFETY: `four` is below `fours`, so the place is within the reserved capacity; it
            // need not be aligned.
            unsafe { spare.cast::<[u64; 4]>().add(four).write_unaligned(words.map(u64::to_le)) };
        };
        let (words, shift) = (&self.words[offset / WORD..], 8 * (offset % WORD));
        let mut done = 0;
        match words {
            _ if shift == 0 => {
                for words in words.as_chunks().0.iter().take(fours) {
                    put(done, words.each_ref().map(load));
                    done += 1;
                }
            }
            [first, rest @ ..] => {
                let mut low = load(first);
                // Each word is loaded once, although it goes to two places.
                let mut join = |high: u64| {
                    let joined = (u128::from(high) << 64 | u128::from(low)) >> shift;
                    low = high;
                    joined as u64
                };
                for words in rest.as_chunks().0.iter().take(fours) {
                    put(done, words.each_ref().map(|word| join(load(word))));
                    done += 1;
                }
            }
            [] => {}
        }
        // At the end of the page.
        for four in done..fours {
            put(four, std::array::from_fn(|word| self.get_u64(offset + WORD * (4 * four + word))));
        }
        // SAFETY: `fours` times four words are at least `len` bytes, all of them initialised and
        // within the reserved capacity.
        unsafe { out.set_len(start + len) };
    }

    /// Compares the `len` bytes at `offset` with `other`, byte by byte, a prefix being less. Bytes
    /// that are not wholly inside the page compare like an empty string.
    #[inline]
    #[must_use]
    pub fn compare(self, offset: usize, len: usize, other: &[u8]) -> cmp::Ordering {
        let len = if self.contains(offset, len) { len } else { 0 };
        let common = &other[..len.min(other.len())];
        let (chunks, tail) = common.as_chunks::<WORD>();
        let mut at = offset;
        for chunk in chunks {
            let (ours, theirs) = (self.get_u64(at), u64::from_le_bytes(*chunk));
            if ours != theirs {
                return ours.swap_bytes().cmp(&theirs.swap_bytes());
            }
            at += WORD;
        }
        if !tail.is_empty() {
            let theirs = match common.last_chunk::<WORD>() {
                // One load that overlaps bytes already compared, instead of a few small loads.
                Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - tail.len())),
                None => word_of(tail),
            };
            let ours = self.get_u64(at) & low_bytes(tail.len());
            if ours != theirs {
                return ours.swap_bytes().cmp(&theirs.swap_bytes());
            }
        }
        len.cmp(&other.len())
    }
}

impl std::fmt::Debug for PageBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBytes({} bytes)", self.len())
    }
}

/// A page to change; also reads like [`PageBytes`]. Methods that write return whether the target is
/// inside the page; otherwise they do nothing.
pub struct PageBytesMut<'a> {
    page: PageBytes<'a>,
}

impl<'a> Deref for PageBytesMut<'a> {
    type Target = PageBytes<'a>;

    #[inline]
    fn deref(&self) -> &PageBytes<'a> {
        &self.page
    }
}

impl<'a> PageBytesMut<'a> {
    /// Makes a view of `words`. The caller makes sure that no other thread writes to them meanwhile
    /// (invariant 3).
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        PageBytesMut { page: PageBytes { words } }
    }

    /// Returns the same page, to read.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        self.page
    }

    /// Puts the `len` lowest bytes of `value` at `offset`, which may span two words; `len` is at
    /// most 8.
    #[inline]
    fn put(&mut self, offset: usize, len: usize, value: u64) -> bool {
        if !self.page.contains(offset, len) {
            return false;
        }
        if len == 0 {
            return true;
        }
        let (index, shift) = (offset / WORD, 8 * (offset % WORD));
        self.merge(index, low_bytes(len) << shift, value << shift);
        if shift + 8 * len > 64 {
            self.merge(index + 1, low_bytes(len) >> (64 - shift), value >> (64 - shift));
        }
        true
    }

    /// Replaces the bits of `mask` in a word.
    #[inline]
    fn merge(&mut self, index: usize, mask: u64, value: u64) {
        debug_assert!(index < self.page.words.len(), "callers have compared offset and length with the page");
        if let Some(word) = self.page.words.get(index) {
            let old = if mask == u64::MAX { 0 } else { load(word) };
            word.store(old & !mask | value & mask, Ordering::Relaxed);
        }
    }

    /// Replaces the `index`th aligned word.
    #[inline]
    pub fn set_word(&mut self, index: usize, value: u64) -> bool {
        let word = self.page.words.get(index);
        word.inspect(|word| word.store(value, Ordering::Relaxed)).is_some()
    }

    /// Puts a byte at `offset`.
    #[cfg(test)]
    pub fn set_u8(&mut self, offset: usize, value: u8) -> bool {
        self.put(offset, 1, u64::from(value))
    }

    /// Puts two bytes at `offset`.
    #[cfg(test)]
    pub fn set_u16(&mut self, offset: usize, value: u16) -> bool {
        self.put(offset, 2, u64::from(value))
    }

    /// Puts four bytes at `offset`.
    #[cfg(test)]
    pub fn set_u32(&mut self, offset: usize, value: u32) -> bool {
        self.put(offset, 4, u64::from(value))
    }

    /// Puts eight bytes at `offset`.
    #[inline]
    pub fn set_u64(&mut self, offset: usize, value: u64) -> bool {
        self.put(offset, 8, value)
    }

    /// Puts `from` at `offset`.
    #[inline]
    pub fn copy_from(&mut self, offset: usize, from: &[u8]) -> bool {
        if !self.page.contains(offset, from.len()) {
            return false;
        }
        let head = (offset.wrapping_neg() % WORD).min(from.len());
        self.put(offset, head, word_of(&from[..head]));
        let (chunks, tail) = from[head..].as_chunks::<WORD>();
        let aligned = &self.page.words[(offset + head) / WORD..];
        let store = |(chunk, word): (&[u8; WORD], &AtomicU64)| {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        };
        // Four at a time: a loop of one word is mostly the loop.
        let (fours, rest) = chunks.as_chunks::<4>();
        for (four, words) in fours.iter().zip(aligned.as_chunks::<4>().0) {
            four.iter().zip(words).for_each(store);
        }
        rest.iter().zip(aligned.get(4 * fours.len()..).unwrap_or_default()).for_each(store);
        self.put(offset + from.len() - tail.len(), tail.len(), word_of(tail));
        true
    }

    /// Sets the `len` bytes at `offset` to `byte`.
    pub fn fill(&mut self, offset: usize, len: usize, byte: u8) -> bool {
        if !self.page.contains(offset, len) {
            return false;
        }
        let value = u64::from_le_bytes([byte; WORD]);
        let head = (offset.wrapping_neg() % WORD).min(len);
        self.put(offset, head, value);
        let body = (len - head) / WORD;
        for word in self.page.words[(offset + head) / WORD..].iter().take(body) {
            word.store(value, Ordering::Relaxed);
        }
        self.put(offset + head + body * WORD, (len - head) % WORD, value);
        true
    }
}

impl std::fmt::Debug for PageBytesMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBytesMut({} bytes)", self.page.len())
    }
}

/// A page on the heap, outside any pool: to build an image in, and for tests.
pub struct ScratchPage {
    words: Box<[AtomicU64]>,
}

impl ScratchPage {
    /// Makes a page of zeros; `page_bytes` is rounded up to a whole number of words.
    #[must_use]
    pub fn new(page_bytes: usize) -> ScratchPage {
        ScratchPage { words: (0..page_bytes.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Makes a page with the content of `image`.
    #[must_use]
    pub fn from_image(image: &[u8]) -> ScratchPage {
        let mut page = ScratchPage::new(image.len());
        page.bytes_mut().copy_from(0, image);
        page
    }

    /// Returns the page, to read.
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        PageBytes { words: &self.words }
    }

    /// Returns the page, to change.
    pub fn bytes_mut(&mut self) -> PageBytesMut<'_> {
        PageBytesMut::new(&self.words)
    }
}

impl std::fmt::Debug for ScratchPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScratchPage({} bytes)", self.bytes().len())
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
