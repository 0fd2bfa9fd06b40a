//! Explores the models of locks and of stores of objects without a limit:
//! `quench-model [right | wrong | pairs [SECONDS] | objects]`.
//!
//! Without an argument: the right rules for locks, then the wrong ones. `pairs` runs every pair of
//! two-operation programs, for some minutes if no limit is given. `objects` runs the right rules
//! for stores of objects, and prints a counterexample for each wrong one.

use quench_model::locks::explore::{explore, explore_until};
use quench_model::locks::scenario::Dependencies;
use quench_model::locks::{judge, right, wrong};
use quench_model::objects::explore::{Counterexample, WrongVariant};
use quench_model::objects::{self, collect, majority, streams, takeover};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let is_right = match arguments.next().as_deref() {
        None => run_right() & run_wrong(),
        Some("right") => run_right(),
        Some("wrong") => run_wrong(),
        Some("pairs") => {
            let limit = arguments.next().and_then(|seconds| seconds.parse().ok());
            run_pairs(limit.map_or(Duration::MAX, Duration::from_secs))
        }
        Some("objects") => {
            run_objects("takeover", takeover::wrong::right())
                & run_objects("streams", streams::wrong::right())
                & run_objects("collecting", collect::wrong::right(false))
                & run_objects("collecting", collect::wrong::right(true))
                & run_objects("several buckets", majority::wrong::right(true))
                & run_wrong_objects(takeover::wrong::variants())
                & run_wrong_objects(streams::wrong::variants())
                & run_wrong_objects(collect::wrong::variants())
                & run_wrong_objects(majority::wrong::variants())
        }
        Some(_) => {
            eprintln!("usage: quench-model [right | wrong | pairs [SECONDS] | objects]");
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(!is_right))
}

fn run_objects<S: objects::explore::Scenario + 'static>(of: &str, runs: Vec<(&str, S)>) -> bool {
    let mut is_right = true;
    for (name, scenario) in runs {
        let began = Instant::now();
        let findings = objects::explore::explore(&scenario);
        println!("{of}, {name}: {} states, {:.1} s", findings.states, began.elapsed().as_secs_f32());
        is_right &= findings.broken.is_none();
        findings.broken.iter().for_each(|found| println!("    {}", describe(found)));
    }
    is_right
}

fn describe<V: Debug>(found: &Counterexample<V>) -> String {
    format!("{:?} in {} steps: {}", found.violation, found.steps, found.trace)
}

/// Prints a shortest counterexample of each variant. Returns false if one is not what is known.
fn run_wrong_objects<S: objects::explore::Scenario + 'static>(variants: Vec<WrongVariant<S>>) -> bool {
    let mut is_right = true;
    for WrongVariant { name, scenario, breaks } in variants {
        let broken = objects::explore::explore(&scenario).broken;
        println!("{name}: {}", broken.as_ref().map_or_else(|| "no counterexample".into(), describe));
        is_right &= broken.is_some_and(|found| found.violation == breaks);
    }
    is_right
}

fn run_right() -> bool {
    let (mut is_right, mut reached, mut total) = (true, BTreeSet::new(), 0);
    for rules in right::rules() {
        let (began, mut states) = (Instant::now(), 0);
        for (name, scenario) in right::scenarios(rules) {
            let findings = explore(&scenario, None);
            states += findings.states;
            reached.extend(findings.reached);
            for (property, trace) in findings.broken {
                is_right = false;
                println!("{name}: {property}: broken by {trace}");
            }
        }
        total += states;
        println!("{rules:?}: {states} states, {:.1} s", began.elapsed().as_secs_f32());
    }
    let missed: Vec<_> = judge::REACHED.iter().filter(|property| !reached.contains(*property)).collect();
    println!("{total} states of right rules; not {missed:?}");
    is_right && missed.is_empty()
}

fn run_wrong() -> bool {
    let mut is_right = true;
    for variant in wrong::variants() {
        for dependencies in [Dependencies::Dsn, Dependencies::Exact] {
            let findings = explore_until(&variant.by(dependencies), variant.breaks);
            let is_found = findings.broken.iter().any(|(property, _)| *property == variant.breaks);
            is_right &= is_found == variant.breaks_with(dependencies);
            let broken: Vec<_> = findings.broken.iter().map(|(property, _)| property).collect();
            println!("{}, {dependencies:?}: {} states, {broken:?}", variant.name, findings.states);
            for (property, trace) in findings.broken.iter().filter(|_| dependencies == Dependencies::Dsn) {
                println!("    {property}: broken by {trace}");
            }
        }
    }
    is_right
}

fn run_pairs(limit: Duration) -> bool {
    let (mut is_right, began) = (true, Instant::now());
    for rules in right::rules_of_pairs() {
        let (mut count, mut states) = (0, 0);
        for scenario in right::pairs(rules) {
            if began.elapsed() > limit {
                println!("stopped after {count} pairs under {rules:?}, {states} states");
                return is_right;
            }
            let findings = explore(&scenario, None);
            count += 1;
            states += findings.states;
            for (property, trace) in findings.broken {
                is_right = false;
                println!("{:?}: {property}: broken by {trace}", scenario.transactions);
            }
        }
        println!("{rules:?}: {count} pairs, {states} states, {:.0} s", began.elapsed().as_secs_f32());
    }
    is_right
}
