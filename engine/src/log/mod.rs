//! SKELETON.
#![allow(missing_docs)]
use crate::base::{Csn, Location};
#[derive(Clone, Debug)]
pub struct DumpedRecord { pub location: Location, pub epoch: u32, pub block: u64, pub csn: Csn, pub dsn: Csn, pub watermark: Csn, pub bytes: usize, pub beyond_hole: bool, pub operations: Vec<String> }
