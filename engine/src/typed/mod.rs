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
pub use range::{KeysIn, TypedKeys, TypedRange};
pub use table::TypedTable;
pub use type_name::TypeName;
#[cfg(feature = "postcard")]
pub use value::Postcard;
pub use value::Value;
#[cfg(feature = "zerocopy")]
pub use value::Zerocopy;

/// As a table without types, these may be used after a panic that was caught. A function of the
/// application that finds index keys leaves nothing half done, because a change of a row asks it
/// before it changes anything.
macro_rules! survive_panics {
    ($($type:ident<$($part:ident),*> $value:ident;)*) => { $(
        impl<$($part,)* $value: Value> std::panic::UnwindSafe for $type<$($part,)* $value> {}
        impl<$($part,)* $value: Value> std::panic::RefUnwindSafe for $type<$($part,)* $value> {}
    )* };
}

survive_panics! { TypedTable<K> V; Index<I, K> V; UniqueIndex<I, K> V; }

const _: () = {
    const fn survive_panics<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}

    survive_panics::<TypedTable<u64, String>>();
    survive_panics::<Multimap<u64, String>>();
    survive_panics::<Index<u64, u64, String>>();
    survive_panics::<UniqueIndex<u64, u64, String>>();
};
