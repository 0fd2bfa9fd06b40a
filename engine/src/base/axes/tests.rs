//! Unit tests of `axes`.

use super::*;

#[test]
fn names_parse_back_and_unknown_name_lists_all() {
    macro_rules! read_back {
        ($($type:ident),*) => { $(
            for choice in $type::ALL {
                assert_eq!($type::from_name(choice.name()).expect("known"), choice);
            }
            let error = $type::from_name("fastest").expect_err("unknown").to_string();
            assert!($type::ALL.iter().all(|choice| error.contains(choice.name())), "{error}");
        )* };
    }
    read_back!(Preset, Layout, Writer, Acknowledger, Dependency, Queue, MemoryCache, MemoryStore);
}
