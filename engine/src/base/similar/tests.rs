//! Unit tests of `similar`.

use super::*;

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| name.to_string()).collect()
}

#[test]
fn similar_names_are_suggested_the_nearest_first() {
    let all = names(&["orders", "user", "users", "users_old", "quench.load"]);
    assert_eq!(similar_names("userz", all.clone()), ["user", "users"]);
    assert_eq!(similar_names("USERS", all.clone()), ["users", "user"]);
    assert_eq!(similar_names("odrers", all.clone()), ["orders"]);
    assert_eq!(similar_names("nothing", all.clone()), [""; 0]);
    assert_eq!(similar_names("", all), [""; 0]);
    assert_eq!(similar_names("tt", names(&["t"])), ["t"]);
    assert_eq!(similar_names("a", names(&["b", "grün"])), [""; 0]);
    assert_eq!(similar_names("grun", names(&["b", "grün"])), ["grün"]);
}

#[test]
fn suggestion_is_advice_for_one_or_more_names() {
    let advice = |wanted: &str| suggestion(wanted, names(&["cat", "car", "dog"]));
    assert_eq!(advice("dig").as_deref(), Some("check the name: there is `dog`"));
    assert_eq!(advice("cas").as_deref(), Some("check the name: there are `car` and `cat`"));
    assert_eq!(advice("elephant"), None);
}

#[test]
fn huge_names_are_not_compared() {
    let long = "x".repeat(10_000);
    assert_eq!(similar_names(&long, vec![long.clone()]), [""; 0]);
}
