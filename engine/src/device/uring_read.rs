//! Many reads at a time through io_uring, for a caller that waits for all of them.
//!
//! 1. A call returns only when the kernel has completed every read that it was given: the buffers are the caller's.
//! 2. A read that failed, fell short, or was never started is not judged here: the caller repeats it alone, and learns the
//!    error with its place. Reads may be repeated.

use super::ReadRequest;
use crate::sync::Mutex;
use io_uring::{IoUring, opcode, types};
use std::os::fd::RawFd;
use std::time::Duration;

/// Reads in flight, at most: more gain nothing on any device that was looked at.
const DEPTH: usize = 64;
/// How long to wait when the kernel does not let itself be asked for completions.
const RETRY: Duration = Duration::from_micros(200);

/// Rings for the reads of one file; as many as there were calls at the same time.
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
    /// Reads from the file `descriptor`, which stays open meanwhile. Returns which reads have to be done again alone.
    pub(super) fn read(&self, descriptor: RawFd, reads: &mut [ReadRequest<'_>]) -> Vec<usize> {
        let ring = self.idle.lock().pop();
        let Some(mut ring) = ring.or_else(|| IoUring::new(DEPTH as u32).ok()) else {
            return (0..reads.len()).collect();
        };
        let mut again = Vec::new();
        let (mut started, mut in_flight) = (0, 0);
        while started < reads.len() || in_flight > 0 {
            while started < reads.len() && in_flight < DEPTH {
                push(&mut ring, descriptor, started, &mut reads[started]);
                (started, in_flight) = (started + 1, in_flight + 1);
            }
            // Interrupted, out of memory for the moment: what was pushed stays pushed, what was started completes.
            if ring.submit_and_wait(1).is_err() {
                std::thread::sleep(RETRY);
            }
            for entry in ring.completion() {
                in_flight -= 1;
                let index = entry.user_data() as usize;
                reads[index].result = Ok(());
                if usize::try_from(entry.result()) != Ok(reads[index].buffer.len()) {
                    again.push(index);
                }
            }
        }
        self.idle.lock().push(ring);
        again
    }
}

fn push(ring: &mut IoUring, descriptor: RawFd, index: usize, read: &mut ReadRequest<'_>) {
    let entry = opcode::Read::new(types::Fd(descriptor), read.buffer.as_mut_ptr(), read.buffer.len() as u32)
        .offset(read.offset)
        .build()
        .user_data(index as u64);
    // SAFETY: `read` returns, and with it ends the borrow of the buffer, only after the completion of this entry; it does
    // not panic before. The descriptor's file is borrowed by the caller for as long.
    unsafe {
        ring.submission().push(&entry).expect("the ring has an entry for each read in flight");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn more_reads_than_fit_in_the_ring_are_all_done_and_short_ones_are_named() {
        if super::super::uring::available().is_err() {
            return;
        }
        let mut file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..300u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&bytes).expect("written");
        let many = ManyReads::default();
        for _ in 0..2 {
            let mut buffers = vec![[0u8; 4]; 301];
            let mut reads: Vec<_> = (0u64..)
                .zip(&mut buffers)
                .map(|(index, buffer)| ReadRequest { offset: (300 - index) * 4, buffer, result: Ok(()) })
                .collect();
            assert_eq!(many.read(file.as_raw_fd(), &mut reads), [0], "the first lies behind the end");
            assert!((1..301).all(|index| u32::from_le_bytes(buffers[index]) == 300 - index as u32));
        }
        assert_eq!(many.idle.lock().len(), 1);
    }
}
