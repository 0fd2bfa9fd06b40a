//! The choices in which commit protocols differ, by name. A preset makes all choices; a setting
//! overrides one.
//!
//! The layer `commit` and `docs/guide/commit.md` describe the choices.

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
            /// All choices, for tests and help texts.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$choice),*];

            /// Returns the name used in settings and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$choice => $name,)*
                }
            }

            /// Returns the choice called `name`.
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

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<$type, D::Error> {
                let name = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                $type::from_name(&name).map_err(serde::de::Error::custom)
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
    /// Which commit protocol runs. A preset is a point on the axes that `docs/guide/commit.md`
    /// describes.
    #[derive(Default)]
    Preset, "preset", {
        /// Each commit writes and flushes its own record alone. The baseline.
        PerTransaction = "per-transaction",
        /// Leader/follower group commit: the first committer writes for all that joined.
        Group = "group",
        /// A dedicated writer drains a bounded queue, at most once every `flush_interval`.
        Queued = "queued",
        /// Flush pipelining: workers hand their transactions to a queue; one background thread
        /// flushes and acknowledges.
        Pipelined = "pipelined",
        /// One log per thread, flushed without ever blocking the worker on the I/O.
        Autonomous = "autonomous",
        /// A few threads share a log with a large buffer, and each log has a flusher.
        Restricted = "restricted",
        /// Log buffers in persistent memory: a commit is durable after a fence.
        Passive = "passive",
        /// The best measured combination, adapted to the device's write time: a log for a few
        /// threads; a waiting committer leads a cohort; the flusher writes the rest. With
        /// `log_memory` it is `passive`.
        #[default]
        Auto = "auto",
    }
}

choices! {
    /// How many logs there are, and which threads share one.
    Layout, "layout", {
        /// One log for all threads.
        One = "one",
        /// One log per core; threads are spread over them.
        PerThread = "per-thread",
        /// One log for every `threads_per_log` cores.
        ThreadsPerLog = "threads-per-log",
        /// Several logs, and each change goes to the log of its page: a transaction may have a
        /// record in each.
        ByPage = "by-page",
    }
}

choices! {
    /// Which thread writes a log.
    Writer, "writer", {
        /// Each waiting committer writes its own block only.
        Committer = "committer",
        /// The leader of the waiting committers, for all; without a waiter the background thread.
        Leader = "leader",
        /// One thread for each log; committers only sleep.
        FlusherPerLog = "flusher-per-log",
        /// One thread for all logs; committers only sleep.
        Background = "background",
        /// Each worker, through the queue of its log, between two transactions; with waiters their
        /// leader.
        Worker = "worker",
        /// One worker at a time: between two transactions it writes all logs that have something
        /// to write, waits, and acknowledges. With waiters their leader.
        Collector = "collector",
        /// Each committer stores its record in mapped memory and fences it; the background thread
        /// moves full buffers to segments.
        Memory = "memory",
    }
}

choices! {
    /// Which thread acknowledges commits without a waiter.
    Acknowledger, "acknowledger", {
        /// The thread that completed a write, for all logs.
        Leader = "leader",
        /// The background thread, for all logs.
        Background = "background",
        /// Workers between two transactions, each for the logs of its group; for idle workers the
        /// background thread.
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
        /// Record level: every transaction up to the newest one that it read or overwrote is
        /// durable.
        Dsn = "dsn",
        /// Everything that it read or overwrote is committed, including its dependencies.
        Exact = "exact",
        /// Page level: all logs are durable up to its clock, which is above those of all pages it
        /// used.
        Gsn = "gsn",
        /// As `gsn`, but a transaction that used only changes of its own log waits only for that
        /// log.
        GsnRfa = "gsn-rfa",
    }
}

choices! {
    /// The queue of commits without a waiter.
    Queue, "queue", {
        /// A list behind one lock, which producer and acknowledger take.
        Latched = "latched",
        /// A ring that producer and acknowledger use at the same time.
        LockFree = "lock-free",
    }
}

choices! {
    /// What a committer does that finds the latch of the log taken.
    #[derive(Default)]
    Append, "append", {
        /// It waits for the latch.
        #[default]
        Latched = "latched",
        /// It joins a group in a consolidation array, and the holder of the latch appends its
        /// record. For one log.
        Consolidated = "consolidated",
    }
}

choices! {
    /// What a log without recent commits does to queued commits of other logs, with a dependency
    /// rule that goes by clocks.
    #[derive(Default)]
    IdleLogs, "idle_logs", {
        /// Nothing: scans raise the clocks of all logs.
        #[default]
        Raise = "raise",
        /// Holds them up until an acknowledger has pushed a barrier transaction, which writes
        /// nothing.
        Barrier = "barrier",
        /// Holds them up until its next commit, or for 10 ms.
        Hold = "hold",
        /// As `barrier`, and its worker alone writes it: when a flush unit is full, when the worker
        /// is idle, or when the flush interval has passed. A flusher writes it for the queued
        /// commits of other logs no earlier. For `writer = worker`.
        Worker = "worker",
        /// As `worker`, with the log's own flusher in place of the worker, and with any dependency
        /// rule. For `writer = flusher-per-log`.
        Flusher = "flusher",
    }
}

choices! {
    /// What a power cut does to the processor's caches, for a log in mapped memory.
    #[derive(Default)]
    MemoryCache, "memory_cache", {
        /// Empties them: a store is durable when its cache line has been written back.
        #[default]
        Volatile = "volatile",
        /// Keeps them (eADR): a store is durable when it is visible.
        Durable = "durable",
    }
}

choices! {
    /// When a committer fences its record, for a log in mapped memory.
    MemoryFence, "memory_fence", {
        /// While it holds the log's latch.
        Latched = "latched",
        /// Beside the latch: the log has a slot for each thread. The committer takes the latch
        /// again to clear its slot.
        Beside = "beside",
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
