//! The commands that read and write one database.

mod source;
pub mod backup;
pub mod dump;
pub mod inspect;
pub mod load;
pub mod objects;
pub mod pins;
pub mod rows_at;

pub use source::{DatabaseArgs, SourceArgs, is_url, require_empty};
