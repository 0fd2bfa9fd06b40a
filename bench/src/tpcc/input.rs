//! The input of each transaction (clauses 2.4.1 to 2.8.1).

use super::random::{Constants, nurand, uniform};
use super::schema::{DistrictId, Scale};
use quenchdb::internals::base::random::Random;

/// Lines of an order, at most.
pub const LINES_MAX: usize = 15;

/// How the input names a customer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Customer {
    /// The customer with this number.
    Number(u16),
    /// One of those with the last name of this number.
    Name(u64),
}

/// A line of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The item; an unused number in the last line of an order that must roll back.
    pub i: u32,
    /// The supplying warehouse.
    pub supply_w: u16,
    /// The quantity.
    pub quantity: u8,
}

/// Clause 2.4.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewOrder {
    /// Where.
    pub district: DistrictId,
    /// The customer.
    pub c: u16,
    /// The first `count` are the order.
    pub lines: [Line; LINES_MAX],
    /// Number of lines.
    pub count: usize,
}

/// Clause 2.5.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    /// The district of the payment.
    pub district: DistrictId,
    /// The customer's district.
    pub customer_district: DistrictId,
    /// The customer.
    pub customer: Customer,
    /// Cents.
    pub amount: u32,
}

/// One transaction's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// See [`NewOrder`].
    NewOrder(NewOrder),
    /// See [`Payment`].
    Payment(Payment),
    /// Clause 2.6.1.
    OrderStatus {
        /// The customer's district.
        district: DistrictId,
        /// The customer.
        customer: Customer,
    },
    /// Clause 2.7.1.
    Delivery {
        /// Where.
        w: u16,
        /// The carrier.
        carrier: u8,
    },
    /// Clause 2.8.1.
    StockLevel {
        /// Where.
        district: DistrictId,
        /// Stock below this is counted.
        threshold: i16,
    },
}

/// The types of transactions, in the order of [`Kind`].
pub const KINDS: &[&str] = &["new-order", "payment", "order-status", "delivery", "stock-level"];

/// A type of transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Percentage of a mix drawn by weight: the least that clause 5.2.3 allows, and New-Order for
    /// the rest.
    #[must_use]
    pub fn weight(self) -> u64 {
        [45, 43, 4, 4, 4][self as usize]
    }

    /// Cards of a deck (clause 5.2.4.2), which has 23.
    #[must_use]
    pub fn cards(self) -> usize {
        [10, 10, 1, 1, 1][self as usize]
    }

    /// Keying time and mean think time in seconds (clause 5.2.5.7).
    #[must_use]
    pub fn terminal_seconds(self) -> (f64, f64) {
        [(18.0, 12.0), (3.0, 12.0), (2.0, 10.0), (2.0, 5.0), (2.0, 5.0)][self as usize]
    }
}

/// Draws inputs.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Its random numbers.
    pub random: Random,
    /// Those of the run.
    pub constants: Constants,
    /// Warehouses of the database.
    pub warehouses: u16,
    /// Their size.
    pub scale: Scale,
}

impl Inputs {
    fn district(&mut self, w: u16) -> DistrictId {
        DistrictId { w, d: uniform(&mut self.random, 1, self.scale.districts.into()) as u8 }
    }

    fn other_warehouse(&mut self, w: u16) -> u16 {
        let other = uniform(&mut self.random, 1, u64::from(self.warehouses) - 1) as u16;
        if other >= w { other + 1 } else { other }
    }

    fn customer(&mut self) -> u16 {
        nurand(&mut self.random, 1023, self.constants.customer, 1, self.scale.customers.into()) as u16
    }

    /// 60 of 100 by last name.
    fn any_customer(&mut self) -> Customer {
        if self.random.chance(60, 100) {
            let names = self.scale.names();
            Customer::Name(nurand(&mut self.random, 255, self.constants.last_name, 0, names - 1))
        } else {
            Customer::Number(self.customer())
        }
    }

    /// Input of a New-Order at warehouse `w`: 1 of 100 is to be rolled back, 1 of 100 lines comes
    /// from elsewhere.
    pub fn new_order(&mut self, w: u16) -> NewOrder {
        let (district, c) = (self.district(w), self.customer());
        let count = uniform(&mut self.random, 5, LINES_MAX as u64) as usize;
        let rolls_back = self.random.chance(1, 100);
        let mut lines = [Line::default(); LINES_MAX];
        for line in &mut lines[..count] {
            let items = u64::from(self.scale.items);
            line.i = nurand(&mut self.random, 8191, self.constants.item, 1, items) as u32;
            let remote = self.warehouses > 1 && self.random.chance(1, 100);
            line.supply_w = if remote { self.other_warehouse(w) } else { w };
            line.quantity = uniform(&mut self.random, 1, 10) as u8;
        }
        if rolls_back {
            lines[count - 1].i = self.scale.items + 1;
        }
        NewOrder { district, c, lines, count }
    }

    /// Input of a Payment at warehouse `w`: 15 of 100 customers are from elsewhere.
    pub fn payment(&mut self, w: u16) -> Payment {
        let district = self.district(w);
        let remote = self.warehouses > 1 && self.random.chance(15, 100);
        let customer_district = if remote {
            let other = self.other_warehouse(w);
            self.district(other)
        } else {
            district
        };
        let (customer, amount) = (self.any_customer(), uniform(&mut self.random, 100, 500_000) as u32);
        Payment { district, customer_district, customer, amount }
    }

    /// Input of a transaction at a terminal of `home`.
    pub fn input(&mut self, kind: Kind, home: DistrictId) -> Input {
        match kind {
            Kind::NewOrder => Input::NewOrder(self.new_order(home.w)),
            Kind::Payment => Input::Payment(self.payment(home.w)),
            Kind::OrderStatus => {
                let district = self.district(home.w);
                Input::OrderStatus { district, customer: self.any_customer() }
            }
            Kind::Delivery => Input::Delivery { w: home.w, carrier: uniform(&mut self.random, 1, 10) as u8 },
            Kind::StockLevel => {
                let threshold = uniform(&mut self.random, 10, 20) as i16;
                Input::StockLevel { district: home, threshold }
            }
        }
    }
}

#[cfg(test)]
mod tests;
