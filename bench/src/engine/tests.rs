//! Tests of `engine`.

use super::*;

#[test]
fn every_engine_has_a_name_of_its_own_and_survives_a_power_cut_when_it_is_asked_to() {
    for engine in Engine::ALL {
        assert_eq!(Engine::named(engine.name()), Some(engine));
        assert_eq!(engine.tier(Level::Durable), Tier::Power);
        assert!(engine.tier(Level::Lazy) >= Tier::Power);
    }
    assert_eq!(Engine::named("oracle"), None);
    assert!(Tier::Power < Tier::Machine && Tier::Window < Tier::Nothing);
}
