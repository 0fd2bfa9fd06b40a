//! Tests of `engine`.

use super::*;

#[test]
fn engine_names_are_unique_and_durable_survives_a_power_cut() {
    for engine in Engine::ALL {
        assert_eq!(Engine::named(engine.name()), Some(engine));
        assert_eq!(engine.tier(Level::Durable), Tier::Power);
        assert!(engine.tier(Level::Lazy) >= Tier::Power);
    }
    assert_eq!(Engine::named("oracle"), None);
    assert!(Tier::Power < Tier::Machine && Tier::Window < Tier::Nothing);
}
