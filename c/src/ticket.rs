//! Tickets: commits that no thread waits for.

use crate::boundary::{Context, borrow, call, discard, give};
use crate::error::{Error, Failure};
use quenchdb::{CommitHandle, Result};
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

/// A transaction on its way to the device. It may be freed at any time: the commit continues. It
/// does not keep the database open.
pub struct Ticket {
    /// The engine's handle.
    pub handle: CommitHandle,
}

/// Gets the outcome of a commit: 0 when it is durable, or the code of an error. Called by a thread
/// of the library, or by quench_ticket_notify itself. It must not wait, nor close or free a
/// database.
pub type OutcomeFunction = Option<unsafe extern "C" fn(context: *mut c_void, code: c_int)>;

/// Calls a function once, when the outcome is known.
struct Notice {
    handle: Mutex<CommitHandle>,
    function: unsafe extern "C" fn(*mut c_void, c_int),
    context: Context,
    was_called: AtomicBool,
}

impl Notice {
    fn finish(&self, outcome: Result<()>) {
        if !self.was_called.swap(true, Ordering::SeqCst) {
            let code = outcome.map_or_else(|error| Failure::from(error).code(), |()| 0);
            // SAFETY: the header says how the callback is called.
            unsafe { (self.function)(self.context.0, code) }
        }
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Notice>) {
        let waker = Waker::from(self.clone());
        let polled = {
            let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
            Pin::new(&mut *handle).poll(&mut std::task::Context::from_waker(&waker))
        };
        if let Poll::Ready(outcome) = polled {
            self.finish(outcome);
        }
    }
}

/// No other waker of it is left: the database was closed, so the outcome is known.
impl Drop for Notice {
    fn drop(&mut self) {
        if !*self.was_called.get_mut() {
            let outcome = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner).wait();
            self.finish(outcome);
        }
    }
}

/// Returns the commit sequence number; 0 if the transaction changed nothing.
/// Threads: any; so for all functions of tickets.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ticket_csn(ticket: Option<&Ticket>, csn: *mut u64, error: *mut *mut Error) -> c_int {
    call(error, || {
        give(csn, borrow(ticket, "ticket")?.handle.csn().0);
        Ok(())
    })
}

/// Returns 1 if the transaction is durable, 0 if it is not yet, and an error if the device failed.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ticket_poll(ticket: Option<&Ticket>, error: *mut *mut Error) -> c_int {
    call(error, || {
        let mut handle = borrow(ticket, "ticket")?.handle.clone();
        match Pin::new(&mut handle).poll(&mut std::task::Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Ok(outcome.map(|()| true)?),
            Poll::Pending => Ok(false),
        }
    })
}

/// Waits until the transaction is durable, at most so many microseconds; without limit if the
/// number is negative. Returns 1 if it is durable. Causes the device writes that this needs.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ticket_wait(
    ticket: Option<&Ticket>, timeout_us: i64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let handle = &borrow(ticket, "ticket")?.handle;
        match u64::try_from(timeout_us) {
            Ok(timeout_us) => Ok(handle.wait_timeout(Duration::from_micros(timeout_us))?),
            Err(_) => Ok(handle.wait().map(|()| true)?),
        }
    })
}

/// Has `outcome` called once, when the outcome of the commit is known. The ticket may be freed
/// before.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ticket_notify(
    ticket: Option<&Ticket>, outcome: OutcomeFunction, context: *mut c_void, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let handle = Mutex::new(borrow(ticket, "ticket")?.handle.clone());
        let (function, context) = (*borrow(outcome.as_ref(), "outcome")?, Context(context));
        Arc::new(Notice { handle, function, context, was_called: AtomicBool::new(false) }).wake();
        Ok(())
    })
}

/// Frees a ticket. NULL is allowed. The commit continues.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ticket_free(ticket: Option<Box<Ticket>>) {
    discard(ticket);
}
