//! Which refusals of a store may pass: those of requests that it has accepted before.
//!
//! A store that refuses requests of a process that it has served is likely to serve them again:
//! credentials expired and are replaced, a policy or a clock is being set. So such requests are
//! sent again. But a refusal of the first request of its kind is most likely what the store will
//! say for ever: wrong credentials, or those of a reader. Then the user hears of it at once.

use super::request::{Failure, FailureKind, RequestKind};
use super::store::Outcome;
use crate::sync::Mutex;
use std::collections::BTreeSet;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Access {
    /// The store, for people.
    store: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Kinds of requests that the store has accepted; `None` = all.
    accepted: Option<BTreeSet<RequestKind>>,
    /// Requests were refused since the last one that was accepted.
    is_refused: bool,
}

impl Access {
    /// Begins with a store that a probe has found to accept all kinds of requests, or with one of
    /// which nothing is known.
    pub(super) fn new(store: &str, is_probed: bool) -> Access {
        let accepted = if is_probed { None } else { Some(BTreeSet::new()) };
        Access { store: store.into(), state: Mutex::new(State { accepted, is_refused: false }) }
    }

    /// Takes the outcome of a request, and returns it as the engine is to see it: a refusal that is
    /// not likely to pass becomes [`FailureKind::Denied`]. The program's log says when the store
    /// begins to refuse requests, and when it ends.
    pub(super) fn judge(&self, kind: RequestKind, outcome: Outcome) -> Outcome {
        match outcome {
            Err(failure) if failure.kind == FailureKind::Forbidden => Err(self.refused(kind, failure)),
            Err(failure) if failure.kind.is_ambiguous() || failure.kind == FailureKind::Again => Err(failure),
            Err(failure) if failure.kind == FailureKind::Denied => Err(failure),
            answered => {
                self.accepted(kind);
                answered
            }
        }
    }

    fn refused(&self, kind: RequestKind, failure: Failure) -> Failure {
        let mut state = self.state.lock();
        if state.accepted.as_ref().is_some_and(|accepted| !accepted.contains(&kind)) {
            return Failure { kind: FailureKind::Denied, ..failure };
        }
        if !std::mem::replace(&mut state.is_refused, true) {
            let (store, why) = (&self.store, &failure.what);
            tracing::warn!(%store, %why, "the store refuses requests: they wait and are sent again");
        }
        failure
    }

    fn accepted(&self, kind: RequestKind) {
        let mut state = self.state.lock();
        if let Some(accepted) = &mut state.accepted {
            accepted.insert(kind);
        }
        if std::mem::replace(&mut state.is_refused, false) {
            tracing::info!(store = %self.store, "the store accepts requests again");
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
