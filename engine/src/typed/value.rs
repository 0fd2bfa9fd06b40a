//! Values with types.

#[cfg(feature = "postcard")]
use super::shape::shape_of;
use super::type_name::TypeName;
use std::borrow::Borrow;

/// How the values of a [`TypedTable`](crate::TypedTable) are stored.
///
/// | type | stored as | read as |
/// |---|---|---|
/// | `String`, `Vec<u8>` | their bytes | themselves |
/// | integers, floats | big-endian | themselves |
/// | `bool`, `()` | one byte, none | themselves |
/// | `[u8; N]` | as they are | themselves |
/// | `Postcard<T>` (feature `postcard`) | `T` by serde, in the format of postcard | `T` |
/// | `Zerocopy<T>` (feature `zerocopy`) | the memory of `T` | `T` |
///
/// An application may store a type of its own in its own way.
///
/// ```
/// use quenchdb::{Database, TypeName, TypedTable, Value};
///
/// /// A temperature, stored in tenths of a degree.
/// #[derive(TypeName)]
/// struct Celsius(f32);
///
/// impl Value for Celsius {
///     type Owned = Celsius;
///     type Borrowed = Celsius;
///
///     fn encode(value: &Celsius, out: &mut Vec<u8>) -> Result<(), String> {
///         i16::encode(&((value.0 * 10.0) as i16), out)
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Celsius, String> {
///         Ok(Celsius(f32::from(i16::decode(bytes)?) / 10.0))
///     }
/// }
///
/// # fn main() -> quenchdb::Result<()> {
/// # let db = Database::builder().open_in_memory()?;
/// let temperatures: TypedTable<String, Celsius> = db.typed_table("temperatures")?;
/// db.transact(|tx| temperatures.insert(tx, "Vienna", &Celsius(21.5)))?;
/// assert_eq!(temperatures.get(&db.begin_read()?, "Vienna")?.expect("a row").0, 21.5);
/// # Ok(())
/// # }
/// ```
pub trait Value: TypeName {
    /// What a read returns.
    type Owned: Borrow<Self::Borrowed>;
    /// What a write takes, by reference.
    type Borrowed: ?Sized;

    /// Appends the bytes of `value`.
    ///
    /// # Errors
    /// A sentence that says why the value cannot be stored.
    fn encode(value: &Self::Borrowed, out: &mut Vec<u8>) -> Result<(), String>;

    /// Returns the value that has these bytes.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, String>;
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes.try_into().map_err(|_| format!("it has {} bytes, not {N}", bytes.len()))
}

macro_rules! numbers {
    ($($type:ident)*) => { $(
        impl Value for $type {
            type Owned = $type;
            type Borrowed = $type;

            fn encode(value: &$type, out: &mut Vec<u8>) -> Result<(), String> {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }

            fn decode(bytes: &[u8]) -> Result<$type, String> {
                exactly(bytes).map($type::from_be_bytes)
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

impl Value for bool {
    type Owned = bool;
    type Borrowed = bool;

    fn encode(value: &bool, out: &mut Vec<u8>) -> Result<(), String> {
        out.push((*value).into());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<bool, String> {
        match exactly(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("its byte is {other}, not 0 or 1")),
        }
    }
}

impl Value for () {
    type Owned = ();
    type Borrowed = ();

    fn encode((): &(), _: &mut Vec<u8>) -> Result<(), String> {
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<(), String> {
        exactly::<0>(bytes).map(drop)
    }
}

impl Value for Vec<u8> {
    type Owned = Vec<u8>;
    type Borrowed = [u8];

    fn encode(value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

impl Value for String {
    type Owned = String;
    type Borrowed = str;

    fn encode(value: &str, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<String, String> {
        std::str::from_utf8(bytes).map(str::to_string).map_err(|error| error.to_string())
    }
}

impl<const N: usize> Value for [u8; N] {
    type Owned = [u8; N];
    type Borrowed = [u8; N];

    fn encode(value: &[u8; N], out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<[u8; N], String> {
        exactly(bytes)
    }
}

/// Values of any type that serde knows, in the compact format of
/// [postcard](https://docs.rs/postcard).
///
/// That format stores neither names nor types, so a type that has changed would misread its old
/// values. Therefore the database keeps the shape of `T`: all names, fields and variants that serde
/// reads. If it changes, the table is refused, until
/// [`Database::set_types`](crate::Database::set_types) says that every row is still right: after a
/// field got another name, for example, or an enum one more variant at its end.
/// `#[serde(rename = "…")]` keeps a former name.
#[cfg(feature = "postcard")]
#[derive(Debug)]
pub struct Postcard<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "postcard")]
impl<T: serde::de::DeserializeOwned> TypeName for Postcard<T> {
    fn type_name() -> String {
        format!("Postcard<{}>", shape_of::<T>())
    }
}

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Value for Postcard<T> {
    type Owned = T;
    type Borrowed = T;

    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), String> {
        *out = postcard::to_extend(value, std::mem::take(out)).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<T, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(format!("{} bytes are left behind it", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Values whose memory is stored as it is: see [zerocopy](https://docs.rs/zerocopy). Their byte
/// order is what the type says. The type needs a [`TypeName`], which it can derive.
#[cfg(feature = "zerocopy")]
#[derive(Debug)]
pub struct Zerocopy<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "zerocopy")]
impl<T: TypeName> TypeName for Zerocopy<T> {
    fn type_name() -> String {
        format!("Zerocopy<{}>", T::type_name())
    }
}

#[cfg(feature = "zerocopy")]
impl<T: zerocopy::TryFromBytes + zerocopy::IntoBytes + zerocopy::Immutable + TypeName> Value for Zerocopy<T> {
    type Owned = T;
    type Borrowed = T;

    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<T, String> {
        T::try_read_from_bytes(bytes).map_err(|error| match error {
            zerocopy::TryReadError::Size(_) => {
                format!("it has {} bytes, not {}", bytes.len(), size_of::<T>())
            }
            _ => "its bytes are not valid for the type".to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
