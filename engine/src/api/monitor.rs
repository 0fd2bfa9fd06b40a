//! The monitor: answers other processes with the statistics of an open database.

use super::engine::{Engine, Monitor, Owner};
use super::statistics::Statistics;
use crate::base::{Error, Result};
use crate::device::MonitorSocket;
use crate::sync::thread;
use std::sync::{Arc, Weak};

/// Starts the monitor of a database that is open for writing in a real directory, if the settings
/// want one. What prevents it is only logged.
pub(super) fn start(owner: &Owner) {
    if !owner.settings.monitor || owner.writing.is_none() {
        return;
    }
    match owner.storage.monitor().and_then(|socket| socket.map(|socket| run(owner, socket)).transpose()) {
        Ok(monitor) => *owner.threads.monitor.lock() = monitor,
        Err(error) => tracing::warn!(%error, "other processes cannot ask for statistics of this database"),
    }
}

fn run(owner: &Owner, socket: MonitorSocket) -> Result<Monitor> {
    let (socket, engine): (_, Weak<Engine>) = (Arc::new(socket), Arc::downgrade(&owner.engine));
    let serving = socket.clone();
    let thread = thread::spawn("quench-monitor", move || {
        serving.serve(|| engine.upgrade().map(|engine| Statistics::of(&engine).prometheus()));
    });
    let thread = thread.map_err(|error| Error::io("cannot start the monitor thread", error))?;
    Ok(Monitor { socket, thread })
}
