//! The log in words, for people.

use super::fragment::Fragment;
use super::part::{Part, RecordKind};
use super::reader::{ScanOptions, scan};
use super::record::{DependencyRule, Operation, RecordHeader};
use super::scanned::{LoadedBlock, load_all};
use super::segment::Segment;
use crate::base::{Csn, DatabaseId, Location, LogId, Result};
use crate::device::Storage;
use std::fmt::Write as _;
use std::sync::Arc;

/// A record, readable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DumpedRecord {
    /// The place of the record.
    pub location: Location,
    /// Epoch of its CSN.
    pub epoch: u32,
    /// Sequence of its block.
    pub block: u64,
    /// The log in whose segment the block lies, if not its own: that one carried it.
    pub carrier: Option<LogId>,
    /// Its commit sequence number.
    pub csn: Csn,
    /// The highest CSN among its direct predecessors.
    pub dsn: Csn,
    /// The predecessors that it lists, if recovery judges it by them; none if by its DSN.
    pub predecessors: Option<Vec<Csn>>,
    /// Every CSN below was durable when this one was drawn.
    pub watermark: Csn,
    /// Bytes in the log.
    pub bytes: usize,
    /// Which part of a transaction it is, if not all of it.
    pub part: Option<String>,
    /// The log that it is in.
    pub log: u32,
    /// The record stands behind a hole: recovery would not use it.
    pub beyond_hole: bool,
    /// One line an operation.
    pub operations: Vec<String>,
}

/// All records above `covered` in segments and in what mapped memory holds, in CSN order.
/// `progress` hears bytes done and bytes to read.
///
/// # Errors
/// Those of reading the log.
pub fn dump(
    storage: &Arc<dyn Storage>,
    memory: Option<&Segment>,
    database: DatabaseId,
    covered: Csn,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<DumpedRecord>> {
    let (threads, read_only, piece_bytes, keep_bytes) = (1, true, 1 << 20, 0);
    let options = ScanOptions { database, covered, threads, read_only, piece_bytes, keep_bytes };
    let scan = scan(storage, options, memory, progress)?;
    let mut out = Vec::new();
    for chain in &scan.chains {
        for block in load_all(chain.accepted()) {
            dump_block(&block?, false, &mut out)?;
        }
        for block in load_all(chain.beyond()) {
            dump_block(&block?, true, &mut out)?;
        }
    }
    out.retain(|record| record.csn > covered);
    out.sort_by_key(|record| (record.csn, record.epoch));
    Ok(out)
}

fn dump_block(loaded: &LoadedBlock, beyond_hole: bool, out: &mut Vec<DumpedRecord>) -> Result<()> {
    let block = &loaded.block;
    for record in loaded.records() {
        let (at, record) = record?;
        let operations: Result<Vec<String>> =
            record.operations().map(|operation| operation.map(|o| describe(&o))).collect();
        out.push(DumpedRecord {
            location: block.location(at),
            epoch: record.header.epoch.0,
            block: block.sequence(),
            carrier: block.carrier(),
            csn: record.header.csn,
            dsn: record.header.dsn,
            predecessors: (record.header.rule != DependencyRule::Dsn)
                .then(|| record.predecessors().collect()),
            watermark: record.header.watermark,
            bytes: record.bytes.len(),
            part: record
                .part
                .map(|part| describe_part(&record.header, part))
                .or_else(|| record.fragment.map(|fragment| describe_fragment(record.header.csn, fragment))),
            log: block.log().0,
            beyond_hole,
            operations: operations.map_err(|error| error.at(block.location(at)))?,
        });
    }
    Ok(())
}

fn describe_part(header: &RecordHeader, part: Part) -> String {
    let Part { start, number, .. } = part;
    let first = part.first_of(header.csn);
    if header.kind == RecordKind::Last {
        return format!(
            "last part, from byte {start}, of the transaction with {number} chunks from csn {first} on"
        );
    }
    format!("chunk {number}, from byte {start}, of the transaction with chunks from csn {first} on")
}

fn describe_fragment(csn: Csn, fragment: Fragment) -> String {
    let Fragment { number, count } = fragment;
    format!("fragment {} of {count} of the transaction with csn {}", number + 1, fragment.last_of(csn))
}

fn describe(operation: &Operation<'_>) -> String {
    match *operation {
        Operation::Put { table, key, value } => {
            format!("put table {table} key {} value {}", shown(key), shown(value))
        }
        Operation::PutLarge { table, key, pieces } => {
            let first = pieces.iter().next().unwrap_or_default();
            let first = shown(&first[..first.len().min(SHOWN_BYTES)]);
            format!("put large table {table} key {} value {first} … {} bytes", shown(key), pieces.len())
        }
        Operation::LargePart { table, key, pieces } => {
            format!("part of large value table {table} key {} {} bytes", shown(key), pieces.len())
        }
        Operation::Patch { table, key, offset, bytes } => {
            format!("patch table {table} key {} at {offset} bytes {}", shown(key), shown(bytes))
        }
        Operation::Delete { table, key } => format!("delete table {table} key {}", shown(key)),
        Operation::CreateTable { table, name } => format!("create table {table} name {name:?}"),
        Operation::DropTable { table } => format!("drop table {table}"),
        Operation::RenameTable { table, name } => format!("rename table {table} name {name:?}"),
        Operation::SetTypes { table, types } => {
            let types = types.decode().map_or_else(|error| error.to_string(), |types| types.to_string());
            format!("types table {table} {types:?}")
        }
    }
}

/// Bytes shown of a key or value.
const SHOWN_BYTES: usize = 64;

fn shown(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in &bytes[..bytes.len().min(SHOWN_BYTES)] {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(*byte as char);
            }
            0x20..=0x7e => out.push(*byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
    out.push('"');
    if bytes.len() > SHOWN_BYTES {
        let _ = write!(out, " … {} bytes", bytes.len());
    }
    out
}
