//! The five transactions (clauses 2.4.2 to 2.8.2), over any store.
//!
//! The output of a terminal is computed and discarded (`black_box`), so that its reads happen.

use super::input::{Customer, NewOrder, Payment};
use super::random::{is_original, last_name, now};
use super::schema::{
    CUSTOMER_DATA_MAX, CustomerId, DistrictId, Tables, customer, district, find, history, item, key, order,
    order_line, read, read_for_update, stock, warehouse,
};
use crate::store::{Error, Reader, Result, Step, Transaction};
use crate::workload::Ending;
use std::hint::black_box;
use std::io::Write;

/// One terminal: its buffers, and how it delivers.
#[derive(Clone, Debug, Default)]
pub struct Terminal {
    /// A delivery that finds no new order in a district takes back the newest delivery there, so
    /// that deliveries alone never run out of orders.
    takes_back: bool,
    row: Vec<u8>,
    other: Vec<u8>,
    lines: Vec<(u8, u32)>,
    items: Vec<u32>,
    names: Vec<u16>,
    written: u64,
}

const FULL_STOP: u8 = u8::MAX;

/// Returns the customer of an input: of those with the last name, the middle one by first name,
/// rounded up (clause 2.5.2.2).
fn customer_of<R: Reader>(
    reader: &mut R,
    tables: &Tables<R::Table>,
    district: DistrictId,
    by: Customer,
    names: &mut Vec<u16>,
) -> Result<CustomerId> {
    let name = match by {
        Customer::Number(c) => return Ok(CustomerId { district, c }),
        Customer::Name(name) => last_name(name),
    };
    let first = CustomerId { district, c: 0 };
    let from = key::name(first, name.as_bytes(), &[]);
    let to = key::name(CustomerId { district, c: u16::MAX }, name.as_bytes(), &[FULL_STOP; 16]);
    names.clear();
    reader.scan(&tables.customer_name, &from, &to, |key, _| {
        names.extend(key::customer_at_end(key));
        Step::Continue(())
    })?;
    match names.get(names.len().div_ceil(2).wrapping_sub(1)) {
        Some(&c) => Ok(CustomerId { district, c }),
        None => Err(Error::wrong(format!("no customer of {district:?} has the last name of {by:?}"))),
    }
}

impl Terminal {
    /// Creates a terminal, whose deliveries may take back.
    pub(super) fn new(takes_back: bool) -> Terminal {
        Terminal { takes_back, ..Terminal::default() }
    }

    fn insert<X: Transaction>(
        &mut self,
        transaction: &mut X,
        table: &X::Table,
        key: &[u8],
        row: &[u8],
    ) -> Result<()> {
        self.written += (key.len() + row.len()) as u64;
        transaction.insert(table, key, row)
    }

    /// Writes back what [`Terminal::row`] holds.
    fn put_row<X: Transaction>(&mut self, transaction: &mut X, table: &X::Table, key: &[u8]) -> Result<()> {
        self.written += (key.len() + self.row.len()) as u64;
        transaction.insert(table, key, &self.row)
    }

    fn ended(&mut self) -> Ending {
        Ending::Commit { written_bytes: std::mem::take(&mut self.written) }
    }

    /// Clause 2.4.2.
    ///
    /// # Errors
    /// Those of the store.
    pub fn new_order<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        input: &NewOrder,
    ) -> Result<Ending> {
        self.written = 0;
        let id = input.district;
        let customer_id = CustomerId { district: id, c: input.c };
        read(transaction, &tables.warehouse, &key::warehouse(id.w), warehouse::BYTES, &mut self.row)?;
        let w_tax = warehouse::TAX.get(&self.row);
        read(transaction, &tables.customer, &key::customer(customer_id), customer::BYTES, &mut self.row)?;
        let discount = customer::DISCOUNT.get(&self.row);
        black_box((customer::LAST.text(&self.row), customer::CREDIT.text(&self.row)));
        let district_key = key::district(id);
        read_for_update(transaction, &tables.district, &district_key, district::BYTES, &mut self.row)?;
        let d_tax = district::TAX.get(&self.row);
        let o = district::NEXT_O_ID.get(&self.row);
        district::NEXT_O_ID.set(&mut self.row, o + 1);
        self.put_row(transaction, &tables.district, &district_key)?;

        let lines = &input.lines[..input.count];
        let mut row = [0; order::BYTES];
        order::C_ID.set(&mut row, input.c);
        order::ENTRY_D.set(&mut row, now());
        order::OL_CNT.set(&mut row, input.count as u8);
        order::ALL_LOCAL.set(&mut row, u8::from(lines.iter().all(|line| line.supply_w == id.w)));
        let order_key = key::order(id, o);
        self.insert(transaction, &tables.order, &order_key, &row)?;
        self.insert(transaction, &tables.new_order, &order_key, &[])?;
        self.insert(transaction, &tables.order_customer, &key::order_customer(customer_id, o), &[])?;

        let mut total = 0;
        for (number, line) in lines.iter().enumerate() {
            if !find(transaction, &tables.item, &key::item(line.i), item::BYTES, &mut self.other)? {
                return Ok(Ending::RollBack);
            }
            let amount = item::PRICE.get(&self.other) * u32::from(line.quantity);
            total += u64::from(amount);
            let stock_key = key::stock(line.supply_w, line.i);
            read_for_update(transaction, &tables.stock, &stock_key, stock::BYTES, &mut self.row)?;
            let brand = is_original(&self.other[item::BYTES..]) && is_original(&self.row[stock::BYTES..]);
            black_box(brand);
            self.take_from_stock(line.quantity, line.supply_w != id.w);
            self.put_row(transaction, &tables.stock, &stock_key)?;

            let mut row = [0; order_line::BYTES];
            order_line::I_ID.set(&mut row, line.i);
            order_line::SUPPLY_W_ID.set(&mut row, line.supply_w);
            order_line::QUANTITY.set(&mut row, line.quantity);
            order_line::AMOUNT.set(&mut row, amount);
            let texts = stock::DISTRICTS.bytes(&self.row);
            order_line::DIST_INFO.put(&mut row, &texts[24 * (usize::from(id.d) - 1)..][..24]);
            let line_key = key::order_line(id, o, number as u8 + 1);
            self.insert(transaction, &tables.order_line, &line_key, &row)?;
        }
        let taxed = 10_000 + u64::from(w_tax) + u64::from(d_tax);
        black_box(total * (10_000 - u64::from(discount)) * taxed);
        Ok(self.ended())
    }

    /// What is taken is put back in tens before it runs out (clause 2.4.2.2).
    fn take_from_stock(&mut self, quantity: u8, remote: bool) {
        let (row, taken) = (&mut self.row, i16::from(quantity));
        let left = stock::QUANTITY.get(row) - taken;
        stock::QUANTITY.set(row, if left >= 10 { left } else { left + 91 });
        stock::YTD.add(row, u32::from(quantity));
        stock::ORDER_CNT.add(row, 1);
        stock::REMOTE_CNT.add(row, u32::from(remote));
    }

    /// Clause 2.5.2.
    ///
    /// # Errors
    /// Those of the store.
    pub fn payment<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        input: &Payment,
    ) -> Result<Ending> {
        self.written = 0;
        let (id, amount) = (input.district, i64::from(input.amount));
        let mut history_row = [0; history::BYTES + 24];
        history::W_ID.set(&mut history_row, id.w);
        history::D_ID.set(&mut history_row, id.d);
        history::DATE.set(&mut history_row, now());
        history::AMOUNT.set(&mut history_row, input.amount);
        let data = &mut history_row[history::BYTES..];
        data.fill(b' ');

        let warehouse_key = key::warehouse(id.w);
        read_for_update(transaction, &tables.warehouse, &warehouse_key, warehouse::BYTES, &mut self.row)?;
        let w_name = warehouse::NAME.text(&self.row);
        data[..w_name.len()].copy_from_slice(w_name);
        let at = w_name.len() + 4;
        warehouse::YTD.add(&mut self.row, amount);
        self.put_row(transaction, &tables.warehouse, &warehouse_key)?;

        let district_key = key::district(id);
        read_for_update(transaction, &tables.district, &district_key, district::BYTES, &mut self.row)?;
        let d_name = district::NAME.text(&self.row);
        data[at..at + d_name.len()].copy_from_slice(d_name);
        let history_bytes = history::BYTES + at + d_name.len();
        district::YTD.add(&mut self.row, amount);
        self.put_row(transaction, &tables.district, &district_key)?;

        let customer_id =
            customer_of(transaction, tables, input.customer_district, input.customer, &mut self.names)?;
        let customer_key = key::customer(customer_id);
        read_for_update(transaction, &tables.customer, &customer_key, customer::BYTES, &mut self.row)?;
        customer::BALANCE.add(&mut self.row, -amount);
        customer::YTD_PAYMENT.add(&mut self.row, amount);
        let payment = customer::PAYMENT_CNT.add(&mut self.row, 1);
        if customer::CREDIT.text(&self.row) == b"BC" {
            self.note_in_data(customer_id, input);
        }
        self.put_row(transaction, &tables.customer, &customer_key)?;
        let history_key = key::history(customer_id, payment);
        self.insert(transaction, &tables.history, &history_key, &history_row[..history_bytes])?;
        Ok(self.ended())
    }

    /// The payment goes to the front of C_DATA, which loses what is too much (clause 2.5.2.2).
    fn note_in_data(&mut self, id: CustomerId, input: &Payment) {
        let (CustomerId { district, c }, paid) = (id, input.district);
        self.other.clear();
        // Writing into memory cannot fail.
        let _ = write!(
            self.other,
            "{c} {} {} {} {} {}.{:02}|",
            district.d,
            district.w,
            paid.d,
            paid.w,
            input.amount / 100,
            input.amount % 100
        );
        self.row.splice(customer::BYTES..customer::BYTES, self.other.iter().copied());
        self.row.truncate(customer::BYTES + CUSTOMER_DATA_MAX);
    }

    /// Clause 2.6.2.
    ///
    /// # Errors
    /// Those of the store.
    pub fn order_status<R: Reader>(
        &mut self,
        reader: &mut R,
        tables: &Tables<R::Table>,
        district: DistrictId,
        by: Customer,
    ) -> Result<()> {
        let id = customer_of(reader, tables, district, by, &mut self.names)?;
        read(reader, &tables.customer, &key::customer(id), customer::BYTES, &mut self.row)?;
        black_box((customer::BALANCE.get(&self.row), customer::FIRST.text(&self.row)));
        let (from, to) = (key::order_customer(id, 0), key::order_customer(id, u32::MAX));
        let mut newest = None;
        reader.scan_back(&tables.order_customer, &from, &to, |key, _| {
            newest = key::order_at_end(key);
            Step::Break(())
        })?;
        let Some(o) = newest else {
            return Err(Error::wrong(format!("customer {id:?} has no order, but began with one")));
        };
        read(reader, &tables.order, &key::order(district, o), order::BYTES, &mut self.row)?;
        black_box((order::CARRIER_ID.get(&self.row), order::ENTRY_D.get(&self.row)));
        let (from, to) = (key::order_line(district, o, 0), key::order_line(district, o, u8::MAX));
        reader.scan(&tables.order_line, &from, &to, |_, row| {
            black_box(row);
            Step::Continue(())
        })
    }

    /// Clause 2.7.4, all districts in one transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delivery<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        districts: u8,
        w: u16,
        carrier: u8,
    ) -> Result<Ending> {
        self.written = 0;
        let date = now();
        // Clause 2.7.2 has a queue of deliveries. Those of a warehouse wait for each other here, if
        // transactions wait: at their first rows they would be a deadlock.
        let queue = key::order(DistrictId { w, d: 1 }, 0);
        transaction.get_for_update(&tables.new_order, &queue, &mut self.row)?;
        for d in 1..=districts {
            self.deliver_one(transaction, tables, DistrictId { w, d }, carrier, date)?;
        }
        Ok(self.ended())
    }

    /// Returns the oldest new order of a district, which is no longer new.
    fn take_oldest<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        id: DistrictId,
    ) -> Result<Option<u32>> {
        let (from, to) = (key::order(id, 0), key::order(id, u32::MAX));
        loop {
            let mut oldest = None;
            transaction.scan(&tables.new_order, &from, &to, |key, _| {
                oldest = key::order_at_end(key);
                Step::Break(())
            })?;
            let Some(o) = oldest else { return Ok(None) };
            // At read committed another delivery may have taken the order meanwhile.
            if transaction.remove(&tables.new_order, &key::order(id, o))? {
                return Ok(Some(o));
            }
        }
    }

    /// Delivers the oldest order of a district, if it has one; otherwise takes back the newest
    /// delivery, if the terminal does so.
    fn deliver_one<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        id: DistrictId,
        carrier: u8,
        date: u32,
    ) -> Result<()> {
        match self.take_oldest(transaction, tables, id)? {
            Some(o) => self.set_delivered(transaction, tables, (id, o), Some((carrier, date))),
            None if self.takes_back => self.take_back(transaction, tables, id),
            None => Ok(()),
        }
    }

    /// Makes the newest order of a district, which is delivered, new again.
    fn take_back<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        id: DistrictId,
    ) -> Result<()> {
        let mut newest = None;
        let (from, to) = (key::order(id, 0), key::order(id, u32::MAX));
        transaction.scan_back(&tables.order, &from, &to, |key, _| {
            newest = key::order_at_end(key);
            Step::Break(())
        })?;
        let Some(o) = newest else { return Ok(()) };
        self.insert(transaction, &tables.new_order, &key::order(id, o), &[])?;
        self.set_delivered(transaction, tables, (id, o), None)
    }

    /// Notes in order, lines and customer that the order is delivered, by a carrier and on a date,
    /// or that it is not.
    fn set_delivered<X: Transaction>(
        &mut self,
        transaction: &mut X,
        tables: &Tables<X::Table>,
        (id, o): (DistrictId, u32),
        delivered: Option<(u8, u32)>,
    ) -> Result<()> {
        let (carrier, date) = delivered.unwrap_or_default();
        let order_key = key::order(id, o);
        read_for_update(transaction, &tables.order, &order_key, order::BYTES, &mut self.row)?;
        let customer_id = CustomerId { district: id, c: order::C_ID.get(&self.row) };
        order::CARRIER_ID.set(&mut self.row, carrier);
        self.put_row(transaction, &tables.order, &order_key)?;

        let mut sum = 0;
        let (from, to) = (key::order_line(id, o, 0), key::order_line(id, o, u8::MAX));
        let (lines, rows) = (&mut self.lines, &mut self.other);
        lines.clear();
        rows.clear();
        transaction.scan(&tables.order_line, &from, &to, |key, row| {
            if row.len() == order_line::BYTES {
                lines.extend(key.last().map(|line| (*line, order_line::AMOUNT.get(row))));
                rows.extend_from_slice(row);
            }
            Step::Continue(())
        })?;
        for place in 0..self.lines.len() {
            let (line, amount) = self.lines[place];
            sum += i64::from(amount);
            self.row.clear();
            self.row.extend_from_slice(&self.other[place * order_line::BYTES..][..order_line::BYTES]);
            order_line::DELIVERY_D.set(&mut self.row, date);
            self.put_row(transaction, &tables.order_line, &key::order_line(id, o, line))?;
        }

        let customer_key = key::customer(customer_id);
        read_for_update(transaction, &tables.customer, &customer_key, customer::BYTES, &mut self.row)?;
        if delivered.is_some() {
            customer::BALANCE.add(&mut self.row, sum);
            customer::DELIVERY_CNT.add(&mut self.row, 1);
        } else {
            customer::BALANCE.add(&mut self.row, -sum);
            let deliveries = customer::DELIVERY_CNT.get(&self.row);
            customer::DELIVERY_CNT.set(&mut self.row, deliveries.saturating_sub(1));
        }
        self.put_row(transaction, &tables.customer, &customer_key)
    }

    /// Clause 2.8.2. Returns how many items of the last 20 orders have little stock.
    ///
    /// # Errors
    /// Those of the store.
    pub fn stock_level<R: Reader>(
        &mut self,
        reader: &mut R,
        tables: &Tables<R::Table>,
        id: DistrictId,
        threshold: i16,
    ) -> Result<usize> {
        read(reader, &tables.district, &key::district(id), district::BYTES, &mut self.row)?;
        let next = district::NEXT_O_ID.get(&self.row);
        let from = key::order_line(id, next.saturating_sub(20), 0);
        let items = &mut self.items;
        items.clear();
        reader.scan(&tables.order_line, &from, &key::order_line(id, next, 0), |_, row| {
            if row.len() == order_line::BYTES {
                items.push(order_line::I_ID.get(row));
            }
            Step::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for i in items {
            read(reader, &tables.stock, &key::stock(id.w, *i), stock::BYTES, &mut self.row)?;
            low += usize::from(stock::QUANTITY.get(&self.row) < threshold);
        }
        Ok(black_box(low))
    }
}
