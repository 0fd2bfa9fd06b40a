//! Unit tests of the derive macro: what it refuses. The engine's tests use what it makes.

use super::*;

fn refused(item: &str) -> String {
    let input = syn::parse_str(item).expect("an item of Rust");
    expand(&input).expect_err("it cannot be a key").to_string()
}

#[test]
fn items_that_are_no_keys_are_refused_with_a_reason() {
    assert_eq!(refused("enum Either { A, B }"), "only a struct can derive `Key`");
    assert_eq!(refused("struct Pair<T> { a: T }"), "a struct with parameters cannot derive `Key`");
    assert_eq!(refused("struct Nothing;"), "a key has at least one field");
    assert_eq!(refused("struct Nothing {}"), "a key has at least one field");
}

/// Returns the text that a derived name is made of.
fn name(item: &str) -> Result<String> {
    let input = syn::parse_str(item).expect("an item of Rust");
    let text = type_name::expand(&input)?.to_string();
    let (_, rest) = text.split_once("from (\"").expect("a literal");
    Ok(rest.rsplit_once("\")").expect("it ends").0.to_string())
}

#[test]
fn names_of_types_have_their_fields_as_written() {
    let named = |item: &str| name(item).expect("it has a name");
    assert_eq!(named("struct Celsius(f32);"), "Celsius(f32)");
    assert_eq!(named("struct Unit;"), "Unit");
    assert_eq!(named("struct P { x: u32, r#type: [u8; 3] }"), "P { x: u32, type: [u8; 3] }");
    assert_eq!(
        named("struct M { by: HashMap<String, Vec<(u8, &'static str)>> }"),
        "M { by: HashMap<String, Vec<(u8, &'static str)>> }"
    );
    assert_eq!(named("enum E { A, B(u8), C { x: i8 }, D = 7 }"), "E { A, B(u8), C { x: i8 }, D = 7 }");
    assert_eq!(named("union U { a: u8, b: i8 }"), "U { a: u8, b: i8 }");
    assert_eq!(named("#[type_name(\"old\")] struct New(u8);"), "old(u8)");
}

#[test]
fn names_that_cannot_be_derived_are_refused_with_a_reason() {
    let refused = |item: &str| name(item).expect_err("it has no name").to_string();
    assert_eq!(refused("struct P<T>(T);"), "a type with parameters cannot derive `TypeName`: implement it");
    assert_eq!(refused("#[type_name] struct P;"), "write it as `#[type_name(\"the name\")]`");
    assert_eq!(refused("#[type_name(\"\")] struct P;"), "a type has one name, which is not empty");
    let twice = "#[type_name(\"a\")] #[type_name(\"b\")] struct P;";
    assert_eq!(refused(twice), "a type has one name, which is not empty");
}
