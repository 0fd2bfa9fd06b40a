//! The shape of a type as serde reads it: what it asks a format for, in which order.
//!
//! A format that does not describe itself, such as postcard, stores nothing but what the type asks
//! for. So two types with the same shape read the same bytes, and a type that changes its shape
//! misreads its old values. The shape is found without a value: the type is deserialized from
//! samples, several times, because each time only one variant of an enum is seen.
//!
//! 1. A pass takes the first variant of each enum that has not been seen whole.
//! 2. If the type refuses a sample (a string that is no date), the next pass takes another one for
//!    the last sample that was asked for. If there is none left, the innermost variant is *closed*:
//!    what follows the refused sample stays unknown, `?`.
//! 3. A struct or enum inside itself is written as its name. There, options and sequences are
//!    empty, and enums take a variant without themselves, so that the pass ends.

mod sample;
mod probe;
mod text;

use crate::base::checksum::crc;
use probe::Pass;
use serde::de::DeserializeOwned;

/// Deserializations after which the rest of a type stays unknown.
const PASSES_MAX: usize = 2000;
/// Bytes of a shape that is kept whole; a longer one keeps its beginning and a checksum.
const TEXT_BYTES_MAX: usize = 512;

/// The shape of a type, as far as it has been seen.
#[derive(Debug, Default)]
enum Shape {
    #[default]
    Unknown,
    /// A number, a string, bytes.
    Leaf {
        name: &'static str,
        /// Numbered for its sample.
        number: usize,
    },
    Unit,
    Option(Box<Shape>),
    Sequence(Box<Shape>),
    Map(Box<[Shape; 2]>),
    Tuple(Vec<Shape>),
    /// A struct with unnamed fields, none in a struct without fields.
    TupleStruct(&'static str, Vec<Shape>),
    Struct(&'static str, Vec<(&'static str, Shape)>),
    Enum(&'static str, Vec<Variant>),
    /// A struct or enum inside itself.
    Again(&'static str),
}

/// A variant of an enum.
#[derive(Debug)]
struct Variant {
    name: &'static str,
    /// A unit, a tuple struct or a struct.
    content: Shape,
    /// There is no more to see.
    done: bool,
    /// The rest cannot be seen.
    closed: bool,
}

impl Shape {
    /// Returns whether there is no more to see.
    fn is_complete(&self) -> bool {
        match self {
            Shape::Unknown => false,
            Shape::Leaf { .. } | Shape::Unit | Shape::Again(_) => true,
            Shape::Option(inner) | Shape::Sequence(inner) => inner.is_complete(),
            Shape::Map(both) => both.iter().all(Shape::is_complete),
            Shape::Tuple(parts) | Shape::TupleStruct(_, parts) => parts.iter().all(Shape::is_complete),
            Shape::Struct(_, fields) => fields.iter().all(|(_, field)| field.is_complete()),
            Shape::Enum(_, variants) => variants.iter().all(|variant| variant.done || variant.closed),
        }
    }

    /// Returns whether the type contains itself, or a type in which it lies.
    fn is_recursive(&self) -> bool {
        match self {
            Shape::Unknown | Shape::Leaf { .. } | Shape::Unit => false,
            Shape::Again(_) => true,
            Shape::Option(inner) | Shape::Sequence(inner) => inner.is_recursive(),
            Shape::Map(both) => both.iter().any(Shape::is_recursive),
            Shape::Tuple(parts) | Shape::TupleStruct(_, parts) => parts.iter().any(Shape::is_recursive),
            Shape::Struct(_, fields) => fields.iter().any(|(_, field)| field.is_recursive()),
            Shape::Enum(_, variants) => variants.iter().any(|variant| variant.content.is_recursive()),
        }
    }
}

/// Returns the shape of a type as text: the same for every build that reads the same.
pub(super) fn shape_of<T: DeserializeOwned>() -> String {
    let mut shape = Shape::Unknown;
    let mut found = probe::Found::default();
    for _ in 0..PASSES_MAX {
        let mut pass = Pass::new(&mut found);
        let ended = T::deserialize(pass.probe(&mut shape));
        let goes_on = match ended {
            Ok(_) => pass.has_learned() && !shape.is_complete(),
            Err(_) => pass.can_try_again(),
        };
        if !goes_on {
            break;
        }
    }
    shortened(&shape.to_string())
}

/// Returns the text, or its beginning and a checksum of all of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_BYTES_MAX / 2) {
        Some((end, _)) if text.len() > TEXT_BYTES_MAX => {
            format!("{}… #{:08x}", &text[..end], crc(text.as_bytes()))
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests;
