//! Names of types, which a database keeps for its tables.

use std::cmp::Reverse;

/// The name under which a database keeps a type of keys or values. A table is opened only with the
/// types that have the names it was created with: two types that are stored differently, or mean
/// something else, have different names.
///
/// The name is part of what is stored. It does not depend on the module in which the type lies, nor
/// on the compiler. After a change of the name the table is refused until
/// [`Database::set_types`](crate::Database::set_types) changes it there, too.
///
/// | type | name |
/// |---|---|
/// | numbers, `bool`, `char`, `String`, `()` | as Rust calls them |
/// | `Vec<T>`, `[T; N]`, `Option<T>`, `Reverse<T>`, tuples | as Rust calls them, with the names of their parts |
/// | `Uuid` | `Uuid` |
/// | a struct with `#[derive(Key)]` | its name, and the names and types of its fields |
/// | `Postcard<T>` | `Postcard<…>` with everything that serde reads for `T`: the names of its structs and enums, their fields and variants, and the types of these |
/// | `Zerocopy<T>` | `Zerocopy<…>` with the name of `T` |
/// | a type with `#[derive(TypeName)]` | its name, and its fields as they are written |
///
/// A type of an application that implements [`Key`](crate::Key) or [`Value`](crate::Value) itself,
/// or that `Zerocopy` stores, derives the name (feature `derive`) or gives it.
/// With `#[type_name("…")]` a derived name begins with other words than the name of the type, for
/// example with its former name.
///
/// ```
/// use quenchdb::TypeName;
///
/// #[derive(TypeName)]
/// struct Celsius(f32);
///
/// struct Point;
///
/// impl TypeName for Point {
///     fn type_name() -> String {
///         "Point".into()
///     }
/// }
///
/// assert_eq!(Celsius::type_name(), "Celsius(f32)");
/// assert_eq!(<(u64, Option<Point>)>::type_name(), "(u64, Option<Point>)");
/// ```
#[diagnostic::on_unimplemented(
    message = "a database needs a stable name of `{Self}`",
    label = "no `TypeName`",
    note = "add `#[derive(quenchdb::TypeName)]` (feature `derive`) to the type, or implement `TypeName` for it"
)]
pub trait TypeName {
    /// Returns the name: the same in every build, and different from that of every other type with
    /// which the same tables may be opened.
    fn type_name() -> String;
}

macro_rules! simple {
    ($($type:ty)*) => { $(
        impl TypeName for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
        }
    )* };
}

simple! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool char String }

impl TypeName for () {
    fn type_name() -> String {
        "()".into()
    }
}

impl<T: TypeName> TypeName for Vec<T> {
    fn type_name() -> String {
        format!("Vec<{}>", T::type_name())
    }
}

impl<T: TypeName, const N: usize> TypeName for [T; N] {
    fn type_name() -> String {
        format!("[{}; {N}]", T::type_name())
    }
}

impl<T: TypeName> TypeName for Option<T> {
    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }
}

impl<T: TypeName> TypeName for Reverse<T> {
    fn type_name() -> String {
        format!("Reverse<{}>", T::type_name())
    }
}

#[cfg(feature = "uuid")]
impl TypeName for uuid::Uuid {
    fn type_name() -> String {
        "Uuid".into()
    }
}

impl<A: TypeName> TypeName for (A,) {
    fn type_name() -> String {
        format!("({},)", A::type_name())
    }
}

macro_rules! tuples {
    ($($($part:ident)*),*) => { $(
        impl<$($part: TypeName),*> TypeName for ($($part),*) {
            fn type_name() -> String {
                format!("({})", [$($part::type_name()),*].join(", "))
            }
        }
    )* };
}

tuples! { A B, A B C, A B C D, A B C D E, A B C D E F }

/// Numbers of the crate `zerocopy`, which say their byte order.
#[cfg(feature = "zerocopy")]
macro_rules! ordered {
    ($($type:ident)*) => { $(
        impl<O: zerocopy::ByteOrder> TypeName for zerocopy::byteorder::$type<O> {
            fn type_name() -> String {
                let one = zerocopy::byteorder::U16::<O>::new(1).to_bytes();
                let order = if one == [1, 0] { "LittleEndian" } else { "BigEndian" };
                format!("{}<{order}>", stringify!($type))
            }
        }
    )* };
}

#[cfg(feature = "zerocopy")]
ordered! { U16 U32 U64 U128 I16 I32 I64 I128 F32 F64 }

#[cfg(test)]
mod tests;
