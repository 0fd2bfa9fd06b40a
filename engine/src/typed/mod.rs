//! Rank 10: which rows does an application have?
//!
//! Tables whose keys and values have types. A key is encoded so that the order of the bytes is the
//! order of the keys; a value in one of several ways. Secondary indexes are tables, too: each
//! change of a row changes their entries in the same transaction.

mod type_name;
#[cfg(feature = "postcard")]
mod shape;
mod key;
mod prefix;
mod value;
mod range;
mod maintain;
mod types;
mod table;
mod multimap;
mod index;
mod build;

pub use index::{Index, IndexReport, IndexRows, UniqueIndex};
pub use key::{AsKey, Key};
pub use multimap::Multimap;
pub use prefix::AsPrefix;
pub use range::{KeysIn, TypedRange};
pub use table::TypedTable;
pub use type_name::TypeName;
#[cfg(feature = "postcard")]
pub use value::Postcard;
pub use value::Value;
#[cfg(feature = "zerocopy")]
pub use value::Zerocopy;
