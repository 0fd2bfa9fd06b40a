//! Filling packs with the images of one writer.
//!
//! ```text
//!   image ──compress──▶ short enough? ──yes──▶ the open pack that it fills best ──full──▶ written
//!                            no: a block of its own
//! ```
//!
//! A few packs are open, so that a long image meets a short one. If none has room, the fullest pack
//! is closed; at the end all are. A pack with a single image is written as a plain block.
//!
//! An image is compressed once. If compression did not pay several times in a row, only some images
//! are tried.

use super::super::block::{BLOCK_HEADER_BYTES, BlockIdentity, ImageKind, fill_header};
use super::codec::{Codec, Compressor};
use super::format::{Filling, Sealed, worthwhile_bytes};
use crate::base::{Csn, DatabaseId, PageId};
use crate::device::AlignedBuffer;

/// Open packs.
const OPEN_MAX: usize = 4;
/// A pack with fewer bytes left is full and closed at once.
const FULL_BYTES: usize = 96;
/// Memory of a compressor without its output.
const COMPRESSOR_BYTES: u64 = 16 << 10;
/// Failed tries in a row before images are skipped.
const PATIENCE: u32 = 8;
/// Images skipped after one failed try, at most, as a power of two.
const LEFT_OUT_LOG2_MAX: u32 = 6;

/// Decides whether to try compression, by the last tries.
#[derive(Debug, Default)]
struct Effort {
    in_vain: u32,
    left_out: u32,
}

impl Effort {
    fn is_due(&mut self) -> bool {
        if self.left_out == 0 {
            return true;
        }
        self.left_out -= 1;
        false
    }

    fn note(&mut self, paid: bool) {
        self.in_vain = if paid { 0 } else { self.in_vain.saturating_add(1) };
        if self.in_vain >= PATIENCE {
            self.left_out = 1 << (self.in_vain - PATIENCE).min(LEFT_OUT_LOG2_MAX);
        }
    }
}

/// An image on its way to a block.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Its header, as in a block of its own.
    pub sealed: Sealed,
    /// The caller's token.
    pub token: u64,
}

/// A pack being filled, and its images with their tokens.
#[derive(Debug)]
pub struct OpenPack {
    /// The block.
    pub filling: Filling,
    /// In the order of its directory.
    pub images: Vec<Image>,
}

/// The result of offering an image.
#[derive(Debug)]
pub enum Offered {
    /// The caller had nothing to write.
    Nothing,
    /// The image is in an open pack. The pack in the value, if any, is to be written.
    Packed(Option<OpenPack>),
    /// The image needs a block of its own, and is in [`Packer::plain`].
    Plain(Image),
}

/// See the module's text.
#[derive(Debug)]
pub struct Packer {
    compressor: Compressor,
    /// The image being compressed, as a block of its own.
    plain: AlignedBuffer,
    block_bytes: usize,
    open: Vec<OpenPack>,
    effort: Effort,
}

impl Packer {
    /// Returns the bytes of one packer: its open packs, an image before and after compression, and
    /// the compressor.
    #[must_use]
    pub fn bytes(block_bytes: usize) -> u64 {
        (block_bytes * (OPEN_MAX + 2)) as u64 + COMPRESSOR_BYTES
    }

    /// A packer without open packs.
    #[must_use]
    pub fn new(codec: Codec, block_bytes: usize) -> Packer {
        Packer {
            compressor: Compressor::new(codec),
            plain: AlignedBuffer::zeroed(block_bytes),
            block_bytes,
            open: Vec::new(),
            effort: Effort::default(),
        }
    }

    /// The codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.compressor.codec()
    }

    /// Returns whether to try to compress the next image.
    #[must_use]
    pub fn is_due(&mut self) -> bool {
        self.effort.is_due()
    }

    /// The sealed image of [`Offered::Plain`].
    #[must_use]
    pub fn plain(&self) -> &[u8] {
        &self.plain[..self.block_bytes]
    }

    /// Takes the image of `page` that `fill` makes; see `ImageWriter::push`.
    pub fn offer(
        &mut self,
        database: DatabaseId,
        page: PageId,
        csn: Csn,
        fill: impl FnOnce(&mut [u8]) -> Option<(ImageKind, u64)>,
    ) -> Offered {
        let plain = &mut self.plain[..self.block_bytes];
        let Some((kind, token)) = fill(plain) else { return Offered::Nothing };
        let identity = BlockIdentity { database, kind: kind.block_kind(), subject: page.0 };
        let crc = fill_header(plain, identity, csn);
        let image = Image { sealed: Sealed { page, csn, crc, kind }, token };
        let codec = self.compressor.codec();
        let most = worthwhile_bytes(self.block_bytes);
        let bytes = self.compressor.compress(&plain[BLOCK_HEADER_BYTES..], most);
        self.effort.note(bytes.is_some());
        let Some(bytes) = bytes else { return Offered::Plain(image) };
        let fits = |open: &&mut OpenPack| open.filling.room() >= bytes.len();
        let best = self.open.iter_mut().filter(fits).min_by_key(|open| open.filling.room());
        if let Some(open) = best {
            open.filling.add(image.sealed, codec, bytes);
            open.images.push(image);
            return Offered::Packed(self.take_full());
        }
        let mut open = OpenPack { filling: Filling::new(self.block_bytes), images: vec![image] };
        open.filling.add(image.sealed, codec, bytes);
        let closed = if self.open.len() == OPEN_MAX { self.take_fullest() } else { None };
        self.open.push(open);
        Offered::Packed(closed)
    }

    fn take_full(&mut self) -> Option<OpenPack> {
        let at = self.open.iter().position(|open| open.filling.room() < FULL_BYTES)?;
        Some(self.open.swap_remove(at))
    }

    /// Takes the fullest open pack, to be written; `None` if no pack is open.
    pub fn take_fullest(&mut self) -> Option<OpenPack> {
        debug_assert!(self.open.len() <= OPEN_MAX, "memory is charged for the open packs");
        debug_assert!(
            self.open.iter().all(|open| open.images.len() == open.filling.images()),
            "each image of a pack is listed"
        );
        let rooms = self.open.iter().enumerate().map(|(at, open)| (open.filling.room(), at));
        let (_, at) = rooms.min()?;
        Some(self.open.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_compression_is_tried_rarely_until_one_pays() {
        let mut effort = Effort::default();
        let tries = |effort: &mut Effort, paid: bool| {
            let due = (0..1000).filter(|_| {
                let due = effort.is_due();
                if due {
                    effort.note(paid);
                }
                due
            });
            due.count()
        };
        let in_vain = tries(&mut effort, false);
        assert!((15..40).contains(&in_vain), "{in_vain} of 1000");
        assert!(tries(&mut effort, true) > 900);
    }
}
