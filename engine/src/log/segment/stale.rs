//! Stale and excess files: segments of a killed process, and segments beyond the spare ones.
//!
//! ```text
//!   found by recovery
//!     ├─ no block in it, or of later epochs only ─▶ excess ──another is READY──▶ removed
//!     ├─ obsolete: covered, or not counted ───────▶ RETIRED ─┐ ▲
//!     └─ needed ──────────────────────────────────▶ RETIRED ─┴─┘ a checkpoint covers it
//!        obsolete, and the disk is full: excess at once, except the last file
//! ```
//!
//! Nothing of this is written to again. A file that could not be removed stays excess.

use super::file::{OpenBlocks, Segment};
use super::pool::SegmentPool;
use super::state::Retired;
use crate::base::{Csn, Error, ErrorKind, Result, SegmentId};
use crate::device::Names;

impl SegmentPool {
    /// Takes over a segment found by recovery; it is removed once a checkpoint covers `max_csn`.
    /// `None`: the database was closed, so no write to it is on its way. It is recycled.
    pub fn add_recovered(&self, segment: Segment, max_csn: Option<Csn>) {
        self.retire_found(segment, max_csn, false);
    }

    /// Takes over a segment of a killed process that no recovery needs: its blocks are covered or
    /// do not count. It makes room on a full disk: see [`SegmentPool::remove_obsolete`].
    pub fn add_obsolete(&self, segment: Segment, max_csn: Csn) {
        if self.state.lock().history.is_kept() {
            self.add_history(segment, max_csn);
            let mut state = self.state.lock();
            state.ids.first_own = state.ids.next;
        } else {
            self.retire_found(segment, Some(max_csn), true);
        }
    }

    /// Takes over a segment of a closed database whose records are history. It is not written
    /// again.
    pub fn add_history(&self, segment: Segment, max_csn: Csn) {
        let mut state = self.state.lock();
        state.ids.next = state.ids.next.max(segment.id.0 + 1);
        state.history.retain(segment, max_csn, false);
    }

    fn retire_found(&self, segment: Segment, max_csn: Option<Csn>, obsolete: bool) {
        let mut state = self.state.lock();
        state.ids.next = state.ids.next.max(segment.id.0 + 1);
        if max_csn.is_some() {
            state.ids.first_own = state.ids.next;
        }
        state.recovered_bytes += segment.len;
        let max_csn = max_csn.unwrap_or(Csn::ZERO);
        state.retired.push(Retired { segment, max_csn, open: OpenBlocks::default(), obsolete });
    }

    /// Takes over a segment in which recovery found no block that counts: a crash between its
    /// making and its first use, or the end of a recovery. It is not used, since a write of the
    /// killed process may still be on its way to it, but removed when there are others, so that
    /// recoveries that are interrupted again and again do not leave more and more.
    pub fn add_stale(&self, segment: &Segment) {
        let mut state = self.state.lock();
        state.ids.next = state.ids.next.max(segment.id.0 + 1);
        state.ids.first_own = state.ids.next;
        state.excess.push(segment.id);
    }

    /// Notes a file of others with the name of a segment. It stays as it is.
    pub fn add_foreign(&self, id: SegmentId) {
        let mut state = self.state.lock();
        state.ids.next = state.ids.next.max(id.0 + 1);
        state.foreign.push(id);
    }

    /// Returns true if a file of a killed process is left (rule 3). An open after a close assumes
    /// that no write is on its way to any file.
    #[must_use]
    pub fn has_stale_files(&self) -> bool {
        let state = self.state.lock();
        let retired = state.retired.iter().map(|full| full.segment.id);
        state.excess.iter().copied().chain(retired).any(|id| id.0 < state.ids.first_own)
    }

    /// Waits until `count` segments, at most the spare ones, are ready, and their names durable.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O.
    pub fn await_ready(&self, count: usize) -> Result<()> {
        loop {
            let ticket = self.prepared.ticket();
            let (ready, failure) = {
                let state = self.state.lock();
                (state.ready.len(), state.attempts.failure.as_ref().map(Error::duplicate))
            };
            if ready >= count.min(self.spare) {
                return self.serve();
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            self.work.notify_all();
            self.prepared.wait(ticket, None);
        }
    }

    /// Waits like [`SegmentPool::await_ready`], after that has found the disk full. Removes
    /// obsolete segments first; if these give room for one segment only, one is enough. The other
    /// logs get theirs when a checkpoint has freed something.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O.
    pub fn await_ready_on_full_disk(&self, count: usize) -> Result<()> {
        loop {
            let removed = self.remove_obsolete();
            match self.await_ready(count) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && !removed => {
                    return self.await_ready(1).map_err(|_| error);
                }
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                done => return done,
            }
        }
    }

    /// Makes room for the first segment on a full disk: removes obsolete segments. Returns true if
    /// there were any. The caller has made durable that they are obsolete. One file stays (rule 7):
    /// the last one goes when another is READY.
    pub fn remove_obsolete(&self) -> bool {
        let (ids, closed) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let obsolete: Vec<Retired> = state.retired.extract_if(.., |full| full.obsolete).collect();
            let bytes: u64 = obsolete.iter().map(|full| full.segment.len).sum();
            state.recovered_bytes = state.recovered_bytes.saturating_sub(bytes);
            obsolete.iter().for_each(|full| state.history.lost(full.max_csn));
            state.excess.extend(obsolete.iter().map(|full| full.segment.id));
            let others = !state.ready.is_empty() || !state.retired.is_empty();
            let stay = if others { 0 } else { state.excess.len().min(1) };
            (state.excess[stay..].to_vec(), obsolete)
        };
        // The space of a file that is open is not free.
        drop(closed);
        let (removed, _) = self.remove(&ids);
        if removed > 0 {
            tracing::info!(removed, "the disk is full: log segments that nobody needs make room");
        }
        removed > 0
    }

    /// There are segments to write to, so what is too much can go.
    fn serve(&self) -> Result<()> {
        let has_new_names = {
            let mut state = self.state.lock();
            state.started = true;
            std::mem::take(&mut state.has_new_names)
        };
        if has_new_names {
            self.flush_names()?;
        }
        if let Err(error) = self.remove_excess() {
            tracing::warn!(%error, "a log segment that nobody needs stays until the next checkpoint");
        }
        Ok(())
    }

    /// Returns whether the names of all files are durable: none is left of a preparation that
    /// failed. To be called when none is made any more.
    #[must_use]
    pub fn has_durable_names(&self) -> bool {
        let state = self.state.lock();
        state.excess.is_empty() && state.making.is_none()
    }

    pub(super) fn remove_excess(&self) -> Result<()> {
        let excess = self.state.lock().excess.clone();
        self.remove(&excess).1
    }

    /// Removes excess files, durably. How many, and why the first of the others could not be. Each
    /// is excess until it is gone.
    fn remove(&self, ids: &[SegmentId]) -> (usize, Result<()>) {
        let (mut removed, mut result) = (0, Ok(()));
        for id in ids {
            match self.storage.segments().remove(*id) {
                Ok(()) => {
                    removed += 1;
                    self.state.lock().excess.retain(|other| other != id);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        if removed > 0 {
            // A file system may keep the space until then.
            result = result.and(self.storage.flush_names(Names::Segments));
            let mut state = self.state.lock();
            if state.attempts.disk_full.take().is_some() {
                // There is space now.
                state.forget_failure();
            }
            drop(state);
            self.work.notify_all();
        }
        (removed, result)
    }
}
