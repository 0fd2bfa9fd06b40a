//! Reading a value piece by piece.

use crate::base::Result;
use crate::base::checksum::crc_append;
use crate::sync::{Ours, Process};
use crate::transaction::OpenValue;
use std::io::{self, Read, Seek, SeekFrom};
use std::marker::PhantomData;

/// The user's source of a value. If the source panics, the engine gets an error and takes
/// everything back; then the panic resumes. An impossible count is an error, too.
pub(super) struct UserReader<R> {
    reader: R,
    process: Process,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

impl<R: Read> UserReader<R> {
    pub(super) fn new(reader: R) -> UserReader<R> {
        UserReader { reader, process: Process::current(), panic: None }
    }

    pub(super) fn resume_panic(self) {
        if let Some(panic) = self.panic {
            std::panic::resume_unwind(panic);
        }
    }
}

impl<R: Read> Read for UserReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let reader = &mut self.reader;
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.read(into)));
        let count = read.unwrap_or_else(|panic| {
            self.panic = Some(panic);
            Err(io::Error::other("the reader panicked"))
        })?;
        // The user's code may have forked, and this may be the child.
        self.process.check()?;
        if count > into.len() {
            return Err(io::Error::other("the reader returned a count larger than its buffer"));
        }
        Ok(count)
    }
}

/// A value that is read piece by piece, from any offset. Its bytes do not change after it is
/// opened, whatever others write.
///
/// [`Read`] copies at most one page at a time. Reading from the beginning to the end without
/// seeking checks the checksum of the whole value with the last byte. Each page is checked when it
/// is read from the device in any case.
#[derive(Debug)]
pub struct ValueReader<'a> {
    value: Ours<OpenValue>,
    position: u64,
    /// Bytes read from the beginning without a gap, and their checksum.
    checked: (u64, u32),
    source: PhantomData<&'a ()>,
}

impl ValueReader<'_> {
    pub(super) fn new(value: OpenValue) -> Self {
        ValueReader { value: Ours::new(value), position: 0, checked: (0, 0), source: PhantomData }
    }

    /// Returns the length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &*self.value {
            OpenValue::Whole(bytes) => bytes.len() as u64,
            OpenValue::Large(value) => value.len(),
        }
    }

    /// Returns whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from `offset` on into `into`, at most to the end of a page. Returns their
    /// number, 0 at the end of the value.
    ///
    /// # Errors
    /// I/O, `Corruption`, `OutOfMemory` if a page that has to be read finds no room.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.value.process().check()?;
        match &mut *self.value {
            OpenValue::Whole(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let count = rest.len().min(into.len());
                into[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            OpenValue::Large(value) => value.read_at(offset, into),
        }
    }

    fn check(&mut self, read: &[u8]) -> Result<()> {
        let OpenValue::Large(value) = &*self.value else { return Ok(()) };
        if self.checked.0 != self.position || read.is_empty() {
            return Ok(());
        }
        self.checked = (self.position + read.len() as u64, crc_append(self.checked.1, read));
        if self.checked.0 == value.len() {
            return value.check_crc(self.checked.1);
        }
        Ok(())
    }
}

impl Read for ValueReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, into)?;
        self.check(&into[..count])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ValueReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.len().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "cannot seek before the first byte of the value")
        })?;
        Ok(self.position)
    }
}
