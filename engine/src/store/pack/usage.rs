//! How a store compresses images, and how much that saves.

use super::codec::{Codec, Codecs};
use crate::base::metrics::Counter;
use crate::base::settings::Compression;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// The compression of one store.
#[derive(Debug, Default)]
pub struct Packing {
    /// How new images are compressed; set once.
    compression: OnceLock<Compression>,
    /// [`Codecs`] of the images that may be in the file.
    codecs: AtomicU64,
    images: Counter,
    packs: Counter,
}

/// Numbers about packs, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PackUsage {
    /// Images that were packed since the store was opened.
    pub images_packed: u64,
    /// Bytes that these images would take in blocks of their own.
    pub bytes_before: u64,
    /// Bytes of the packs that were written for them.
    pub bytes_after: u64,
    /// Packs in the file, as far as is known: a pack with a single live image counts as an image
    /// until it is read.
    pub packs: u64,
    /// Live images in packs.
    pub live_images: u64,
    /// Replaced images in packs, as far as is known.
    pub dead_images: u64,
    /// Packs with at most half of their images live.
    pub sparse_packs: u64,
}

/// Totals of all packs, as far as blocks are known to be packs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackTotals {
    /// Blocks that are packs.
    pub packs: u64,
    /// Images in them that count.
    pub live: u64,
    /// Images that they were written with.
    pub made: u64,
    /// Packs with at most half of their images live.
    pub sparse: u64,
    /// Live images beyond the first of each pack.
    pub beyond_first: u64,
}

impl PackTotals {
    /// Combines each number with `with`.
    #[must_use]
    pub fn combine(self, other: PackTotals, with: impl Fn(u64, u64) -> u64) -> PackTotals {
        PackTotals {
            packs: with(self.packs, other.packs),
            live: with(self.live, other.live),
            made: with(self.made, other.made),
            sparse: with(self.sparse, other.sparse),
            beyond_first: with(self.beyond_first, other.beyond_first),
        }
    }
}

impl Packing {
    /// The compression of a store whose images may use `codecs`.
    #[must_use]
    pub fn with(codecs: Codecs) -> Packing {
        let packing = Packing::default();
        packing.codecs.store(codecs.0, Ordering::Relaxed);
        packing
    }

    /// Counts a pack of `images` images that is about to be written.
    pub fn note(&self, codec: Codec, images: u64) {
        self.images.add(images);
        self.packs.add(1);
        self.codecs.fetch_or(Codecs::default().with(codec).0, Ordering::Relaxed);
    }

    /// Codecs of the images that may be in the file.
    #[must_use]
    pub fn codecs(&self) -> Codecs {
        Codecs(self.codecs.load(Ordering::Relaxed))
    }

    /// Sets, once, how new images are compressed.
    pub fn set_compression(&self, compression: Compression) {
        let _ = self.compression.set(compression);
    }

    /// How new images are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression.get().copied().unwrap_or(Compression::None)
    }

    /// Returns what compression has saved, and the totals of the packs in the file.
    #[must_use]
    pub fn usage(&self, totals: PackTotals, block_bytes: u64) -> PackUsage {
        let PackTotals { packs, live, made, sparse, .. } = totals;
        PackUsage {
            images_packed: self.images.get(),
            bytes_before: self.images.get() * block_bytes,
            bytes_after: self.packs.get() * block_bytes,
            packs,
            live_images: live,
            dead_images: made - live,
            sparse_packs: sparse,
        }
    }
}
