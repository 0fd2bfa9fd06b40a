//! Compressed page images, several to a block.

pub mod codec;
pub mod format;
pub mod packer;
pub mod usage;

pub use codec::Codecs;
pub use format::{IMAGES_MAX, Opened, directory, unpack};
pub use usage::{PackTotals, PackUsage, Packing};
