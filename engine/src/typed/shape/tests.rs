//! Unit tests of `shape`.

#![allow(dead_code)]

use super::*;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

#[derive(Serialize, Deserialize)]
struct Unit;

#[derive(Serialize, Deserialize)]
struct Wrapped(u32);

#[derive(Serialize, Deserialize)]
struct Pair(u8, String);

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    age: Option<u8>,
    #[serde(rename = "mail")]
    email: Vec<u8>,
    #[serde(skip)]
    cached: u64,
}

#[derive(Serialize, Deserialize)]
enum Payment {
    Cash,
    Card(u64),
    Transfer { from: String, amounts: [i32; 3] },
    Split(Box<Wrapped>, (u8, u16)),
}

#[test]
fn shapes_name_everything_that_serde_reads() {
    assert_eq!(shape_of::<u16>(), "u16");
    assert_eq!(shape_of::<(bool, char, f64, i128)>(), "(bool, char, f64, i128)");
    assert_eq!(shape_of::<()>(), "()");
    assert_eq!(shape_of::<Unit>(), "Unit");
    assert_eq!(shape_of::<Wrapped>(), "Wrapped(u32)");
    assert_eq!(shape_of::<Pair>(), "Pair(u8, String)");
    assert_eq!(shape_of::<User>(), "User { name: String, age: Option<u8>, mail: Vec<u8> }");
    let payment = "enum Payment { Cash, Card(u64), Transfer { from: String, amounts: [i32; 3] }, \
                   Split(Wrapped(u32), (u8, u16)) }";
    assert_eq!(shape_of::<Payment>(), payment);
    assert_eq!(shape_of::<BTreeMap<String, Vec<(u8, i8)>>>(), "Map<String, Vec<(u8, i8)>>");
    assert_eq!(shape_of::<HashSet<Option<u32>>>(), "Vec<Option<u32>>");
    assert_eq!(shape_of::<[u8; 32]>(), "[u8; 32]");
    assert_eq!(shape_of::<Result<u8, String>>(), "enum Result { Ok(u8), Err(String) }");
}

mod elsewhere {
    #[derive(serde::Deserialize)]
    pub struct User {
        name: String,
        age: Option<i8>,
        mail: Vec<u8>,
    }

    #[derive(serde::Deserialize)]
    pub struct Meters(f64);

    #[derive(serde::Deserialize)]
    pub struct Feet(f64);

    #[derive(serde::Deserialize)]
    pub struct Swapped {
        age: Option<u8>,
        name: String,
        mail: Vec<u8>,
    }
}

#[test]
fn near_types_have_different_shapes() {
    let shapes = [
        shape_of::<User>(),
        shape_of::<elsewhere::User>(),
        shape_of::<elsewhere::Swapped>(),
        shape_of::<elsewhere::Meters>(),
        shape_of::<elsewhere::Feet>(),
        shape_of::<f64>(),
        shape_of::<Vec<u32>>(),
        shape_of::<Vec<i32>>(),
        shape_of::<Vec<String>>(),
        shape_of::<Option<u32>>(),
        shape_of::<(u8, u16)>(),
        shape_of::<(u16, u8)>(),
        shape_of::<BTreeMap<u8, u16>>(),
        shape_of::<BTreeMap<u16, u8>>(),
    ];
    let different: HashSet<_> = shapes.iter().collect();
    assert_eq!(different.len(), shapes.len(), "{shapes:?}");
}

#[derive(Serialize, Deserialize)]
struct Comment {
    text: String,
    replies: Vec<Comment>,
    first: Option<Box<Comment>>,
    by_name: BTreeMap<String, Comment>,
    likes: u32,
}

#[derive(Serialize, Deserialize)]
enum Sum {
    Add(Box<Sum>, Box<Sum>),
    Neg(Box<Sum>),
    If { condition: Box<Sum>, then: Box<Sum>, otherwise: Box<Sum> },
    All(Vec<Sum>),
    Number(i64),
}

/// Has no value.
#[derive(Serialize, Deserialize)]
struct Endless {
    number: u8,
    next: Box<Endless>,
}

#[test]
fn types_that_contain_themselves_have_shapes() {
    let comment = "Comment { text: String, replies: Vec<Comment>, first: Option<Comment>, \
                   by_name: Map<String, Comment>, likes: u32 }";
    assert_eq!(shape_of::<Comment>(), comment);
    let sum = "enum Sum { Add(Sum, Sum), Neg(Sum), If { condition: Sum, then: Sum, otherwise: Sum }, \
               All(Vec<Sum>), Number(i64) }";
    assert_eq!(shape_of::<Sum>(), sum);
    assert_eq!(shape_of::<(Comment, Sum, u8)>(), format!("({comment}, {sum}, u8)"));
    assert_eq!(shape_of::<(Endless, u8)>(), "(Endless { number: u8, next: Endless }, ?)");
}

/// Accepts only some values, in one of two ways.
struct Picky<const TEXT: bool>;

impl<'de, const TEXT: bool> Deserialize<'de> for Picky<TEXT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_right = if TEXT {
            String::deserialize(deserializer)?.starts_with("2000-01-01T00")
        } else {
            u64::deserialize(deserializer)? == 100
        };
        if is_right { Ok(Picky) } else { Err(D::Error::custom("another value")) }
    }
}

/// Accepts nothing.
#[derive(Debug)]
struct Stubborn;

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).and(Err(D::Error::custom("never")))
    }
}

#[derive(Deserialize)]
struct Order {
    at: Picky<true>,
    number: std::num::NonZeroU32,
    limit: Picky<false>,
    amount: i64,
}

#[derive(Deserialize)]
struct Reply {
    at: Picky<true>,
    replies: Vec<Reply>,
    last: u8,
}

#[derive(Deserialize)]
enum Some5 {
    A(Stubborn, u8),
    B(u16),
}

#[test]
fn types_that_refuse_samples_are_seen_as_far_as_they_go() {
    let order = "Order { at: String, number: u32, limit: u64, amount: i64 }";
    assert_eq!(shape_of::<Order>(), order);
    assert_eq!(shape_of::<Vec<Order>>(), format!("Vec<{order}>"));
    assert_eq!(shape_of::<Reply>(), "Reply { at: String, replies: Vec<Reply>, last: u8 }");
    assert_eq!(shape_of::<(u16, Stubborn, u8)>(), "(u16, u8, ?)");
    assert_eq!(shape_of::<(Some5, u8)>(), "(enum Some5 { A(u8, ?), B(u16) }, u8)");
    assert_eq!(shape_of::<serde::de::IgnoredAny>(), "?");
}

#[derive(Deserialize)]
enum Many {
    A(Option<Payment>),
    B(Payment, Payment),
    C,
}

#[test]
fn enums_inside_enums_are_seen_whole() {
    let payment = shape_of::<Payment>();
    assert_eq!(
        shape_of::<(Many, Payment)>(),
        format!("(enum Many {{ A(Option<{payment}>), B({payment}, {payment}), C }}, {payment})")
    );
}

#[test]
fn long_shapes_are_shortened_and_stay_different() {
    type Long<T> = (Payment, Payment, Payment, Payment, Payment, Payment, Payment, Payment, Payment, T);
    let (a, b) = (shape_of::<Long<u8>>(), shape_of::<Long<i8>>());
    assert!(a.len() < 300, "{a}");
    assert_eq!(a[..a.len() - 8], b[..b.len() - 8], "the beginning is the same");
    assert_ne!(a, b);
}
