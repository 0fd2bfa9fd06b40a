//! What a seed draws for a database in a store of objects, besides what it draws for one on a disk.

use crate::config::{Config, PlannedFault, one_of, processors};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::commit::presets;
use quenchdb::internals::device::objects::Options;
use quenchdb::internals::device::objects::simulated::{FaultKind, SimulatedStore, StoreOptions};
use quenchdb::{Axes, Settings, Writer};
use std::time::Duration;

/// The configuration of a seed.
#[derive(Clone, Debug)]
pub struct ObjectsConfig {
    /// Its settings are those of the first run. Nothing of its disk is used.
    pub base: Config,
    pub store: StoreOptions,
    pub options: Options,
    /// Buckets: one, or three.
    pub zones: usize,
    /// Whether a standby follows each run, and may be promoted.
    pub is_followed: bool,
    /// Odds of each kind of fault, out of 1000 requests.
    pub odds: Vec<(FaultKind, u64)>,
}

/// Salt of the draw, which must not repeat the one for a disk.
const OBJECTS: u64 = 0x0b1e_c750;

impl ObjectsConfig {
    pub fn of(seed: u64, points: u64) -> ObjectsConfig {
        let mut random = Random::from_seed(seed ^ OBJECTS);
        // Draws of its own: the others are those of one bucket.
        let mut random_of_zones = Random::from_seed(seed ^ OBJECTS ^ 1);
        let mut base = Config::of(seed, points);
        let mut drawn = 0;
        base.settings = fitting(|| {
            drawn += 1;
            Config::of(seed ^ (drawn << 40), points).settings
        });
        base.settings.memory_bytes = if base.tight { 1 << 20 } else { 4 << 20 };
        // No fault of the disk, which is not there.
        base.fault = PlannedFault::None;
        let mut store = StoreOptions {
            appends: random.chance(2, 3),
            parts_max: one_of(&mut random, &[8, 40, 10_000]),
            appends_check_version: random.chance(1, 2),
            latency: Duration::from_micros(one_of(&mut random, &[0, 0, 300, 5_000])),
            ..StoreOptions::new(seed)
        };
        let options = Options {
            // Simulated time leaps. A test of the engine ends patience.
            patience: Duration::from_secs(1 << 32),
            lanes: 1 + random.below(3) as usize,
            watch: Duration::from_millis(1 + random.below(30)),
            extent_bytes: one_of(&mut random, &[32 << 10, 64 << 10, 128 << 10]),
            repair_pause: Duration::from_micros(1 << random_of_zones.below(16)),
            ..Options::default()
        };
        let most = one_of(&mut random, &[0, 10, 60]);
        let kinds = FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::Denied);
        let mut odds: Vec<_> = kinds.map(|kind| (kind, random.below(most + 1))).collect();
        let is_streamed = seed >= super::STREAMED_SEED;
        let is_followed = seed >= super::FOLLOWED_SEED && (!is_streamed || seed % 2 == 1);
        let is_in_several = !is_streamed && seed >= super::SEVERAL_SEED && (!is_followed || seed % 2 == 1);
        let zones = if is_in_several { super::zones::ZONES } else { 1 };
        if is_streamed {
            (store.appends, store.streams) = (true, true);
            // A lane is finalized before it is read, so nothing depends on that promise.
            store.revokes = random.chance(3, 4);
            odds.extend(FaultKind::OF_STREAMS.map(|kind| (kind, random.below(most + 1))));
        }
        ObjectsConfig { base, store, options, zones, is_followed, odds }
    }

    /// The settings of a later run.
    pub fn other_protocol(&self, random: &mut Random) -> Settings {
        fitting(|| self.base.other_protocol(random))
    }

    /// Lets requests fail from now on.
    pub fn break_requests(&self, store: &SimulatedStore) {
        self.odds.iter().for_each(|(kind, odds)| store.set_odds(*kind, *odds));
    }
}

/// Draws settings until they are some that a store of objects takes.
fn fitting(mut draw: impl FnMut() -> Settings) -> Settings {
    loop {
        let mut settings = draw();
        settings.lab.log_memory_bytes = 0;
        let logs = presets::log_count(&settings, processors());
        let is_valid = settings.validate().is_ok() && presets::check(&settings, logs).is_ok();
        if is_valid && Axes::of(&settings).writer.kind() != Writer::Memory {
            return settings;
        }
    }
}
