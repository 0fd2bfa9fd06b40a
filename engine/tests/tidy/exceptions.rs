//! What the checks leave out, sorted. The owners of these places shorten the lists.

/// Folders whose `mod.rs` does not list its files as layers yet.
pub const UNORDERED: &[&str] = &[];

/// Imports that look like one of a later file: importing file, imported file.
pub const IMPORTS: &[&str] = &[
    "base::planted -> base",
    "commit::core::acknowledge::queue::ring -> commit::core::acknowledge::queue",
    "commit::core::watermark -> commit::core",
    "commit::papers::clocks::lamport -> commit::papers::clocks",
    "sync::backoff -> sync",
    "sync::consolidation -> sync",
    "sync::epoch -> sync::simulation",
    "sync::event -> sync",
    "sync::event -> sync::simulation",
    "sync::priority_lock -> sync",
    "sync::simulation::primitives -> sync::simulation",
];

/// Functions of more than 70 lines.
pub const LONG_FUNCTIONS: &[&str] = &[
    "bench/src/tpcc/tests.rs::every_broken_condition_is_found",
    "checker/tests/judges.rs::run",
    "engine/tests/concurrency.rs::nobody_reads_what_is_aborted",
    "engine/tests/crash.rs::run",
];

/// Places where names of tests may have more than 60 characters.
pub const LONG_TEST_NAMES: &[&str] = &[];

/// Places where comment lines may have more than 100 columns.
pub const WIDE_COMMENTS: &[&str] = &[];

/// Places where comments may use words that others replace.
pub const COINED_WORDS: &[&str] = &[];

/// Documents whose table cells may have more than 120 characters.
pub const LONG_CELLS: &[&str] = &[];
