//! A page that shows a run of a workload, or several runs beside each other.

mod over_time;
mod page;

pub use page::{Named, page};
