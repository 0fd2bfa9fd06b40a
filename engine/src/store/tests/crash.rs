//! A crash or a failure at every single write: the database opens at the last published checkpoint.

use super::*;
use crate::base::random::Random;
use std::collections::BTreeMap;

/// Page versions of one checkpoint.
type Expected = BTreeMap<u64, u64>;

/// One checkpoint: changes some pages, publishes, and returns what a reader of it must find.
fn checkpoint(
    store: &Arc<PageStore>,
    manifest_file: &ManifestFile,
    manifest: &mut Manifest,
    pages: &Expected,
    random: &mut Random,
) -> Result<Expected> {
    let mut pages = pages.clone();
    let version = manifest.checkpoint.0 + 1;
    let round = store.begin_round()?;
    for _ in 0..random.below(12) {
        let page = 1 + random.below(20) * 200;
        if random.chance(1, 4) {
            round.remove_page(PageId(page))?;
            pages.remove(&page);
        } else {
            write(&round, page, version)?;
            pages.insert(page, version);
        }
    }
    if random.chance(1, 2) {
        round.write_blob(&version.to_le_bytes().repeat(600))?;
    }
    let finished = round.finish()?;
    let mut next = manifest.clone();
    next.store = finished.root().clone();
    (next.checkpoint, next.next_csn) = (Csn(version), Csn(version + 1));
    // If this fails `finished` is dropped undecided.
    manifest_file.publish(&next)?;
    *manifest = next;
    store.round_committed(finished);
    Ok(pages)
}

/// Runs checkpoints until the disk fails, crashes, and returns what was certain and what was being published.
fn run(disk: &Disk, seed: u64, operations: u64) -> Vec<Expected> {
    let mut random = Random::from_seed(seed);
    let store = PageStore::create(disk, DATABASE, PAGE).expect("created");
    let mut manifest = Manifest::new(DATABASE, PAGE as u32);
    let manifest_file = ManifestFile::create(disk, &manifest).expect("created");
    disk.fail_after(operations);
    let mut history = vec![Expected::new()];
    for _ in 0..8 {
        let newest = history.last().expect("never empty").clone();
        match checkpoint(&store, &manifest_file, &mut manifest, &newest, &mut random) {
            Ok(pages) => history.push(pages),
            Err(_) => break,
        }
    }
    history
}

fn check(disk: &Disk, history: &[Expected], what: &str) {
    let (_, manifest) = ManifestFile::open(disk, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    let published = manifest.checkpoint.0 as usize;
    assert!(published + 1 >= history.len(), "{what}: checkpoint {published} is older than a published one");
    let store = reopen(disk, &manifest.store).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found: Expected = store
        .page_ids()
        .map(|page| (page.0, version_of(&store, page.0).unwrap_or_else(|error| panic!("{what}: {error}"))))
        .collect();
    // A publication that failed may have happened all the same; then its content is not in the history.
    if let Some(expected) = history.get(published) {
        assert_eq!(&found, expected, "{what}");
    }
    if let Some(catalog) = &manifest.store.catalog {
        store.read_blob(catalog).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn every_failing_operation_leaves_the_last_published_checkpoint() {
    for seed in 0..3 {
        for operations in 0.. {
            let disk = Disk::new();
            let history = run(&disk, seed, operations);
            let complete = disk.works();
            let what = format!("seed {seed}, {operations} operations");
            disk.crash(&mut Random::from_seed(operations));
            check(&disk, &history, &what);
            if complete {
                break;
            }
        }
    }
}
