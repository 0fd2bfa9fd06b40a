//! A read-only open of a crashed disk, before the next run opens it for writing.

use crate::figures::Figures;
use crate::known::Found;
use crate::run::Script;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Database, DeviceTrust, ErrorKind};
use std::sync::Arc;

/// One run in this many after a crash begins with a read-only open.
const ODDS: u64 = 8;

/// The content of a crashed disk before an open for writing.
pub struct EarlierContent {
    found: Found,
    /// True if no write of a killed process was in flight, so that the writer must find the same.
    is_all: bool,
}

impl EarlierContent {
    /// Runs `read`, which reads the crashed disk, and keeps the content that it finds.
    pub fn by<E>(
        disk: &SimulatedStorage,
        read: impl FnOnce() -> Result<Found, E>,
    ) -> Result<EarlierContent, E> {
        let is_all = disk.late_writes() == 0;
        Ok(EarlierContent { found: read()?, is_all })
    }

    /// Compares with the content that the writer found.
    pub fn judge(&self, found: &Found, what: &str) {
        assert!(!self.is_all || self.found == *found, "{what} is something else");
    }
}

/// Opens the database read-only, with the settings of the next writer, and judges it. Returns None
/// without a database, or if memory is too short.
pub fn open_read_only(
    disk: &SimulatedStorage,
    script: &Script,
    figures: &mut Figures,
) -> Option<EarlierContent> {
    if !script.judged || script.number == 0 || !(script.seed / 4).is_multiple_of(ODDS) {
        return None;
    }
    let context = format!("{}; read only", script.context);
    let settings = script.settings.clone().with(|s| {
        s.read_only = true;
        s.device_trust = DeviceTrust::Auto;
    });
    let earlier = EarlierContent::by(disk, || {
        let builder = Database::builder().settings(settings).storage(Arc::new(disk.clone()));
        builder.open("simulated").map(|db| script.known.judge(&db, &context))
    });
    match earlier {
        Ok(earlier) => {
            figures.passed("crashed disks read", 1);
            Some(earlier)
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::OutOfMemory) => None,
        Err(error) => panic!("{context}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quenchdb::internals::base::random::Random;
    use quenchdb::internals::device::simulated::CrashKind;
    use quenchdb::internals::device::{
        AlignedBuffer, Directory, OpenMode, SECTOR_BYTES, Storage, WriteRequest,
    };

    /// A write of the killed process completed between the two opens, and the simulation blamed the
    /// engine.
    #[test]
    fn writer_may_find_more_if_a_write_was_in_flight() {
        let mut random = Random::from_seed(1);
        let row = |n: u8| Found::of([(("t".into(), vec![n]), vec![n])].into());
        let mut kinds = [0, 0];
        for _ in 0..40 {
            let disk = SimulatedStorage::new(1);
            let mode = OpenMode { create: true, read_only: false, direct: true };
            let file = disk.open("f", mode).expect("created");
            let (buffer, len) = (AlignedBuffer::zeroed(SECTOR_BYTES), SECTOR_BYTES);
            let mut queue = disk.write_queue(1).expect("there is one");
            let request = WriteRequest { file, offset: 0, buffer, len, durable: false, token: 1 };
            queue.submit(request).expect("submitted");
            let killed = disk.crash(CrashKind::Kill, disk.operations(), random.next_u64());
            let is_late = killed.late_writes() > 0;
            let earlier = EarlierContent::by(&killed, || {
                killed.hold_late_writes(false);
                Ok::<_, ()>(row(1))
            });
            let earlier = earlier.expect("found");
            earlier.judge(&row(1), "the same");
            let other = std::panic::catch_unwind(|| earlier.judge(&row(2), "another"));
            assert_eq!(other.is_ok(), is_late);
            kinds[usize::from(is_late)] += 1;
        }
        assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
    }
}
