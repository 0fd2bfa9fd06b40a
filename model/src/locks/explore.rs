//! Runs the checker and returns what it found.

use super::judge::{ALWAYS, REACHED};
use super::machine::Action;
use super::scenario::Scenario;
use super::state::State;
use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Path};

/// What the checker found in a scenario.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The number of different states.
    pub states: usize,
    /// Properties that fail in some state, with the steps to this state.
    pub broken: Vec<(&'static str, String)>,
    /// Properties of [`REACHED`] that were reached.
    pub reached: Vec<&'static str>,
}

/// Explores `scenario`: all states, or about the first `states_max`.
#[must_use]
pub fn explore(scenario: &Scenario, states_max: Option<usize>) -> Findings {
    let mut checker = scenario.clone().checker().threads(1);
    if let Some(states_max) = states_max {
        checker = checker.target_state_count(states_max);
    }
    find(scenario, checker)
}

/// Explores `scenario` until `property` fails.
#[must_use]
pub fn explore_until(scenario: &Scenario, property: &'static str) -> Findings {
    let wanted = HasDiscoveries::AnyOf([property].into());
    find(scenario, scenario.clone().checker().threads(1).finish_when(wanted))
}

fn find(scenario: &Scenario, checker: CheckerBuilder<Scenario>) -> Findings {
    let checker = checker.spawn_bfs().join();
    let (mut broken, mut reached) = (Vec::new(), Vec::new());
    for (name, path) in checker.discoveries() {
        if REACHED.contains(&name) {
            reached.push(name);
        } else {
            broken.push((name, describe(scenario, path)));
        }
    }
    broken.sort_by_key(|(name, _)| ALWAYS.iter().position(|property| property == name));
    Findings { states: checker.unique_state_count(), broken, reached }
}

fn describe(scenario: &Scenario, path: Path<State, Action>) -> String {
    let last = path.last_state().clone();
    let transactions = last.transactions.iter();
    let transactions: Vec<_> = transactions
        .map(|progress| (progress.phase, progress.snapshot, progress.csn, progress.dsn))
        .collect();
    let recovered = scenario.recovered(&last);
    format!(
        "{:?}; (phase, snapshot, CSN, DSN): {transactions:?}; recovered: {recovered:?}",
        path.into_actions()
    )
}
