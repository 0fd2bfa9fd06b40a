//! A crash or a failure at every single write: the database opens at the last published checkpoint.

use super::*;
use crate::base::random::Random;
use std::collections::BTreeMap;

/// Page versions of one checkpoint.
type Expected = BTreeMap<u64, u64>;

/// One checkpoint: changes some pages, publishes, and returns what a reader of it must find.
fn checkpoint(
    disk: &SimulatedStorage,
    store: &Arc<PageStore>,
    manifest_file: &ManifestFile,
    manifest: &mut Manifest,
    pages: &Expected,
    random: &mut Random,
) -> Result<Expected> {
    let mut pages = pages.clone();
    let version = manifest.checkpoint.0 + 1;
    let checkpoint = begin(store)?;
    let mut packed = Vec::new();
    for _ in 0..random.below(12) {
        let page = 1 + random.below(20) * 200;
        if random.chance(1, 4) {
            checkpoint.record(PageId(page), BlockRef::ABSENT);
            pages.remove(&page);
        } else if random.chance(1, 2) {
            packed.push(page);
            pages.insert(page, version);
        } else {
            write(store, &checkpoint, page, version)?;
            pages.insert(page, version);
        }
    }
    packed.retain(|page| pages.get(page) == Some(&version));
    let (mut writer, mut written) = (store.writer(disk, 1 << 20)?, Vec::new());
    for page in packed {
        writer.push(PageId(page), Csn(version), Heat::Cold, |out| {
            out.copy_from_slice(&image(page, version));
            Some((ImageKind::Settled, 0))
        })?;
    }
    writer.reap(true, &mut written)?;
    written.iter().for_each(|image| checkpoint.record(image.page, image.reference));
    if random.chance(1, 2) {
        checkpoint.write_blob(&version.to_le_bytes().repeat(600))?;
    }
    let finished = checkpoint.finish()?;
    let mut next = manifest.clone();
    next.store = finished.root().clone();
    (next.checkpoint, next.covered, next.next_csn) = (Csn(version), Csn(version), Csn(version + 1));
    // If this fails `finished` is dropped undecided.
    manifest_file.publish(&next)?;
    *manifest = next;
    store.commit_checkpoint(finished);
    assert_eq!(store.check_space(), [""; 0]);
    Ok(pages)
}

/// What a checkpoint holds, and how many operations the disk had done when it was certain.
type History = Vec<(usize, Expected)>;

/// Runs checkpoints until one fails; `fault` is armed after the creation.
fn run(disk: &SimulatedStorage, seed: u64, fault: Option<Fault>) -> History {
    let mut random = Random::from_seed(seed);
    let store = PageStore::create(disk, DATABASE, PAGE).expect("created");
    store.compress(crate::base::settings::Compression::Lz4);
    let mut manifest = Manifest::new(DATABASE, PAGE as u32);
    let manifest_file = ManifestFile::create(disk, &manifest).expect("created");
    fault.into_iter().for_each(|fault| disk.inject(fault));
    let mut history = vec![(disk.operations(), Expected::new())];
    for _ in 0..5 {
        let newest = history.last().expect("never empty").1.clone();
        match checkpoint(disk, &store, &manifest_file, &mut manifest, &newest, &mut random) {
            Ok(pages) => history.push((disk.operations(), pages)),
            Err(_) => break,
        }
    }
    history
}

/// After a crash behind `operations` operations the newest certain checkpoint, or the one being
/// published, is there.
fn check(crashed: &SimulatedStorage, history: &History, operations: usize, what: &str) {
    let fail = |error: Error| -> ! { panic!("{what}: {error}") };
    let (_, manifest) = ManifestFile::open(crashed, false).unwrap_or_else(|error| fail(error));
    let published = manifest.checkpoint.0 as usize;
    let certain = history.iter().filter(|(when, _)| *when <= operations).count();
    assert!(published + 1 >= certain, "{what}: checkpoint {published} is older than a certain one");
    let store = reopen(crashed, &manifest.store).unwrap_or_else(|error| fail(error));
    let version = |page: PageId| version_of(&store, page.0).unwrap_or_else(|error| fail(error));
    let found: Expected = store.page_ids().map(|page| (page.0, version(page))).collect();
    // A publication that failed may have happened all the same; then its content is not in the
    // history.
    if let Some((_, expected)) = history.get(published) {
        assert_eq!(&found, expected, "{what}");
    }
    if let Some(catalog) = &manifest.store.catalog {
        store.read_blob(catalog).unwrap_or_else(|error| fail(error));
    }
}

#[test]
fn crash_after_any_operation_keeps_the_published_checkpoint() {
    for (disk, seed) in new_disks().into_iter().chain(new_disks()).zip([0, 0, 1, 1]) {
        let history = run(&disk, seed, None);
        assert_eq!(disk.overwrites(), 0);
        for operations in history[0].0..=disk.operations() {
            for kind in [CrashKind::PowerCut, CrashKind::Kill] {
                let what = format!("seed {seed}, {kind:?} after {operations} operations");
                let crashed = disk.crash(kind, operations, seed + operations as u64);
                check(&crashed, &history, operations, &what);
            }
        }
    }
}

#[test]
fn every_failing_operation_leaves_the_last_published_checkpoint() {
    for operation in [OperationKind::Write, OperationKind::DurableWrite, OperationKind::Flush] {
        for (after, which) in (0..).flat_map(|after| [(after, 0), (after, 1)]) {
            let [in_place, extents] = new_disks();
            let disk = if which == 0 { in_place } else { extents };
            let fault = Fault { operation, after, kind: FaultKind::Once, error: 5 };
            let history = run(&disk, 1, Some(fault));
            let what = format!("{operation:?} number {after} fails");
            let operations = disk.operations();
            check(&disk.crash(CrashKind::PowerCut, operations, after), &history, operations, &what);
            if disk.faults_struck() == 0 {
                break;
            }
        }
    }
}
