//! The settings of a run of TPC-C.

use super::input::Kind;
use super::schema::Scale;

/// The choice of the type of the next transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// By the weights of clause 5.2.3: 45, 43, 4, 4, 4 of 100.
    Weighted,
    /// From a deck of 23 cards (clause 5.2.4.2).
    Deck,
    /// Always the same.
    Only(Kind),
}

/// The warehouse of a worker's terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Worker i at warehouse i, again from the first when there are more workers.
    Fixed,
    /// At another warehouse for each transaction.
    Random,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Tpcc {
    /// Warehouses.
    pub warehouses: u16,
    /// Size of a warehouse.
    pub scale: Scale,
    /// Choice of transactions.
    pub selection: Selection,
    /// Choice of warehouses.
    pub home: Home,
    /// Factor of the keying and think times; 0: none.
    pub pace: f64,
    /// Seed of the population.
    pub population_seed: u64,
    /// Seed of the run.
    pub run_seed: u64,
}
