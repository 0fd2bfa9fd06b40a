//! Salvage of the log: applies the transactions above the checkpoint that are whole, in CSN order.

use super::report::{SalvageReport, SalvageSink};
use crate::base::{Csn, Result, TableId};
use crate::device::Storage;
use crate::log::{
    Fragment, LoadedBlock, Operation, Record, RecordKind, ScanOptions, counting_bytes, load, operations,
    scan_what_is_readable,
};
use crate::store::{CsnSet, Manifest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Applies the transactions of the log; `names` are the tables of the checkpoint. Returns the
/// tables at the end.
///
/// # Errors
/// Those of the sink. Damage is in the report.
pub(super) fn apply_log(
    storage: &Arc<dyn Storage>,
    manifest: &Manifest,
    names: HashMap<TableId, String>,
    sink: &mut dyn SalvageSink,
    report: &mut SalvageReport,
) -> Result<HashMap<TableId, String>> {
    if manifest.clean {
        return Ok(names);
    }
    let voids = manifest.voids();
    let Some(records) = read_records(storage, manifest, &voids, report) else { return Ok(names) };
    let mut replay = LogReplay {
        checkpoint: manifest.checkpoint,
        next: voids.first_absent(manifest.checkpoint.next()),
        records: &records,
        voids,
        chunks: BTreeMap::new(),
        applier: Applier { sink, names, misfits: 0, value: Vec::new() },
        transactions: 0,
        missing: 0,
    };
    for (csn, bytes) in &records {
        replay.apply(*csn, &Record::decode(bytes)?)?;
    }
    if replay.next < manifest.first_csn {
        replay.missing += manifest.first_csn.0 - replay.next.0;
    }
    report.transactions += replay.transactions;
    for table in replay.applier.names.values() {
        report.tables.entry(table.clone()).or_default();
    }
    if replay.missing > 0 {
        report.remarks.push(format!("about {} transactions are missing from the log", replay.missing));
    }
    if replay.applier.misfits > 0 {
        let misfits = replay.applier.misfits;
        report.remarks.push(format!("{misfits} changes in the log fit nothing that is there"));
    }
    Ok(replay.applier.names)
}

/// Encoded records by CSN.
type Records = BTreeMap<Csn, Vec<u8>>;

/// Returns all readable records of the log that count; `None` if the log cannot be read at all.
fn read_records(
    storage: &Arc<dyn Storage>,
    manifest: &Manifest,
    voids: &CsnSet,
    report: &mut SalvageReport,
) -> Option<Records> {
    if let Some(memory) = &manifest.log_memory {
        let what = format!("what is only in the memory-mapped log {} is left out", memory.path);
        report.remarks.push(what);
    }
    let options = ScanOptions {
        database: manifest.database,
        covered: manifest.covered,
        threads: 1,
        read_only: true,
        piece_bytes: 1 << 20,
        keep_bytes: 0,
    };
    let (found, left_out) = match scan_what_is_readable(storage, options) {
        Ok(found) => found,
        Err(error) => {
            report.remarks.push(format!("the log is left out: {}", error.without_advice()));
            return None;
        }
    };
    report
        .remarks
        .extend(left_out.iter().map(|error| format!("of the log is left out: {}", error.without_advice())));
    let mut records = Records::new();
    for chain in &found.chains {
        let entry = manifest.epochs.iter().find(|entry| entry.epoch == chain.epoch);
        let end = match entry {
            _ if chain.epoch == manifest.epoch => u64::MAX,
            Some(entry) => entry.accepted_end(chain.log).unwrap_or(0),
            None => 0,
        };
        let count = chain.blocks.iter().take_while(|block| block.sequence() <= end).count();
        // One block at a time, so that a block that has become unreadable is left out alone.
        for block in chain.blocks[..count].iter().map(std::slice::from_ref) {
            let loaded = load(block, 0).unwrap_or_else(|error| {
                report.remarks.push(format!("of the log is left out: {}", error.without_advice()));
                Vec::new()
            });
            for (_, record) in loaded.iter().flat_map(LoadedBlock::records).flatten() {
                let csn = record.header.csn;
                if csn > manifest.covered && csn < Csn::LIMIT && !voids.contains(csn) {
                    records.entry(csn).or_insert_with(|| record.bytes.to_vec());
                }
            }
        }
    }
    Some(records)
}

/// Applies records in CSN order and counts the transactions that are missing.
struct LogReplay<'a> {
    records: &'a Records,
    checkpoint: Csn,
    voids: CsnSet,
    /// The next CSN that should be found.
    next: Csn,
    /// The CSNs of chunks, by the CSN of the first chunk of their transaction.
    chunks: BTreeMap<Csn, Vec<Csn>>,
    applier: Applier<'a>,
    transactions: u64,
    missing: u64,
}

impl LogReplay<'_> {
    fn apply(&mut self, csn: Csn, record: &Record<'_>) -> Result<()> {
        self.applier.value.clear();
        let (first, last) = match record.fragment {
            Some(fragment) => (fragment.first_of(csn), fragment.last_of(csn)),
            None => (csn, csn),
        };
        let is_whole = record.fragment.is_none_or(|fragment| is_whole(self.records, first, fragment.count));
        if csn > self.checkpoint && last >= self.next {
            // The missing fragments of one transaction count as one missing transaction.
            self.missing += first.0.saturating_sub(self.next.0) + u64::from(!is_whole);
            self.next = self.voids.first_absent(last.next());
        }
        match record.part {
            Some(part) if record.header.kind == RecordKind::Chunk => {
                self.chunks.entry(part.first_of(csn)).or_default().push(csn);
            }
            _ if csn <= self.checkpoint => {}
            Some(part) => {
                let earlier = self.chunks.remove(&part.first).unwrap_or_default();
                match put_together(self.records, &earlier, record)? {
                    Some(operations) => {
                        operations.iter().try_for_each(|operations| self.applier.apply(operations))?;
                        self.transactions += 1;
                    }
                    None => self.missing += 1,
                }
            }
            None if !is_whole => {}
            None => {
                self.applier.apply(record.body)?;
                self.transactions += u64::from(csn == last);
            }
        }
        Ok(())
    }
}

/// Returns true if all fragments of the transaction whose first fragment has the CSN `first` are
/// there.
fn is_whole(records: &Records, first: Csn, count: u32) -> bool {
    let is_there = |number| {
        let record = records.get(&Csn(first.0 + u64::from(number))).map(|bytes| Record::decode(bytes));
        record.is_some_and(|record| record.is_ok_and(|r| r.fragment == Some(Fragment { number, count })))
    };
    (0..count).all(is_there)
}

/// Returns the operations of a long transaction that count, part by part; `None` if a part is
/// missing.
fn put_together<'a>(
    records: &'a Records,
    earlier: &[Csn],
    last: &Record<'a>,
) -> Result<Option<Vec<&'a [u8]>>> {
    let chunks = earlier.iter().filter_map(|csn| records.get(csn)).map(|bytes| Record::decode(bytes));
    let mut parts = chunks.collect::<Result<Vec<_>>>()?;
    parts.push(*last);
    let lens: Vec<_> = parts.iter().filter_map(|record| Some((record.part?, record.body.len()))).collect();
    let Some(counting) = counting_bytes(&lens) else { return Ok(None) };
    Ok(Some(parts.iter().zip(counting).map(|(record, counts)| &record.body[..counts]).collect()))
}

/// Applies operations of the log to the sink.
struct Applier<'a> {
    sink: &'a mut dyn SalvageSink,
    names: HashMap<TableId, String>,
    /// Changes that fit no row or table.
    misfits: u64,
    /// The bytes so far of a large value that continues in the next part.
    value: Vec<u8>,
}

impl Applier<'_> {
    fn apply(&mut self, body: &[u8]) -> Result<()> {
        for operation in operations(body) {
            let Ok(operation) = operation else {
                self.misfits += 1;
                break;
            };
            if !self.change(&operation)? {
                self.misfits += 1;
            }
        }
        Ok(())
    }

    /// Applies one change. Returns false if it fits no row or table.
    fn change(&mut self, operation: &Operation<'_>) -> Result<bool> {
        let names = &mut self.names;
        match *operation {
            Operation::CreateTable { table, name } => {
                names.insert(table, name.to_string());
                self.sink.create_table(name)?;
            }
            Operation::DropTable { table } => {
                let Some(name) = names.remove(&table) else { return Ok(false) };
                self.sink.drop_table(&name)?;
            }
            Operation::RenameTable { table, name } => {
                if names.values().any(|other| other == name) {
                    return Ok(false);
                }
                let Some(before) = names.insert(table, name.to_string()) else {
                    names.remove(&table);
                    return Ok(false);
                };
                self.sink.rename_table(&before, name)?;
            }
            Operation::SetTypes { table, types } => {
                let Some(name) = names.get(&table) else { return Ok(false) };
                self.sink.set_types(name, &types.decode()?)?;
            }
            Operation::Put { table, key, value } => {
                let Some(name) = names.get(&table) else { return Ok(false) };
                self.sink.put(name, key, value)?;
            }
            Operation::PutLarge { table, key, pieces } => {
                let Some(name) = names.get(&table) else { return Ok(false) };
                let mut value = std::mem::take(&mut self.value);
                pieces.iter().for_each(|piece| value.extend_from_slice(piece));
                self.sink.put(name, key, &value)?;
            }
            Operation::LargePart { pieces, .. } => {
                pieces.iter().for_each(|piece| self.value.extend_from_slice(piece));
            }
            Operation::Delete { table, key } => {
                let Some(name) = names.get(&table) else { return Ok(false) };
                self.sink.delete(name, key)?;
            }
            Operation::Patch { table, key, offset, bytes } => {
                let Some(name) = names.get(&table) else { return Ok(false) };
                let Some(mut value) = self.sink.get(name, key)? else { return Ok(false) };
                let end = offset.checked_add(bytes.len());
                let Some(place) = end.and_then(|end| value.get_mut(offset..end)) else { return Ok(false) };
                place.copy_from_slice(bytes);
                self.sink.put(name, key, &value)?;
            }
        }
        Ok(true)
    }
}
