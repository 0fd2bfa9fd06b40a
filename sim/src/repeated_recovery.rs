//! Recovers a crashed disk several times: twice identically, which must leave the same bytes, and
//! once with another thread order, which must find the same rows.

use crate::figures::Figures;
use crate::known::Found;
use crate::run::Script;
use crate::schedule;
use crate::support::difference;
use quenchdb::Database;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::simulation::{self, Plan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes that a recovery left, and the rows that it found.
struct Recovered {
    files: BTreeMap<String, Vec<u8>>,
    memory: Vec<u8>,
    found: Found,
}

/// Recovers a copy of the disk, as a new process would.
fn recover(disk: &SimulatedStorage, script: &Script, plan: Plan) -> Recovered {
    let disk = disk.duplicate();
    let in_a_thread = || {
        let ((files, memory, found), _) = simulation::run(plan, || {
            let builder =
                Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
            let db = builder.open("simulated").unwrap_or_else(|error| panic!("{}: {error}", script.context));
            let files = disk
                .files()
                .into_iter()
                .map(|path| (path.clone(), disk.read_file(&path).unwrap_or_default()));
            let (files, memory) = (files.collect(), disk.read_memory());
            let found = script.known.judge(&db, &script.context);
            disk.stop();
            (files, memory, found)
        });
        Recovered { files, memory, found }
    };
    // A new thread has no thread-local memory of earlier runs.
    std::thread::scope(|scope| scope.spawn(in_a_thread).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Recovers copies of a crashed disk and compares them.
///
/// # Panics
/// If they differ or lost something; the message says what.
pub fn judge(disk: &SimulatedStorage, script: &Script, figures: &mut Figures) {
    let plan = schedule::of(script.seed);
    let (first, second) = (recover(disk, script, plan), recover(disk, script, plan));
    let paths = |of: &Recovered| of.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&first), paths(&second), "{}: recovering twice leaves other files", script.context);
    for (path, bytes) in &first.files {
        let same = *bytes == second.files[path];
        assert!(same, "{}: recovering twice leaves other bytes in {path}", script.context);
    }
    assert!(first.memory == second.memory, "{}: recovering twice leaves other memory", script.context);
    assert!(first.found == second.found, "{}: recovering twice finds other rows", script.context);
    let other = recover(disk, script, schedule::of(script.seed ^ 0xa6a1));
    let different = difference(first.found.content(), other.found.content());
    assert!(
        first.found == other.found,
        "{}: recovering in another order finds other rows: {different}",
        script.context
    );
    figures.passed("crashed disks recovered twice to the same bytes", 1);
}
