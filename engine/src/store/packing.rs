//! What the store does about compression, and what came of it.

use super::PageStore;
use super::codec::{Codec, Codecs};
use super::fill::PackTotals;
use crate::base::metrics::Counter;
use crate::base::settings::Compression;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Of one store.
#[derive(Debug, Default)]
pub(super) struct Packing {
    /// What new images are compressed with, once that was said.
    compression: OnceLock<Compression>,
    /// [`Codecs`] of the images that are in the file, or may be.
    codecs: AtomicU64,
    images: Counter,
    packs: Counter,
}

/// Numbers about packs, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackUsage {
    /// Images that were packed since the store was opened.
    pub images_packed: u64,
    /// Bytes that they would have taken alone.
    pub bytes_before: u64,
    /// Bytes of the packs that were written for them.
    pub bytes_after: u64,
    /// Packs in the file, as far as is known: one that has a single image left is taken for an image until it is read.
    pub packs: u64,
    /// Images in them that count.
    pub live_images: u64,
    /// Images in them that have been replaced, as far as is known.
    pub dead_images: u64,
    /// Packs of which at most half counts.
    pub sparse_packs: u64,
}

impl Packing {
    pub(super) fn with(codecs: Codecs) -> Packing {
        let packing = Packing::default();
        packing.codecs.store(codecs.0, Ordering::Relaxed);
        packing
    }

    /// A pack with so many images is going to be written.
    pub(super) fn note(&self, codec: Codec, images: u64) {
        self.images.add(images);
        self.packs.add(1);
        self.codecs.fetch_or(Codecs::default().with(codec).0, Ordering::Relaxed);
    }

    pub(super) fn codecs(&self) -> Codecs {
        Codecs(self.codecs.load(Ordering::Relaxed))
    }
}

impl PageStore {
    /// Says how images that are written from now on are compressed. Once; without it they are not.
    pub fn compress(&self, compression: Compression) {
        let _ = self.packing.compression.set(compression);
    }

    /// How images are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.packing.compression.get().copied().unwrap_or(Compression::None)
    }

    /// What compression has done, and what there is of it.
    #[must_use]
    pub fn packs(&self) -> PackUsage {
        let PackTotals { packs, live, made, sparse, .. } = self.state.lock().free.packs();
        let bytes = |blocks: u64| blocks * self.page_bytes() as u64;
        PackUsage {
            images_packed: self.packing.images.get(),
            bytes_before: bytes(self.packing.images.get()),
            bytes_after: bytes(self.packing.packs.get()),
            packs,
            live_images: live,
            dead_images: made - live,
            sparse_packs: sparse,
        }
    }
}
