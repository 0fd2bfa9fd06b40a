//! Parsers of bytes that come from files: log, manifest, catalog, mapped memory, lines.

use crate::rows::read::{Found, Layout, RowReader};
use crate::rows::write::RowWriter;
use crate::rows::{Format, Names, Row};
use quenchdb::Csn;
use quenchdb::internals::backup::{BACKUP_PATH, Description};
use quenchdb::internals::base::Epoch;
use quenchdb::internals::base::checksum::crc;
use quenchdb::internals::base::encoding::Reader;
use quenchdb::internals::checkpoint::{decode_catalog, decode_catalog_prefix, encode_catalog};
use quenchdb::internals::device::mapped::MapOptions;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::device::{Directory, OpenMode, SECTOR_BYTES, Storage};
use quenchdb::internals::log;
use quenchdb::internals::log::memory::{MemoryState, find};
use quenchdb::internals::log::{
    BLOCK_HEADER_BYTES, RECORD_HEADER_BYTES, Record, ScanOptions, counting_bytes, dump, load_all, operations,
    scan,
};
use quenchdb::internals::store::{Manifest, READERS_PATH, Readers};
use std::path::Path;
use std::sync::Arc;

/// The database of the inputs, for parsers that check it.
pub(crate) const DATABASE: quenchdb::internals::base::DatabaseId =
    quenchdb::internals::base::DatabaseId(0x0123_4567_89ab_cdef);

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize)
}

/// Makes the start of `bytes` a record with valid checksums and the body that follows.
fn seal_record(bytes: &mut Vec<u8>) {
    if bytes.len() < RECORD_HEADER_BYTES {
        return;
    }
    let most = bytes.len() - RECORD_HEADER_BYTES;
    let body = u32_at(bytes, 12).min(most);
    let whole = log::record_bytes(body);
    bytes.resize(bytes.len().max(whole), 0);
    put_u32(bytes, 8, whole as u32);
    put_u32(bytes, 12, body as u32);
    let check = crc(&bytes[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body]);
    put_u32(bytes, 4, check);
    let check = crc(&bytes[4..RECORD_HEADER_BYTES]);
    put_u32(bytes, 0, check);
}

/// One record; the first byte says whether to seal it, and whether only operations follow.
pub(crate) fn record(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    match how % 4 {
        0 => {}
        1 => return operations(data).for_each(|operation| drop(operation.map(|o| format!("{o:?}")))),
        _ => seal_record(&mut bytes),
    }
    let Ok(record) = Record::decode(&bytes) else { return };
    let pieces = [record.body.len()];
    if let Some(part) = record.part {
        let _ = (part.first_of(record.header.csn), counting_bytes(&[(part, pieces[0])]));
    }
    if let Some(fragment) = record.fragment {
        let _ = (fragment.first_of(record.header.csn), fragment.last_of(record.header.csn));
    }
    let _ = record.predecessors().count();
    for operation in record.operations().flatten() {
        let _ = format!("{operation:?}").len();
    }
}

/// Seals consecutive records, as many as fit.
fn seal_records(bytes: &mut [u8]) {
    let mut at = 0;
    while at + RECORD_HEADER_BYTES <= bytes.len() {
        let mut one = bytes[at..].to_vec();
        let most = one.len();
        if log::record_bytes(u32_at(&one, 12).min(most)) > most {
            return;
        }
        seal_record(&mut one);
        bytes[at..].copy_from_slice(&one[..most]);
        at += u32_at(&one, 8).max(8);
    }
}

/// Makes blocks of `bytes` valid: gives each header the payload that follows, and valid checksums;
/// seals the records inside if `how` says so.
fn seal_blocks(bytes: &mut [u8], records: bool) {
    let mut at = 0;
    while at + BLOCK_HEADER_BYTES <= bytes.len() {
        let payload = u32_at(bytes, at + 40).min(bytes.len() - at - BLOCK_HEADER_BYTES);
        let (start, end) = (at + BLOCK_HEADER_BYTES, at + BLOCK_HEADER_BYTES + payload);
        if records {
            seal_records(&mut bytes[start..end]);
        }
        put_u32(bytes, at + 40, payload as u32);
        let check = crc(&bytes[start..end]);
        put_u32(bytes, at + 28, check);
        let check = crc(&bytes[at + 4..start]);
        put_u32(bytes, at, check);
        at = end.next_multiple_of(SECTOR_BYTES);
    }
}

/// One or several segments of at least a sector. The first byte: sealed or not; with checksums of
/// records or not; number of files.
pub(crate) fn segment(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let data = &data[..data.len().min(64 << 10)];
    let files = usize::from(how >> 6) + 1;
    let share = data.len().div_ceil(files).next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES);
    let disk = SimulatedStorage::new(1);
    for (number, part) in data.chunks(share).enumerate() {
        let mut bytes = part.to_vec();
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        if how & 1 == 1 {
            seal_blocks(&mut bytes, how & 2 == 2);
        }
        disk.write_file(&format!("log/{number:08}.seg"), &bytes);
    }
    let storage: Arc<dyn Storage> = Arc::new(disk);
    let options = ScanOptions {
        database: DATABASE,
        covered: Csn(u64::from(how >> 4 & 3)),
        threads: 1,
        read_only: true,
        piece_bytes: 64 << 10,
        keep_bytes: if how & 4 == 4 { 1 << 20 } else { 0 },
    };
    if let Ok(found) = scan(&storage, options, None, &|_, _| {}) {
        for chain in &found.chains {
            for block in load_all(chain.accepted()).chain(load_all(chain.beyond())).flatten() {
                let positions: Vec<usize> = block.records().flatten().map(|(position, _)| position).collect();
                positions
                    .into_iter()
                    .for_each(|position| assert!(block.record_at(position).1.len() >= RECORD_HEADER_BYTES));
            }
        }
    }
    let _ = dump(&storage, None, DATABASE, Csn::ZERO, &|_, _| ());
    let wanted =
        log::Wanted { database: DATABASE, covered: Csn::ZERO, memory: None, last_sequence: &|_, _| 3 };
    let _ = log::read_contents(&*storage, None, &wanted, &mut |_, _| {}, &mut |_, _| {});
}

fn seal_manifest(bytes: &mut [u8], version: u32) {
    if bytes.len() < 32 {
        return;
    }
    bytes[..8].copy_from_slice(b"QUENCHDB");
    put_u32(bytes, 8, version);
    let check = crc(&bytes[..12]);
    put_u32(bytes, 12, check);
    let body = bytes.len() - 32;
    put_u32(bytes, 24, body as u32);
    let check = quenchdb::internals::base::checksum::crc_append(crc(&bytes[16..28]), &bytes[32..]);
    put_u32(bytes, 28, check);
}

/// Offset of the manifest in the body of a description.
fn manifest_in(body: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut reader = Reader::new(body);
    reader.u64()?;
    if reader.u8()? == 1 {
        reader.u64()?;
        reader.varint()?;
    }
    let manifest = reader.bytes()?;
    let start = manifest.as_ptr() as usize - body.as_ptr() as usize;
    Some(start..start + manifest.len())
}

/// The description of a backup. The first byte says whether to seal it and the inner manifest. The
/// encoding of a decoded value must equal the input.
pub(crate) fn description(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    if how & 1 == 1 && bytes.len() >= 32 {
        let mut body = bytes.split_off(32);
        if how & 2 == 2
            && let Some(place) = manifest_in(&body)
        {
            seal_manifest(&mut body[place], u32::from(how >> 2 & 7));
        }
        bytes.clear();
        bytes.extend_from_slice(b"QUENCHBK\x01\0\0\0");
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&crc(&body).to_le_bytes());
        let check = crc(&bytes[16..28]);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes.append(&mut body);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    let disk = SimulatedStorage::new(1);
    disk.write_file(BACKUP_PATH, &bytes);
    if let Ok(description) = Description::read(&disk) {
        let again = SimulatedStorage::new(2);
        description.complete(&*Description::begin(&again).expect("a whole disk")).expect("it was one");
        assert!(Description::read(&again).expect("we wrote it") == description);
        for (page, reference) in &description.source {
            assert_eq!(description.find(*page), Some(*reference));
        }
    }
}

/// A locked reader slot; sealed if the first byte asks for it. Any content means a reader, of this
/// database or another.
pub(crate) fn reader(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let mut bytes = data[..data.len().min(256)].to_vec();
    if how & 1 == 1 && bytes.len() >= 44 {
        bytes[..8].copy_from_slice(b"QUENCHRD");
        put_u32(&mut bytes, 8, 1);
        let check = crc(&bytes[16..44]);
        put_u32(&mut bytes, 12, check);
    }
    let ours = bytes.get(16..24) == Some(&DATABASE.0.to_le_bytes()[..]);
    let disk = SimulatedStorage::new(1);
    let path = format!("{READERS_PATH}/00");
    disk.write_file(&path, &bytes);
    let mode = OpenMode { create: false, read_only: false, direct: false };
    let slot = disk.open(&path, mode).expect("it was written");
    assert!(slot.try_lock().expect("simulated"), "the slot is free");
    let readers = Readers::new(Arc::new(disk), DATABASE);
    let found = readers.list().expect("simulated");
    // A reader with an unreadable slot needs every page. Only a valid slot of another database
    // counts as no reader.
    assert!(found.len() == 1 || found.is_empty() && !ours && bytes.len() >= 44, "{found:?}");
    if how & 1 == 1 && ours && bytes.len() >= 44 {
        let said = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
        // No manifest has such a high number: the slot is unreadable.
        let expected = if said >> 63 == 0 { said } else { 0 };
        assert_eq!(found[0].generation, expected, "it is sealed and ours");
    }
}

/// A slot, sealed if the first byte says so. The encoding of a decoded value must equal the input.
pub(crate) fn manifest(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    if how & 1 == 1 {
        seal_manifest(&mut bytes, u32::from(how >> 1 & 7));
    }
    assert!(Manifest::slot_bytes(&bytes) <= quenchdb::internals::store::manifest::SLOT_BYTES);
    if let Ok(manifest) = Manifest::decode(&bytes) {
        let again = manifest.encode().expect("it was one");
        assert_eq!(Manifest::decode(&again).expect("we wrote it"), manifest);
    }
}

/// The encoding of a decoded value must equal the input.
pub(crate) fn catalog(data: &[u8]) {
    let _ = decode_catalog_prefix(data);
    let _ = quenchdb::internals::tree::LargeReference::decode(data);
    if let Ok(catalog) = decode_catalog(data) {
        assert_eq!(decode_catalog(&encode_catalog(&catalog)).expect("we wrote it"), catalog);
    }
}

/// Mapped memory: two headers of 64 bytes, four of the table of buffers, then what is in the
/// buffers, shared out; put where they belong, and sealed, if the first byte says so.
pub(crate) fn memory(data: &[u8]) {
    const BYTES: u64 = 1 << 20;
    let Some((how, data)) = data.split_first() else { return };
    let mut parts = data.chunks(64).map(<[u8]>::to_vec);
    let storage = SimulatedStorage::new(1);
    let (cache, store, latency) = (quenchdb::MemoryCache::Volatile, None, std::time::Duration::ZERO);
    let options =
        MapOptions { create: true, read_only: false, bytes: BYTES, new_bytes: BYTES, cache, store, latency };
    let mapped = storage.map_memory(Path::new("mapped-memory"), options).expect("simulated");
    for (number, mut part) in parts.by_ref().take(6).enumerate() {
        part.resize(64, 0);
        match number {
            0 | 1 if how & 1 == 1 => seal_memory_header(&mut part, BYTES),
            2.. if how & 2 == 2 => {
                part[4..8].copy_from_slice(b"QBUF");
                part[16..24].copy_from_slice(&DATABASE.0.to_le_bytes());
                let check = crc(&part[4..]);
                put_u32(&mut part, 0, check);
            }
            _ => {}
        }
        let at = if number < 2 { number * 4096 } else { 8192 + (number - 2) * 64 };
        mapped.store(at as u64, &part);
    }
    let mut records: Vec<u8> = parts.flatten().take(64 << 10).collect();
    if how & 4 == 4 {
        seal_records(&mut records);
    }
    records.resize(records.len().next_multiple_of(8), 0);
    for (number, buffer) in [0, 1].into_iter().zip(records.chunks(records.len().div_ceil(16).max(1) * 8)) {
        mapped.store(12288 + number * 65536 + BLOCK_HEADER_BYTES as u64, buffer);
    }
    if let Ok(MemoryState::Formatted(_, memory)) = log::memory::LogMemory::look(mapped) {
        // Only data of the current epoch counts.
        for epoch in (0..4).map(Epoch) {
            let covered = Csn(u64::from(how >> 4));
            if let Ok(Some(segment)) = find(&memory, epoch, covered, quenchdb::internals::base::SegmentId(7))
            {
                let storage: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(1));
                let _ = dump(&storage, Some(&segment), DATABASE, Csn::ZERO, &|_, _| ());
            }
        }
    }
}

fn seal_memory_header(header: &mut [u8], whole: u64) {
    header[..8].copy_from_slice(b"QUENCHLM");
    put_u32(header, 8, 1);
    let check = crc(&header[..12]);
    put_u32(header, 12, check);
    header[16..24].copy_from_slice(&DATABASE.0.to_le_bytes());
    header[40..48].copy_from_slice(&whole.to_le_bytes());
    let check = crc(&header[16..56]);
    put_u32(header, 56, check);
}

/// Files of `load`, in each format. The target writes the rows that it reads, and reads them again.
pub(crate) fn load(data: &[u8]) {
    for format in [Format::Tsv, Format::Csv, Format::Json] {
        for (has_tables, has_header) in [(false, true), (false, false), (true, true), (true, false)] {
            let rows = read_rows(data, layout(format, has_tables, has_header));
            let mut text = Vec::new();
            let mut writer = RowWriter::new(&mut text, format, has_tables).expect("memory");
            for row in &rows {
                let (key, value) = (row.key.clone(), row.value.clone());
                let row_there = (!key.is_empty()).then_some(Ok((key, value)));
                writer.rows(&row.table, row_there.into_iter()).expect("memory");
            }
            writer.flush().expect("memory");
            drop(writer);
            let again = read_rows(&text, layout(format, has_tables, true));
            assert!(rows == again, "{format:?}: {}", String::from_utf8_lossy(&text));
        }
    }
}

fn layout(format: Format, has_tables: bool, has_header: bool) -> Layout {
    Layout { format, has_tables, has_header, names: Names::default() }
}

/// Returns the rows of a text without its bad lines, up to the first error.
fn read_rows(text: &[u8], layout: Layout) -> Vec<Row> {
    let mut rows = Vec::new();
    let text = Box::new(std::io::Cursor::new(text.to_vec()));
    let Ok(mut reader) = RowReader::new("it".into(), text, layout) else { return rows };
    loop {
        let mut row = Row::default();
        match reader.next(&mut row) {
            Ok(Found::Row) => rows.push(row),
            Ok(Found::Bad(_)) => {}
            Ok(Found::End) | Err(_) => return rows,
        }
    }
}
