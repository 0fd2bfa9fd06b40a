//! A shape as text.

use super::{Shape, Variant};
use std::fmt;

/// Tuples with at least as many equal parts are written as arrays: to serde they are the same.
const ARRAY_PARTS_MIN: usize = 3;

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Unknown => f.write_str("?"),
            Shape::Leaf { name, .. } | Shape::Again(name) => f.write_str(name),
            Shape::Unit => f.write_str("()"),
            Shape::Option(inner) => write!(f, "Option<{inner}>"),
            Shape::Sequence(inner) => write!(f, "Vec<{inner}>"),
            Shape::Map(both) => write!(f, "Map<{}, {}>", both[0], both[1]),
            Shape::Tuple(parts) => write_tuple(f, parts),
            Shape::TupleStruct(name, parts) => {
                f.write_str(name)?;
                if parts.is_empty() { Ok(()) } else { write_parts(f, parts) }
            }
            Shape::Struct(name, fields) => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            Shape::Enum(name, variants) => {
                write!(f, "enum {name} {{ ")?;
                for (at, variant) in variants.iter().enumerate() {
                    write!(f, "{}{variant}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(" }")
            }
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Shape::Unit => f.write_str(self.name),
            Shape::Unknown => write!(f, "{}?", self.name),
            content => write!(f, "{content}"),
        }
    }
}

fn write_tuple(f: &mut fmt::Formatter<'_>, parts: &[Shape]) -> fmt::Result {
    if parts.len() >= ARRAY_PARTS_MIN {
        let first = parts[0].to_string();
        if parts[1..].iter().all(|part| part.to_string() == first) {
            return write!(f, "[{first}; {}]", parts.len());
        }
    }
    write_parts(f, parts)
}

fn write_parts(f: &mut fmt::Formatter<'_>, parts: &[Shape]) -> fmt::Result {
    f.write_str("(")?;
    for (at, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if at > 0 { ", " } else { "" })?;
    }
    f.write_str(")")
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[(&'static str, Shape)]) -> fmt::Result {
    f.write_str(" { ")?;
    for (at, (name, field)) in fields.iter().enumerate() {
        write!(f, "{}{name}: {field}", if at > 0 { ", " } else { "" })?;
    }
    f.write_str(if fields.is_empty() { "}" } else { " }" })
}
