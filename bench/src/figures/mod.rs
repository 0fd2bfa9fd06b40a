//! The figures and tables of the papers, regenerated.
//!
//! [`catalogue`] describes each figure as runs of this program; the program makes the runs, each in
//! a process of its own, and adds their reports to [`results`]. [`entry`] makes what is shown of
//! them: a page, a table, JSON.

pub mod runs;
pub mod claim;
pub mod spec;
pub mod results;
pub mod entry;
pub(crate) mod drawing;
mod table;
mod page;
mod summary;
pub mod catalogue;

pub use page::page;
pub use summary::{headlines, pictures, summary};
pub use table::csv;
