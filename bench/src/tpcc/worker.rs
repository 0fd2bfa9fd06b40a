//! A terminal: which transaction comes next, at which warehouse, and how long it rests.

use super::input::{Input, Inputs, Kind};
use super::random::{Constants, uniform};
use super::schema::{DistrictId, Tables};
use super::settings::{Home, Selection, Tpcc};
use super::transactions::Terminal;
use crate::store::{Error, Reader, Result, Transaction};
use crate::workload::{Ending, Intent, Seat, Worker};
use quenchdb::internals::base::random::Random;
use std::time::Duration;

/// Chooses types of transactions.
#[derive(Clone, Debug)]
enum Draw {
    Weighted,
    /// Cards of a shuffled deck, dealt to the end before it is shuffled again (clause 5.2.4.2).
    Deck(Vec<Kind>),
    Only(Kind),
}

impl Draw {
    fn draw(&mut self, random: &mut Random) -> Kind {
        match self {
            Draw::Only(kind) => *kind,
            Draw::Weighted => {
                let mut left = random.below(100);
                for kind in Kind::ALL {
                    if left < kind.weight() {
                        return kind;
                    }
                    left -= kind.weight();
                }
                Kind::NewOrder
            }
            Draw::Deck(deck) => {
                if deck.is_empty() {
                    for kind in Kind::ALL {
                        deck.extend(std::iter::repeat_n(kind, kind.cards()));
                    }
                    for place in (1..deck.len()).rev() {
                        deck.swap(place, random.below(place as u64 + 1) as usize);
                    }
                }
                deck.pop().unwrap_or(Kind::NewOrder)
            }
        }
    }
}

/// See the module.
pub struct TpccWorker<T> {
    tables: Tables<T>,
    inputs: Inputs,
    draw: Draw,
    home: DistrictId,
    random_home: bool,
    /// Keying and think times are multiplied by this.
    pace: f64,
    kind: Kind,
    input: Input,
    think: f64,
    terminal: Terminal,
}

impl<T> TpccWorker<T> {
    pub(super) fn new(tpcc: &Tpcc, tables: Tables<T>, constants: Constants, seat: Seat) -> TpccWorker<T> {
        let (seed, index) = (seat.seed(tpcc.run_seed), seat.index);
        let (warehouses, scale) = (tpcc.warehouses, tpcc.scale);
        let mut inputs = Inputs { random: Random::from_seed(seed), constants, warehouses, scale };
        let home = DistrictId {
            w: (index % usize::from(warehouses)) as u16 + 1,
            d: (index / usize::from(warehouses) % usize::from(scale.districts)) as u8 + 1,
        };
        let draw = match tpcc.selection {
            Selection::Weighted => Draw::Weighted,
            Selection::Deck => Draw::Deck(Vec::new()),
            Selection::Only(kind) => Draw::Only(kind),
        };
        let input = inputs.input(Kind::StockLevel, home);
        TpccWorker {
            tables,
            inputs,
            draw,
            home,
            random_home: tpcc.home == Home::Random,
            pace: tpcc.pace,
            kind: Kind::StockLevel,
            input,
            think: 0.0,
            terminal: Terminal::new(tpcc.selection == Selection::Only(Kind::Delivery)),
        }
    }
}

#[cfg(test)]
impl<T> TpccWorker<T> {
    pub(super) fn input(&self) -> &Input {
        &self.input
    }
}

impl<T: Clone + Send + Sync> Worker<T> for TpccWorker<T> {
    fn prepare(&mut self) -> Intent {
        self.kind = self.draw.draw(&mut self.inputs.random);
        if self.random_home {
            let warehouses = u64::from(self.inputs.warehouses);
            self.home.w = uniform(&mut self.inputs.random, 1, warehouses) as u16;
        }
        self.input = self.inputs.input(self.kind, self.home);
        let reads_only = matches!(self.kind, Kind::OrderStatus | Kind::StockLevel);
        Intent { kind: self.kind as usize, reads_only }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        let (terminal, tables) = (&mut self.terminal, &self.tables);
        match &self.input {
            Input::NewOrder(input) => terminal.new_order(transaction, tables, input),
            Input::Payment(input) => terminal.payment(transaction, tables, input),
            Input::Delivery { w, carrier } => {
                terminal.delivery(transaction, tables, self.inputs.scale.districts, *w, *carrier)
            }
            Input::OrderStatus { .. } | Input::StockLevel { .. } => {
                self.read(transaction).map(|()| Ending::READ)
            }
        }
    }

    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()> {
        let (terminal, tables) = (&mut self.terminal, &self.tables);
        match &self.input {
            Input::OrderStatus { district, customer } => {
                terminal.order_status(snapshot, tables, *district, *customer)
            }
            Input::StockLevel { district, threshold } => {
                terminal.stock_level(snapshot, tables, *district, *threshold).map(drop)
            }
            _ => Err(Error::wrong("this transaction writes")),
        }
    }

    /// The think time of the transaction before and the keying time of this one (clause 5.2.5).
    fn rest(&mut self) -> Duration {
        if self.pace == 0.0 {
            return Duration::ZERO;
        }
        let (keying, mean) = self.kind.terminal_seconds();
        let rest = self.think + keying;
        // Exponential, cut at ten times the mean.
        let think = -(1.0 - self.inputs.random.unit()).ln() * mean;
        self.think = think.min(10.0 * mean);
        Duration::from_secs_f64(rest * self.pace)
    }
}

#[cfg(test)]
mod tests;
