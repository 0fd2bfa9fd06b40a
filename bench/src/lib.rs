//! Workloads and drivers that measure QuenchDB.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | the interface between workloads and engines; [`peers`] adds other engines |
//! | [`workload`] | the interface of [`put`], [`ycsb`], [`tpcc`], [`tpcb`], [`tatp`], [`mixed`], [`counter`], [`queue`] |
//! | [`stages`], [`time_shares`] | where the time of transactions and workers goes |
//! | [`contention`] | waits, failures and repeated attempts of a run |
//! | [`group_model`] | what a window and a flush predict for group commit |
//! | [`event_model`] | simulates the commit path for more workers than there are processors |
//! | [`driver`] | runs a workload in threads as a [`plan`] says, and makes a [`report`] |
//! | [`population`], [`load`] | fill tables, and recognize tables that were filled before |
//! | [`reopen`], [`ledger`] | open a database after a close or a kill, and check its rows |
//! | [`bulk`], [`scan`], [`soak`] | load fast; read a whole table; measure space after hours |
//! | [`device`], [`raw_writes`], [`reads`] | measure the floors: a raw durable write, a raw read |
//! | [`sweep`] | measure random writes by size and threads |
//! | [`sizes`] | reads sizes with units, and groups digits |
//! | [`place`], [`modelled`] | a directory, memory, or a device with a modelled speed |
//! | [`objects`] | a store of objects: its floor |
//! | [`comparison`], [`traffic`] | several engines side by side; the writes of a block device |
//! | [`instructions`] | the instructions of single operations |
//! | [`watch`], [`plot`] | show a run while it works; draw it afterwards |
//! | [`figures`] | the figures of the papers, as runs of this program |
//! | [`run_report`] | a page that shows one run, or several beside each other |
//!
//! The modules are listed as layers: each imports only modules listed before it.

pub mod progress;
pub mod parallel;
pub mod process;
pub mod distribution;
pub mod rows;
pub mod sizes;
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
pub mod raw_writes;
pub mod objects;
pub mod place;
pub mod arrivals;
pub mod plan;
pub mod reads;
pub mod reopened;
pub mod requests;
pub mod contention;
pub mod group_model;
pub mod stages;
pub mod time_shares;
pub mod report;
pub mod device;
pub mod sweep;
pub mod driver;
pub mod population;
pub mod load;
pub mod put;
pub mod ycsb;
pub mod tpcc;
pub mod tpcb;
pub mod tatp;
pub mod counter;
pub mod queue;
pub mod mixed;
pub mod event_model;
pub mod bulk;
pub mod scan;
pub mod soak;
pub mod reopen;
pub mod comparison;
pub mod instructions;
pub mod plot;
mod html;
pub mod figures;
pub mod run_report;
pub mod peers;
