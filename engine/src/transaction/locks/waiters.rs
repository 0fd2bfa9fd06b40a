//! The queue of transactions that wait for others, and the search for deadlocks.
//!
//! One list for all tables, in the order of arrival. It is short: a thread waits at most once. A
//! waiting transaction lists its *blockers*: the holders of what it wants, and the transactions
//! ahead of it that want what excludes it.
//!
//! ```text
//!   row k: held by A        waits   blockers      A ends: it is removed from all blockers.
//!                           B: k    A             B has none left and is woken. C stays behind B,
//!                           C: k    A, B          which holds the row next.
//! ```
//!
//! 1. A transaction that has no blockers left is woken, and no other: a release wakes the first of
//!    a queue, or all shared requests at its front.
//! 2. A woken transaction looks again at what it wants, and keeps its place meanwhile. A running
//!    transaction may pass a woken one a few times, so that a row need not wait for a thread to be
//!    scheduled.
//! 3. No wake-up is lost: a request is counted before its blockers are looked at, and a transaction
//!    releases before it reads the count; both are sequentially consistent.
//! 4. A *deadlock* is a cycle of transactions that wait. The list is searched, under its mutex,
//!    each time a transaction begins to sleep. A transaction whose blockers have changed is not
//!    waiting at that moment, and a transaction that waits releases nothing. So every cycle found
//!    is one.
//! 5. An upgrade (a change of what the transaction has a shared lock on) goes first.

use super::interval::Interval;
use super::table::{LockMode, TableLocks};
use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind, Location, Result, TableId};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::transaction::descriptor::{DescriptorId, Descriptors};
use crate::transaction::table_name::TableName;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often running transactions may pass one that was woken.
const PASSES: u32 = 16;
/// How often a sleeping transaction looks again by itself: whether the engine has failed, and for
/// deadlocks that arose behind it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a transaction wants to do in a table.
#[derive(Clone, Debug)]
pub enum Access<'a> {
    /// Change the row.
    Change(Cow<'a, [u8]>),
    /// Lock the key.
    Key(Cow<'a, [u8]>, LockMode),
    /// Lock the keys between two bounds, shared.
    Interval(Cow<'a, Interval>),
    /// Lock the table.
    Table(LockMode),
}

impl Access<'_> {
    fn into_owned(self) -> Access<'static> {
        match self {
            Access::Change(key) => Access::Change(Cow::Owned(key.into_owned())),
            Access::Key(key, mode) => Access::Key(Cow::Owned(key.into_owned()), mode),
            Access::Interval(interval) => Access::Interval(Cow::Owned(interval.into_owned())),
            Access::Table(mode) => Access::Table(mode),
        }
    }

    /// Returns whether this access and `other` exclude each other.
    fn excludes(&self, other: &Access<'_>) -> bool {
        match (self, other) {
            (Access::Change(a), Access::Change(b) | Access::Key(b, _)) => a == b,
            (Access::Key(a, _), Access::Change(b)) => a == b,
            (Access::Key(a, x), Access::Key(b, y)) => {
                (*x, *y) == (LockMode::Update, LockMode::Update) && a == b
            }
            (Access::Change(key), Access::Interval(interval))
            | (Access::Interval(interval), Access::Change(key)) => interval.contains(key),
            (Access::Interval(_), Access::Interval(_) | Access::Key(..))
            | (Access::Key(..), Access::Interval(_)) => false,
            (Access::Table(LockMode::Exclusive), _) | (_, Access::Table(LockMode::Exclusive)) => true,
            (Access::Table(_), Access::Change(_)) | (Access::Change(_), Access::Table(_)) => true,
            (Access::Table(_), _) | (_, Access::Table(_)) => false,
        }
    }
}

impl fmt::Display for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Change(key) | Access::Key(key, _) => write!(f, "key \"{}\"", key.escape_ascii()),
            Access::Interval(_) => write!(f, "a range of keys"),
            Access::Table(_) => write!(f, "the whole table"),
        }
    }
}

/// A transaction that may have to wait, and how long it does.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The transaction.
    pub id: DescriptorId,
    /// When it began: the youngest of a deadlock is aborted.
    pub begun: Nanos,
    /// Among transactions of different priority, one of the lowest is aborted.
    pub priority: i8,
    /// The longest wait for one request; `None` to fail instead of waiting.
    pub limit: Option<Duration>,
}

/// A place in the queue. The owner ends it with [`Waiters::leave`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    number: u64,
    /// On the real clock, also in a simulation: a limit of the user.
    since: Nanos,
}

/// One request, which keeps its place in the queue from look to look.
#[derive(Debug, Default)]
pub struct Request {
    /// The place, once the request has waited.
    pub place: Option<Place>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    waiter: Waiter,
    table: TableId,
    name: Arc<str>,
    access: Access<'static>,
    blockers: Vec<DescriptorId>,
    /// How often others have passed this request since it was woken.
    passed: u32,
    /// The cycle because of which this transaction has to abort.
    deadlock: Option<String>,
}

/// A request that waits, as reports show it.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The transaction that waits.
    pub id: DescriptorId,
    /// The table.
    pub table: Arc<str>,
    /// What the transaction wants.
    pub access: Access<'static>,
    /// The transactions that it waits for.
    pub blockers: Vec<DescriptorId>,
    /// How long it has waited.
    pub waited: Duration,
}

/// The table in which a transaction wants something.
#[derive(Clone, Copy, Debug)]
pub struct InTable<'a> {
    /// Its identifier.
    pub id: TableId,
    /// Its name.
    pub name: &'a TableName,
    /// Its locks.
    pub locks: &'a TableLocks,
}

/// How a waiting transaction looks at what it wants.
pub struct Look<'a> {
    /// Returns the transactions that hold it now.
    pub blockers: &'a dyn Fn() -> Vec<DescriptorId>,
    /// Returns whether the transaction itself holds what another request wants.
    pub holds: &'a dyn Fn(&Access<'_>) -> bool,
    /// Whether the transaction holds a weaker lock on it already.
    pub is_upgrade: bool,
    /// Returns an error if no transaction can commit any more, or if the caller ends the wait;
    /// called again and again.
    pub check_commits: &'a dyn Fn() -> Result<()>,
}

/// The transactions that wait for others.
#[derive(Debug)]
pub struct Waiters {
    list: Mutex<Vec<Entry>>,
    /// Entries of the list. Raised before an entry looks at its blockers (rule 3).
    waiting: AtomicUsize,
    next: AtomicU64,
    descriptors: Arc<Descriptors>,
    clock: Clock,
}

impl Waiters {
    /// Returns an empty queue for the transactions of `descriptors`.
    #[must_use]
    pub fn new(descriptors: Arc<Descriptors>) -> Waiters {
        Waiters {
            list: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            descriptors,
            clock: Clock::real(),
        }
    }

    /// Returns the transactions that `me` has to queue behind if it wants `access` now (rule 2).
    /// `holds` returns whether `me` holds what a request wants: such a request waits for `me`.
    #[must_use]
    pub fn ahead_of(
        &self,
        me: DescriptorId,
        table: TableId,
        access: &Access<'_>,
        place: Option<Place>,
        holds: &dyn Fn(&Access<'_>) -> bool,
    ) -> Vec<DescriptorId> {
        let mut ahead = Vec::new();
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return ahead;
        }
        for entry in self.list.lock().iter_mut() {
            if place.is_some_and(|place| place == entry.place) {
                break;
            }
            let is_other = entry.table == table && entry.waiter.id != me;
            if !is_other || !entry.access.excludes(access) || holds(&entry.access) {
                continue;
            }
            let may_pass = entry.blockers.is_empty() && entry.passed < PASSES && place.is_none();
            if may_pass || entry.deadlock.is_some() {
                entry.passed += 1;
            } else {
                ahead.push(entry.waiter.id);
            }
        }
        ahead
    }

    /// Sleeps until `waiter` may look again at what it wants. A request that waits gets a place in
    /// the queue, the first one if it is an upgrade.
    ///
    /// # Errors
    /// `Deadlock` if the transaction has to abort; `LockTimeout` at the end of its patience; the
    /// error of [`Look::check_commits`].
    pub fn wait(
        &self,
        waiter: &Waiter,
        table: InTable<'_>,
        access: &Access<'_>,
        place: &mut Option<Place>,
        look: &Look<'_>,
    ) -> Result<()> {
        let failed = |kind, what: String| Error::new(kind, what).at(Location::Table(table.name.to_string()));
        let Some(limit) = waiter.limit else {
            let what = format!("{access} is locked, and the transaction is not to wait");
            return Err(failed(ErrorKind::LockTimeout, what));
        };
        self.descriptors.set_thread(waiter.id);
        let at = *place.get_or_insert_with(|| self.join(waiter, table, access, look));
        loop {
            let woken = self.descriptors.wake_event(waiter.id).ticket();
            {
                let mut list = self.list.lock();
                let Some(index) = list.iter().position(|entry| entry.place == at) else { return Ok(()) };
                if let Some(cycle) = list[index].deadlock.take() {
                    return Err(failed(ErrorKind::Deadlock, cycle));
                }
                let now = self.blockers_at(&list, index, look);
                if now.is_empty() {
                    list[index].blockers.clear();
                    return Ok(());
                }
                let own = now.iter().find(|id| self.descriptors.is_of_this_thread(**id));
                if let Some(own) = own {
                    let what = format!("{access} is held by transaction {own} of the same thread");
                    return Err(failed(ErrorKind::Deadlock, what).with_advice("end it first"));
                }
                list[index].blockers = now;
                if let Some(cycle) = self.resolve_deadlocks(&mut list, at) {
                    return Err(failed(ErrorKind::Deadlock, cycle));
                }
            }
            (look.check_commits)()?;
            let Some(left) = limit.checked_sub(self.clock.now().since(at.since)).filter(|t| !t.is_zero())
            else {
                let what = format!("{access} was locked by others for longer than {limit:?}");
                return Err(failed(ErrorKind::LockTimeout, what));
            };
            self.descriptors.wake_event(waiter.id).wait(woken, Some(left.min(LOOK_AGAIN)));
            let list = self.list.lock();
            let entry = list.iter().find(|entry| entry.place == at);
            if entry.is_none_or(|entry| entry.blockers.is_empty() && entry.deadlock.is_none()) {
                return Ok(());
            }
        }
    }

    /// Adds a request to the queue.
    fn join(&self, waiter: &Waiter, table: InTable<'_>, access: &Access<'_>, look: &Look<'_>) -> Place {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        table.locks.count_request(true);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Place { number, since: self.clock.now() };
        let entry = Entry {
            place,
            waiter: *waiter,
            table: table.id,
            name: table.name.get(),
            access: access.clone().into_owned(),
            blockers: Vec::new(),
            passed: 0,
            deadlock: None,
        };
        let mut list = self.list.lock();
        let goes_first = |other: &Entry| other.table == table.id && other.access.excludes(access);
        let at = if look.is_upgrade { list.iter().position(goes_first) } else { None };
        let at = at.unwrap_or(list.len());
        list.insert(at, entry);
        place
    }

    /// Adds to the holders what waits ahead of the entry.
    fn blockers_at(&self, list: &[Entry], index: usize, look: &Look<'_>) -> Vec<DescriptorId> {
        let entry = &list[index];
        debug_assert!(entry.deadlock.is_none(), "a victim does not look for others");
        let mut blockers = (look.blockers)();
        for other in &list[..index] {
            let is_ahead = other.table == entry.table
                && other.waiter.id != entry.waiter.id
                && other.access.excludes(&entry.access);
            if is_ahead && other.deadlock.is_none() && !(look.holds)(&other.access) {
                blockers.push(other.waiter.id);
            }
        }
        blockers.sort_unstable();
        blockers.dedup();
        blockers
    }

    /// Ends a request, which was `granted` or given up.
    pub fn leave(&self, locks: &TableLocks, place: Place, granted: bool) {
        let mut list = self.list.lock();
        let Some(index) = list.iter().position(|entry| entry.place == place) else { return };
        let entry = list.remove(index);
        let before = self.waiting.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > list.len(), "each waiter of the list is counted");
        locks.count_request(false);
        if !granted {
            self.remove_blocker(&mut list, entry.waiter.id);
        }
    }

    /// Wakes the transactions for which `id` was the last blocker. To be called after `id` has
    /// released something.
    #[inline]
    pub fn released(&self, id: DescriptorId) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.remove_blocker(&mut self.list.lock(), id);
        }
    }

    fn remove_blocker(&self, list: &mut [Entry], id: DescriptorId) {
        for entry in list {
            let before = entry.blockers.len();
            entry.blockers.retain(|blocker| *blocker != id);
            if entry.blockers.len() < before && entry.blockers.is_empty() {
                self.descriptors.wake_event(entry.waiter.id).notify_all();
            }
        }
    }

    /// Finds every cycle through the transaction at `place`, and chooses the transactions that
    /// abort. Returns the cycle if that is the transaction itself.
    fn resolve_deadlocks(&self, list: &mut [Entry], place: Place) -> Option<String> {
        while let Some(cycle) = self.find_cycle(list, place) {
            let text = describe(list, &cycle);
            debug_assert!(list[cycle[0]].place == place, "a cycle begins with the one that looks");
            let own = cycle[0];
            let victim = *cycle
                .iter()
                .min_by_key(|index| {
                    let waiter = &list[**index].waiter;
                    (waiter.priority, std::cmp::Reverse((waiter.begun, waiter.id)))
                })
                .unwrap_or(&own);
            // A cycle that ends at another transaction of this thread can only be broken here.
            if victim == own || self.ends_in_this_thread(list, &cycle) {
                list[own].blockers.clear();
                return Some(text);
            }
            list[victim].deadlock = Some(text);
            self.descriptors.wake_event(list[victim].waiter.id).notify_all();
        }
        None
    }

    fn ends_in_this_thread(&self, list: &[Entry], cycle: &[usize]) -> bool {
        let (own, last) = (list[cycle[0]].waiter.id, &list[cycle[cycle.len() - 1]]);
        !last.blockers.contains(&own)
    }

    /// Returns a cycle of waits through the entry at `place`, as indices of the list, the entry
    /// itself first.
    fn find_cycle(&self, list: &[Entry], place: Place) -> Option<Vec<usize>> {
        let own = list.iter().position(|entry| entry.place == place)?;
        let me = list[own].waiter.id;
        let mut visited = vec![false; list.len()];
        let mut path = vec![(own, 0)];
        visited[own] = true;
        while let Some((index, next)) = path.last_mut() {
            let Some(blocker) = list[*index].blockers.get(*next).copied() else {
                path.pop();
                continue;
            };
            *next += 1;
            if blocker == me || self.descriptors.is_of_this_thread(blocker) {
                return Some(path.iter().map(|(index, _)| *index).collect());
            }
            let waits = |entry: &Entry| entry.waiter.id == blocker && entry.deadlock.is_none();
            if let Some(at) = list.iter().position(waits)
                && !visited[at]
            {
                visited[at] = true;
                path.push((at, 0));
            }
        }
        None
    }

    /// Returns all requests that wait.
    #[must_use]
    pub fn report(&self) -> Vec<Waiting> {
        let now = self.clock.now();
        let waiting = |entry: &Entry| Waiting {
            id: entry.waiter.id,
            table: entry.name.clone(),
            access: entry.access.clone(),
            blockers: entry.blockers.clone(),
            waited: now.since(entry.place.since),
        };
        self.list.lock().iter().map(waiting).collect()
    }
}

/// Names the cycle, its tables and its keys.
fn describe(list: &[Entry], cycle: &[usize]) -> String {
    let waits = cycle.iter().map(|index| {
        let entry = &list[*index];
        format!("transaction {} waits for {} of table `{}`", entry.waiter.id, entry.access, entry.name)
    });
    let waits: Vec<String> = waits.collect();
    format!("a deadlock of {} transactions: {}", cycle.len(), waits.join(", "))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
