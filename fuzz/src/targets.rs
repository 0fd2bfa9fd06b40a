//! The list of targets.

use crate::{api, pages, parsers};

/// One parser or interface with its inputs.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name, also of its directory in `corpus`.
    pub name: &'static str,
    /// Runs the target; accepts any bytes.
    pub run: fn(&[u8]),
    /// The largest allocation in bytes, whatever the input. `None`: the target runs a whole
    /// database, and has no limit.
    pub allocates: Option<usize>,
}

/// Every target.
pub const TARGETS: [Target; 12] = [
    Target { name: "record", run: parsers::record, allocates: Some(64 << 10) },
    // Recovery reads a segment 1 MiB at a time.
    Target { name: "segment", run: parsers::segment, allocates: Some(2 << 20) },
    Target { name: "manifest", run: parsers::manifest, allocates: Some(64 << 10) },
    Target { name: "catalog", run: parsers::catalog, allocates: Some(64 << 10) },
    Target { name: "memory", run: parsers::memory, allocates: Some(2 << 20) },
    Target { name: "load", run: parsers::load, allocates: Some(64 << 10) },
    Target { name: "block", run: pages::block, allocates: Some(64 << 10) },
    Target { name: "description", run: parsers::description, allocates: Some(64 << 10) },
    Target { name: "reader", run: parsers::reader, allocates: Some(64 << 10) },
    Target { name: "page", run: pages::page, allocates: Some(128 << 10) },
    // The target runs a whole database, with 1 MiB of memory.
    Target { name: "mapping", run: pages::mapping, allocates: Some(4 << 20) },
    Target { name: "api", run: api::api, allocates: None },
];

/// Returns the target called `name`.
///
/// # Panics
/// No target has this name.
#[must_use]
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("the name of a target")
}
