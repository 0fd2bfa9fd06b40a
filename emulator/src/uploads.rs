//! Multipart uploads that are not complete. They are kept in memory, and end with the emulator.

use crate::refusal::Refusal;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All parts but the last have at least so many bytes.
const PART_BYTES_MIN: usize = 5 << 20;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    uploads: HashMap<String, Upload>,
}

#[derive(Debug)]
struct Upload {
    bucket: String,
    key: String,
    parts: BTreeMap<i32, Bytes>,
}

/// Returns the ETag of a part.
fn part_tag(body: &[u8]) -> String {
    format!("{:08x}{:016x}", crc32c::crc32c(body), body.len())
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an upload and returns its id.
    pub fn begin(&self, bucket: &str, key: &str) -> String {
        let mut state = self.lock();
        state.last += 1;
        let id = format!("upload-{}", state.last);
        let upload = Upload { bucket: bucket.into(), key: key.into(), parts: BTreeMap::new() };
        state.uploads.insert(id.clone(), upload);
        id
    }

    /// Adds or replaces a part and returns its ETag.
    ///
    /// # Errors
    /// There is no such upload; the number is outside 1 to 10,000.
    pub fn add(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: i32,
        body: Bytes,
    ) -> Result<String, Refusal> {
        if !(1..=10_000).contains(&number) {
            return Err(Refusal::new("InvalidArgument", 400, "a part's number is between 1 and 10,000"));
        }
        let mut state = self.lock();
        let upload = find(&mut state, bucket, key, id)?;
        let tag = part_tag(&body);
        upload.parts.insert(number, body);
        Ok(tag)
    }

    /// Returns the whole body of an upload, whose parts are named in order with their ETags. The
    /// upload stays until [`Uploads::end`].
    ///
    /// # Errors
    /// There is no such upload; a part is absent, out of order, another, or too small.
    pub fn body(&self, bucket: &str, key: &str, id: &str, parts: &[(i32, String)]) -> Result<Bytes, Refusal> {
        let mut state = self.lock();
        let upload = find(&mut state, bucket, key, id)?;
        if parts.is_empty() || !parts.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(Refusal::new("InvalidPartOrder", 400, "parts are named in ascending order"));
        }
        let mut whole = Vec::new();
        for (index, (number, tag)) in parts.iter().enumerate() {
            let body = upload.parts.get(number).filter(|body| part_tag(body) == *tag);
            let body = body.ok_or_else(|| {
                Refusal::new("InvalidPart", 400, format!("there is no part {number} with this ETag"))
            })?;
            if index + 1 < parts.len() && body.len() < PART_BYTES_MIN {
                return Err(Refusal::new("EntityTooSmall", 400, format!("part {number} is below 5 MiB")));
            }
            whole.extend_from_slice(body);
        }
        Ok(whole.into())
    }

    /// Forgets an upload.
    ///
    /// # Errors
    /// There is no such upload.
    pub fn end(&self, bucket: &str, key: &str, id: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        find(&mut state, bucket, key, id)?;
        state.uploads.remove(id);
        Ok(())
    }
}

fn find<'a>(state: &'a mut State, bucket: &str, key: &str, id: &str) -> Result<&'a mut Upload, Refusal> {
    let upload = state.uploads.get_mut(id).filter(|upload| upload.bucket == bucket && upload.key == key);
    upload.ok_or_else(|| Refusal::new("NoSuchUpload", 404, format!("there is no upload {id} of {key}")))
}

#[cfg(test)]
mod tests;
