//! Random numbers for decisions by odds, one sequence a thread.

use crate::base::random::Random;
use std::cell::RefCell;

thread_local! {
    static DICE: RefCell<Random> = RefCell::new(Random::from_seed(0x5eed));
}

/// Returns the thread's next random number.
pub fn dice() -> u64 {
    DICE.with_borrow_mut(Random::next_u64)
}
