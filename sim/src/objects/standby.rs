//! A standby beside a run. What it has shown must survive every crash; a promotion of another one
//! is a takeover like any other.

use crate::figures::Figures;
use crate::medium::Medium;
use crate::run::{Script, wait_for};
use crate::support::bank::{Id, judge_content};
use crate::support::{Content, content_of};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::sync::atomic::{AtomicBool, Ordering};
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{Csn, ErrorKind, Standby, StandbySnapshot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The figure of snapshots of standbys.
pub const SNAPSHOTS: &str = "snapshots of a standby";
/// The figure of promotions.
pub const PROMOTIONS: &str = "promotions of a standby";

/// A thread that looks at what a standby shows, until its end.
pub struct Watcher {
    thread: thread::JoinHandle<()>,
    is_over: Arc<AtomicBool>,
    shown: Arc<Mutex<Shown>>,
}

/// What a standby has shown.
#[derive(Default)]
struct Shown {
    csn: Csn,
    snapshots: u64,
    ids: BTreeSet<Id>,
    /// Each transaction, with the changes of the store when it was first shown.
    since: Vec<(usize, Id)>,
}

impl Watcher {
    /// Watches the standby that `open` returns, if there is one.
    pub fn start(
        script: &Script,
        medium: Arc<dyn Medium>,
        open: impl FnOnce() -> Option<Standby> + Send + 'static,
    ) -> Watcher {
        let (is_over, shown) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Shown::default())));
        let (over, own) = (is_over.clone(), shown.clone());
        let (context, mut random) = (format!("{}, standby", script.context), Random::from_seed(script.seed));
        let watch = move || {
            let Some(standby) = open() else { return };
            while !over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_micros(1 << random.below(15)));
                if let Ok(snapshot) = standby.snapshot() {
                    own.lock().see(&snapshot, medium.changes(), &context);
                }
            }
        };
        let thread = thread::spawn("watcher", watch)
            .unwrap_or_else(|error| panic!("no thread for a standby: {error}"));
        Watcher { thread, is_over, shown }
    }

    /// Ends the standby. Returns what it has shown, each transaction with the changes of the store
    /// when it was shown.
    pub fn end(self, figures: &mut Figures) -> Vec<(usize, Id)> {
        self.is_over.store(true, Ordering::SeqCst);
        wait_for(self.thread);
        let mut shown = self.shown.lock();
        figures.passed(SNAPSHOTS, shown.snapshots);
        std::mem::take(&mut shown.since)
    }
}

impl Shown {
    /// Judges a snapshot: it is whole, and has everything that an earlier one had.
    fn see(&mut self, snapshot: &StandbySnapshot, changes: usize, context: &str) {
        assert!(snapshot.csn() >= self.csn, "{context}: {:?} after {:?}", snapshot.csn(), self.csn);
        self.csn = snapshot.csn();
        let Some(content) = content(snapshot, context) else { return };
        self.snapshots += 1;
        judge_content(&content, &self.ids, &BTreeSet::new(), context);
        let journal = content.keys().filter(|(table, _)| table == "journal");
        for id in journal.map(|(_, id)| <Id>::try_from(&id[..]).expect("an id")) {
            if self.ids.insert(id) {
                self.since.push((changes, id));
            }
        }
    }
}

/// Opens a standby. None if there is no database yet, or checkpoints come too fast.
///
/// # Panics
/// If it cannot be opened for another reason.
pub fn opened(result: quenchdb::Result<Standby>, context: &str) -> Option<Standby> {
    match result {
        Ok(standby) => Some(standby),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::Io) => None,
        Err(error) => panic!("{context}, standby: {error}"),
    }
}

/// Returns every row that a snapshot shows. None if the copy has no memory to read pages.
fn content(snapshot: &StandbySnapshot, context: &str) -> Option<Content> {
    let tables = snapshot.tables().into_iter();
    let tables = tables.map(|name| (snapshot.table(&name).expect("listed"), name));
    match content_of(snapshot, tables) {
        Ok(content) => Some(content),
        Err(error) if error.kind() == ErrorKind::OutOfMemory => None,
        Err(error) => panic!("{context}: {error}"),
    }
}
