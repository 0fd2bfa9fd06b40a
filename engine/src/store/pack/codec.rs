//! Compressing the content of a page image, and getting it back.
//!
//! LZ4 is always built in. Zstandard is C code and needs the cargo feature `zstd`; a build without
//! the feature refuses Zstandard data with an error that names it.

use crate::base::settings::Compression;
use crate::base::{Error, ErrorKind, Result};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

/// How an image in a pack is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Codec {
    /// An LZ4 block.
    Lz4 = 1,
    /// A Zstandard frame.
    Zstd = 2,
}

/// A set of codecs, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Codecs(pub u64);

impl Codec {
    /// The codec with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Codec> {
        [Codec::Lz4, Codec::Zstd].into_iter().find(|codec| *codec as u8 == code)
    }

    /// Returns the codec of a setting; `None` for no compression.
    #[must_use]
    pub fn of(compression: Compression) -> Option<Codec> {
        match compression {
            Compression::None => None,
            Compression::Lz4 => Some(Codec::Lz4),
            Compression::Zstd => Some(Codec::Zstd),
        }
    }

    fn bit(self) -> u64 {
        1 << (self as u8 - 1)
    }
}

impl Codecs {
    /// Returns the set with one more codec.
    #[must_use]
    pub fn with(self, codec: Codec) -> Codecs {
        Codecs(self.0 | codec.bit())
    }

    /// Checks that this build supports all codecs of the set.
    ///
    /// # Errors
    /// `Unsupported`, without a place.
    pub fn check(self) -> Result<()> {
        if self.0 & !(Codec::Lz4.bit() | Codec::Zstd.bit()) != 0 {
            let what = format!(
                "page images may be compressed in ways (bits {:#x}) that this build does not know",
                self.0
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if self.0 & Codec::Zstd.bit() != 0 && !Compression::Zstd.is_built_in() {
            return Err(lacks_zstd("page images may be compressed with zstd"));
        }
        Ok(())
    }
}

fn lacks_zstd(what: &str) -> Error {
    let what = format!("{what}, which this build lacks");
    Error::new(ErrorKind::Unsupported, what).with_advice("use one with the cargo feature `zstd`")
}

/// Compresses with one codec into its own buffer.
pub struct Compressor {
    codec: Codec,
    out: Vec<u8>,
    table: CompressTable,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compressor({:?})", self.codec)
    }
}

impl Compressor {
    /// A compressor with an empty buffer.
    #[must_use]
    pub fn new(codec: Codec) -> Compressor {
        Compressor {
            codec,
            out: Vec::new(),
            table: CompressTable::small(),
            #[cfg(feature = "zstd")]
            zstd: None,
        }
    }

    /// The codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Returns `content` compressed; `None` if that takes more than `most` bytes.
    #[must_use]
    pub fn compress(&mut self, content: &[u8], most: usize) -> Option<&[u8]> {
        let bound = get_maximum_output_size(content.len());
        if self.out.len() < bound {
            self.out.resize(bound, 0);
        }
        let len = match self.codec {
            // LZ4 needs space for the worst case.
            Codec::Lz4 => compress_into_with_table(content, &mut self.out, &mut self.table).ok(),
            Codec::Zstd => self.compress_zstd(content, most),
        };
        len.filter(|len| *len <= most).map(|len| &self.out[..len])
    }

    #[cfg(feature = "zstd")]
    fn compress_zstd(&mut self, content: &[u8], most: usize) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        let room = most.min(self.out.len());
        self.zstd.as_mut()?.compress_to_buffer(content, &mut self.out[..room]).ok()
    }

    /// Never reached: open refuses such settings.
    #[cfg(not(feature = "zstd"))]
    fn compress_zstd(&mut self, _content: &[u8], _most: usize) -> Option<usize> {
        None
    }
}

/// Higher levels save little on so short inputs.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// Decompresses `bytes` into `into`, which they fill exactly.
///
/// # Errors
/// `Corruption` if `bytes` are damaged or have another length; `Unsupported` for a codec that this
/// build lacks.
pub fn decompress(codec: Codec, bytes: &[u8], into: &mut [u8]) -> Result<()> {
    let len = match codec {
        Codec::Lz4 => decompress_into(bytes, into).ok(),
        Codec::Zstd => decompress_zstd(bytes, into)?,
    };
    if len == Some(into.len()) {
        return Ok(());
    }
    Err(Error::corruption(format!("what is compressed with {codec:?} cannot be decompressed to its length")))
}

#[cfg(feature = "zstd")]
fn decompress_zstd(bytes: &[u8], into: &mut [u8]) -> Result<Option<usize>> {
    use std::cell::RefCell;
    thread_local! {
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            let made = zstd::bulk::Decompressor::new();
            *kept = Some(made.map_err(|error| Error::io("cannot decompress with zstd", error))?);
        }
        Ok(kept.as_mut().and_then(|zstd| zstd.decompress_to_buffer(bytes, into).ok()))
    })
}

#[cfg(not(feature = "zstd"))]
fn decompress_zstd(_bytes: &[u8], _into: &mut [u8]) -> Result<Option<usize>> {
    Err(lacks_zstd("the image is compressed with zstd"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    fn codecs() -> impl Iterator<Item = Codec> {
        Compression::ALL.into_iter().filter(|c| c.is_built_in()).filter_map(Codec::of)
    }

    #[test]
    fn compressed_text_round_trips_and_noise_does_not_fit() {
        let mut random = Random::from_seed(1);
        for codec in codecs() {
            let mut compressor = Compressor::new(codec);
            for len in [4064, 8160, 32736] {
                let text: Vec<u8> = (0..len).map(|at| (at / 50) as u8).collect();
                let noise: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                let mut back = vec![0; len];
                let packed = compressor.compress(&text, len / 4).expect("repeats itself");
                decompress(codec, packed, &mut back).expect("whole");
                assert_eq!(back, text);
                assert_eq!(compressor.compress(&noise, len / 2), None);
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_and_never_more() {
        let mut random = Random::from_seed(2);
        for codec in codecs() {
            let text: Vec<u8> = (0..4064).map(|at| (at / 9 % 40) as u8).collect();
            let mut compressor = Compressor::new(codec);
            let packed = compressor.compress(&text, 4064).expect("repeats itself");
            let (len, mut back) = (packed.len(), vec![0; 4064]);
            for cut in 0..len {
                assert!(decompress(codec, &packed[..cut], &mut back).is_err(), "{codec:?} cut to {cut}");
            }
            for _ in 0..5000 {
                let mut damaged = packed[..len].to_vec();
                damaged[random.below(len as u64) as usize] ^= 1 + random.below(255) as u8;
                let _ = decompress(codec, &damaged, &mut back);
            }
            assert!(decompress(codec, &packed[..len], &mut back[..4000]).is_err(), "too short a buffer");
        }
    }

    #[test]
    fn codecs_that_a_build_lacks_are_refused() {
        assert!(Codecs::default().with(Codec::Lz4).check().is_ok());
        assert_eq!(Codecs::default().with(Codec::Zstd).check().is_ok(), Compression::Zstd.is_built_in());
        assert_eq!(Codecs(8).check().expect_err("unknown").kind(), ErrorKind::Unsupported);
    }
}
