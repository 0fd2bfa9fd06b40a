//! Many reads at a time through io_uring, for a caller that waits for all of them.
//!
//! 1. A call returns, or unwinds, only when the kernel has completed every read that it was given:
//!    the buffers are the caller's.
//! 2. A read that failed, fell short, or was never started is not judged here: the caller repeats
//!    it alone, and learns the error with its place. Reads may be repeated.

use super::storage::{ReadDone, ReadRequest};
use super::uring::{RETRY, new_ring};
use crate::sync::Mutex;
use io_uring::{IoUring, opcode, types};
use std::os::fd::RawFd;

/// Reads in flight, at most: more gain nothing on any device that was looked at.
const DEPTH: usize = 64;
/// Rings that are kept for later calls. Each is a descriptor, of which a process has 1024 by
/// default, and some pages of the kernel's memory. Few calls come at the same time, for each
/// has up to [`DEPTH`] reads in flight, and a few keep any device busy; a call that finds none
/// makes one.
const IDLE_MOST: usize = 8;

/// Rings for the reads of one file; as many as there are calls at the same time.
#[derive(Default)]
pub(super) struct ManyReads {
    idle: Mutex<Vec<IoUring>>,
}

impl std::fmt::Debug for ManyReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyReads").field("idle", &self.idle.lock().len()).finish()
    }
}

impl ManyReads {
    /// Reads from the file `descriptor`, which stays open meanwhile; calls `done` for each read
    /// that completed. Returns the reads that must be repeated alone.
    pub(super) fn read(
        &self,
        descriptor: RawFd,
        reads: &mut [ReadRequest<'_>],
        done: &mut ReadDone<'_>,
    ) -> Vec<usize> {
        let ring = self.idle.lock().pop();
        let Some(ring) = ring.or_else(|| new_ring(DEPTH as u32).ok()) else {
            return (0..reads.len()).collect();
        };
        let mut flight = Flight { ring: Some(ring), reads: 0, home: &self.idle };
        let (mut again, mut started) = (Vec::new(), 0);
        while started < reads.len() || flight.reads > 0 {
            while started < reads.len() && flight.reads < DEPTH {
                flight.start(descriptor, started, &mut reads[started]);
                started += 1;
            }
            flight.wait();
            while let Some((index, result)) = flight.land() {
                let read = &mut reads[index];
                if usize::try_from(result) == Ok(read.buffer.len()) {
                    read.result = Ok(());
                    done(index, read);
                } else {
                    again.push(index);
                }
            }
        }
        again
    }
}

/// Reads that the kernel has been given. When this is dropped, also by a panic, it has completed
/// them.
struct Flight<'m> {
    /// Taken when this is dropped.
    ring: Option<IoUring>,
    /// On their way.
    reads: usize,
    home: &'m Mutex<Vec<IoUring>>,
}

impl Flight<'_> {
    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("taken when this is dropped")
    }

    fn start(&mut self, descriptor: RawFd, index: usize, read: &mut ReadRequest<'_>) {
        push(self.ring(), descriptor, index, read);
        debug_assert!(self.reads < DEPTH, "the ring has an entry for each read");
        self.reads += 1;
    }

    /// Until one of them is completed, or not so long.
    fn wait(&mut self) {
        // Interrupted, out of memory for the moment: what was pushed stays pushed, what was started
        // completes.
        if self.ring().submit_and_wait(1).is_err() {
            std::thread::sleep(RETRY);
        }
    }

    /// One that is completed: its index and the kernel's answer.
    fn land(&mut self) -> Option<(usize, i32)> {
        let entry = self.ring().completion().next()?;
        self.reads -= 1;
        Some((entry.user_data() as usize, entry.result()))
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while self.reads > 0 {
            self.wait();
            while self.land().is_some() {}
        }
        let ring = self.ring.take();
        let mut idle = self.home.lock();
        if idle.len() < IDLE_MOST {
            idle.extend(ring);
        }
    }
}

fn push(ring: &mut IoUring, descriptor: RawFd, index: usize, read: &mut ReadRequest<'_>) {
    let entry = opcode::Read::new(types::Fd(descriptor), read.buffer.as_mut_ptr(), read.buffer.len() as u32)
        .offset(read.offset)
        .build()
        .user_data(index as u64);
    // SAFETY: the borrow of the buffer ends only after the completion of this entry: the `Flight`
    // that counts it waits for that, also when `read` unwinds. The descriptor's file is borrowed by
    // the caller for as long.
    unsafe {
        ring.submission().push(&entry).expect("the ring has an entry for each read in flight");
    }
}

#[cfg(test)]
mod tests;
