//! Runs the checker and returns what it found.

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;

/// A rule is broken. The value of the state's verdict says which one.
pub const SOUND: &str = "no rule is broken";

/// A scenario of one of the models.
pub trait Scenario:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Debug + Clone + PartialEq + Send + Sync,
    > + Clone
    + Send
    + Sync
{
    /// Which rule a state breaks.
    type Violation: Copy + Debug + PartialEq;

    /// Returns the rule that `state` breaks.
    fn violation(state: &Self::State) -> Option<Self::Violation>;
}

/// What the checker found in a scenario.
#[derive(Clone, Debug)]
pub struct Findings<V> {
    /// The number of different states.
    pub states: usize,
    /// The first broken rule, and the steps to it.
    pub broken: Option<(V, String)>,
    /// What a run of the right rules should reach, and did.
    pub reached: Vec<&'static str>,
}

/// Explores all states, or ends at the first broken rule.
///
/// # Panics
/// If the checker stops for another reason.
#[must_use]
pub fn explore<S: Scenario + 'static>(scenario: &S) -> Findings<S::Violation> {
    let first = HasDiscoveries::AnyOf([SOUND].into());
    let checker = scenario.clone().checker().threads(1).finish_when(first).spawn_bfs().join();
    let (mut broken, mut reached) = (None, Vec::new());
    for (name, path) in checker.discoveries() {
        if name == SOUND {
            let violation = S::violation(path.last_state()).expect("the property fails there");
            broken = Some((violation, format!("{:?}", path.into_actions())));
        } else {
            reached.push(name);
        }
    }
    reached.sort_unstable();
    Findings { states: checker.unique_state_count(), broken, reached }
}

/// Returns the property that no rule is broken.
#[must_use]
pub fn sound<S: Scenario>() -> Property<S> {
    Property::always(SOUND, |_, state| S::violation(state).is_none())
}
