//! Writes through io_uring: many in flight, no thread that waits for each.
//!
//! 1. The queue owns request and buffer until the kernel has completed every operation on them;
//!    dropping the queue waits.
//! 2. A write that is durable by flush is two linked operations; it is done when both are. If
//!    either failed, the write failed: it is not repeated, because it is unknown what the
//!    flush of another write has made durable meanwhile.
//! 3. A short write is continued from where it stopped. The kernel has not started the flush behind
//!    it; the rest brings its own.
//! 4. What a thread submitted belongs to it: when it ends, the kernel gives up what it has not
//!    started (EFAULT, ECANCELED). Nothing failed then, so the reaping thread starts the write
//!    again, from its beginning if it is durable by flush. A flush that was given up was never
//!    tried, so this is not the repetition that 2 forbids.
//! 5. The kernel may take fewer operations than it is offered; the others are offered again by the
//!    next call. If it took a write without the flush that is linked to it, the two have nothing to
//!    do with each other any more, and that flush may come first. So it proves nothing, and when
//!    both are done the write gets a flush of its own.
//! 6. Plain completion says nothing of a write to the page cache: a file that is not direct is
//!    flushed after each.

use super::buffer::AlignedBuffer;
use super::descriptors::take_standard;
use super::durability_method::DurabilityMethod;
use super::storage::{Completion, WriteQueue, WriteRequest};
use crate::base::{Error, Result};
use crate::sync::Process;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::Duration;

const DSYNC: i32 = 0x2;
/// Marks the completion of a flush that follows a write.
const FLUSH_BIT: u64 = 1 << 63;
/// How long to wait when the kernel takes no operation, or does not let itself be asked for
/// completions.
pub(super) const RETRY: Duration = Duration::from_micros(200);

/// Whether the kernel lets us use io_uring, and why not.
pub(super) fn available() -> std::result::Result<(), String> {
    let mut known = Probe::new();
    let asked = new_ring(2).and_then(|ring| ring.submitter().register_probe(&mut known));
    asked.map_err(|error| format!("io_uring is not available: {error}"))?;
    match lacking(|code| known.is_supported(code)) {
        None => Ok(()),
        Some(what) => Err(format!("io_uring is not available: this kernel's cannot {what}")),
    }
}

/// Makes a ring whose descriptor is none of the standard ones.
pub(super) fn new_ring(entries: u32) -> std::io::Result<IoUring> {
    take_standard();
    IoUring::new(entries)
}

/// Returns the name of a needed operation that the kernel does not know.
fn lacking(knows: impl Fn(u8) -> bool) -> Option<&'static str> {
    let needed =
        [(opcode::Write::CODE, "write"), (opcode::Read::CODE, "read"), (opcode::Fsync::CODE, "flush")];
    needed.into_iter().find(|(code, _)| !knows(*code)).map(|(_, what)| what)
}

struct Slot {
    request: WriteRequest,
    descriptor: RawFd,
    written: usize,
    /// Operations that the kernel has not completed.
    pending: u32,
    /// The kernel took the write without its flush (5).
    link_lost: bool,
    error: Option<std::io::Error>,
}

impl Slot {
    /// Whether its write is durable by a flush behind it.
    fn is_flushed(&self, method: DurabilityMethod) -> bool {
        let is_cached = method == DurabilityMethod::Plain && !self.request.file.is_direct();
        self.request.durable && (method == DurabilityMethod::WriteThenFlush || is_cached)
    }

    fn flush(&self, index: usize) -> squeue::Entry {
        let entry = opcode::Fsync::new(types::Fd(self.descriptor)).flags(types::FsyncFlags::DATASYNC);
        entry.build().user_data(index as u64 | FLUSH_BIT)
    }
}

/// Returns the slot whose write the kernel took without the flush behind it, if it took the first
/// `taken` of the operations in `offered`.
fn lost_link(offered: &VecDeque<u64>, taken: usize) -> Option<usize> {
    let (last, next) = (*offered.get(taken.checked_sub(1)?)?, *offered.get(taken)?);
    (last & FLUSH_BIT == 0 && next == last | FLUSH_BIT).then_some(last as usize)
}

/// See the module's text.
pub(super) struct UringQueue {
    /// A forked child does not have the ring's memory.
    process: Process,
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    in_flight: usize,
    method: DurabilityMethod,
    /// Names of the operations that the kernel has not taken, oldest first.
    offered: VecDeque<u64>,
    done: Vec<Completion>,
}

impl UringQueue {
    pub(super) fn new(depth: usize, method: DurabilityMethod) -> Result<UringQueue> {
        let entries = (2 * depth.clamp(1, 1024)).next_power_of_two() as u32;
        let ring = new_ring(entries).map_err(|e| Error::io("cannot create an io_uring", e))?;
        let slots = (0..depth.max(1)).map(|_| None).collect();
        let process = Process::current();
        Ok(UringQueue {
            process,
            ring,
            slots,
            in_flight: 0,
            method,
            offered: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// Starts what is left of a slot's write.
    fn start(&mut self, index: usize) -> Result<()> {
        self.offer(index);
        self.enter(0)
    }

    fn offer(&mut self, index: usize) {
        let method = self.method;
        let slot = self.slots[index].as_mut().expect("only called for a slot in use");
        debug_assert!(slot.pending == 0, "a write is offered once at a time");
        debug_assert!(slot.written <= slot.request.len, "no more is written than was asked for");
        let rest = &slot.request.buffer[slot.written..slot.request.len];
        let linked = slot.is_flushed(method);
        let flags = if slot.request.durable && method == DurabilityMethod::Dsync { DSYNC } else { 0 };
        let write = opcode::Write::new(types::Fd(slot.descriptor), rest.as_ptr(), rest.len() as u32)
            .offset(slot.request.offset + slot.written as u64)
            .rw_flags(flags)
            .build()
            .user_data(index as u64);
        slot.pending = if linked { 2 } else { 1 };
        slot.link_lost = false;
        if linked {
            let flush = slot.flush(index);
            self.push(&[write.flags(squeue::Flags::IO_LINK), flush]);
        } else {
            self.push(&[write]);
        }
    }

    /// Flushes what a slot's write has written.
    fn flush(&mut self, index: usize) -> Result<()> {
        let slot = self.slots[index].as_mut().expect("only called for a slot in use");
        debug_assert!(slot.pending == 0, "the write is done before its flush alone");
        debug_assert!(slot.written == slot.request.len, "a flush follows a whole write");
        slot.pending = 1;
        slot.link_lost = false;
        let flush = slot.flush(index);
        self.push(&[flush]);
        self.enter(0)
    }

    fn push(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: the buffer and the file of each entry live in the slot until its completions are
        // reaped: the slot is emptied only in `finish`, and dropping the queue reaps everything
        // first.
        unsafe {
            self.ring.submission().push_multiple(entries).expect(
                "the ring has two entries for each slot, which offers nothing before all it offered is done",
            );
        }
        self.offered.extend(entries.iter().map(squeue::Entry::get_user_data));
    }

    fn enter(&mut self, want: usize) -> Result<()> {
        loop {
            let entered = self.ring.submit_and_wait(want);
            self.note_taken();
            match entered {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc_eintr()) => {}
                // The completion queue is full or memory is short: completions have to be taken
                // first. The next call that enters the kernel offers the rest again.
                Err(e) if matches!(e.raw_os_error(), Some(11 | 16)) => {
                    if want > 0 {
                        std::thread::sleep(RETRY);
                    }
                    return Ok(());
                }
                Err(e) => return Err(Error::io("io_uring_enter failed", e)),
            }
        }
    }

    /// Finds out how much of what is offered the kernel took, and whose link that broke.
    fn note_taken(&mut self) {
        let left = self.ring.submission().len();
        debug_assert!(left <= self.offered.len(), "the ring has only what was offered");
        let taken = self.offered.len().saturating_sub(left);
        if let Some(index) = lost_link(&self.offered, taken)
            && let Some(slot) = &mut self.slots[index]
        {
            slot.link_lost = true;
        }
        self.offered.drain(..taken);
    }

    /// After an error of one the others are taken nevertheless: the kernel reports each only once.
    fn take_completions(&mut self) -> Result<()> {
        let completed: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        let mut all = Ok(());
        for (data, result) in completed {
            let completed = self.complete((data & !FLUSH_BIT) as usize, data & FLUSH_BIT != 0, result);
            all = all.and(completed);
        }
        all
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
        let linked = slot.is_flushed(self.method);
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
        if slot.link_lost && slot.error.is_none() {
            return self.flush(index);
        }
        self.finish(index);
        Ok(())
    }

    fn finish(&mut self, index: usize) {
        let Some(slot) = self.slots[index].take() else { return };
        debug_assert!(slot.pending == 0, "the kernel is done with the buffer that goes back");
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

/// The thread that submitted the operation ended before the kernel had started it. Bad memory, the
/// other reason for EFAULT, there is not: the slot owns it.
fn was_given_up(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::FAULT, Errno::CANCELED].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn libc_eintr() -> i32 {
    rustix::io::Errno::INTR.raw_os_error()
}

impl WriteQueue for UringQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        self.process.check()?;
        debug_assert!(request.is_sound(), "a write of whole sectors, from its buffer");
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
        self.slots[index] =
            Some(Slot { request, descriptor, written: 0, pending: 0, link_lost: false, error: None });
        self.in_flight += 1;
        debug_assert!(
            self.in_flight == self.slots.iter().flatten().count(),
            "each write in flight has a slot"
        );
        self.start(index)
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        self.process.check()?;
        let mut result = self.take_completions();
        if result.is_ok() && !self.offered.is_empty() {
            // No other call may follow.
            result = self.enter(0);
        }
        if result.is_ok() && wait {
            result = self.wait_for_one();
        }
        done.append(&mut self.done);
        result
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        if self.process.is_forked() {
            return;
        }
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

#[cfg(all(test, not(miri)))]
mod tests;
