//! Workloads and drivers that measure QuenchDB.
//!
//! A workload ([`tpcc`], [`tpcb`], [`tatp`], [`ycsb`], [`mixed`], all of them a [`workload::Workload`]; [`put`]) says what one
//! transaction does to a [`store`]; the [`driver`] runs it in threads for a time as a [`plan`] says and makes the [`report`];
//! [`population`] keeps what was filled; [`reopen`] opens what was closed or killed and checks a sample; [`scan`] reads a whole
//! table once; [`bulk`] fills one as fast as it can; [`soak`] judges space and traffic after hours. [`device`] and [`reads`] measure the floors under all of them: the
//! raw durable write, the raw read. [`place`] is where all of it happens, on a device that is there or on one of the [`modelled`] ones.
//! [`plot`] draws a run, [`watch`] shows it while it goes on; a [`ledger`] tells what must have survived a kill. An [`engine`] is QuenchDB or one of the [`peers`]; a [`comparison`] sets several side by side, and [`traffic`] is what they cost the device.

pub mod progress;
pub mod parallel;
pub mod process;
pub mod distribution;
pub mod rows;
pub mod record;
pub mod coordination;
pub mod traffic;
pub mod latencies;
pub mod checked;
pub mod ledger;
pub mod store;
pub mod engine;
pub mod workload;
pub mod activity;
pub mod series;
pub mod watch;
pub mod modelled;
pub mod place;
pub mod arrivals;
pub mod plan;
pub mod reads;
pub mod reopened;
pub mod report;
pub mod device;
pub mod driver;
pub mod population;
pub mod load;
pub mod put;
pub mod ycsb;
pub mod tpcc;
pub mod tpcb;
pub mod tatp;
pub mod mixed;
pub mod bulk;
pub mod scan;
pub mod soak;
pub mod reopen;
pub mod comparison;
pub mod plot;
pub mod peers;
