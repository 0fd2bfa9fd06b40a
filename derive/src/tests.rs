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
