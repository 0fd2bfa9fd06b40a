//! Writes through io_uring: many in flight, no thread that waits for each.
//!
//! 1. The queue owns request and buffer until the kernel has completed every operation on them; dropping the queue waits.
//! 2. A write that is durable by flush is two linked operations; it is done when both are. If either failed, the write failed: it is
//!    not repeated, for nobody knows what the flush of another write has made durable meanwhile.
//! 3. A short write is continued from where it stopped. The kernel has not started the flush behind it; the rest brings its own.
//! 4. What a thread submitted belongs to it: when it ends, the kernel gives up what it has not started (EFAULT, ECANCELED).
//!    Nothing failed then, so whoever reaps starts the write again, from its beginning if it is durable by flush. A flush
//!    that was given up was never tried, so this is not the repetition that 2 forbids.

use super::facts::DurabilityMethod;
use super::{AlignedBuffer, Completion, WriteQueue, WriteRequest};
use crate::base::{Error, Result};
use io_uring::{IoUring, opcode, squeue, types};
use std::os::fd::RawFd;

const DSYNC: i32 = 0x2;
/// Marks the completion of a flush that follows a write.
const FLUSH_BIT: u64 = 1 << 63;

/// Whether the kernel lets us use io_uring, and why not.
pub(super) fn available() -> std::result::Result<(), String> {
    IoUring::new(2).map(drop).map_err(|error| format!("io_uring is not available: {error}"))
}

struct Slot {
    request: WriteRequest,
    descriptor: RawFd,
    written: usize,
    /// Operations that the kernel has not completed.
    pending: u32,
    error: Option<std::io::Error>,
}

/// See the module's text.
pub(super) struct UringQueue {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    in_flight: usize,
    method: DurabilityMethod,
    done: Vec<Completion>,
}

impl UringQueue {
    pub(super) fn new(depth: usize, method: DurabilityMethod) -> Result<UringQueue> {
        let entries = (2 * depth.clamp(1, 1024)).next_power_of_two() as u32;
        let ring = IoUring::new(entries).map_err(|e| Error::io("cannot create an io_uring", e))?;
        let slots = (0..depth.max(1)).map(|_| None).collect();
        Ok(UringQueue { ring, slots, in_flight: 0, method, done: Vec::new() })
    }

    /// Starts what is left of a slot's write.
    fn start(&mut self, index: usize) -> Result<()> {
        let slot = self.slots[index].as_mut().expect("only called for a slot in use");
        let rest = &slot.request.buffer[slot.written..slot.request.len];
        let durable = slot.request.durable;
        let linked = durable && self.method == DurabilityMethod::WriteThenFlush;
        let flags = if durable && self.method == DurabilityMethod::Dsync { DSYNC } else { 0 };
        let write = opcode::Write::new(types::Fd(slot.descriptor), rest.as_ptr(), rest.len() as u32)
            .offset(slot.request.offset + slot.written as u64)
            .rw_flags(flags)
            .build()
            .user_data(index as u64);
        slot.pending = if linked { 2 } else { 1 };
        if linked {
            let flush = opcode::Fsync::new(types::Fd(slot.descriptor))
                .flags(types::FsyncFlags::DATASYNC)
                .build()
                .user_data(index as u64 | FLUSH_BIT);
            self.push(&[write.flags(squeue::Flags::IO_LINK), flush]);
        } else {
            self.push(&[write]);
        }
        self.enter(0)
    }

    fn push(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: the buffer and the file of each entry live in the slot until its completions are reaped: the slot is
        // emptied only in `finish`, and dropping the queue reaps everything first.
        unsafe {
            self.ring
                .submission()
                .push_multiple(entries)
                .expect("the ring has two entries for each slot, and each slot submits at once");
        }
    }

    fn enter(&mut self, want: usize) -> Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc_eintr()) => {}
                // The completion queue is full or memory is short: completions have to be taken first.
                Err(e) if matches!(e.raw_os_error(), Some(11 | 16)) => return Ok(()),
                Err(e) => return Err(Error::io("io_uring_enter failed", e)),
            }
        }
    }

    fn take_completions(&mut self) -> Result<()> {
        let completed: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (data, result) in completed {
            self.complete((data & !FLUSH_BIT) as usize, data & FLUSH_BIT != 0, result)?;
        }
        Ok(())
    }

    fn complete(&mut self, index: usize, is_flush: bool, result: i32) -> Result<()> {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return Err(Error::corruption("io_uring completed a write that was not in flight"));
        };
        slot.pending -= 1;
        if result < 0 {
            let error = std::io::Error::from_raw_os_error(-result);
            // A cancelled flush says less than the write that cancelled it.
            if slot.error.is_none() || !is_flush {
                slot.error = Some(error);
            }
        } else if !is_flush {
            slot.written += result as usize;
            if result == 0 {
                slot.error = Some(std::io::ErrorKind::WriteZero.into());
            }
        }
        if slot.pending > 0 {
            return Ok(());
        }
        let linked = slot.request.durable && self.method == DurabilityMethod::WriteThenFlush;
        let is_short = slot.written < slot.request.len;
        let given_up = slot.error.as_ref().is_some_and(was_given_up);
        let retry = slot.error.as_ref().is_some_and(|e| matches!(e.raw_os_error(), Some(4 | 11)));
        if given_up || slot.error.is_none() && is_short || retry && !linked {
            slot.error = None;
            if linked && !is_short {
                slot.written = 0;
            }
            return self.start(index);
        }
        self.finish(index);
        Ok(())
    }

    fn finish(&mut self, index: usize) {
        let Some(slot) = self.slots[index].take() else { return };
        self.in_flight -= 1;
        let result = match slot.error {
            None => Ok(()),
            Some(error) => {
                Err(Error::io("cannot write", error).at(slot.request.file.location(slot.request.offset)))
            }
        };
        let WriteRequest { token, buffer, .. } = slot.request;
        self.done.push(Completion { token, buffer, result });
    }

    fn wait_for_one(&mut self) -> Result<()> {
        while self.done.is_empty() && self.in_flight > 0 {
            self.enter(1)?;
            self.take_completions()?;
        }
        Ok(())
    }
}

/// The thread that submitted the operation ended before the kernel had started it. Bad memory, the other reason for EFAULT,
/// there is not: the slot owns it.
fn was_given_up(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::FAULT, Errno::CANCELED].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn libc_eintr() -> i32 {
    rustix::io::Errno::INTR.raw_os_error()
}

impl WriteQueue for UringQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        while self.in_flight == self.slots.len() {
            self.enter(1)?;
            self.take_completions()?;
        }
        let descriptor = request
            .file
            .descriptor()
            .ok_or_else(|| Error::invalid("this queue writes only files of its own storage"))?;
        let index =
            self.slots.iter().position(Option::is_none).expect("fewer writes in flight than there are slots");
        self.slots[index] = Some(Slot { request, descriptor, written: 0, pending: 0, error: None });
        self.in_flight += 1;
        self.start(index)
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        self.take_completions()?;
        if wait {
            self.wait_for_one()?;
        }
        done.append(&mut self.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.enter(1).and_then(|()| self.take_completions()).is_err() {
                // The kernel may still read the buffers: leaking them is the only safe thing left.
                for slot in self.slots.drain(..).flatten() {
                    std::mem::forget(slot.request);
                }
                return;
            }
            self.done.clear();
        }
    }
}

/// Requests and completions travel between threads with the queue.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<UringQueue>();
    is_send::<AlignedBuffer>();
};
