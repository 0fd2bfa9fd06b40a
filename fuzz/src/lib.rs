//! What is fuzzed: each target takes any bytes, and must neither panic, hang, nor allocate out of proportion to them (I12).
//!
//! ```text
//!   fuzz/corpus/NAME/*  ──▶ tests/corpus.rs        every file, and mutations of them for some seconds: in every test run, stable toolchain
//!          ▲    └──────────▶ runner (cargo-fuzz)    guided by coverage, nightly toolchain: fuzz/run.sh
//!          └──────────────── seeds.rs               what real databases have, made new with `cargo run -p quench-fuzz`
//! ```
//!
//! Checksums keep nearly everything from the parsers behind them, so bytes are sealed first where a parser would check one: half of
//! the targets' inputs come with a first byte that says so.

pub mod allocation;
pub mod api;
mod pages;
mod parsers;
#[path = "../../cli/src/rows.rs"]
#[allow(dead_code, missing_docs, reason = "the program's, which has no library")]
mod rows;
pub mod seeds;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its directory in `corpus`.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Bytes that it may allocate in one piece, whatever the input; `None` for those that run whole databases.
    pub allocates: Option<usize>,
}

/// All of them.
pub const TARGETS: [Target; 12] = [
    Target { name: "record", run: parsers::record, allocates: Some(64 << 10) },
    // A segment is read a mebibyte at a time.
    Target { name: "segment", run: parsers::segment, allocates: Some(2 << 20) },
    Target { name: "manifest", run: parsers::manifest, allocates: Some(64 << 10) },
    Target { name: "catalog", run: parsers::catalog, allocates: Some(64 << 10) },
    Target { name: "memory", run: parsers::memory, allocates: Some(2 << 20) },
    Target { name: "load", run: parsers::load, allocates: Some(64 << 10) },
    Target { name: "block", run: pages::block, allocates: Some(64 << 10) },
    Target { name: "description", run: parsers::description, allocates: Some(64 << 10) },
    Target { name: "reader", run: parsers::reader, allocates: Some(64 << 10) },
    Target { name: "page", run: pages::page, allocates: Some(128 << 10) },
    // It runs a whole database, with a mebibyte of memory.
    Target { name: "mapping", run: pages::mapping, allocates: Some(4 << 20) },
    Target { name: "api", run: api::api, allocates: None },
];

/// The target called `name`.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("the name of a target")
}
