//! The commands that read and write one database.

mod source;
mod create;
pub mod range;
pub mod tables;
pub mod backup;
pub mod load;
pub mod dump;
pub mod inspect;
pub mod verify;
mod stat_html;
pub mod buckets;
pub mod stat;
pub mod objects;
pub mod pins;
pub mod follow;
pub mod probe;
pub mod rows_at;

pub use create::Writable;
pub use source::{
    DatabaseArgs, SourceArgs, inside, is_url, open_checkpoint, open_to_read, refuse_database, require_empty,
};
pub use stat::stat_text;
