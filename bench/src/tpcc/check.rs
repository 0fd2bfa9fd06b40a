//! The twelve consistency conditions (clause 3.3.2) over all rows, and conditions of the indexes
//! and keys.
//!
//! | condition | holds between |
//! |---|---|
//! | 1 | W_YTD and the sum of D_YTD |
//! | 2 | D_NEXT_O_ID - 1, the highest O_ID and, if there is one, the highest NO_O_ID |
//! | 3 | the NO_O_ID of a district: no gaps |
//! | 4 | the sum of O_OL_CNT and the number of order lines |
//! | 5 | O_CARRIER_ID is null, and there is a new order |
//! | 6 | O_OL_CNT and the number of lines of that order |
//! | 7 | OL_DELIVERY_D is null, and O_CARRIER_ID is |
//! | 8, 9 | W_YTD, D_YTD and the sum of H_AMOUNT |
//! | 10 | C_BALANCE, delivered lines and payments |
//! | 11 | orders that are not new: delivered by the population, or counted in C_DELIVERY_CNT |
//! | 12 | C_BALANCE + C_YTD_PAYMENT and delivered lines |
//!
//! Condition 11 is stated for the initial population, where C_DELIVERY_CNT is 0. Beyond the
//! specification: order numbers have no gaps, payments of a customer neither, both indexes show
//! exactly their tables, the stocks' counts are those of the lines, and everything acknowledged is
//! present.

use super::schema::{
    CustomerId, DistrictId, Tables, customer, district, history, key, order, order_line, stock, warehouse,
};
use super::settings::Tpcc;
use crate::checked::Checked;
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::store::{Error, Level, Reader, Result, Session, Step, Store};
use crate::workload::Acknowledged;
use std::collections::BTreeMap;

/// A customer: the row, and the sums over other tables.
#[derive(Clone, Debug, Default)]
struct CustomerSums {
    balance: i64,
    ytd_payment: i64,
    payment_cnt: u32,
    delivery_cnt: u32,
    name_key: Vec<u8>,
    delivered_amount: i64,
    paid: i64,
    payments: u32,
    last_payment: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct OrderSums {
    c: u16,
    delivered: bool,
    ol_cnt: u8,
    lines: u32,
    is_new: bool,
    indexed: bool,
}

/// Sums of order lines over the stock of a warehouse: quantity, lines, lines ordered elsewhere.
type Supplied = [u64; 3];

/// Sums of a district for its warehouse and for others.
#[derive(Debug, Default)]
struct DistrictSums {
    id: DistrictId,
    ytd: i64,
    new_since_population: u64,
    payments: u64,
    /// Payments of its customers, by the district that got them.
    paid_at: BTreeMap<DistrictId, i64>,
    supplied_by: BTreeMap<u16, Supplied>,
    checked: Checked,
}

/// Checks one district.
struct DistrictCheck<'a, R: Reader> {
    reader: &'a mut R,
    tables: &'a Tables<R::Table>,
    tpcc: &'a Tpcc,
    customers: Vec<CustomerSums>,
    orders: Vec<OrderSums>,
    sums: DistrictSums,
}

/// Calls `each` with all rows whose keys begin with `prefix` and that have their fixed fields.
fn rows<R: Reader>(
    reader: &mut R,
    table: &R::Table,
    prefix: &[u8],
    fixed_bytes: usize,
    checked: &mut Checked,
    mut each: impl FnMut(&[u8], &[u8], &mut Checked),
) -> Result<()> {
    let mut to = prefix.to_vec();
    to.extend([u8::MAX; 40]);
    reader.scan(table, prefix, &to, |key, row| {
        checked.rows += 1;
        if row.len() < fixed_bytes {
            checked.problem(|| format!("row {key:x?} has {} bytes, not {fixed_bytes}", row.len()));
        } else {
            each(key, row, checked);
        }
        Step::Continue(())
    })
}

impl<R: Reader> DistrictCheck<'_, R> {
    fn run(mut self) -> Result<DistrictSums> {
        self.read_customers()?;
        self.read_names()?;
        self.read_payments()?;
        self.read_orders()?;
        self.read_new_orders_and_index()?;
        self.read_lines()?;
        self.compare_orders()?;
        self.compare_customers();
        Ok(self.sums)
    }

    fn read_customers(&mut self) -> Result<()> {
        let (id, expected) = (self.sums.id, self.tpcc.scale.customers);
        let customers = &mut self.customers;
        customers.resize(usize::from(expected) + 1, CustomerSums::default());
        let (table, prefix) = (&self.tables.customer, key::district(id));
        rows(self.reader, table, &prefix, customer::BYTES, &mut self.sums.checked, |key, row, checked| {
            let c = key::customer_at_end(key).unwrap_or(0);
            let Some(customer) = customers.get_mut(usize::from(c)).filter(|_| c > 0) else {
                return checked.problem(|| format!("{id:?} has a customer {c}"));
            };
            let (last, first) = (customer::LAST.text(row), customer::FIRST.text(row));
            *customer = CustomerSums {
                balance: customer::BALANCE.get(row),
                ytd_payment: customer::YTD_PAYMENT.get(row),
                payment_cnt: customer::PAYMENT_CNT.get(row),
                delivery_cnt: customer::DELIVERY_CNT.get(row),
                name_key: key::name(CustomerId { district: id, c }, last, first).to_vec(),
                ..CustomerSums::default()
            };
        })?;
        let there = self.customers.iter().filter(|customer| !customer.name_key.is_empty()).count();
        let what = || format!("customers of {id:?}, and to be there");
        self.sums.checked.same(there, usize::from(expected), what);
        Ok(())
    }

    fn read_names(&mut self) -> Result<()> {
        let (id, customers, mut count) = (self.sums.id, &self.customers, 0);
        let (table, prefix) = (&self.tables.customer_name, key::district(id));
        rows(self.reader, table, &prefix, 0, &mut self.sums.checked, |key, _, checked| {
            count += 1;
            let c = usize::from(key::customer_at_end(key).unwrap_or(0));
            if customers.get(c).is_none_or(|customer| customer.name_key != key) {
                checked.problem(|| format!("the index of names has a wrong entry {key:x?}"));
            }
        })?;
        let what = || format!("names of {id:?}, and customers");
        self.sums.checked.same(count, usize::from(self.tpcc.scale.customers), what);
        Ok(())
    }

    fn read_payments(&mut self) -> Result<()> {
        let (id, customers) = (self.sums.id, &mut self.customers);
        let (table, prefix) = (&self.tables.history, key::district(id));
        let (paid_at, payments) = (&mut self.sums.paid_at, &mut self.sums.payments);
        rows(self.reader, table, &prefix, history::BYTES, &mut self.sums.checked, |key, row, checked| {
            let c = key.get(3..5).and_then(key::customer_at_end).unwrap_or(0);
            let Some(customer) = customers.get_mut(usize::from(c)) else {
                return checked.problem(|| format!("a payment of customer {c} of {id:?}"));
            };
            let amount = i64::from(history::AMOUNT.get(row));
            customer.paid += amount;
            customer.payments += 1;
            customer.last_payment = key::order_at_end(key).unwrap_or(0);
            *payments += 1;
            let at = DistrictId { w: history::W_ID.get(row), d: history::D_ID.get(row) };
            *paid_at.entry(at).or_default() += amount;
        })
    }

    fn read_orders(&mut self) -> Result<()> {
        let (id, orders) = (self.sums.id, &mut self.orders);
        orders.push(OrderSums::default());
        let (table, prefix) = (&self.tables.order, key::district(id));
        rows(self.reader, table, &prefix, order::BYTES, &mut self.sums.checked, |key, row, checked| {
            let (o, next) = (key::order_at_end(key).unwrap_or(0), orders.len() as u32);
            if o != next {
                return checked.problem(|| format!("{id:?}: order {o} where order {next} is expected"));
            }
            orders.push(OrderSums {
                c: order::C_ID.get(row),
                delivered: order::CARRIER_ID.get(row) != 0,
                ol_cnt: order::OL_CNT.get(row),
                ..OrderSums::default()
            });
        })
    }

    fn read_new_orders_and_index(&mut self) -> Result<()> {
        let (id, orders) = (self.sums.id, &mut self.orders);
        let prefix = key::district(id);
        let (mut first, mut last, mut count) = (u32::MAX, 0, 0u32);
        let checked = &mut self.sums.checked;
        rows(self.reader, &self.tables.new_order, &prefix, 0, checked, |key, _, checked| {
            let o = key::order_at_end(key).unwrap_or(0);
            (first, last, count) = (first.min(o), last.max(o), count + 1);
            match orders.get_mut(o as usize) {
                Some(order) => order.is_new = true,
                None => checked.problem(|| format!("condition 2, {id:?}: new order {o} is no order")),
            }
        })?;
        if count > 0 {
            let what = || format!("condition 3, {id:?}: new orders {first} to {last}, and their number");
            checked.same(last + 1 - first, count, what);
            let newest = orders.len() as u32 - 1;
            checked.same(last, newest, || format!("condition 2, {id:?}: newest new order, newest order"));
        }
        rows(self.reader, &self.tables.order_customer, &prefix, 0, checked, |key, _, checked| {
            let o = key::order_at_end(key).unwrap_or(0);
            let c = key.get(3..5).and_then(key::customer_at_end);
            match orders.get_mut(o as usize).filter(|order| Some(order.c) == c) {
                Some(order) => order.indexed = true,
                None => checked.problem(|| format!("the index of orders has a wrong entry {key:x?}")),
            }
        })
    }

    fn read_lines(&mut self) -> Result<()> {
        let (id, orders, customers) = (self.sums.id, &mut self.orders, &mut self.customers);
        let (supplied_by, initial) = (&mut self.sums.supplied_by, u32::from(self.tpcc.scale.customers));
        let (table, prefix) = (&self.tables.order_line, key::district(id));
        rows(self.reader, table, &prefix, order_line::BYTES, &mut self.sums.checked, |key, row, checked| {
            let o = key.get(3..7).and_then(key::order_at_end).unwrap_or(0);
            let Some(order) = orders.get_mut(o as usize).filter(|_| o > 0) else {
                return checked.problem(|| format!("condition 4, {id:?}: a line of order {o}"));
            };
            order.lines += 1;
            let delivered = order_line::DELIVERY_D.get(row) != 0;
            if delivered != order.delivered {
                checked.problem(|| format!("condition 7, {id:?}, order {o}: line and order differ"));
            }
            if delivered && let Some(customer) = customers.get_mut(usize::from(order.c)) {
                customer.delivered_amount += i64::from(order_line::AMOUNT.get(row));
            }
            if o > initial {
                let w = order_line::SUPPLY_W_ID.get(row);
                let supplied = supplied_by.entry(w).or_default();
                supplied[0] += u64::from(order_line::QUANTITY.get(row));
                supplied[1] += 1;
                supplied[2] += u64::from(w != id.w);
            }
        })
    }

    fn compare_orders(&mut self) -> Result<()> {
        let (id, checked) = (self.sums.id, &mut self.sums.checked);
        let mut row = Vec::new();
        super::schema::read(
            self.reader,
            &self.tables.district,
            &key::district(id),
            district::BYTES,
            &mut row,
        )?;
        self.sums.ytd = district::YTD.get(&row);
        let newest = self.orders.len() as u32 - 1;
        let what = || format!("condition 2, {id:?}: D_NEXT_O_ID - 1, newest order");
        checked.same(district::NEXT_O_ID.get(&row).wrapping_sub(1), newest, what);
        let (mut ol_cnt, mut lines, mut not_new) = (0, 0, 0);
        for (o, order) in self.orders.iter().enumerate().skip(1) {
            ol_cnt += u32::from(order.ol_cnt);
            lines += order.lines;
            not_new += u64::from(!order.is_new);
            if order.delivered == order.is_new {
                checked.problem(|| format!("condition 5, {id:?}: order {o}"));
            }
            let what = || format!("condition 6, {id:?}, order {o}: O_OL_CNT, its lines");
            checked.same(u32::from(order.ol_cnt), order.lines, what);
            if !order.indexed {
                checked.problem(|| format!("the index of orders has no entry for {id:?}, order {o}"));
            }
        }
        checked.same(ol_cnt, lines, || format!("condition 4, {id:?}: sum of O_OL_CNT, lines"));
        let deliveries: u64 = self.customers.iter().map(|customer| u64::from(customer.delivery_cnt)).sum();
        let delivered = u64::from(self.tpcc.scale.delivered) + deliveries;
        checked.same(not_new, delivered, || format!("condition 11, {id:?}: orders not new, delivered"));
        self.sums.new_since_population =
            u64::from(newest) - u64::from(self.tpcc.scale.customers).min(newest.into());
        Ok(())
    }

    fn compare_customers(&mut self) {
        let (id, checked) = (self.sums.id, &mut self.sums.checked);
        for (c, customer) in self.customers.iter().enumerate().skip(1) {
            let CustomerSums { balance, ytd_payment, delivered_amount, paid, .. } = *customer;
            let name = || format!("{id:?}, customer {c}");
            let what = || format!("condition 10, {}: C_BALANCE, delivered - paid", name());
            checked.same(balance, delivered_amount - paid, what);
            let what = || format!("condition 12, {}: C_BALANCE + C_YTD_PAYMENT, delivered", name());
            checked.same(balance + ytd_payment, delivered_amount, what);
            let what = || format!("{}: C_PAYMENT_CNT, payments, number of the last", name());
            let payments = (customer.payments, customer.last_payment);
            checked.same((customer.payment_cnt, customer.payment_cnt), payments, what);
        }
    }
}

fn check_district<S: Store>(tpcc: &Tpcc, store: &S, id: DistrictId) -> anyhow::Result<DistrictSums> {
    let tables = Tables::open(|name| store.table(name))?;
    let mut session = store.session(Level::Durable)?;
    let mut run = || {
        let mut reader = session.begin_read()?;
        let sums = DistrictSums { id, ..DistrictSums::default() };
        let (customers, orders) = (Vec::new(), Vec::new());
        DistrictCheck { reader: &mut reader, tables: &tables, tpcc, customers, orders, sums }.run()
    };
    run().map_err(Error::into_failure)
}

/// Sums of a warehouse's own rows.
#[derive(Debug, Default)]
struct WarehouseSums {
    w: u16,
    ytd: i64,
    supplied: Supplied,
    checked: Checked,
}

fn check_warehouse<S: Store>(tpcc: &Tpcc, store: &S, w: u16) -> anyhow::Result<WarehouseSums> {
    let tables = Tables::open(|name| store.table(name))?;
    let mut session = store.session(Level::Durable)?;
    let mut run = || -> Result<WarehouseSums> {
        let mut reader = session.begin_read()?;
        let (mut row, mut sums) = (Vec::new(), WarehouseSums { w, ..WarehouseSums::default() });
        super::schema::read(&mut reader, &tables.warehouse, &key::warehouse(w), warehouse::BYTES, &mut row)?;
        sums.ytd = warehouse::YTD.get(&row);
        let (supplied, mut count) = (&mut sums.supplied, 0);
        let prefix = key::warehouse(w);
        rows(&mut reader, &tables.stock, &prefix, stock::BYTES, &mut sums.checked, |_, row, _| {
            count += 1;
            supplied[0] += u64::from(stock::YTD.get(row));
            supplied[1] += u64::from(stock::ORDER_CNT.get(row));
            supplied[2] += u64::from(stock::REMOTE_CNT.get(row));
        })?;
        sums.checked.same(count, tpcc.scale.items, || format!("stocks of warehouse {w}, items"));
        Ok(sums)
    };
    run().map_err(Error::into_failure)
}

/// Checks all conditions.
pub(super) fn check<S: Store>(
    tpcc: &Tpcc,
    store: &S,
    threads: usize,
    acknowledged: &Acknowledged,
    progress: Progress<'_>,
) -> anyhow::Result<Checked> {
    let districts = u64::from(tpcc.scale.districts);
    let parts = u64::from(tpcc.warehouses) * districts;
    let found = in_parallel(threads, parts, "checking districts", progress, |part| {
        let id = DistrictId { w: (part / districts) as u16 + 1, d: (part % districts) as u8 + 1 };
        check_district(tpcc, store, id)
    })?;
    let warehouses = u64::from(tpcc.warehouses);
    let warehouses = in_parallel(threads, warehouses, "checking warehouses", progress, |part| {
        check_warehouse(tpcc, store, part as u16 + 1)
    })?;
    let mut checked = Checked::default();
    let (mut paid_at, mut supplied_by) = (BTreeMap::new(), BTreeMap::<u16, Supplied>::new());
    let (mut ytd, mut orders, mut payments) = (BTreeMap::new(), 0, 0);
    for mut district in found {
        checked.add(std::mem::take(&mut district.checked));
        orders += district.new_since_population;
        payments += district.payments;
        ytd.insert(district.id, district.ytd);
        for (at, amount) in district.paid_at {
            *paid_at.entry(at).or_insert(0) += amount;
        }
        for (w, supplied) in district.supplied_by {
            let sum = supplied_by.entry(w).or_default();
            sum.iter_mut().zip(supplied).for_each(|(sum, more)| *sum += more);
        }
    }
    checked.same(&ytd, &paid_at, || "condition 9: D_YTD, payments by district".into());
    for warehouse in warehouses {
        let w = warehouse.w;
        checked.add(warehouse.checked);
        let of = |sums: &BTreeMap<DistrictId, i64>| {
            sums.iter().filter(|(id, _)| id.w == w).map(|(_, sum)| sum).sum()
        };
        checked.same(warehouse.ytd, of(&ytd), || format!("condition 1: W_YTD of {w}, sum of D_YTD"));
        checked.same(warehouse.ytd, of(&paid_at), || format!("condition 8: W_YTD of {w}, payments"));
        let supplied = supplied_by.get(&w).copied().unwrap_or_default();
        checked.same(warehouse.supplied, supplied, || format!("stocks of {w}, lines supplied by it"));
    }
    let initial = parts * u64::from(tpcc.scale.customers);
    for (kind, there) in [("new-order", orders), ("payment", payments.saturating_sub(initial))] {
        let promised = acknowledged.get(kind).copied().unwrap_or(0);
        if there < promised {
            checked.problem(|| format!("{promised} of {kind} were acknowledged, but {there} are present"));
        }
    }
    Ok(checked)
}
