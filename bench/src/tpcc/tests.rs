//! The transactions keep the consistency conditions, and the check finds what breaks each of them.

use super::input::{Customer, Input, Kind, Line, NewOrder, Payment};
use super::schema::{
    CustomerId, DistrictId, Scale, Tables, customer, district, history, key, order, order_line, stock,
    warehouse,
};
use super::transactions::Terminal;
use super::{Home, Selection, Tpcc};
use crate::store::{QuenchTransaction, Store, Transaction as _};
use crate::workload::{Acknowledged, Ending, Seat, Worker, Workload};
use quenchdb::{Database, Table, Transaction};

const HERE: DistrictId = DistrictId { w: 1, d: 3 };

fn tpcc(warehouses: u16) -> Tpcc {
    Tpcc {
        warehouses,
        scale: Scale::SMALL,
        selection: Selection::Weighted,
        home: Home::Random,
        pace: 0.0,
        population_seed: 1,
        run_seed: 2,
    }
}

struct Filled {
    database: Database,
    tpcc: Tpcc,
    tables: Tables<Table>,
}

fn filled(warehouses: u16) -> Filled {
    let database = Database::builder().memory_bytes(256 << 20).open_in_memory().expect("memory");
    let tpcc = tpcc(warehouses);
    tpcc.populate(&database, 2, &|_, _, _| {}).expect("populated");
    let tables = Tables::open(|name| Store::table(&database, name)).expect("tables");
    Filled { database, tpcc, tables }
}

impl Filled {
    fn problems(&self, acknowledged: &[(&str, u64)]) -> Vec<String> {
        let acknowledged: Acknowledged =
            acknowledged.iter().map(|(kind, count)| ((*kind).to_string(), *count)).collect();
        self.tpcc.check(&self.database, 2, &acknowledged, &|_, _, _| {}).expect("checked").problems
    }

    fn transact<R>(&self, mut f: impl FnMut(&mut Transaction) -> quenchdb::Result<R>) -> R {
        self.database.transact(|transaction| f(transaction)).expect("committed")
    }

    /// Changes a row, which has to be there.
    fn change(&self, table: &Table, key: &[u8], change: impl Fn(&mut Vec<u8>)) {
        self.transact(|transaction| {
            let mut row = transaction.get(table, key)?.expect("there");
            change(&mut row);
            transaction.insert(table, key, row)
        });
    }

    fn row(&self, table: &Table, key: &[u8]) -> Vec<u8> {
        self.database.begin_read().expect("begun").get(table, key).expect("read").expect("there")
    }

    /// Runs and commits, unless it wants to be rolled back.
    fn run(
        &self,
        f: impl FnOnce(&mut Terminal, &mut QuenchTransaction) -> crate::store::Result<Ending>,
    ) -> Ending {
        let mut transaction = QuenchTransaction::from(self.database.begin().expect("begun"));
        let ending = f(&mut Terminal::default(), &mut transaction).expect("run");
        match ending {
            Ending::Commit { .. } => transaction.commit().expect("committed"),
            Ending::RollBack => transaction.abort(),
        }
        ending
    }
}

#[test]
fn population_is_consistent_and_has_the_specified_rows() {
    let filled = filled(2);
    assert_eq!(filled.problems(&[]), Vec::<String>::new());
    let snapshot = filled.database.begin_read().expect("begun");
    let count = |table: &Table| snapshot.range(table, ..).count();
    let tables = &filled.tables;
    assert_eq!((count(&tables.warehouse), count(&tables.district), count(&tables.item)), (2, 20, 1000));
    assert_eq!((count(&tables.stock), count(&tables.customer), count(&tables.history)), (2000, 600, 600));
    assert_eq!((count(&tables.order), count(&tables.new_order)), (600, 180));
    let lines = count(&tables.order_line);
    assert!((5400..6600).contains(&lines), "{lines}");
    assert_eq!((Scale::SPECIFICATION.customers, Scale::SPECIFICATION.delivered), (3000, 2100));
}

#[test]
fn a_mix_of_transactions_keeps_every_condition() {
    let filled = filled(3);
    let mut worker = filled.tpcc.worker(&filled.database, Seat::of(0)).expect("tables");
    let (mut ended, mut rolled_back) = ([0u64; 5], 0);
    for _ in 0..3000 {
        let intent = worker.prepare();
        match filled.run(|_, transaction| worker.run(transaction)) {
            Ending::Commit { .. } => ended[intent.kind] += 1,
            Ending::RollBack => rolled_back += 1,
        }
    }
    assert!(ended.iter().all(|count| *count > 50) && rolled_back > 0, "{ended:?} {rolled_back}");
    let acknowledged = [("new-order", ended[0]), ("payment", ended[1])];
    assert_eq!(filled.problems(&acknowledged), Vec::<String>::new());
    let problems = filled.problems(&[("new-order", ended[0] + 1), ("payment", ended[1] + 1)]);
    assert_eq!(problems.len(), 2, "what was acknowledged and is not there: {problems:?}");
}

#[test]
fn two_threads_on_the_same_warehouse_keep_every_condition() {
    let filled = filled(1);
    std::thread::scope(|scope| {
        for index in 0..2 {
            let mut worker = filled.tpcc.worker(&filled.database, Seat::of(index)).expect("tables");
            let database = &filled.database;
            scope.spawn(move || {
                for _ in 0..600 {
                    worker.prepare();
                    loop {
                        let mut transaction = QuenchTransaction::from(database.begin().expect("begun"));
                        let done = match worker.run(&mut transaction) {
                            Ok(Ending::Commit { .. }) => transaction.commit(),
                            Ok(Ending::RollBack) => {
                                transaction.abort();
                                Ok(())
                            }
                            Err(crate::store::Error::Conflict) => continue,
                            Err(error) => panic!("{error:?}"),
                        };
                        match done {
                            Err(crate::store::Error::Conflict) => {}
                            done => break done.expect("committed"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(filled.problems(&[]), Vec::<String>::new());
}

fn new_order(lines: &[Line]) -> NewOrder {
    let mut all = [Line::default(); 15];
    all[..lines.len()].copy_from_slice(lines);
    NewOrder { district: HERE, c: 7, lines: all, count: lines.len() }
}

#[test]
fn new_order_reduces_stock_and_a_wrong_item_rolls_back() {
    let filled = filled(2);
    let (tables, stock_key) = (&filled.tables, key::stock(2, 10));
    filled.change(&tables.stock, &stock_key, |row| stock::QUANTITY.set(row, 15));
    let line = |i, supply_w| Line { i, supply_w, quantity: 5 };
    let wrong = new_order(&[line(10, 2), line(1001, 1)]);
    assert_eq!(filled.run(|terminal, t| terminal.new_order(t, tables, &wrong)), Ending::RollBack);
    assert_eq!(stock::QUANTITY.get(&filled.row(&tables.stock, &stock_key)), 15);
    let order = new_order(&[line(10, 2), line(10, 2), line(11, 1)]);
    filled.run(|terminal, t| terminal.new_order(t, tables, &order));
    let row = filled.row(&tables.stock, &stock_key);
    // 15 - 5 is 10, which is enough; 10 - 5 is not, so 91 come in.
    assert_eq!(stock::QUANTITY.get(&row), 96);
    assert_eq!((stock::YTD.get(&row), stock::ORDER_CNT.get(&row), stock::REMOTE_CNT.get(&row)), (10, 2, 2));
    let row = filled.row(&tables.order, &key::order(HERE, 31));
    assert_eq!((order::OL_CNT.get(&row), order::ALL_LOCAL.get(&row), order::C_ID.get(&row)), (3, 0, 7));
    let price = super::schema::item::PRICE.get(&filled.row(&tables.item, &key::item(11)));
    let row = filled.row(&tables.order_line, &key::order_line(HERE, 31, 3));
    assert_eq!(order_line::AMOUNT.get(&row), 5 * price);
    let text = stock::DISTRICTS.bytes(&filled.row(&tables.stock, &key::stock(1, 11)))[48..72].to_vec();
    assert_eq!(order_line::DIST_INFO.bytes(&row), text);
    assert_eq!(filled.problems(&[("new-order", 1)]), Vec::<String>::new());
}

#[test]
fn payment_by_name_picks_the_middle_and_records_bad_credit() {
    let filled = filled(1);
    let tables = &filled.tables;
    // Three of one name; by first name they are 5, 9, 2.
    let rename = |c: u16, first: &[u8]| {
        let id = CustomerId { district: HERE, c };
        filled.transact(|transaction| {
            let mut row = transaction.get(&tables.customer, key::customer(id))?.expect("there");
            let old = key::name(id, customer::LAST.text(&row), customer::FIRST.text(&row));
            assert!(transaction.remove(&tables.customer_name, old)?);
            customer::LAST.put(&mut row, b"BARBARBAR");
            customer::FIRST.put(&mut row, first);
            customer::CREDIT.put(&mut row, b"BC");
            transaction.insert(&tables.customer, key::customer(id), &row)?;
            transaction.insert(&tables.customer_name, key::name(id, b"BARBARBAR", first), [])
        });
    };
    // The customer with that name from the population moves behind them.
    rename(1, b"Z");
    rename(5, b"Anna");
    rename(9, b"Annabel");
    rename(2, b"Bert");
    let payment = Payment {
        district: DistrictId { w: 1, d: 8 },
        customer_district: HERE,
        customer: Customer::Name(0),
        amount: 12_345,
    };
    let before = filled.row(&tables.customer, &key::customer(CustomerId { district: HERE, c: 9 }));
    filled.run(|terminal, t| terminal.payment(t, tables, &payment));
    let id = CustomerId { district: HERE, c: 9 };
    let row = filled.row(&tables.customer, &key::customer(id));
    assert_eq!(customer::BALANCE.get(&row), -1000 - 12_345, "of four, the second");
    let noted = b"9 3 1 8 1 123.45|";
    assert!(row[customer::BYTES..].starts_with(noted));
    let rest = &row[customer::BYTES + noted.len()..];
    assert!(before[customer::BYTES..].starts_with(rest) && row.len() <= customer::BYTES + 500);
    let row = filled.row(&tables.history, &key::history(id, 2));
    assert_eq!((history::AMOUNT.get(&row), history::D_ID.get(&row)), (12_345, 8));
    assert_eq!(filled.problems(&[("payment", 1)]), Vec::<String>::new());
}

#[test]
fn delivery_takes_the_oldest_order_of_each_district() {
    let filled = filled(1);
    let tables = &filled.tables;
    for round in 0..10u32 {
        filled.run(|terminal, t| terminal.delivery(t, tables, 10, 1, 4));
        let row = filled.row(&tables.order, &key::order(HERE, (22 + round).min(30)));
        assert_eq!(order::CARRIER_ID.get(&row), 4);
    }
    let snapshot = filled.database.begin_read().expect("begun");
    assert!(snapshot.first(&tables.new_order).expect("read").is_none());
    assert_eq!(filled.problems(&[]), Vec::<String>::new());
}

#[test]
fn deliveries_alone_never_run_out_of_orders() {
    let filled = filled(1);
    let only = Tpcc { selection: Selection::Only(Kind::Delivery), ..filled.tpcc.clone() };
    let mut worker = only.worker(&filled.database, Seat::of(0)).expect("tables");
    let written = [(); 14].map(|()| {
        worker.prepare();
        match filled.run(|_, transaction| worker.run(transaction)) {
            Ending::Commit { written_bytes } => written_bytes,
            Ending::RollBack => 0,
        }
    });
    assert!(written.iter().all(|bytes| *bytes > 0), "{written:?}");
    assert_eq!(filled.problems(&[]), Vec::<String>::new());
    // Nine orders of a district were new: five more transactions take back, deliver, and so on.
    let carrier = order::CARRIER_ID.get(&filled.row(&filled.tables.order, &key::order(HERE, 30)));
    assert_eq!(carrier, 0, "the last one took back");
}

#[test]
fn stock_level_counts_each_item_of_the_last_twenty_orders_once() {
    let filled = filled(1);
    let tables = &filled.tables;
    for i in 1..=1000 {
        filled.change(&tables.stock, &key::stock(1, i), |row| stock::QUANTITY.set(row, 50));
    }
    let line = |i| Line { i, supply_w: 1, quantity: 1 };
    for _ in 0..20 {
        filled.run(|terminal, t| terminal.new_order(t, tables, &new_order(&[line(5), line(6), line(7)])));
    }
    for i in [5, 7, 8] {
        filled.change(&tables.stock, &key::stock(1, i), |row| stock::QUANTITY.set(row, 9));
    }
    let mut transaction = filled.database.begin_read().expect("begun");
    let low = Terminal::default().stock_level(&mut transaction, tables, HERE, 10).expect("read");
    assert_eq!(low, 2);
}

#[test]
fn every_broken_condition_is_found() {
    let filled = filled(2);
    let t = &filled.tables;
    let new = key::order(HERE, 30);
    let one_customer = key::customer(CustomerId { district: HERE, c: 4 });
    type Break<'a> = Box<dyn Fn() + 'a>;
    let breaks: [(&str, Break<'_>, Break<'_>); 9] = [
        (
            "condition 1",
            Box::new(|| {
                filled.change(&t.warehouse, &key::warehouse(1), |row| {
                    warehouse::YTD.add(row, 1);
                })
            }),
            Box::new(|| {
                filled.change(&t.warehouse, &key::warehouse(1), |row| {
                    warehouse::YTD.add(row, -1);
                })
            }),
        ),
        (
            "condition 2",
            Box::new(|| {
                filled.change(&t.district, &key::district(HERE), |row| district::NEXT_O_ID.set(row, 30))
            }),
            Box::new(|| {
                filled.change(&t.district, &key::district(HERE), |row| district::NEXT_O_ID.set(row, 31))
            }),
        ),
        (
            "condition 3",
            Box::new(|| {
                filled.transact(|x| x.remove(&t.new_order, key::order(HERE, 25)));
            }),
            Box::new(|| filled.transact(|x| x.insert(&t.new_order, key::order(HERE, 25), []))),
        ),
        (
            "condition 4",
            Box::new(|| {
                filled.change(&t.order, &new, |row| {
                    order::OL_CNT.add(row, 1);
                })
            }),
            Box::new(|| {
                filled.change(&t.order, &new, |row| {
                    let before = order::OL_CNT.get(row);
                    order::OL_CNT.set(row, before - 1);
                })
            }),
        ),
        (
            "condition 5",
            Box::new(|| filled.change(&t.order, &new, |row| order::CARRIER_ID.set(row, 3))),
            Box::new(|| filled.change(&t.order, &new, |row| order::CARRIER_ID.set(row, 0))),
        ),
        (
            "condition 7",
            Box::new(|| {
                filled.change(&t.order_line, &key::order_line(HERE, 5, 1), |row| {
                    order_line::DELIVERY_D.set(row, 0);
                });
            }),
            Box::new(|| {
                filled.change(&t.order_line, &key::order_line(HERE, 5, 1), |row| {
                    order_line::DELIVERY_D.set(row, 1);
                });
            }),
        ),
        (
            "condition 9",
            Box::new(|| {
                filled.change(&t.district, &key::district(HERE), |row| {
                    district::YTD.add(row, 1);
                })
            }),
            Box::new(|| {
                filled.change(&t.district, &key::district(HERE), |row| {
                    district::YTD.add(row, -1);
                })
            }),
        ),
        (
            "condition 10",
            Box::new(|| {
                filled.change(&t.customer, &one_customer, |row| {
                    customer::BALANCE.add(row, 1);
                })
            }),
            Box::new(|| {
                filled.change(&t.customer, &one_customer, |row| {
                    customer::BALANCE.add(row, -1);
                })
            }),
        ),
        (
            "condition 11",
            Box::new(|| {
                filled.change(&t.customer, &one_customer, |row| {
                    customer::DELIVERY_CNT.add(row, 1);
                })
            }),
            Box::new(|| filled.change(&t.customer, &one_customer, |row| customer::DELIVERY_CNT.set(row, 0))),
        ),
    ];
    for (name, harm, mend) in &breaks {
        harm();
        let problems = filled.problems(&[]);
        assert!(problems.iter().any(|problem| problem.starts_with(name)), "{name}: {problems:?}");
        mend();
        assert_eq!(filled.problems(&[]), Vec::<String>::new(), "{name} repaired");
    }
    // Together with these: 6 with 4, 8 with 1, 12 with 10.
    filled.change(&t.order, &new, |row| {
        order::OL_CNT.add(row, 1);
    });
    filled.change(&t.warehouse, &key::warehouse(2), |row| {
        warehouse::YTD.add(row, 1);
    });
    filled.change(&t.customer, &one_customer, |row| {
        customer::YTD_PAYMENT.add(row, 1);
    });
    filled.change(&t.stock, &key::stock(1, 5), |row| {
        stock::YTD.add(row, 1);
    });
    filled.transact(|x| {
        x.insert(&t.order_customer, key::order_customer(CustomerId { district: HERE, c: 4 }, 99), [])
    });
    let problems = filled.problems(&[]);
    for name in ["condition 6", "condition 8", "condition 12", "stocks of 1", "the index of orders"] {
        assert!(problems.iter().any(|problem| problem.starts_with(name)), "{name}: {problems:?}");
    }
}

#[test]
fn terminals_stand_where_the_options_say() {
    let filled = filled(2);
    let homes = |home| {
        let tpcc = Tpcc { home, selection: Selection::Only(Kind::Delivery), ..filled.tpcc.clone() };
        let mut worker = tpcc.worker(&filled.database, Seat::of(1)).expect("tables");
        let mut seen = [0; 3];
        for _ in 0..200 {
            worker.prepare();
            let Input::Delivery { w, .. } = worker.input() else { panic!("another type") };
            seen[usize::from(*w)] += 1;
        }
        seen
    };
    assert_eq!(homes(Home::Fixed), [0, 0, 200]);
    let random = homes(Home::Random);
    assert!(random[1] > 60 && random[2] > 60, "{random:?}");
}

#[test]
fn think_times_are_those_of_the_specification() {
    let filled = filled(1);
    let tpcc = Tpcc { pace: 1.0, selection: Selection::Only(Kind::Payment), ..filled.tpcc.clone() };
    let mut worker = tpcc.worker(&filled.database, Seat::of(0)).expect("tables");
    let rests: Vec<f64> = (0..20_000)
        .map(|_| {
            worker.prepare();
            worker.rest().as_secs_f64()
        })
        .collect();
    let mean = rests.iter().sum::<f64>() / rests.len() as f64;
    assert!(rests.iter().all(|rest| (3.0..=123.0).contains(rest)));
    assert!((mean - 15.0).abs() < 0.4, "3 s to key in, 12 s to think on average: {mean}");
}
