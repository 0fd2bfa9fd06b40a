//! A look at what a crash has left, by somebody who only reads, before the one comes who writes.

use crate::figures::Figures;
use crate::known::Found;
use crate::life::Script;
use quenchdb::device::simulated::SimulatedStorage;
use quenchdb::{Database, DeviceTrust, ErrorKind, Settings};
use std::sync::Arc;

/// Of so many lives after a crash one begins with a look.
const ODDS: u64 = 8;

/// What was seen.
pub struct Seen {
    found: Found,
    /// Nothing of a killed process was on its way any more: who writes finds the same.
    is_all: bool,
}

/// Opens the database for reading, with the settings of who writes next, and judges it. None if there is no database, or memory is too short.
pub fn look(disk: &SimulatedStorage, script: &Script, figures: &mut Figures) -> Option<Seen> {
    if !script.judged || script.number == 0 || script.seed / 4 % ODDS != 0 {
        return None;
    }
    let context = format!("{}; read only", script.context);
    let is_all = disk.late_writes() == 0;
    let settings = Settings { read_only: true, device_trust: DeviceTrust::Auto, ..script.settings.clone() };
    let db = match Database::builder().settings(settings).storage(Arc::new(disk.clone())).open("simulated") {
        Ok(db) => db,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::OutOfMemory) => return None,
        Err(error) => panic!("{context}: {error}"),
    };
    let found = script.known.judge(&db, &context);
    figures.passed("crashed disks read", 1);
    Some(Seen { found, is_all })
}

impl Seen {
    /// Judges what who writes has found.
    pub fn judge(&self, found: &Found, context: &str) {
        assert!(!self.is_all || self.found == *found, "{context}: who only read had seen something else");
    }
}
