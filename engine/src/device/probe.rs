//! SKELETON.
#![allow(missing_docs, clippy::missing_errors_doc, unused_variables)]
use super::Storage;
use crate::base::Result;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub struct RawWrites { pub latency: hdrhistogram::Histogram<u64>, pub writes_per_second: f64 }

pub fn raw_durable_write(storage: &Arc<dyn Storage>, bytes: usize, writers: usize, duration: Duration) -> Result<RawWrites> { unimplemented!() }
