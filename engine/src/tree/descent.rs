//! Going down the tree, and starting over.

use super::Tree;
use super::node::{KIND_INNER, KIND_LEAF, Node};
use crate::base::{Error, PageId, Result};
use crate::buffer::latch::LatchWait;
use crate::buffer::{
    EmergencyReserve, FairnessTicket, Interrupt, OptimisticGuard, PageBytes, Pool, Restart, ScanBuffer,
    SharedGuard,
};

/// Which leaf is wanted.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    /// The one that covers the key.
    At(&'k [u8]),
    /// The one that covers the keys just below the key.
    Below(&'k [u8]),
    /// The last one.
    Last,
}

/// Where a descent has arrived. Nothing of it counts before the guards are validated or upgraded.
pub(super) struct Arrival<'p> {
    pub guard: OptimisticGuard<'p>,
    /// The parent and which of its children `guard` is; `None` at the root.
    pub parent: Option<(OptimisticGuard<'p>, usize)>,
}

/// A leaf to copy entries from.
pub(super) enum Leaf<'a> {
    /// In memory; what was read counts when the guard is validated.
    Here(OptimisticGuard<'a>),
    /// A scan's own copy of a leaf that is not: nobody changes it.
    Copy(PageId, PageBytes<'a>),
}

impl<'a> Leaf<'a> {
    pub(super) fn page_id(&self) -> PageId {
        match self {
            Leaf::Here(guard) => guard.page_id(),
            Leaf::Copy(page, _) => *page,
        }
    }

    pub(super) fn node(&self) -> Node<'a> {
        match self {
            Leaf::Here(guard) => Node::new(guard.bytes()),
            Leaf::Copy(_, bytes) => Node::new(*bytes),
        }
    }

    /// Keeps writers out as long as the result is there.
    pub(super) fn latch(&self) -> Result<Option<SharedGuard<'a>>, Restart> {
        match self {
            Leaf::Here(guard) => guard.upgrade_shared().map(Some),
            Leaf::Copy(..) => Ok(None),
        }
    }

    pub(super) fn validate(&self) -> Result<(), Restart> {
        match self {
            Leaf::Here(guard) => guard.validate(),
            Leaf::Copy(..) => Ok(()),
        }
    }
}

/// Pages that one descent may bring in before it is taken to be starved: beside the changes of a large transaction so little
/// memory may be left that the page it needs next pushes out the one it has come from. Then it would never arrive. It takes a turn.
const STARVED_FROM_FAULTS: u64 = 20;
/// Pages that it may bring in after that before it gives up: in its turn it needs each at most twice.
const FAULTS_MAX: u64 = STARVED_FROM_FAULTS + 60;
/// The same for one that may go beyond the budget of memory, but whose turn does not come.
const FAULTS_MAX_BEYOND_BUDGET: u64 = 1000;

/// What a starved descent does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenStarved {
    /// Goes beyond the budget of memory: it is over soon.
    Overdraw,
    /// Goes on, unless the disk keeps pages in memory: what it is for would take still more.
    GoOn,
}

impl Tree {
    /// Repeats `attempt` until no writer is in the way.
    pub(super) fn retry<T>(&self, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
        retry(&self.pool, attempt)
    }

    /// [`Tree::retry`] after a first attempt that was interrupted.
    #[cold]
    pub(super) fn retry_after<T>(
        &self,
        interrupt: Interrupt,
        attempt: impl FnMut() -> Result<T, Interrupt>,
    ) -> Result<T> {
        retry_after(&self.pool, interrupt, WhenStarved::Overdraw, attempt)
    }

    /// [`Tree::retry`] for a change.
    pub(super) fn retry_change<T>(&self, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
        retry_after(&self.pool, Interrupt::Restart, WhenStarved::GoOn, attempt)
    }
}

/// Repeats `attempt` until no writer is in the way.
pub(super) fn retry<T>(pool: &Pool, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
    retry_after(pool, Interrupt::Restart, WhenStarved::Overdraw, attempt)
}

fn retry_after<T>(
    pool: &Pool,
    mut interrupt: Interrupt,
    when_starved: WhenStarved,
    mut attempt: impl FnMut() -> Result<T, Interrupt>,
) -> Result<T> {
    let (mut wait, mut starved) = (None::<LatchWait>, None);
    let before = Pool::faults_of_thread();
    loop {
        if let Interrupt::Failed(error) = interrupt {
            return Err(error);
        }
        let faults = Pool::faults_of_thread() - before;
        if faults > STARVED_FROM_FAULTS {
            starved.get_or_insert_with(|| Starved::begin(pool, when_starved)).check(pool, faults)?;
        }
        match &mut wait {
            Some(wait) => wait.pause(),
            None => wait = Some(LatchWait::default()),
        }
        match attempt() {
            Ok(done) => return Ok(done),
            Err(again) => interrupt = again,
        }
    }
}

/// What a descent has that could not get through. See [`Pool::take_turn`].
struct Starved<'p> {
    ticket: Option<FairnessTicket<'p>>,
    overdraft: Option<EmergencyReserve>,
}

impl<'p> Starved<'p> {
    #[cold]
    fn begin(pool: &'p Pool, when_starved: WhenStarved) -> Starved<'p> {
        let ticket = pool.memory().take_ticket();
        let overdraws = when_starved == WhenStarved::Overdraw || EmergencyReserve::is_active();
        Starved { ticket, overdraft: overdraws.then(EmergencyReserve::begin) }
    }

    /// Gives up if there is no point in going on.
    fn check(&self, pool: &Pool, faults: u64) -> Result<()> {
        let most = match (&self.ticket, &self.overdraft) {
            (_, Some(_)) => FAULTS_MAX_BEYOND_BUDGET,
            (Some(_), None) => FAULTS_MAX,
            (None, None) => 0,
        };
        let is_hopeless = self.overdraft.is_none() && pool.eviction().has_error();
        if faults > most || is_hopeless { Err(pool.memory().too_few_pages()) } else { Ok(()) }
    }
}

#[cold]
fn wrong_node(guard: &OptimisticGuard<'_>) -> Interrupt {
    match guard.validate() {
        Ok(()) => Interrupt::Failed(Error::corruption(format!(
            "{} is not the node of the tree that is expected there",
            guard.page_id()
        ))),
        Err(restart) => restart.into(),
    }
}

#[inline]
fn is_node_of(node: Node<'_>, level: u8) -> bool {
    node.level() == level && node.kind() == if level == 0 { KIND_LEAF } else { KIND_INNER }
}

/// The child of `parent`, which is a node of `level`.
#[inline]
fn child_of<'p>(
    pool: &'p Pool,
    parent: &OptimisticGuard<'p>,
    page: PageId,
    level: u8,
) -> Result<OptimisticGuard<'p>, Interrupt> {
    let child = pool.child(parent, page)?;
    if is_node_of(Node::new(child.bytes()), level) { Ok(child) } else { Err(wrong_node(&child)) }
}

#[inline]
pub(super) fn child_at(node: Node<'_>, target: Target<'_>) -> (usize, PageId) {
    let index = match target {
        Target::At(key) => node.child_index(key),
        // The node's upper fence is below it too, and need not have the node's prefix.
        Target::Below(key) if node.covers(key) => node.search(key).0,
        Target::Below(_) | Target::Last => node.count(),
    };
    (index, node.child(index))
}

impl Tree {
    /// The node of `level` that covers the target. Every step goes one level down, so even a damaged tree is left.
    #[inline]
    pub(super) fn descend(&self, target: Target<'_>, level: u8) -> Result<Arrival<'_>, Interrupt> {
        let mut guard = self.pool.optimistic(self.root)?;
        let mut parent = None;
        let mut node = Node::new(guard.bytes());
        let mut at = node.level();
        if !is_node_of(node, at) {
            return Err(wrong_node(&guard));
        }
        if at < level {
            return Err(Interrupt::Restart);
        }
        while at > level {
            let (index, page) = child_at(node, target);
            at -= 1;
            let child = child_of(&self.pool, &guard, page, at)?;
            node = Node::new(child.bytes());
            parent = Some((guard, index));
            guard = child;
        }
        Ok(Arrival { guard, parent })
    }

    /// The leaf that covers the target, from `buffer` if it is there. Not in memory, it is brought in.
    pub(super) fn descend_to_leaf<'a>(
        &'a self,
        target: Target<'_>,
        buffer: &'a mut ScanBuffer,
    ) -> Result<Leaf<'a>, Interrupt> {
        if buffer.is_empty() || self.is_one_leaf()? {
            return Ok(Leaf::Here(self.descend(target, 0)?.guard));
        }
        let parent = self.descend(target, 1)?.guard;
        let (_, page) = child_at(Node::new(parent.bytes()), target);
        // As with guards: the child first, so that it was the right one when the copy was what it is.
        let copy = buffer.find(self.pool.frames(), page).filter(|bytes| is_node_of(Node::new(*bytes), 0));
        match copy {
            Some(bytes) => {
                parent.validate()?;
                Ok(Leaf::Copy(page, bytes))
            }
            None => Ok(Leaf::Here(child_of(&self.pool, &parent, page, 0)?)),
        }
    }
}
