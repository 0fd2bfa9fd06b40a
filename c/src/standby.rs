//! Standbys: copies that follow the log of another process, for reading, and for taking over.

use crate::boundary::{Answer, borrow, call, discard, give, hand_over, text};
use crate::database::{Database, builder, path};
use crate::error::{Error, Failure};
use crate::maintenance::report_of;
use crate::settings::Setting;
use crate::table::Table;
use crate::transaction::{Kind, Source, Transaction, source};
use quenchdb::{Csn, ErrorKind};
use quenchdb_bindings::reports;
use std::ffi::{c_char, c_int};
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// A copy of a database in a store of objects that follows the process that writes.
pub struct Standby {
    /// Nothing once it was closed or promoted.
    standby: RwLock<Option<quenchdb::Standby>>,
}

/// A wait in a call lets others end the standby so often.
const SLICE: Duration = Duration::from_millis(50);
/// The end of a standby waits so long for other calls: a forked child may have lost their threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Calls the standby. Only its end takes the lock alone, so a call that does not get it is later.
fn with<T>(standby: Option<&Standby>, call: impl FnOnce(&quenchdb::Standby) -> Answer<T>) -> Answer<T> {
    let standby = borrow(standby, "standby")?.standby.try_read();
    call(standby.as_ref().ok().and_then(|standby| standby.as_ref()).ok_or_else(has_ended)?)
}

/// Ends the standby, and returns it.
fn take(standby: Option<&Standby>) -> Answer<quenchdb::Standby> {
    let (lock, begun) = (&borrow(standby, "standby")?.standby, Instant::now());
    loop {
        match lock.try_write() {
            Ok(mut standby) => return Ok(standby.take().ok_or_else(has_ended)?),
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return Err(quenchdb::Error::invalid("the standby is in use by another thread").into()),
        }
    }
}

fn has_ended() -> quenchdb::Error {
    quenchdb::Error::invalid("the standby has ended").with_advice("open it again")
}

/// Opens a standby of the database in a directory, at the URL of a store of objects, or in several
/// of them: a copy for reading that follows the log of the process that writes, and that can take
/// its place. The settings are those of the copy and of quench_standby_promote, which fails with
/// QUENCH_BUSY while another process has the directory open.
/// Threads: any; so for all functions of standbys, also while others use the standby.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_standby(
    path: *const c_char, path_bytes: usize, settings: *const Setting, settings_count: usize,
    standby: *mut *mut Standby, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(standby, "standby", || {
            let path = self::path(path, path_bytes, "path")?;
            let standby = builder(settings, settings_count)?.open_standby(path)?;
            Ok(Standby { standby: RwLock::new(Some(standby)) })
        })
    })
}

/// Takes a snapshot of everything that the standby has applied. Its tables are those of
/// quench_standby_table. It may outlive the standby.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_snapshot(
    standby: Option<&Standby>, snapshot: *mut *mut Transaction, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(snapshot, "snapshot", || {
            let kind = with(standby, |standby| Ok(Kind::OfStandby(standby.snapshot()?)))?;
            Ok(Transaction { source: Source::new(kind, None) })
        })
    })
}

/// Opens a table of a snapshot of a standby. The handle is for this snapshot only.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_table(
    snapshot: Option<&Transaction>, name: *const c_char, name_bytes: usize, table: *mut *mut Table,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(table, "table", || match &source(snapshot)?.kind {
            Kind::OfStandby(snapshot) => {
                Ok(Table { table: snapshot.table(text(name, name_bytes, "name")?)? })
            }
            _ => Err(quenchdb::Error::invalid("the snapshot is not one of a standby").into()),
        })
    })
}

/// Gives the CSN up to which new snapshots show every transaction.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_csn(
    standby: Option<&Standby>, csn: *mut u64, error: *mut *mut Error,
) -> c_int {
    call(error, || with(standby, |standby| Ok(standby.csn())).map(|shown| give(csn, shown.0)))
}

/// Waits until new snapshots show every transaction up to a CSN, at most so many microseconds.
/// Returns 1 if they do, and the reason if the standby cannot follow.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_wait_for(
    standby: Option<&Standby>, csn: u64, timeout_us: u64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (begun, timeout) = (Instant::now(), Duration::from_micros(timeout_us));
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match with(standby, |standby| Ok(standby.wait_for(Csn(csn), left.min(SLICE))?)) {
                // The standby tries again, and so does this.
                Ok(false) if left > SLICE => {}
                Err(Failure::Engine(error)) if left > SLICE && error.kind() != ErrorKind::InvalidArgument => {
                }
                answer => return answer,
            }
        }
    })
}

/// Returns how far the standby is, in JSON, for quench_free: csn, newest_csn, lag_csns, lag in
/// seconds, transactions, new_bases, base_csn, failure.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_statistics(
    standby: Option<&Standby>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(json, error, || with(standby, |standby| Ok(reports::standby(&standby.statistics()))))
}

/// Ends the standby, and opens the database for writing. The writer before is ended: its next
/// commit fails. Everything that it has acknowledged is there. After an error the standby has
/// ended, too. The handle has to be freed still.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_promote(
    standby: Option<&Standby>, database: *mut *mut Database, error: *mut *mut Error,
) -> c_int {
    call(error, || hand_over(database, "database", || Ok(Database { database: take(standby)?.promote()? })))
}

/// Frees a standby, which ends it. NULL is allowed. Its snapshots can still be read.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_standby_free(standby: Option<Box<Standby>>) {
    discard(standby);
}
