//! Transactions for asynchronous programs: the work of a transaction on a thread that may block,
//! the wait for its commit on none.

use super::database::Database;
use super::handle::CommitHandle;
use super::transaction::Transaction;
use crate::base::{Error, Result};
use crate::sync::{Mutex, Process};
use crate::transaction::TransactionOptions;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The work of a transaction, to be run once on a thread that may block.
pub type Job = Box<dyn FnOnce() + Send>;

impl Database {
    /// Runs `f` in a transaction as [`Database::transact`] does, for asynchronous programs. `spawn`
    /// gets the work and runs it on a thread that may block, of whatever pool the program has. The
    /// future is ready when the transaction is durable; while it waits for that, no thread does.
    ///
    /// ```no_run
    /// # use quenchdb::{Database, Table, Result};
    /// # fn spawn_blocking(job: quenchdb::Job) { std::thread::spawn(job); }
    /// async fn count_visit(db: &Database, visits: Table) -> Result<i64> {
    ///     // With tokio: `tokio::task::spawn_blocking`.
    ///     db.transact_async(spawn_blocking, move |tx| tx.add(&visits, "home", 1)).await
    /// }
    /// ```
    ///
    /// Dropping the future does not take the transaction back: it commits all the same.
    ///
    /// # Errors
    /// As [`Database::transact`]; `InvalidArgument` if `f` panicked, or if the work was dropped
    /// without being run: then the transaction was taken back.
    pub fn transact_async<T, E, R>(
        &self,
        spawn: impl FnOnce(Job) -> R,
        f: impl FnMut(&mut Transaction) -> Result<T, E> + Send + 'static,
    ) -> Transacting<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.transact_async_with(TransactionOptions::new(), spawn, f)
    }

    /// Does the same as [`Database::transact_async`] in a transaction with the given options.
    ///
    /// # Errors
    /// As [`Database::transact_async`]; `InvalidArgument` for locks that end with the commit
    /// (`LockRelease::Commit`), which needs a thread that waits.
    pub fn transact_async_with<T, E, R>(
        &self,
        options: impl Into<TransactionOptions>,
        spawn: impl FnOnce(Job) -> R,
        mut f: impl FnMut(&mut Transaction) -> Result<T, E> + Send + 'static,
    ) -> Transacting<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (db, options) = (self.clone(), options.into());
        let slot = Arc::new(Slot(Mutex::new(Answer { outcome: None, waker: None })));
        let sender = Sender(slot.clone());
        spawn(Box::new(move || {
            let outcome = db.run(options, &mut f, Transaction::commit_async);
            // What `f` holds is dropped before the program continues.
            drop(f);
            sender.send(outcome);
        }));
        Transacting { state: State::Running(slot), process: Process::current() }
    }
}

/// What a transaction returned, and its commit.
type Outcome<T, E> = Result<(T, CommitHandle), E>;

/// Where the work leaves its outcome.
struct Slot<T, E>(Mutex<Answer<T, E>>);

struct Answer<T, E> {
    outcome: Option<Outcome<T, E>>,
    waker: Option<Waker>,
}

impl<T, E> Slot<T, E> {
    /// Sets the outcome, unless there is one.
    fn set(&self, outcome: Outcome<T, E>) {
        let mut answer = self.0.lock();
        answer.outcome.get_or_insert(outcome);
        let waker = answer.waker.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The work's end of the slot. Dropped without an outcome, it leaves an error.
struct Sender<T, E: From<Error>>(Arc<Slot<T, E>>);

impl<T, E: From<Error>> Sender<T, E> {
    fn send(self, outcome: Outcome<T, E>) {
        self.0.set(outcome);
    }
}

impl<T, E: From<Error>> Drop for Sender<T, E> {
    fn drop(&mut self) {
        let what = "the work of the transaction panicked, or was dropped before it ran";
        // The future may be gone, and the outcome may have been taken already.
        self.0.set(Err(Error::invalid(what).into()));
    }
}

enum State<T, E> {
    Running(Arc<Slot<T, E>>),
    Committing(Option<T>, CommitHandle),
}

/// A transaction that runs elsewhere: see [`Database::transact_async`]. Ready when the transaction
/// is durable.
#[must_use = "a future does nothing unless it is awaited; the transaction runs all the same"]
pub struct Transacting<T, E> {
    state: State<T, E>,
    process: Process,
}

/// Nothing in it is pinned.
impl<T, E> Unpin for Transacting<T, E> {}

impl<T, E> fmt::Debug for Transacting<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transacting").finish_non_exhaustive()
    }
}

impl<T, E: From<Error>> Future for Transacting<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(forked) = self.process.check() {
            return Poll::Ready(Err(forked.into()));
        }
        if let State::Running(slot) = &self.state {
            let mut answer = slot.0.lock();
            let Some(outcome) = answer.outcome.take() else {
                answer.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            drop(answer);
            match outcome {
                Ok((value, commit)) => self.state = State::Committing(Some(value), commit),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let State::Committing(value, commit) = &mut self.state else { return Poll::Pending };
        match Pin::new(commit).poll(context) {
            Poll::Ready(Ok(())) => {
                Poll::Ready(Ok(value.take().expect("a future is not polled again after it was ready")))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}
