//! A small file in the hands of its user: see `files`.

use super::body::FileEntry;
use super::extents::read_only;
use super::patience::{error_of, place, read};
use super::session::Session;
use super::store::ObjectStore;
use crate::base::{Error, Location, Result};
use crate::device::File;
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// See the module's text. Writes are kept in memory until a flush.
#[derive(Debug)]
pub(super) struct SmallFile {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) patience: Duration,
    /// None of a reader.
    pub(super) session: Option<Arc<Session>>,
    /// The file when it was opened.
    pub(super) found: FileEntry,
    /// The whole content with the writes since the last flush, if there were any.
    pub(super) written: Mutex<Option<Vec<u8>>>,
}

impl SmallFile {
    fn entry(&self) -> FileEntry {
        let newest = self.session.as_ref().and_then(|session| session.file(&self.found.path));
        newest.unwrap_or_else(|| self.found.clone())
    }

    fn content(&self) -> Result<Vec<u8>> {
        let FileEntry { len, object, .. } = self.entry();
        if len == 0 {
            return Ok(Vec::new());
        }
        let name = object.file_name();
        let reply = read(&*self.store, &name, None, self.patience)
            .map_err(|failure| error_of(&failure, "the file cannot be read", &name))?;
        if reply.body.len() as u64 != len {
            let what = format!("the object has {} bytes instead of {len}", reply.body.len());
            return Err(Error::corruption(what).at(place(&name, 0)));
        }
        Ok(reply.body.to_vec())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if self.session.is_none() {
            return Err(read_only());
        }
        let mut written = self.written.lock();
        let content = match &mut *written {
            Some(content) => content,
            none => none.insert(self.content()?),
        };
        change(content);
        Ok(())
    }
}

impl File for SmallFile {
    fn location(&self, offset: u64) -> Location {
        place(&self.found.path, offset)
    }

    fn len(&self) -> Result<u64> {
        let written = self.written.lock();
        Ok(written.as_ref().map_or_else(|| self.entry().len, |content| content.len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let written = self.written.lock();
        let content = match &*written {
            Some(content) => content.clone(),
            None => self.content()?,
        };
        let end = offset as usize + buffer.len();
        let bytes = content.get(offset as usize..end).ok_or_else(|| {
            Error::corruption(format!("the file ends before byte {end}")).at(self.location(offset))
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.change(|content| {
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
        })
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)?;
        self.flush()
    }

    /// Replaces the file in one step.
    fn flush(&self) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        match self.written.lock().take() {
            Some(content) => session.replace_file(&self.found.path, content.into()),
            None => session.publish_files(),
        }
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        self.change(|content| content.resize(content.len().max(len as usize), 0))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|content| content.resize(len as usize, 0))
    }
}
