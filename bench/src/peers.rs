//! How a program adds other engines to the workloads.
//!
//! The engines themselves are in the crate `quench-peers`, which is not part of this workspace:
//! their C and C++ parts take long to build.

use crate::engine::Engine;
use crate::store::Store;
use anyhow::{Result, bail};
use std::path::Path;

/// The settings that every peer is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes for pages and buffers, as far as the engine lets its user choose.
    pub memory_bytes: u64,
    /// True if `memory_bytes` is a limit: an engine that can bypasses the page cache.
    pub bounded: bool,
    /// Number of threads that open a session.
    pub threads: usize,
    /// Most tables; an engine may clear memory for each when a transaction begins.
    pub tables: u32,
}

impl Settings {
    /// Tables of the workload with the most of them, and some more.
    pub const TABLES: u32 = 64;
}

/// A call with an open store. A trait, because each engine has its own types.
pub trait Visit {
    /// The result of the call.
    type Output;

    /// Uses the store.
    ///
    /// # Errors
    /// Those of the store and of the visitor.
    fn visit<S: Store>(self, store: &S) -> Result<Self::Output>;
}

/// The engines other than QuenchDB that a program contains.
pub trait Peers {
    /// Returns whether the program contains `engine`.
    fn contains(&self, engine: Engine) -> bool;

    /// Opens `engine` in `directory`, calls `visit` with it, and closes it. Creates a missing
    /// database.
    ///
    /// # Errors
    /// The program does not contain `engine`; errors of the engine and of `visit`.
    fn open<V: Visit>(
        &self,
        engine: Engine,
        directory: &Path,
        settings: &Settings,
        visit: V,
    ) -> Result<V::Output>;
}

/// A program that measures QuenchDB only.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

impl Peers for NoPeers {
    fn contains(&self, _: Engine) -> bool {
        false
    }

    fn open<V: Visit>(&self, engine: Engine, _: &Path, _: &Settings, _: V) -> Result<V::Output> {
        bail!("this program does not contain {engine}")
    }
}
