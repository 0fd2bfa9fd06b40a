//! The names of the workloads on the command line.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// Reads, updates, inserts and scans of loaded rows
    Ycsb,
    /// Order entry at warehouses, as TPC-C specifies it
    Tpcc,
    /// Deposits and withdrawals at a bank, as TPC-B specifies it
    Tpcb,
    /// A register of mobile phones, as TATP specifies it
    Tatp,
    /// Tpcc by half of the threads, ycsb by the others, on one database
    Mixed,
    /// Ycsb with --live, until q or for --seconds
    Live,
    /// Inserts of new rows in random key order
    Put,
    /// Rows as fast as possible: parallel, many a transaction, durable at the end
    Load,
    /// Load, checkpoint, reopen, then read the whole table once in key order
    Scan,
    /// Ycsb with checkpoints, then close, reopen, check everything; exit code 1 if something is wrong
    Soak,
    /// The raw device, no database: durable writes, sequential writes, reads
    Device,
    /// One workload (--of) with one commit protocol after the other, each with one thing more
    Ablation,
    /// Put, ycsb or tpcc on several engines in turn, and one table; needs a build with them
    Compare,
}

impl Workload {
    /// Returns the name as the user writes it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |name| name.get_name().to_string())
    }
}
