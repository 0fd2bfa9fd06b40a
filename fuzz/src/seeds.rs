//! Initial inputs: parts of real databases.

use crate::parsers::DATABASE;
use crate::targets::TARGETS;
use quenchdb::internals::checkpoint::{StoredCatalog, TableRecord, encode_catalog};
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::store::{Manifest, block};
use quenchdb::{BackupOptions, Database, Durability, Place, Preset, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Named inputs of each target.
pub type Seeds = BTreeMap<&'static str, Vec<(String, Vec<u8>)>>;

/// Returns an open database with all kinds of content: files by path, and the mapped memory.
fn files(preset: Preset, chunks: usize) -> (BTreeMap<String, Vec<u8>>, Vec<u8>) {
    let disk = SimulatedStorage::new(3);
    let mut settings = Settings::default().with(|s| {
        s.preset = preset;
        s.logs = 2;
        s.memory_bytes = 4 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 4 << 20;
        s.lab.checkpoint_log_bytes = 1 << 20;
        s.lab.chunk_bytes = chunks;
    });
    if preset == Preset::Passive {
        settings.log_memory = Some("mapped-memory".into());
    }
    let db = Database::builder().settings(settings).storage(Arc::new(disk.clone())).open("x").expect("opens");
    let table = db.create_table("t").expect("new");
    for n in 0..60u32 {
        let level = if n % 2 == 0 { Durability::Durable } else { Durability::Lazy };
        let mut tx = db.begin_with(level).expect("free");
        tx.insert(&table, (n % 20).to_be_bytes(), vec![n as u8; (n % 7 * 30) as usize]).expect("no conflict");
        if n % 20 == 5 {
            tx.insert(&table, "large", vec![n as u8; 6000]).expect("no conflict");
        }
        tx.remove(&table, (n % 9).to_be_bytes()).expect("no conflict");
        tx.commit().expect("a whole disk");
        if n == 30 {
            db.create_table("u").expect("new");
            db.drop_table("u").expect("there");
            db.checkpoint().expect("a whole disk");
        }
    }
    db.flush().expect("a whole disk");
    let files = disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path).expect("listed")));
    (files.collect(), disk.read_memory())
}

/// Returns the bytes up to the last nonzero one.
fn trimmed(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// Replaces the identity of the database by the one that the parsers expect.
fn ours(bytes: &[u8], database: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(8) {
        if bytes[at..at + 8] == *database {
            bytes[at..at + 8].copy_from_slice(&DATABASE.0.to_le_bytes());
        }
    }
    bytes
}

/// Adds parts of three small databases.
fn add_databases(seeds: &mut Seeds) {
    let mut add = |target: &'static str, name: String, how: u8, bytes: &[u8]| {
        let bytes = [&[how][..], bytes].concat();
        seeds.get_mut(target).expect("a target").push((name, bytes));
    };
    for (name, preset, chunks) in [
        ("group", Preset::Group, 0),
        ("autonomous", Preset::Autonomous, 600),
        ("passive", Preset::Passive, 0),
    ] {
        let (files, memory) = files(preset, chunks);
        let manifest = Manifest::decode(&files["MANIFEST"][..1 << 20]).expect("published");
        let database = manifest.database.0.to_le_bytes();
        add("manifest", name.into(), 11, trimmed(&manifest.encode().expect("valid")));
        for (path, bytes) in &files {
            let bytes = ours(bytes, &database);
            if path.starts_with("log/") && !trimmed(&bytes).is_empty() {
                let name = format!("{name}-{}", &path[4..12]);
                let most = trimmed(&bytes).len().min(12 << 10);
                add("segment", name.clone(), 3, &bytes[..most]);
                // The first record, and its operations.
                add("record", name.clone(), 2, trimmed(&bytes[80..most.min(1500)]));
                add("record", name + "-operations", 1, trimmed(&bytes[136..most.min(1500)]));
            }
        }
        let page_bytes = manifest.page_bytes as usize;
        for (number, block) in files["pages/data"].chunks(page_bytes).enumerate() {
            let block = ours(block, &database);
            let Some(found) = block::identify(&{
                let mut whole = block.clone();
                let check = quenchdb::internals::base::checksum::crc(&whole[4..]);
                whole[..4].copy_from_slice(&check.to_le_bytes());
                whole
            }) else {
                continue;
            };
            if number < 12 {
                add(
                    "block",
                    format!("{name}-{number}"),
                    if found.kind == 7 { 3 } else { 1 },
                    trimmed(&block),
                );
            }
        }
        if preset == Preset::Passive {
            let memory = ours(&memory, &database);
            let parts =
                [&memory[..64], &memory[4096..4160], &memory[8192..8192 + 256], &memory[12288 + 80..16384]];
            add("memory", name.into(), 7, trimmed(&parts.concat()));
        }
    }
}

/// Returns the seeds of every target.
///
/// # Panics
/// A database cannot be created.
#[must_use]
pub fn seeds() -> Seeds {
    let mut seeds: Seeds = TARGETS.iter().map(|target| (target.name, Vec::new())).collect();
    add_databases(&mut seeds);
    let tables = (1..4).map(|n| TableRecord {
        id: quenchdb::internals::base::TableId(n),
        name: "x".repeat(n as usize),
        root: quenchdb::internals::base::PageId(n.into()),
        types: None,
    });
    let retired = vec![quenchdb::internals::tree::LargeReference {
        root: quenchdb::internals::base::PageId(9),
        len: 5000,
        crc: 7,
    }];
    let unfinished = vec![quenchdb::internals::base::PageId(3), quenchdb::internals::base::PageId(1 << 30)];
    let former = vec![quenchdb::internals::transaction::FormerTable {
        id: quenchdb::internals::base::TableId(9),
        name: "gone".into(),
        dropped: quenchdb::internals::base::Csn(7),
    }];
    let catalog = encode_catalog(&StoredCatalog { tables: tables.collect(), retired, unfinished, former });
    let mut plain = |target: &'static str, name: &str, bytes: Vec<u8>| {
        seeds.get_mut(target).expect("a target").push((name.into(), bytes));
    };
    plain("catalog", "all", catalog);
    plain("load", "lines", b"key\tvalue\na\\tb\t\\x00\\xff\\\\\n\xff\t\ntwo\ttabs\tno\n\\q\tx".to_vec());
    plain("load", "csv", b"table,key,value\nt,a,\\x41ff\nempty,,\nt,\"a\n\"\"b\",c\nt,b\n".to_vec());
    plain(
        "load",
        "json",
        b"{\"key\":\"a\",\"value\":\"\\u0000\"}\n{\"table\":\"t\",\"key_base64\":\"/w==\",\"value\":\"\"}\n"
            .to_vec(),
    );
    for (n, image) in tree_images().into_iter().enumerate() {
        let refs = [&[0xff; 8][..], &[0; 24], &[0xff; 8], &[0xfe; 8]].concat();
        plain("mapping", &format!("tree-{n}"), [&refs[..], b"|", &image].concat());
        plain("page", &format!("tree-{n}"), image);
    }
    for n in 0..6u8 {
        let script: Vec<u8> = (0..180u32).map(|i| (i.wrapping_mul(2_654_435_761) >> (9 + n)) as u8).collect();
        plain("api", &format!("script-{n}"), [&[n * 43][..], &script].concat());
    }
    for (name, files) in copies() {
        plain(if name == "slot" { "reader" } else { "description" }, name, [&[1][..], &files].concat());
    }
    // Begin, write, write, commit, checkpoint, fault, begin, write, commit, kill.
    let words =
        [0, 0, 0, 2, 1, 7, 9, 2, 3, 8, 251, 12, 1, 19, 21, 3, 0, 0, 0, 0, 0, 2, 1, 9, 9, 12, 1, 22, 23, 0];
    plain("api", "by-hand", words.to_vec());
    seeds
}

/// Returns the descriptions of a full backup and of an increment, and the slot of a reader.
fn copies() -> Vec<(&'static str, Vec<u8>)> {
    let disk = SimulatedStorage::new(4);
    let settings = Settings::default().with(|s| {
        s.memory_bytes = 4 << 20;
        s.log_bytes_max = 4 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.checkpoint_log_bytes = 1 << 20;
    });
    let db = Database::builder().settings(settings).storage(Arc::new(disk.clone())).open("x").expect("opens");
    let table = db.create_table("t").expect("new");
    let fill = |byte: u8| {
        let insert = |tx: &mut quenchdb::Transaction| {
            (0..60u8).try_for_each(|n| tx.insert(&table, [n], vec![byte; 300]))
        };
        db.transact(insert).expect("a whole disk");
    };
    let place = |disk: &SimulatedStorage| Place::storage(Arc::new(disk.clone()));
    let (full, increment) = (SimulatedStorage::new(5), SimulatedStorage::new(6));
    fill(1);
    db.backup(place(&full), BackupOptions::default()).expect("a whole disk");
    fill(2);
    let base = Some(place(&full));
    db.backup(place(&increment), BackupOptions::default().with(|s| s.base = base)).expect("a whole disk");
    let beside = Database::builder().storage(Arc::new(disk.clone())).memory_bytes(4 << 20);
    let _reader = beside.open_checkpoint("x").expect("there is one");
    let file = |disk: &SimulatedStorage, path| disk.read_file(path).expect("it was written");
    let description = |disk: &SimulatedStorage| {
        let mut bytes = file(disk, "BACKUP");
        // Padding follows the body.
        bytes.truncate(32 + u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")) as usize);
        bytes
    };
    let mut slot = file(&disk, "readers/00");
    slot.truncate(44);
    slot[16..24].copy_from_slice(&DATABASE.0.to_le_bytes());
    vec![("full", description(&full)), ("increment", description(&increment)), ("slot", slot)]
}

/// Returns pages of a small tree, three to an input.
fn tree_images() -> Vec<Vec<u8>> {
    use quenchdb::internals::tree::image::{Resolved, image_page};
    crate::pages::small_trees(|pool, pages| {
        let mut images = Vec::new();
        for page in pages {
            let guard = pool.shared(page).expect("in memory");
            let mut image = vec![0; 1024];
            image_page(guard.bytes(), &mut image, &mut |_, _, _| Resolved::Keep);
            images.extend(image);
        }
        images
    })
}
