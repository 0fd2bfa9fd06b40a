//! Repeats optimistic steps until no writer interrupts them, and helps a step that memory starves.

use crate::base::Result;
use crate::buffer::latch::LatchWait;
use crate::buffer::{EmergencyReserve, FairnessTicket, Interrupt, Pool};

/// Pages that one step may bring in before it counts as starved. Beside the changes of a large
/// transaction so little memory may be left that each page that the step needs pushes out the one
/// before, for ever. A starved step takes the fairness ticket.
const STARVED_FROM_FAULTS: u64 = 20;
/// Pages that a starved step may bring in before it fails: with the ticket it needs each page at
/// most twice.
const FAULTS_MAX: u64 = STARVED_FROM_FAULTS + 60;
/// As `FAULTS_MAX`, for a step that may use the emergency reserve, but does not get the ticket.
const FAULTS_MAX_WITH_RESERVE: u64 = 1000;

/// The choice of a starved step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenStarved {
    /// Uses the emergency reserve: the step is over soon.
    UseReserve,
    /// Continues within the budget, unless an error keeps pages in memory: the change that follows
    /// would take still more.
    Continue,
}

/// Repeats `attempt` until no writer interrupts it.
pub(super) fn retry<T>(pool: &Pool, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
    retry_after(pool, Interrupt::Restart, WhenStarved::UseReserve, attempt)
}

/// [`retry`] after a first attempt that was interrupted by `interrupt`.
pub(super) fn retry_after<T>(
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

/// The help that a starved step has.
struct Starved<'p> {
    ticket: Option<FairnessTicket<'p>>,
    reserve: Option<EmergencyReserve>,
}

impl<'p> Starved<'p> {
    #[cold]
    fn begin(pool: &'p Pool, when_starved: WhenStarved) -> Starved<'p> {
        let ticket = pool.memory().take_ticket();
        let may_use_reserve = when_starved == WhenStarved::UseReserve || EmergencyReserve::is_active();
        Starved { ticket, reserve: may_use_reserve.then(EmergencyReserve::begin) }
    }

    /// Fails if another attempt makes no sense.
    fn check(&self, pool: &Pool, faults: u64) -> Result<()> {
        let most = match (&self.ticket, &self.reserve) {
            (_, Some(_)) => FAULTS_MAX_WITH_RESERVE,
            (Some(_), None) => FAULTS_MAX,
            (None, None) => 0,
        };
        let is_hopeless = self.reserve.is_none() && pool.eviction().has_error();
        if faults > most || is_hopeless { Err(pool.memory().too_few_pages()) } else { Ok(()) }
    }
}
