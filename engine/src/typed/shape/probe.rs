//! A deserializer that has no input: it gives samples, and notes what it was asked for.

use super::sample::{self, SAMPLES};
use super::{Shape, Variant};
use serde::de::value::U32Deserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use std::fmt;

/// Nested requests after which a pass ends.
const DEPTH_MAX: usize = 100;
/// Requests of a pass.
const STEPS_MAX: usize = 20_000;
/// How often a type may lie in itself.
const AGAIN_MAX: usize = 8;

/// The end of a pass: the type refuses a sample, or asks for what no format without descriptions
/// can give.
#[derive(Debug)]
pub(super) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sample is refused")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused
    }
}

type Result<T> = std::result::Result<T, Refused>;

/// A struct or an enum: its name, and the names of its fields or variants.
type Named = (&'static str, &'static [&'static str]);

/// What passes have found besides the shape.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// For enums a variant that does not contain the enum.
    plain_variants: Vec<(Named, usize)>,
    /// The sample of each leaf.
    samples: Vec<usize>,
    /// By the name of a leaf, the sample that was taken last instead of one that was refused.
    accepted: Vec<(&'static str, usize)>,
}

impl Found {
    fn accepted(&self, leaf: &str) -> usize {
        self.accepted.iter().rev().find(|(name, _)| *name == leaf).map_or(0, |(_, sample)| *sample)
    }
}

/// One deserialization.
pub(super) struct Pass<'f> {
    found: &'f mut Found,
    /// Structs and enums around the current place.
    around: Vec<Named>,
    /// How many of them are inside themselves.
    again: usize,
    depth: usize,
    steps: usize,
    /// Whether a part of the shape was seen for the first time.
    learned: bool,
    /// The leaf that was asked for last: its name and number.
    last_leaf: Option<(&'static str, usize)>,
    /// Whether a variant was closed.
    closed: bool,
}

impl<'f> Pass<'f> {
    pub(super) fn new(found: &'f mut Found) -> Pass<'f> {
        Pass {
            found,
            around: Vec::new(),
            again: 0,
            depth: 0,
            steps: 0,
            learned: false,
            last_leaf: None,
            closed: false,
        }
    }

    pub(super) fn probe<'p>(&'p mut self, shape: &'p mut Shape) -> Probe<'p, 'f> {
        Probe { shape, pass: self }
    }

    pub(super) fn has_learned(&self) -> bool {
        self.learned
    }

    /// Returns whether another pass can see more after this one was refused, and has it take
    /// another sample.
    pub(super) fn can_try_again(self) -> bool {
        if self.closed {
            return true;
        }
        let has_sample = self.has_sample();
        if let Some((name, leaf)) = self.last_leaf.filter(|_| has_sample) {
            self.found.samples[leaf] += 1;
            self.found.accepted.push((name, self.found.samples[leaf]));
        }
        has_sample
    }

    /// Returns whether there is another sample for the last leaf.
    fn has_sample(&self) -> bool {
        self.last_leaf.is_some_and(|(_, leaf)| self.found.samples[leaf] + 1 < SAMPLES)
    }

    /// Runs `f` one level deeper.
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        (self.depth, self.steps) = (self.depth + 1, self.steps + 1);
        if self.depth > DEPTH_MAX || self.steps > STEPS_MAX {
            self.last_leaf = None;
            return Err(Refused);
        }
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Runs `f` in a struct or enum, with the shape that it fills. Inside itself a type has a shape
    /// that is not kept.
    fn inside<T>(
        &mut self,
        named: Named,
        shape: &mut Shape,
        f: impl FnOnce(&mut Self, &mut Shape) -> Result<T>,
    ) -> Result<T> {
        let times = self.around.iter().filter(|around| **around == named).count();
        if times > AGAIN_MAX {
            self.last_leaf = None;
            return Err(Refused);
        }
        self.around.push(named);
        let result = if times > 0 {
            self.fill(shape, || Shape::Again(named.0));
            self.again += 1;
            let result = self.deeper(|pass| f(pass, &mut Shape::Unknown));
            self.again -= 1;
            result
        } else {
            self.deeper(|pass| f(pass, shape))
        };
        self.around.pop();
        result
    }

    /// Notes the shape if it is seen for the first time.
    fn fill(&mut self, shape: &mut Shape, seen: impl FnOnce() -> Shape) {
        if matches!(shape, Shape::Unknown) {
            *shape = seen();
            self.learned |= self.again == 0;
        }
    }

    /// Returns the variant that the pass takes.
    fn choose(&self, named: Named, variants: &[Variant]) -> usize {
        let plain = self.found.plain_variants.iter().find(|(of, _)| *of == named);
        if self.again > 0 {
            let times = self.around.iter().filter(|around| **around == named).count();
            return plain.map_or(times.saturating_sub(1) % variants.len(), |(_, at)| *at);
        }
        let unseen = variants.iter().position(|variant| !variant.done && !variant.closed);
        let open = || variants.iter().position(|variant| !variant.closed);
        unseen.or_else(open).unwrap_or(0)
    }

    /// Notes how the pass through the variant ended.
    fn note_end(&mut self, named: Named, variants: &mut [Variant], at: usize, is_ok: bool) {
        if self.again > 0 {
            return;
        }
        let variant = &mut variants[at];
        if !is_ok {
            if !self.closed && !variant.closed && !self.has_sample() {
                (variant.closed, self.closed) = (true, true);
            }
            return;
        }
        variant.done = variant.content.is_complete();
        let is_plain = variant.done && !variant.content.is_recursive();
        if is_plain && !self.found.plain_variants.iter().any(|(of, _)| *of == named) {
            self.found.plain_variants.push((named, at));
            // A variant that had no end may have one now.
            variants.iter_mut().for_each(|variant| variant.closed = false);
        }
    }
}

/// The deserializer of a part of a type.
pub(super) struct Probe<'p, 'f> {
    shape: &'p mut Shape,
    pass: &'p mut Pass<'f>,
}

impl Probe<'_, '_> {
    /// Gives a sample to `visit`.
    fn leaf<T>(self, name: &'static str, visit: impl FnOnce(usize) -> Result<T>) -> Result<T> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            if pass.again > 0 {
                pass.last_leaf = None;
                return visit(pass.found.accepted(name));
            }
            if matches!(shape, Shape::Unknown) {
                pass.found.samples.push(0);
                let number = pass.found.samples.len() - 1;
                pass.fill(shape, || Shape::Leaf { name, number });
            }
            let Shape::Leaf { number, .. } = *shape else { return Err(Refused) };
            pass.last_leaf = Some((name, number));
            visit(pass.found.samples[number])
        })
    }

    /// Lets `visitor` read the parts of a tuple.
    fn tuple<'de, V: Visitor<'de>>(
        self,
        parts: usize,
        visitor: V,
        make: impl FnOnce(Vec<Shape>) -> Shape,
    ) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            pass.fill(shape, || make((0..parts).map(|_| Shape::Unknown).collect()));
            match shape {
                Shape::Tuple(shapes) | Shape::TupleStruct(_, shapes) => {
                    visitor.visit_seq(Parts { shapes: shapes.iter_mut(), pass })
                }
                _ => Err(Refused),
            }
        })
    }

    /// Lets `visitor` read the fields of a struct.
    fn fields<'de, V: Visitor<'de>>(self, named: Named, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.fill(shape, || {
            Shape::Struct(named.0, named.1.iter().map(|field| (*field, Shape::Unknown)).collect())
        });
        match shape {
            Shape::Struct(_, fields) => {
                visitor.visit_seq(Parts { shapes: fields.iter_mut().map(|(_, shape)| shape), pass })
            }
            _ => Err(Refused),
        }
    }
}

/// Parts that are read one after the other.
struct Parts<'p, 'f, I> {
    shapes: I,
    pass: &'p mut Pass<'f>,
}

impl<'de, 's, I: ExactSizeIterator<Item = &'s mut Shape>> SeqAccess<'de> for Parts<'_, '_, I> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let next = self.shapes.next();
        next.map(|shape| seed.deserialize(Probe { shape, pass: self.pass })).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.shapes.len())
    }
}

/// The only entry of a map.
struct Entry<'p, 'f> {
    /// Key and value.
    shapes: &'p mut [Shape; 2],
    has_key: bool,
    pass: &'p mut Pass<'f>,
}

impl<'de> MapAccess<'de> for Entry<'_, '_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.has_key {
            return Ok(None);
        }
        self.has_key = false;
        seed.deserialize(Probe { shape: &mut self.shapes[0], pass: self.pass }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(Probe { shape: &mut self.shapes[1], pass: self.pass })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.has_key.into())
    }
}

/// A variant of an enum.
struct Chosen<'p, 'f> {
    at: u32,
    name: &'static str,
    content: &'p mut Shape,
    pass: &'p mut Pass<'f>,
}

impl<'de> EnumAccess<'de> for Chosen<'_, '_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let at: U32Deserializer<Refused> = self.at.into_deserializer();
        Ok((seed.deserialize(at)?, self))
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_, '_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<()> {
        self.pass.fill(self.content, || Shape::Unit);
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        self.pass.fill(self.content, || Shape::TupleStruct(self.name, vec![Shape::Unknown]));
        match self.content {
            Shape::TupleStruct(_, parts) => seed.deserialize(Probe { shape: &mut parts[0], pass: self.pass }),
            _ => Err(Refused),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        let name = self.name;
        let probe = Probe { shape: self.content, pass: self.pass };
        probe.tuple(len, visitor, |parts| Shape::TupleStruct(name, parts))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        Probe { shape: self.content, pass: self.pass }.fields((self.name, fields), visitor)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ident;)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.leaf(stringify!($type), |sample| visitor.$visit(sample::number(sample) as $type))
        }
    )* };
}

macro_rules! refused {
    ($($method:ident)*) => { $(
        /// No format without descriptions can answer this.
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value> {
            self.pass.last_leaf = None;
            Err(Refused)
        }
    )* };
}

impl<'de> Deserializer<'de> for Probe<'_, '_> {
    type Error = Refused;

    refused! { deserialize_any deserialize_ignored_any deserialize_identifier }

    numbers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.leaf("bool", |sample| visitor.visit_bool(sample % 2 == 0))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.leaf("char", |sample| visitor.visit_char(char::from(b'a' + sample::number(sample) % 26)))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.leaf("String", |sample| visitor.visit_str(sample::text(sample)))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.leaf("bytes", |sample| visitor.visit_bytes(&sample::bytes(sample)))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.leaf("bytes", |sample| visitor.visit_byte_buf(sample::bytes(sample)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            if pass.again > 0 {
                return visitor.visit_none();
            }
            pass.fill(shape, || Shape::Option(Box::default()));
            let Shape::Option(inner) = shape else { return Err(Refused) };
            visitor.visit_some(Probe { shape: inner, pass })
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            if pass.again > 0 {
                return visitor.visit_seq(Parts { shapes: [].iter_mut(), pass });
            }
            pass.fill(shape, || Shape::Sequence(Box::default()));
            let Shape::Sequence(inner) = shape else { return Err(Refused) };
            visitor.visit_seq(Parts { shapes: std::iter::once(&mut **inner), pass })
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            pass.fill(shape, || Shape::Map(Box::default()));
            let Shape::Map(shapes) = shape else { return Err(Refused) };
            visitor.visit_map(Entry { shapes, has_key: pass.again == 0, pass })
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            pass.fill(shape, || Shape::Unit);
            visitor.visit_unit()
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.deeper(|pass| {
            pass.fill(shape, || Shape::TupleStruct(name, Vec::new()));
            visitor.visit_unit()
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.inside((name, &[]), shape, |pass, shape| {
            pass.fill(shape, || Shape::TupleStruct(name, vec![Shape::Unknown]));
            match shape {
                Shape::TupleStruct(_, parts) if parts.len() == 1 => {
                    visitor.visit_newtype_struct(Probe { shape: &mut parts[0], pass })
                }
                _ => Err(Refused),
            }
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        self.tuple(len, visitor, Shape::Tuple)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.inside((name, &[]), shape, |pass, shape| {
            Probe { shape, pass }.tuple(len, visitor, |parts| Shape::TupleStruct(name, parts))
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.inside((name, fields), shape, |pass, shape| {
            Probe { shape, pass }.fields((name, fields), visitor)
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Probe { shape, pass } = self;
        pass.inside((name, variants), shape, |pass, shape| {
            pass.fill(shape, || Shape::Enum(name, unseen(variants)));
            let Shape::Enum(_, seen) = shape else { return Err(Refused) };
            if seen.is_empty() {
                return Err(Refused);
            }
            let at = pass.choose((name, variants), seen);
            let content = &mut seen[at].content;
            let result = visitor.visit_enum(Chosen { at: at as u32, name: variants[at], content, pass });
            pass.note_end((name, variants), seen, at, result.is_ok());
            result
        })
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

fn unseen(variants: &[&'static str]) -> Vec<Variant> {
    let unseen = |name: &&'static str| Variant { name, content: Shape::Unknown, done: false, closed: false };
    variants.iter().map(unseen).collect()
}
