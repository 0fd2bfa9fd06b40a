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
    /// Each transaction adds one to a row that all threads share, or to one of several
    Counter,
    /// Producers put rows at the end of a queue, consumers take the first row
    Queue,
    /// Half of the threads run tpcc, the others ycsb, on one database
    Mixed,
    /// Ycsb with --live, until q or for --seconds
    Live,
    /// Inserts of new rows in random key order
    Put,
    /// Load rows as fast as possible: in parallel, many in a transaction, durable at the end
    Load,
    /// Load, checkpoint, reopen, then read the whole table once in key order
    Scan,
    /// Ycsb with checkpoints, then close, reopen and check everything; exit code 1 if a check fails
    Soak,
    /// The raw device without a database: durable writes, sequential writes, reads
    Device,
    /// A model of the commit path for more workers than this machine has processors
    Model,
    /// Instructions of single operations, counted by valgrind; or their time
    Instructions,
    /// One workload (--of) with several commit protocols, each with one technique more
    Ablation,
    /// Put, ycsb or tpcc on several engines in turn, in one table; only the program in peers/ has
    /// other engines
    Compare,
    /// The figures of five papers on commit protocols, each as runs of this program, with a page
    /// that shows ours beside the published numbers
    Figures,
}

impl Workload {
    /// Returns the name as the user writes it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |name| name.get_name().to_string())
    }
}
