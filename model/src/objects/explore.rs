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

/// A run with a mistake.
#[derive(Clone, Debug)]
pub struct WrongVariant<S: Scenario> {
    /// What is wrong, and where.
    pub name: String,
    /// The run that shows it.
    pub scenario: S,
    /// What breaks first.
    pub breaks: S::Violation,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Counterexample<V> {
    /// Which rule is broken.
    pub violation: V,
    /// The number of steps. No counterexample has fewer.
    pub steps: usize,
    /// The steps.
    pub trace: String,
}

/// What the checker found in a scenario.
#[derive(Clone, Debug)]
pub struct Findings<V> {
    /// The number of different states.
    pub states: usize,
    /// A shortest way to break a rule.
    pub broken: Option<Counterexample<V>>,
    /// What a run of the right rules should reach, and did.
    pub reached: Vec<&'static str>,
}

/// Explores all states, or ends at the first broken rule.
///
/// # Panics
/// If the checker stops for another reason.
#[must_use]
pub fn explore<S: Scenario + 'static>(scenario: &S) -> Findings<S::Violation> {
    let mut findings = explore_to(scenario, None);
    // The checker notices a violation only after many more states, and then reports the last one.
    while let Some(found) = &findings.broken {
        let Some(shorter) = explore_to(scenario, Some(found.steps)).broken else { break };
        findings.broken = Some(shorter);
    }
    findings
}

/// Explores all states, or those that are reached in fewer than `steps_end` steps.
fn explore_to<S: Scenario + 'static>(scenario: &S, steps_end: Option<usize>) -> Findings<S::Violation> {
    let first = HasDiscoveries::AnyOf([SOUND].into());
    let mut builder = scenario.clone().checker().threads(1).finish_when(first);
    if let Some(steps_end) = steps_end {
        // The checker's depth counts states, and it skips those at the maximum.
        builder = builder.target_max_depth(steps_end + 1);
    }
    let checker = builder.spawn_bfs().join();
    let (mut broken, mut reached) = (None, Vec::new());
    for (name, path) in checker.discoveries() {
        if name == SOUND {
            let violation = S::violation(path.last_state()).expect("the property fails there");
            let actions = path.into_actions();
            let (steps, trace) = (actions.len(), format!("{actions:?}"));
            broken = Some(Counterexample { violation, steps, trace });
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
