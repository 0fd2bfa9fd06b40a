//! Workloads and drivers that measure QuenchDB.
//!
//! A workload ([`tpcc`], [`tpcb`], [`tatp`], [`ycsb`], [`mixed`], all of them a [`workload::Workload`]; [`put`]) says what one
//! transaction does to a [`store`]; the [`driver`] runs it in threads for a time as a [`plan`] says and makes the [`report`];
//! [`population`] keeps what was filled; [`reopen`] opens what was closed or killed and checks a sample; [`scan`] reads a whole
//! table once; [`bulk`] fills one as fast as it can; [`soak`] judges space and traffic after hours. [`device`] and [`reads`] measure the floors under all of them: the
//! raw durable write, the raw read. [`place`] is where all of it happens, on a device that is there or on one of the [`modelled`] ones.
//! [`plot`] draws a run, [`watch`] shows it while it goes on; a [`ledger`] tells what must have survived a kill. An [`engine`] is QuenchDB or one of the [`peers`]; a [`comparison`] sets several side by side, and [`traffic`] is what they cost the device.

pub mod activity;
pub mod bulk;
pub mod comparison;
pub mod coordination;
pub mod device;
pub mod distribution;
pub mod driver;
pub mod engine;
pub mod latencies;
pub mod ledger;
pub mod load;
pub mod mixed;
pub mod modelled;
pub mod parallel;
pub mod peers;
pub mod place;
pub mod plan;
pub mod plot;
pub mod population;
pub mod process;
pub mod put;
pub mod reads;
pub mod record;
pub mod reopen;
pub mod report;
pub mod rows;
pub mod scan;
pub mod series;
pub mod soak;
pub mod store;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
pub mod traffic;
pub mod watch;
pub mod workload;
pub mod ycsb;

/// Told of long work: what is being done, how much is done, how much there is.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);
