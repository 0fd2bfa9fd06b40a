//! One run of a database in a store of objects, perhaps with a second machine that takes it over.

use super::config::ObjectsConfig;
use super::standby::{self, Watcher, opened};
use super::zones;
use crate::config::PlannedFault;
use crate::figures::Figures;
use crate::known::Known;
use crate::medium::Medium;
use crate::run::{RunRecord, Script, count_paths};
use crate::schedule;
use crate::support::bank::Tables;
use crate::support::{Content, content};
use crate::work::work_together;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::simulated::{SimulatedClient, SimulatedStore};
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore};
use quenchdb::internals::sync::simulation;
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{Database, Result, Settings, Standby};
use std::sync::Arc;
use std::time::Duration;

/// A takeover in the middle of a run.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// What the second machine does.
    pub script: Script,
    /// When it begins.
    pub after: Duration,
    pub stall: Stall,
    /// Whether the first machine continues before the second one has worked; otherwise after.
    pub ends_early: bool,
    /// Whether the second machine promotes a standby.
    pub promotes: bool,
}

/// What happens to the first machine when the second one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Nothing.
    None,
    /// Its requests stay in the machine.
    BeforeRequests,
    /// Its requests take effect, and it hears of none.
    BeforeReplies,
    /// It is cut off, and its requests take effect late or never.
    Partition,
}

impl Stall {
    pub const ALL: [Stall; 4] = [Stall::None, Stall::BeforeRequests, Stall::BeforeReplies, Stall::Partition];

    fn begin(self, clients: &[Arc<SimulatedClient>]) {
        clients.iter().for_each(|client| match self {
            Stall::None => {}
            Stall::BeforeRequests => client.hold_requests(),
            Stall::BeforeReplies => client.hold_replies(),
            Stall::Partition => client.partition(),
        });
    }

    fn end(self, clients: &[Arc<SimulatedClient>]) {
        clients.iter().for_each(|client| match self {
            Stall::None => {}
            Stall::Partition => client.reconnect(),
            Stall::BeforeRequests | Stall::BeforeReplies => client.release(),
        });
    }
}

/// A machine with its connection to the store, or to each of three buckets.
#[derive(Clone)]
struct Machine {
    clients: Vec<Arc<SimulatedClient>>,
    storage: Arc<ObjectStorage>,
}

impl Machine {
    fn connect(store: &SimulatedStore, config: &ObjectsConfig) -> Machine {
        let clients: Vec<_> = (0..config.zones).map(|_| store.client()).collect();
        let storage = match &clients[..] {
            [client] => ObjectStorage::new(client.clone(), client.facts(), config.options),
            several => zones::join(several, config.options),
        };
        Machine { clients, storage: Arc::new(storage) }
    }

    /// Lets one of several buckets have trouble for a while, by odds. One after the other, because
    /// a majority must be there.
    fn trouble(&self, seed: u64, figures: &mut Figures) {
        if self.clients.len() < 2 {
            return;
        }
        let mut random = Random::from_seed(seed ^ 0x0020_07e5);
        let troubles = (0..random.below(4)).map(|_| {
            let zone = random.below(self.clients.len() as u64) as usize;
            let time = |random: &mut Random| Duration::from_micros(1 << random.below(20));
            (zone, crate::config::one_of(&mut random, &Stall::ALL), time(&mut random), time(&mut random))
        });
        let (troubles, clients) = (troubles.collect::<Vec<_>>(), self.clients.clone());
        figures.passed(TROUBLES, troubles.len() as u64);
        let run = move || {
            for (zone, stall, before, long) in troubles {
                let client = std::slice::from_ref(&clients[zone]);
                thread::sleep(before);
                stall.begin(client);
                thread::sleep(long);
                stall.end(client);
            }
        };
        if let Err(error) = thread::spawn("trouble", run) {
            panic!("no thread for the troubles of buckets: {error}");
        }
    }

    fn open(&self, settings: &Settings) -> Result<Database> {
        Database::builder().settings(settings.clone()).storage(self.storage.clone()).open("objects")
    }

    fn follow(&self, settings: &Settings, context: &str) -> Option<Standby> {
        let builder = Database::builder().settings(settings.clone()).storage(self.storage.clone());
        opened(builder.open_standby("objects"), context)
    }

    /// Ends the machine; its threads find out.
    fn stop(&self, db: Database) {
        self.clients.iter().for_each(|client| client.stop());
        drop(db);
    }
}

/// Executes a run. Returns the record of each machine.
pub fn execute(
    store: &SimulatedStore,
    config: &ObjectsConfig,
    script: Script,
    takeover: Option<Takeover>,
    figures: &mut Figures,
) -> Vec<RunRecord> {
    let mut own = Figures { runs: 1 + u64::from(takeover.is_some()), ..Figures::default() };
    let (records, summary) = simulation::run(schedule::of(script.seed), || {
        config.break_requests(store);
        execute_simulated(store, config, script, takeover, &mut own)
    });
    own.decisions += summary.decisions;
    own.switches += summary.switches;
    own.mix(summary.fingerprint);
    own.mix_journal(store.fingerprint());
    for (what, times) in store.fault_counts().iter() {
        own.passed(&format!("request: {what}"), times);
    }
    own.passed(FAULTS, store.faults_struck());
    figures.merge(&own);
    records
}

/// The figure of requests that failed, were repeated, or took effect late.
pub const FAULTS: &str = "faults of requests";
/// The figure of troubles of one of several buckets.
pub const TROUBLES: &str = "troubles of one of several buckets";
/// The figure of takeovers while the earlier writer was alive.
pub const TAKEOVERS: &str = "takeovers beside a live writer";

fn execute_simulated(
    store: &SimulatedStore,
    config: &ObjectsConfig,
    script: Script,
    takeover: Option<Takeover>,
    figures: &mut Figures,
) -> Vec<RunRecord> {
    let medium: Arc<dyn Medium> = Arc::new(store.clone());
    let machine = Machine::connect(store, config);
    let mut record = RunRecord { trace: script.trace.clone(), ..RunRecord::default() };
    let note = |what: &str| script.trace.note(&*medium, "main", what);
    let db = machine.open(&script.settings).unwrap_or_else(|error| panic!("{}: {error}", script.context));
    record.opened_at = Some(store.changes());
    note("the database is open");
    machine.trouble(script.seed, figures);
    record.found = Some(script.known.judge(&db, &script.context));
    let watcher = config.is_followed.then(|| {
        let (machine, settings) = (Machine::connect(store, config), script.settings.clone());
        let context = script.context.clone();
        Watcher::start(&script, medium.clone(), move || machine.follow(&settings, &context))
    });
    let successor = takeover.map(|takeover| Successor::start(store, config, &machine, takeover));
    let done = Tables::of(&db, script.tight)
        .map(|tables| work_together(&db, &medium, &script, record.found.as_ref(), tables, figures))
        .unwrap_or_default();
    count_paths(&db, figures);
    let shown = watcher.map_or_else(Vec::new, |watcher| watcher.end(figures));
    record.end(db, done, &*medium, &script, |db| machine.stop(db), figures);
    // What a standby has shown must survive. The transactions of the second machine have a later
    // number.
    let (shown, later): (Vec<_>, Vec<_>) = shown.into_iter().partition(|(_, id)| id[0] <= script.number);
    record.acknowledged.extend(shown);
    let mut records = vec![record];
    if let Some(successor) = successor {
        let mut next = successor.end(&script.known, &records[0], figures);
        next.acknowledged.extend(later);
        records.push(next);
    }
    records
}

/// The second machine.
struct Successor {
    thread: thread::JoinHandle<()>,
    outcome: Arc<Mutex<Option<Outcome>>>,
    context: String,
}

/// What the second machine found and did.
struct Outcome {
    record: RunRecord,
    content: Content,
    tables: Vec<String>,
    figures: Figures,
}

impl Successor {
    fn start(
        store: &SimulatedStore,
        config: &ObjectsConfig,
        first: &Machine,
        takeover: Takeover,
    ) -> Successor {
        let outcome = Arc::new(Mutex::new(None));
        let context = takeover.script.context.clone();
        let (store, config, first, own) = (store.clone(), config.clone(), first.clone(), outcome.clone());
        let run = move || *own.lock() = Some(take_over(&store, &config, &first, &takeover));
        let thread = thread::spawn("worker-successor", run)
            .unwrap_or_else(|error| panic!("no thread for the second machine: {error}"));
        Successor { thread, outcome, context }
    }

    /// Waits for the end, and judges what the second machine found by all that the first one did.
    fn end(self, before: &Known, first: &RunRecord, figures: &mut Figures) -> RunRecord {
        crate::run::wait_for(self.thread);
        let outcome = self.outcome.lock().take();
        let Outcome { mut record, content, tables, figures: own } =
            outcome.unwrap_or_else(|| panic!("{}: the second machine has no outcome", self.context));
        figures.merge(&own);
        let known = before.after(first, usize::MAX);
        record.found = Some(known.judge_read(content, &tables, &self.context));
        record
    }
}

fn take_over(
    store: &SimulatedStore,
    config: &ObjectsConfig,
    first: &Machine,
    takeover: &Takeover,
) -> Outcome {
    let Takeover { script, after, stall, ends_early, promotes } = takeover;
    let medium: Arc<dyn Medium> = Arc::new(store.clone());
    let mut record = RunRecord { trace: script.trace.clone(), ..RunRecord::default() };
    let follow = |machine: Machine| Some((machine.follow(&script.settings, &script.context)?, machine));
    let followed = promotes.then(|| Machine::connect(store, config)).and_then(follow);
    thread::sleep(*after);
    script.trace.note(&*medium, "successor", format_args!("claims the database; stall: {stall:?}"));
    stall.begin(&first.clients);
    let is_promoted = followed.is_some();
    let (machine, db) = match followed {
        Some((standby, machine)) => (machine, standby.promote()),
        None => {
            let machine = Machine::connect(store, config);
            let db = machine.open(&script.settings);
            (machine, db)
        }
    };
    let db = db.unwrap_or_else(|error| panic!("{}: {error}", script.context));
    record.opened_at = Some(store.changes());
    script.trace.note(&*medium, "successor", "the database is open");
    let mut figures = Figures::default();
    figures.passed(TAKEOVERS, 1);
    figures.passed(standby::PROMOTIONS, u64::from(is_promoted));
    let (content, tables) = (content(&db), db.tables());
    let report = db.verify(None).unwrap_or_else(|error| panic!("{}: {error}", script.context));
    assert!(report.problems.is_empty(), "{}: {:?}", script.context, report.problems);
    if *ends_early {
        stall.end(&first.clients);
    }
    let done = Tables::of(&db, script.tight)
        .map(|tables| work_together(&db, &medium, script, None, tables, &mut figures))
        .unwrap_or_else(|error| panic!("{}: tables: {error}", script.context));
    count_paths(&db, &mut figures);
    record.end(db, done, &*medium, script, |db| machine.stop(db), &mut figures);
    stall.end(&first.clients);
    Outcome { record, content, tables, figures }
}

impl Takeover {
    /// Draws a takeover of the run of `script`.
    pub fn any(script: &Script, settings: Settings, random: &mut Random) -> Takeover {
        let bits = 4 + random.below(14);
        let script = Script {
            seed: random.next_u64(),
            settings,
            number: script.number + 1,
            threads: 1 + random.below(2) as u8,
            each: 1 + random.below(6) as u8,
            fault: PlannedFault::None,
            threads_end_early: false,
            close: random.chance(1, 3),
            context: format!("{}; taken over", script.context),
            ..script.clone()
        };
        Takeover {
            script,
            after: Duration::from_micros(random.below(1 << bits)),
            stall: crate::config::one_of(random, &Stall::ALL),
            ends_early: random.chance(1, 2),
            promotes: false,
        }
    }
}
