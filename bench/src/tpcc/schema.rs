//! The nine tables of TPC-C (clause 1.3) and two indexes: keys, rows, and how large everything is.
//!
//! | table | key, all big-endian | row |
//! |---|---|---|
//! | `warehouse` | W | [`warehouse`] |
//! | `district` | W D | [`district`] |
//! | `customer` | W D C | [`customer`], then C_DATA |
//! | `customer.name` | W D C_LAST C_FIRST C, names padded with zeros | nothing |
//! | `history` | W D C of the customer, and the number of the payment | [`history`], then H_DATA |
//! | `order` | W D O | [`order`] |
//! | `order.customer` | W D C O | nothing |
//! | `new_order` | W D O | nothing |
//! | `order_line` | W D O, number of the line | [`order_line`] |
//! | `item` | I | [`item`], then I_DATA |
//! | `stock` | W I | [`stock`], then S_DATA |
//!
//! W and C take 2 bytes, D and the line's number 1, O, I and the payment's number 4. HISTORY has no
//! key in the specification; the number of the payment (C_PAYMENT_CNT) makes one, and lets the
//! check find payments that are lost or counted twice. Money is in cents, rates are in
//! ten-thousandths, dates in seconds since 1970; 0 is null. Fields that change together lie
//! together at the front.

use crate::record;
use crate::store::{Error, Reader, Result, Transaction};

record! {
    /// A warehouse.
    warehouse {
        /// Payments so far.
        YTD: i64,
        /// Sales tax.
        TAX: u16,
        /// Its name.
        NAME: [u8; 10],
        /// Street, street, city, state, ZIP code.
        ADDRESS: [u8; 71],
    }
}

record! {
    /// A district.
    district {
        /// Number of the next order.
        NEXT_O_ID: u32,
        /// Payments so far.
        YTD: i64,
        /// Sales tax.
        TAX: u16,
        /// Its name.
        NAME: [u8; 10],
        /// Street, street, city, state, ZIP code.
        ADDRESS: [u8; 71],
    }
}

record! {
    /// A customer; C_DATA follows.
    customer {
        /// Debt; below zero: paid in advance.
        BALANCE: i64,
        /// Payments so far.
        YTD_PAYMENT: i64,
        /// How many.
        PAYMENT_CNT: u32,
        /// Orders delivered.
        DELIVERY_CNT: u32,
        /// `GC` or `BC`.
        CREDIT: [u8; 2],
        /// Credit limit.
        CREDIT_LIM: i64,
        /// Discount.
        DISCOUNT: u16,
        /// Date of the registration.
        SINCE: u32,
        /// Last name.
        LAST: [u8; 16],
        /// Middle name.
        MIDDLE: [u8; 2],
        /// First name.
        FIRST: [u8; 16],
        /// Street, street, city, state, ZIP code.
        ADDRESS: [u8; 71],
        /// Telephone number.
        PHONE: [u8; 16],
    }
}

record! {
    /// A payment; H_DATA follows.
    history {
        /// Warehouse that got it.
        W_ID: u16,
        /// District that got it.
        D_ID: u8,
        /// When.
        DATE: u32,
        /// How much.
        AMOUNT: u32,
    }
}

record! {
    /// An order.
    order {
        /// The carrier; 0 before the delivery.
        CARRIER_ID: u8,
        /// The customer.
        C_ID: u16,
        /// When.
        ENTRY_D: u32,
        /// Number of lines.
        OL_CNT: u8,
        /// 1 if all lines come from the home warehouse.
        ALL_LOCAL: u8,
    }
}

record! {
    /// A line of an order.
    order_line {
        /// When it was delivered; 0 while it was not.
        DELIVERY_D: u32,
        /// What.
        I_ID: u32,
        /// From which warehouse.
        SUPPLY_W_ID: u16,
        /// How many.
        QUANTITY: u8,
        /// For how much.
        AMOUNT: u32,
        /// The stock's text for the district.
        DIST_INFO: [u8; 24],
    }
}

record! {
    /// Something that is sold; I_DATA follows.
    item {
        /// Its picture.
        IM_ID: u32,
        /// What it costs.
        PRICE: u32,
        /// Its name.
        NAME: [u8; 24],
    }
}

record! {
    /// How much of an item a warehouse has; S_DATA follows.
    stock {
        /// How many.
        QUANTITY: i16,
        /// How many were ordered so far.
        YTD: u32,
        /// In how many lines.
        ORDER_CNT: u32,
        /// How many of these lines came from other warehouses.
        REMOTE_CNT: u32,
        /// A text for each district, 24 bytes each.
        DISTRICTS: [u8; 240],
    }
}

/// Bytes of C_DATA, at most.
pub const CUSTOMER_DATA_MAX: usize = 500;

/// How large a warehouse is. All but tests use [`Scale::SPECIFICATION`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Districts of a warehouse.
    pub districts: u8,
    /// Customers of a district; as many orders.
    pub customers: u16,
    /// Of these orders, those delivered.
    pub delivered: u16,
    /// Items; as many stocks of a warehouse.
    pub items: u32,
}

impl Scale {
    /// Clause 1.2.1.
    pub const SPECIFICATION: Scale =
        Scale { districts: 10, customers: 3000, delivered: 2100, items: 100_000 };
    /// For tests: a hundredth.
    pub const SMALL: Scale = Scale { districts: 10, customers: 30, delivered: 21, items: 1000 };

    /// Different last names (clause 4.3.2.3).
    #[must_use]
    pub fn names(&self) -> u64 {
        u64::from(self.customers).min(1000)
    }
}

/// The tables.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Tables<T> {
    pub warehouse: T,
    pub district: T,
    pub customer: T,
    pub customer_name: T,
    pub history: T,
    pub order: T,
    pub order_customer: T,
    pub new_order: T,
    pub order_line: T,
    pub item: T,
    pub stock: T,
}

impl<T> Tables<T> {
    /// Opens them, or creates them.
    ///
    /// # Errors
    /// Those of `table`.
    pub fn open(mut table: impl FnMut(&str) -> anyhow::Result<T>) -> anyhow::Result<Tables<T>> {
        Ok(Tables {
            warehouse: table("tpcc.warehouse")?,
            district: table("tpcc.district")?,
            customer: table("tpcc.customer")?,
            customer_name: table("tpcc.customer.name")?,
            history: table("tpcc.history")?,
            order: table("tpcc.order")?,
            order_customer: table("tpcc.order.customer")?,
            new_order: table("tpcc.new_order")?,
            order_line: table("tpcc.order_line")?,
            item: table("tpcc.item")?,
            stock: table("tpcc.stock")?,
        })
    }
}

/// A district of a warehouse, both counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct DistrictId {
    /// The warehouse.
    pub w: u16,
    /// The district.
    pub d: u8,
}

/// A customer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CustomerId {
    /// The district.
    pub district: DistrictId,
    /// The number in the district.
    pub c: u16,
}

/// Puts big-endian pieces together.
struct KeyOf<const N: usize> {
    key: [u8; N],
    len: usize,
}

impl<const N: usize> KeyOf<N> {
    #[inline]
    fn new() -> KeyOf<N> {
        KeyOf { key: [0; N], len: 0 }
    }

    #[inline]
    fn then(mut self, piece: &[u8]) -> KeyOf<N> {
        self.key[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
        self
    }
}

/// Keys of the tables.
pub mod key {
    use super::{CustomerId, DistrictId, KeyOf};

    /// Bytes of a key of `customer.name`.
    pub const NAME_BYTES: usize = 37;

    /// Of `warehouse`.
    #[must_use]
    pub fn warehouse(w: u16) -> [u8; 2] {
        w.to_be_bytes()
    }

    /// Of `district`; what all keys of the district begin with.
    #[must_use]
    pub fn district(id: DistrictId) -> [u8; 3] {
        KeyOf::new().then(&id.w.to_be_bytes()).then(&[id.d]).key
    }

    /// Of `customer`.
    #[must_use]
    pub fn customer(id: CustomerId) -> [u8; 5] {
        KeyOf::new().then(&district(id.district)).then(&id.c.to_be_bytes()).key
    }

    /// Of `customer.name`.
    #[must_use]
    pub fn name(id: CustomerId, last: &[u8], first: &[u8]) -> [u8; NAME_BYTES] {
        let mut key = KeyOf::new().then(&district(id.district)).then(last);
        key.len = 19;
        let mut key = key.then(first);
        key.len = 35;
        key.then(&id.c.to_be_bytes()).key
    }

    /// The customer of a key of `customer.name`, or of any key that ends with the number.
    #[must_use]
    pub fn customer_at_end(key: &[u8]) -> Option<u16> {
        key.last_chunk().map(|c| u16::from_be_bytes(*c))
    }

    /// Of `history`.
    #[must_use]
    pub fn history(id: CustomerId, payment: u32) -> [u8; 9] {
        KeyOf::new().then(&customer(id)).then(&payment.to_be_bytes()).key
    }

    /// Of `order` and `new_order`.
    #[must_use]
    pub fn order(id: DistrictId, o: u32) -> [u8; 7] {
        KeyOf::new().then(&district(id)).then(&o.to_be_bytes()).key
    }

    /// Of `order.customer`.
    #[must_use]
    pub fn order_customer(id: CustomerId, o: u32) -> [u8; 9] {
        KeyOf::new().then(&customer(id)).then(&o.to_be_bytes()).key
    }

    /// The order of a key that ends with its number.
    #[must_use]
    pub fn order_at_end(key: &[u8]) -> Option<u32> {
        key.last_chunk().map(|o| u32::from_be_bytes(*o))
    }

    /// Of `order_line`.
    #[must_use]
    pub fn order_line(id: DistrictId, o: u32, line: u8) -> [u8; 8] {
        KeyOf::new().then(&order(id, o)).then(&[line]).key
    }

    /// Of `item`.
    #[must_use]
    pub fn item(i: u32) -> [u8; 4] {
        i.to_be_bytes()
    }

    /// Of `stock`.
    #[must_use]
    pub fn stock(w: u16, i: u32) -> [u8; 6] {
        KeyOf::new().then(&w.to_be_bytes()).then(&i.to_be_bytes()).key
    }
}

/// Checks that a row has all its fixed fields, if it exists.
fn checked(exists: bool, key: &[u8], fixed_bytes: usize, row: &[u8]) -> Result<bool> {
    if exists && row.len() < fixed_bytes {
        return Err(Error::wrong(format!("row {key:x?} has {} bytes, not {fixed_bytes}", row.len())));
    }
    Ok(exists)
}

fn missing(key: &[u8]) -> Error {
    Error::wrong(format!("row {key:x?} is not there"))
}

/// Reads a row that may be absent; it has all its fixed fields.
///
/// # Errors
/// Those of the store; a row that is too short.
pub fn find<R: Reader>(
    reader: &mut R,
    table: &R::Table,
    key: &[u8],
    fixed_bytes: usize,
    row: &mut Vec<u8>,
) -> Result<bool> {
    let exists = reader.get(table, key, row)?;
    checked(exists, key, fixed_bytes, row)
}

/// Reads a row that has to be there.
///
/// # Errors
/// Those of [`find`]; an absent row.
pub fn read<R: Reader>(
    reader: &mut R,
    table: &R::Table,
    key: &[u8],
    fixed_bytes: usize,
    row: &mut Vec<u8>,
) -> Result<()> {
    if find(reader, table, key, fixed_bytes, row)? { Ok(()) } else { Err(missing(key)) }
}

/// Reads a row that has to be there, and that the transaction will change.
///
/// # Errors
/// Those of [`read`].
pub fn read_for_update<X: Transaction>(
    transaction: &mut X,
    table: &X::Table,
    key: &[u8],
    fixed_bytes: usize,
    row: &mut Vec<u8>,
) -> Result<()> {
    let exists = transaction.get_for_update(table, key, row)?;
    if checked(exists, key, fixed_bytes, row)? { Ok(()) } else { Err(missing(key)) }
}
