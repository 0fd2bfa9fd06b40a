//! One module for each question that a command answers.

mod source;
pub mod backup;
pub mod dump;
pub mod inspect;
pub mod load;
pub mod rows_at;

pub use source::{DatabaseArgs, SourceArgs};
