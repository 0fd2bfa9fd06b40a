//! What is counted: the calls of one function, which Callgrind knows by its name.

use crate::store::Result;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Callgrind's `--toggle-collect`: the name of the function whose callees count.
pub const TOGGLE: &str = "*quench_bench*instructions*meter*counted*";

/// Runs operations that are counted. It has no type parameter and no closure of its own, so that
/// no other function has a name with its name.
#[inline(never)]
fn counted(run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    // Not a tail call: Callgrind sees the end of this function.
    black_box(run())
}

/// The operations of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Their number.
    pub operations: u64,
    /// Their time.
    pub nanoseconds: u64,
}

/// Counts operations, and measures their time.
#[derive(Debug, Default)]
pub(super) struct Meter {
    operations: u64,
    time: Duration,
}

impl Meter {
    /// Runs `operations` operations, which count.
    pub(super) fn count(&mut self, operations: u64, mut run: impl FnMut() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        let done = counted(&mut run);
        self.time += began.elapsed();
        self.operations += operations;
        done
    }

    pub(super) fn measured(&self) -> Measured {
        Measured { operations: self.operations, nanoseconds: self.time.as_nanos() as u64 }
    }
}
