//! A file on the simulated device and in its caches: what is visible, what is pending, what is
//! durable.

use super::change::log_of;
use super::device::{Reach, SECTOR};
use super::faults::{Cut, CutLogs};
use super::image::Image;
use crate::base::random::Random;
use crate::device::fault_counts::FaultCounts;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Pending {
    Write(Unsure),
    SetLen(u64),
}

/// A write that may not be durable.
#[derive(Clone, Debug)]
pub(super) struct Unsure {
    /// The number among all writes of the disk.
    pub(super) order: u64,
    pub(super) offset: u64,
    pub(super) bytes: Arc<[u8]>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileImage {
    pub(super) visible: Image,
    pub(super) durable: Image,
    /// Visible and not durable, in the order of the writes.
    pub(super) pending: Vec<Pending>,
    /// Pending when a flush failed: no later flush makes them durable.
    pub(super) doomed: Vec<Pending>,
    pub(super) in_flight: Vec<Unsure>,
    /// The file is claimed: no other process uses it before the writes of its killed owner have
    /// ended.
    pub(super) claimed: bool,
    /// The name survives a power cut.
    pub(super) name_durable: bool,
    /// Removed, but the removal is not durable.
    pub(super) removed: bool,
}

impl FileImage {
    /// Completes a write.
    pub(super) fn put(&mut self, write: Unsure, reach: Reach) {
        let Unsure { offset, bytes, .. } = &write;
        let end = offset + bytes.len() as u64;
        self.doomed = without(std::mem::take(&mut self.doomed), *offset, end);
        self.visible.write(*offset, bytes);
        if matches!(reach, Reach::Device | Reach::Through) && self.has_durable_length(end) {
            self.pending = without(std::mem::take(&mut self.pending), *offset, end);
            self.durable.write(*offset, bytes);
            return;
        }
        self.pending.push(Pending::Write(write));
        if matches!(reach, Reach::Through | Reach::Flushed) {
            self.make_durable();
        }
    }

    /// Returns whether the file is durably at least `end` bytes long.
    fn has_durable_length(&self, end: u64) -> bool {
        let changes = self.pending.iter().any(|pending| matches!(pending, Pending::SetLen(_)));
        !changes && end <= self.durable.len() as u64
    }

    /// Removes a write from those in flight.
    pub(super) fn remove_in_flight(&mut self, offset: u64, bytes: &Arc<[u8]>) {
        let is_it = |write: &Unsure| {
            write.offset == offset && (Arc::ptr_eq(&write.bytes, bytes) || write.bytes == *bytes)
        };
        self.in_flight.retain(|write| !is_it(write));
    }

    pub(super) fn flip(&mut self, byte: usize, bit: u8) {
        for image in [&mut self.visible, &mut self.durable] {
            let mut old = [0];
            if image.read(byte as u64, &mut old).is_ok() {
                image.write(byte as u64, &[old[0] ^ 1 << (bit % 8)]);
            }
        }
    }

    /// Makes the file at least `len` bytes long, durably.
    pub(super) fn extend(&mut self, len: u64) {
        // Another operation may have made the file longer.
        self.set_len((self.visible.len() as u64).max(len));
        self.make_durable();
    }

    /// Sets the visible length. It is durable after a flush.
    pub(super) fn set_len(&mut self, len: u64) {
        self.visible.resize(len as usize);
        self.pending.push(Pending::SetLen(len));
    }

    /// A flush failed: the pending data will never be durable. Lengths are metadata, which a file
    /// system writes again.
    pub(super) fn fail_flush(&mut self) {
        let is_data = |pending: &mut Pending| matches!(pending, Pending::Write(_));
        self.doomed.extend(self.pending.extract_if(.., is_data));
    }

    /// Flushes: everything pending becomes durable; doomed writes stay doomed.
    pub(super) fn make_durable(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if self.doomed.is_empty() {
            // The visible bytes are the durable ones with the pending writes applied in order.
            self.durable.clone_from(&self.visible);
            return;
        }
        for pending in pending {
            match pending {
                Pending::Write(write) => self.durable.write(write.offset, &write.bytes),
                Pending::SetLen(len) => self.durable.resize(len as usize),
            }
        }
    }

    /// Cuts the power: each sector that was not durable survives or not, in any order.
    pub(super) fn cut(
        &mut self,
        survives: u64,
        random: &mut Random,
        counts: &mut FaultCounts,
        logs: &mut CutLogs,
    ) {
        let mut image = std::mem::take(&mut self.durable);
        let mut unsure: Vec<Pending> = std::mem::take(&mut self.doomed);
        unsure.append(&mut self.pending);
        unsure.extend(std::mem::take(&mut self.in_flight).into_iter().map(Pending::Write));
        if random.chance(1, 2) {
            for i in (1..unsure.len()).rev() {
                unsure.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        let mut of_file = Cut::default();
        for pending in unsure {
            match pending {
                Pending::SetLen(len) if random.chance(survives, 16) => image.resize(len as usize),
                Pending::SetLen(_) => {}
                Pending::Write(write) => {
                    let mut kept = 0;
                    for (i, sector) in write.bytes.chunks(SECTOR).enumerate() {
                        if random.chance(survives, 16) {
                            kept += 1;
                            let at = write.offset + (i * SECTOR) as u64;
                            image.write(at, sector);
                        }
                    }
                    let of_log = log_of(&write.bytes).map(|log| logs.entry(log).or_default());
                    let cuts = std::iter::once(&mut of_file).chain(of_log);
                    let sectors = write.bytes.len().div_ceil(SECTOR);
                    if kept < sectors {
                        let torn = kept > 0;
                        counts.count(if torn {
                            "write torn by a power cut"
                        } else {
                            "write lost by a power cut"
                        });
                        cuts.for_each(|cut| cut.lost(write.order));
                    } else if sectors > 0 {
                        cuts.for_each(|cut| cut.kept(write.order));
                    }
                }
            }
        }
        if of_file.lost_before(&of_file) {
            counts.count("writes reordered by a power cut");
        }
        self.removed = false;
        self.visible.clone_from(&image);
        self.durable = image;
    }
}

/// Returns the parts of `writes` that a write of `offset..end` does not replace. The replaced parts
/// can no longer reach the disk.
fn without(writes: Vec<Pending>, offset: u64, end: u64) -> Vec<Pending> {
    let mut left = Vec::with_capacity(writes.len());
    for pending in writes {
        let Pending::Write(Unsure { order, offset: start, bytes }) = &pending else {
            left.push(pending);
            continue;
        };
        let old_end = start + bytes.len() as u64;
        if old_end <= offset || end <= *start {
            left.push(pending);
            continue;
        }
        for (from, to) in [(*start, old_end.min(offset)), ((*start).max(end), old_end)] {
            if from < to {
                let bytes = bytes[(from - start) as usize..(to - start) as usize].into();
                left.push(Pending::Write(Unsure { order: *order, offset: from, bytes }));
            }
        }
    }
    left
}
