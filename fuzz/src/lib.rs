//! Fuzz targets. A target accepts any bytes; it must not panic, hang, or allocate out of proportion
//! to its input.
//!
//! ```text
//!   fuzz/corpus/NAME/*  ──▶ tests/corpus.rs        every test run: each file, and mutations of it
//!          ▲    └──────────▶ runner (cargo-fuzz)    fuzz/run.sh: guided by coverage; nightly
//!          └──────────────── seeds.rs               cargo run -p quench-fuzz: real databases
//! ```
//!
//! A checksum stops nearly every random input before the parser behind it. So a target seals its
//! bytes with a valid checksum if the first byte of the input asks for it; half of all inputs do.

pub mod allocation;
#[path = "../../cli/src/rows/mod.rs"]
#[allow(dead_code, unused_imports, missing_docs, reason = "a part of the program `quench`")]
mod rows;
mod parsers;
mod pages;
pub mod api;
mod targets;
pub mod seeds;

pub use targets::{TARGETS, Target, target};
