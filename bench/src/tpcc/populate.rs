//! The initial population (clause 4.3.3.1): items, then for each warehouse its stock and its
//! districts, in parts that threads share.

use super::random::{
    Constants, address, data, digits, last_name, letters, now, nurand, permutation, uniform,
};
use super::schema::{
    CUSTOMER_DATA_MAX, CustomerId, DistrictId, Scale, Tables, customer, district, history, item, key, order,
    order_line, stock, warehouse,
};
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::store::{Error, Level, Result, Session, Store, Transaction};
use quenchdb::internals::base::random::Random;

/// What is said while it lasts.
const POPULATING: &str = "populating";

/// Rows of one transaction, about.
const BATCH: usize = 500;

/// Commits now and then.
struct Batches<'s, S: Session> {
    session: &'s mut S,
}

impl<S: Session> Batches<'_, S> {
    /// Calls `each` for all of `numbers`, in transactions of about [`BATCH`] rows.
    fn fill(
        &mut self,
        numbers: std::ops::RangeInclusive<u32>,
        rows_of_one: usize,
        mut each: impl FnMut(&mut S::Transaction<'_>, u32) -> Result<()>,
    ) -> Result<()> {
        let (mut next, last) = (*numbers.start(), *numbers.end());
        let step = (BATCH / rows_of_one).max(1) as u32;
        while next <= last {
            let end = last.min(next + step - 1);
            let mut transaction = self.session.begin()?;
            for number in next..=end {
                each(&mut transaction, number)?;
            }
            transaction.commit()?;
            next = end + 1;
        }
        Ok(())
    }
}

/// What a part needs.
struct Filler<'a, T> {
    tables: &'a Tables<T>,
    scale: Scale,
    constants: Constants,
    random: Random,
    row: Vec<u8>,
    date: u32,
}

impl<T> Filler<'_, T> {
    /// A row of zeros.
    fn fresh(&mut self, bytes: usize) {
        self.row.clear();
        self.row.resize(bytes, 0);
    }

    fn item<X: Transaction<Table = T>>(&mut self, transaction: &mut X, i: u32) -> Result<()> {
        self.fresh(item::BYTES);
        let (random, row) = (&mut self.random, &mut self.row);
        item::IM_ID.set(row, uniform(random, 1, 10_000) as u32);
        item::PRICE.set(row, uniform(random, 100, 10_000) as u32);
        item::NAME.put(row, letters::<24>(random, 14).as_bytes());
        row.extend_from_slice(data(random).as_bytes());
        transaction.insert(&self.tables.item, &key::item(i), row)
    }

    fn stock<X: Transaction<Table = T>>(&mut self, transaction: &mut X, w: u16, i: u32) -> Result<()> {
        self.fresh(stock::BYTES);
        let (random, row) = (&mut self.random, &mut self.row);
        stock::QUANTITY.set(row, uniform(random, 10, 100) as i16);
        stock::DISTRICTS.put(row, letters::<240>(random, 240).as_bytes());
        row.extend_from_slice(data(random).as_bytes());
        transaction.insert(&self.tables.stock, &key::stock(w, i), row)
    }

    fn warehouse<X: Transaction<Table = T>>(&mut self, transaction: &mut X, w: u16) -> Result<()> {
        self.fresh(warehouse::BYTES);
        let ytd = i64::from(self.scale.customers) * i64::from(self.scale.districts) * FIRST_PAYMENT;
        let (random, row) = (&mut self.random, &mut self.row);
        warehouse::YTD.set(row, ytd);
        warehouse::TAX.set(row, uniform(random, 0, 2000) as u16);
        warehouse::NAME.put(row, letters::<10>(random, 6).as_bytes());
        warehouse::ADDRESS.put(row, &address(random));
        transaction.insert(&self.tables.warehouse, &key::warehouse(w), row)
    }

    fn district<X: Transaction<Table = T>>(&mut self, transaction: &mut X, id: DistrictId) -> Result<()> {
        self.fresh(district::BYTES);
        let (random, row) = (&mut self.random, &mut self.row);
        district::NEXT_O_ID.set(row, u32::from(self.scale.customers) + 1);
        district::YTD.set(row, i64::from(self.scale.customers) * FIRST_PAYMENT);
        district::TAX.set(row, uniform(random, 0, 2000) as u16);
        district::NAME.put(row, letters::<10>(random, 6).as_bytes());
        district::ADDRESS.put(row, &address(random));
        transaction.insert(&self.tables.district, &key::district(id), row)
    }

    /// A customer, the entry in the index, and the first payment.
    fn customer<X: Transaction<Table = T>>(&mut self, transaction: &mut X, id: CustomerId) -> Result<()> {
        self.fresh(customer::BYTES);
        let names = self.scale.names();
        let (random, row) = (&mut self.random, &mut self.row);
        let name = match u64::from(id.c) - 1 {
            first if first < names => first,
            _ => nurand(random, 255, self.constants.last_name, 0, names - 1),
        };
        customer::BALANCE.set(row, -FIRST_PAYMENT);
        customer::YTD_PAYMENT.set(row, FIRST_PAYMENT);
        customer::PAYMENT_CNT.set(row, 1);
        customer::CREDIT.put(row, if random.chance(1, 10) { b"BC" } else { b"GC" });
        customer::CREDIT_LIM.set(row, 5_000_000);
        customer::DISCOUNT.set(row, uniform(random, 0, 5000) as u16);
        customer::SINCE.set(row, self.date);
        let (last, first) = (last_name(name), letters::<16>(random, 8));
        customer::LAST.put(row, last.as_bytes());
        customer::MIDDLE.put(row, b"OE");
        customer::FIRST.put(row, first.as_bytes());
        customer::ADDRESS.put(row, &address(random));
        customer::PHONE.put(row, digits::<16>(random, 16).as_bytes());
        row.extend_from_slice(letters::<CUSTOMER_DATA_MAX>(random, 300).as_bytes());
        transaction.insert(&self.tables.customer, &key::customer(id), row)?;
        let name = key::name(id, last.as_bytes(), first.as_bytes());
        transaction.insert(&self.tables.customer_name, &name, &[])?;
        self.fresh(history::BYTES);
        let row = &mut self.row;
        history::W_ID.set(row, id.district.w);
        history::D_ID.set(row, id.district.d);
        history::DATE.set(row, self.date);
        history::AMOUNT.set(row, FIRST_PAYMENT as u32);
        row.extend_from_slice(letters::<24>(&mut self.random, 12).as_bytes());
        transaction.insert(&self.tables.history, &key::history(id, 1), row)
    }

    /// An order of customer `c` with its lines, delivered or new.
    fn order<X: Transaction<Table = T>>(
        &mut self,
        transaction: &mut X,
        customer: CustomerId,
        o: u32,
    ) -> Result<()> {
        let delivered = o <= u32::from(self.scale.delivered);
        let (id, lines) = (customer.district, uniform(&mut self.random, 5, 15) as u8);
        self.fresh(order::BYTES);
        let row = &mut self.row;
        let carrier = if delivered { uniform(&mut self.random, 1, 10) as u8 } else { 0 };
        order::CARRIER_ID.set(row, carrier);
        order::C_ID.set(row, customer.c);
        order::ENTRY_D.set(row, self.date);
        order::OL_CNT.set(row, lines);
        order::ALL_LOCAL.set(row, 1);
        transaction.insert(&self.tables.order, &key::order(id, o), row)?;
        transaction.insert(&self.tables.order_customer, &key::order_customer(customer, o), &[])?;
        if !delivered {
            transaction.insert(&self.tables.new_order, &key::order(id, o), &[])?;
        }
        for line in 1..=lines {
            self.fresh(order_line::BYTES);
            let (random, row) = (&mut self.random, &mut self.row);
            order_line::I_ID.set(row, uniform(random, 1, u64::from(self.scale.items)) as u32);
            order_line::SUPPLY_W_ID.set(row, id.w);
            order_line::QUANTITY.set(row, 5);
            order_line::DELIVERY_D.set(row, if delivered { self.date } else { 0 });
            order_line::AMOUNT.set(row, if delivered { 0 } else { uniform(random, 1, 999_999) as u32 });
            order_line::DIST_INFO.put(row, letters::<24>(random, 24).as_bytes());
            transaction.insert(&self.tables.order_line, &key::order_line(id, o, line), row)?;
        }
        Ok(())
    }
}

/// What each customer has paid at first, in cents.
pub(super) const FIRST_PAYMENT: i64 = 1000;

/// A part of the population.
enum Part {
    Items,
    Stock(u16),
    District(DistrictId),
}

impl Part {
    /// Items, then stock by warehouse, then district by district.
    fn of(number: u64, warehouses: u16, scale: Scale) -> Part {
        let Some(number) = number.checked_sub(1) else { return Part::Items };
        let Some(number) = number.checked_sub(u64::from(warehouses)) else {
            return Part::Stock(number as u16 + 1);
        };
        let districts = u64::from(scale.districts);
        Part::District(DistrictId { w: (number / districts) as u16 + 1, d: (number % districts) as u8 + 1 })
    }
}

fn fill_part<S: Session>(part: &Part, filler: &mut Filler<'_, S::Table>, session: &mut S) -> Result<()> {
    let scale = filler.scale;
    let mut batches = Batches { session };
    match *part {
        Part::Items => batches.fill(1..=scale.items, 1, |transaction, i| filler.item(transaction, i)),
        Part::Stock(w) => {
            batches.fill(1..=1, 1, |transaction, _| filler.warehouse(transaction, w))?;
            batches.fill(1..=scale.items, 1, |transaction, i| filler.stock(transaction, w, i))
        }
        Part::District(district) => {
            batches.fill(1..=1, 1, |transaction, _| filler.district(transaction, district))?;
            let customers = u32::from(scale.customers);
            batches.fill(1..=customers, 3, |transaction, c| {
                filler.customer(transaction, CustomerId { district, c: c as u16 })
            })?;
            let ordering = permutation(&mut filler.random, scale.customers);
            batches.fill(1..=customers, 13, |transaction, o| {
                let c = ordering[o as usize - 1];
                filler.order(transaction, CustomerId { district, c }, o)
            })
        }
    }
}

/// Fills the tables, and makes them durable.
///
/// # Errors
/// Those of the store.
pub(super) fn populate<S: Store>(
    store: &S,
    warehouses: u16,
    scale: Scale,
    seed: u64,
    threads: usize,
    progress: Progress<'_>,
) -> anyhow::Result<()> {
    let tables = Tables::open(|name| store.table(name))?;
    let (constants, date) = (Constants::of_population(seed), now());
    let parts = 1 + u64::from(warehouses) * (1 + u64::from(scale.districts));
    let fill = |number: u64| -> anyhow::Result<()> {
        let random = Random::from_seed(seed ^ (number + 1) << 32);
        let mut filler = Filler { tables: &tables, scale, constants, random, row: Vec::new(), date };
        let mut session = store.session(Level::Lazy)?;
        fill_part(&Part::of(number, warehouses, scale), &mut filler, &mut session)
            .map_err(Error::into_failure)
    };
    in_parallel(threads, parts, POPULATING, progress, fill)?;
    store.make_durable()
}
