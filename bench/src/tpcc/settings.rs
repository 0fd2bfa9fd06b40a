//! What is chosen for a run of TPC-C.

use super::input::Kind;
use super::schema::Scale;

/// How the type of the next transaction is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// By the weights of clause 5.2.3: 45, 43, 4, 4, 4 of 100.
    Weighted,
    /// From a deck of 23 cards (clause 5.2.4.2).
    Deck,
    /// Always the same.
    Only(Kind),
}

/// At which warehouse a worker's terminal stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Worker i at warehouse i, again from the first when there are more workers.
    Fixed,
    /// At another one for each transaction.
    Random,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Tpcc {
    /// Warehouses.
    pub warehouses: u16,
    /// Their size.
    pub scale: Scale,
    /// How transactions are chosen.
    pub selection: Selection,
    /// Where.
    pub home: Home,
    /// Keying and think times as specified, times this; 0: none.
    pub pace: f64,
    /// Seed of the population.
    pub population_seed: u64,
    /// Seed of the run.
    pub run_seed: u64,
}
