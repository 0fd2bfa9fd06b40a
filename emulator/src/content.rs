//! The bytes of an object, in memory or in files of the log.

use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that were written by one request. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub at: At,
    pub len: u64,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) enum At {
    Memory(Bytes),
    File { file: Arc<File>, number: u64, offset: u64 },
}

impl Chunk {
    pub fn in_memory(bytes: Bytes) -> Chunk {
        Chunk { len: bytes.len() as u64, at: At::Memory(bytes) }
    }

    /// Adds the bytes from `from` to `to` of the chunk to `into`.
    fn read(&self, from: u64, to: u64, into: &mut Vec<u8>) -> io::Result<()> {
        match &self.at {
            At::Memory(bytes) => into.extend_from_slice(&bytes[from as usize..to as usize]),
            At::File { file, offset, .. } => {
                let start = into.len();
                into.resize(start + (to - from) as usize, 0);
                file.read_exact_at(&mut into[start..], offset + from)?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes from `from` to `to` of the chunks together.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(chunks: &[Chunk], from: u64, to: u64) -> io::Result<Bytes> {
    if let [Chunk { at: At::Memory(bytes), .. }] = chunks {
        return Ok(bytes.slice(from as usize..to as usize));
    }
    let mut bytes = Vec::with_capacity(to.saturating_sub(from) as usize);
    let mut start = 0;
    for chunk in chunks {
        let end = start + chunk.len;
        let (first, last) = (from.max(start), to.min(end));
        if first < last {
            chunk.read(first - start, last - start, &mut bytes)?;
        }
        start = end;
    }
    Ok(bytes.into())
}
