//! The decisions in which commit protocols differ, by name. A preset makes all of them; a setting makes one of them differently.
//!
//! What each choice does is said in the room `commit`, and in `docs/commit.md`.

use super::error::{Error, Location, Result};

/// A closed list of choices with names, for settings, reports and help texts.
macro_rules! choices {
    ($(#[$doc:meta])* $type:ident, $setting:literal, { $($(#[$choice_doc:meta])* $choice:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$choice_doc])* $choice,)*
        }

        impl $type {
            /// All of them, for tests and help texts.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$choice),*];

            /// The name used in settings and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$choice => $name,)*
                }
            }

            /// The one called `name`.
            ///
            /// # Errors
            /// `InvalidArgument` that lists the names.
            pub fn from_name(name: &str) -> Result<$type> {
                $type::ALL.into_iter().find(|choice| choice.name() == name).ok_or_else(|| {
                    let names = [$($name),*].join(", ");
                    Error::invalid(format!(concat!("no ", $setting, " is called `{}`; there are {}"), name, names))
                        .at(Location::Setting($setting))
                })
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

choices! {
    /// Which commit protocol runs. A preset is a point on the axes that `docs/commit.md` describes.
    #[derive(Default)]
    Preset, "preset", {
        /// Each commit writes and flushes its own record, alone. The floor to compare with.
        PerTransaction = "per-transaction",
        /// Leader/follower group commit: the first committer to arrive writes for all who joined.
        Group = "group",
        /// A dedicated writer drains a bounded queue, at most once every `flush_interval`.
        Queued = "queued",
        /// Flush pipelining: workers hand their transactions to a queue; one background thread flushes and acknowledges.
        Pipelined = "pipelined",
        /// One log per thread, flushed without ever blocking the worker on the I/O.
        Autonomous = "autonomous",
        /// A few threads share a log with a large buffer, and each log has a flusher.
        Restricted = "restricted",
        /// Log buffers in memory that keeps what is in it: a commit is durable after a fence.
        Passive = "passive",
        /// What did best, kept right for the device by what its writes take: a log for a few threads; who waits leads, with company; the
        /// flusher writes the rest as often as the device is fast. With `log_memory` it is `passive`.
        #[default]
        Auto = "auto",
    }
}

choices! {
    /// How many logs there are, and who shares one.
    Layout, "layout", {
        /// One log for all threads.
        One = "one",
        /// One log per core; threads are spread over them.
        PerThread = "per-thread",
        /// One log for every `threads_per_log` cores.
        ThreadsPerLog = "threads-per-log",
        /// Several logs, and each change goes to the log of its page: a transaction may have a record in each.
        ByPage = "by-page",
    }
}

choices! {
    /// Who writes a log.
    Writer, "writer", {
        /// Each waiting committer writes its own block and nobody else's.
        Committer = "committer",
        /// The waiting committer that leads, for all; the background thread where nobody waits.
        Leader = "leader",
        /// A thread of each log's own; committers only sleep.
        FlusherPerLog = "flusher-per-log",
        /// One thread for all logs; committers only sleep.
        Background = "background",
        /// Each worker through a queue of its log's own, between two transactions; the one that leads where somebody waits.
        Worker = "worker",
        /// Each committer stores its record in mapped memory and fences it; the background thread moves full buffers to segments.
        Memory = "memory",
    }
}

choices! {
    /// Who tells transactions that nobody waits with that they are committed.
    Acknowledger, "acknowledger", {
        /// Whoever completed a write, for all logs.
        Leader = "leader",
        /// The background thread, for all logs.
        Background = "background",
        /// Workers between two transactions, each for the logs of its group; the background thread for those whose workers idle.
        Workers = "workers",
    }
}

choices! {
    /// What a transaction whose record is durable still waits for.
    Dependency, "dependency", {
        /// Nothing: one log makes records durable in the order of their CSNs.
        LogOrder = "log-order",
        /// Transaction level: every transaction with a lower CSN is durable.
        Csn = "csn",
        /// Record level: every transaction up to the newest one that it read or overwrote is durable.
        Dsn = "dsn",
        /// What it read or overwrote is committed, and what that depends on.
        Exact = "exact",
        /// Page level: all logs are durable up to its clock, which is above that of every page that it met.
        Gsn = "gsn",
        /// The same, but whoever met only what was changed through his own log waits for those before him in that log.
        GsnRfa = "gsn-rfa",
    }
}

choices! {
    /// Where transactions wait that nobody waits with.
    Queue, "queue", {
        /// A list behind one lock, which producer and acknowledger take.
        Latched = "latched",
        /// A ring that producer and acknowledger use at the same time.
        LockFree = "lock-free",
    }
}

choices! {
    /// What a power cut leaves of the processor's caches, for a log in mapped memory.
    #[derive(Default)]
    MemoryCache, "memory_cache", {
        /// Nothing: a store is durable when its cache line has been written back.
        #[default]
        Volatile = "volatile",
        /// Everything (eADR): a store is durable when others see it.
        Durable = "durable",
    }
}

choices! {
    /// How cache lines reach mapped memory.
    MemoryStore, "memory_store", {
        /// Stores, then CLWB: the line stays in the cache.
        Clwb = "clwb",
        /// Stores, then CLFLUSHOPT: the line leaves the cache.
        ClflushOpt = "clflushopt",
        /// Stores, then CLFLUSH: one line after the other.
        Clflush = "clflush",
        /// Stores that go past the cache.
        NonTemporal = "non-temporal",
    }
}

#[cfg(test)]
mod tests;
