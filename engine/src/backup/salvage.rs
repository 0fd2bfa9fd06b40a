//! What is readable of a damaged database, brought to a new one.
//!
//! ```text
//!   manifest, mapping, catalog, as far as they are readable
//!        │ otherwise: every whole block of the file, the newest first
//!        ▼
//!   roots ─▶ inner nodes ─▶ leaves ─▶ rows          a node that cannot be read leaves a gap in the keys of its table
//!                                      ▲
//!   leaves that no readable node refers to fill the gaps that their fences lie in
//!        │
//!        ▼
//!   the log above the checkpoint, each transaction that is there whole
//! ```
//!
//! A row is taken only from a page that is whole and whose fences say that it is for that key, and each key from one page only. It
//! may be older than the newest that was committed if only older images or a part of the log are left: the report names what
//! could not be read.

use super::ProgressFn;
use crate::base::checksum::crc;
use crate::base::{Csn, PageId, Result, TableId};
use crate::checkpoint::{TableRecord, decode_catalog_prefix};
use crate::device::Storage;
use crate::log::{
    Fragment, LoadedBlock, Operation, Record, RecordKind, ScanOptions, counting_bytes, load, operations,
    scan_what_is_readable,
};
use crate::store::{CsnSet, Manifest, Remains};
use crate::tree::content::{Content, StoredPage, StoredRow, StoredValue, read_content};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Where salvaged rows go.
pub trait SalvageSink {
    /// Makes a table, unless it is there.
    ///
    /// # Errors
    /// Those of the new database.
    fn create_table(&mut self, table: &str) -> Result<()>;

    /// Drops a table.
    ///
    /// # Errors
    /// Those of the new database.
    fn drop_table(&mut self, table: &str) -> Result<()>;

    /// Writes a row of a table that is there.
    ///
    /// # Errors
    /// Those of the new database.
    fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes a row, if it is there.
    ///
    /// # Errors
    /// Those of the new database.
    fn delete(&mut self, table: &str, key: &[u8]) -> Result<()>;

    /// The value of a row.
    ///
    /// # Errors
    /// Those of the new database.
    fn get(&mut self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// Keys of a table that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostRange {
    /// The lowest.
    pub lower: Vec<u8>,
    /// The first above; `None` if all that follow are lost.
    pub upper: Option<Vec<u8>>,
    /// Level of the page that was for them: above 0 if it was no leaf, or that is not known.
    level: u8,
}

/// What was salvaged of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SalvagedTable {
    /// Rows read from pages.
    pub rows: u64,
    /// Keys of pages that could not be read, as of the checkpoint.
    pub lost: Vec<LostRange>,
}

/// What was salvaged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SalvageReport {
    /// By name.
    pub tables: BTreeMap<String, SalvagedTable>,
    /// Transactions of the log that were applied.
    pub transactions: u64,
    /// Everything else that could not be read.
    pub remarks: Vec<String>,
}

impl SalvageReport {
    /// True if nothing was missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.remarks.is_empty() && self.tables.values().all(|table| table.lost.is_empty())
    }
}

/// A range of keys.
type Range = (Vec<u8>, Option<Vec<u8>>);

/// Reads what can be read in `storage`, where pages have these `remains`, and has `sink` write it.
///
/// # Errors
/// Those of the sink. Damage is in the report.
pub fn salvage(
    storage: &Arc<dyn Storage>,
    remains: &Remains,
    sink: &mut dyn SalvageSink,
    progress: ProgressFn<'_>,
) -> Result<SalvageReport> {
    let mut report = SalvageReport { remarks: remains.remarks.clone(), ..SalvageReport::default() };
    let mut walk = Walk { remains, sink, report: &mut report, visited: HashSet::new() };
    let (tables, known) = walk.tables();
    for (done, table) in tables.iter().enumerate() {
        progress("tables read", done as u64, tables.len() as u64);
        walk.report.tables.entry(table.name.clone()).or_default();
        walk.sink.create_table(&table.name)?;
        walk.below(&table.name, table.root, (Vec::new(), None), None)?;
    }
    walk.fill_gaps(!known)?;
    if let Some(manifest) = remains.manifest.clone() {
        let names = tables.into_iter().filter(|table| table.id.0 > 0);
        let names = names.map(|table| (table.id, table.name)).collect();
        apply_log(storage, &manifest, names, sink, &mut report)?;
    } else {
        report
            .remarks
            .push("without a manifest nobody knows which log records count: the log is left out".into());
    }
    Ok(report)
}

struct Walk<'a> {
    remains: &'a Remains,
    sink: &'a mut dyn SalvageSink,
    report: &'a mut SalvageReport,
    visited: HashSet<PageId>,
}

impl Walk<'_> {
    /// The tables of the catalog, and true; if that cannot be read those of an older one and one for each other tree that has a
    /// root, and false.
    fn tables(&mut self) -> (Vec<TableRecord>, bool) {
        if self.remains.manifest.as_ref().is_some_and(|manifest| manifest.store.catalog.is_none()) {
            return (Vec::new(), true);
        }
        if let Some(tables) = self.remains.catalog().and_then(|bytes| decode_catalog_prefix(&bytes)) {
            return (tables, true);
        }
        let what =
            "the catalog cannot be read: tables that no older one knows are named after their root pages";
        self.report.remarks.push(what.into());
        let mut older = self.remains.catalogs().into_iter();
        let mut tables = older.find_map(|bytes| decode_catalog_prefix(&bytes)).unwrap_or_default();
        for root in self.roots() {
            if tables.iter().all(|table| table.root != root) {
                tables.push(TableRecord { id: TableId(0), name: format!("salvaged-{root}"), root });
            }
        }
        (tables, false)
    }

    /// Nodes for all keys that no other refers to.
    fn roots(&self) -> Vec<PageId> {
        let (mut roots, mut children) = (Vec::new(), HashSet::new());
        for page in self.remains.page_ids() {
            let Some(node) = self.newest(page) else { continue };
            match node.content {
                Content::Overflow(_) => continue,
                Content::Inner(below) => children.extend(below.iter().map(|child| child.page)),
                Content::Leaf(_) => {}
            }
            if node.lower.is_empty() && node.upper.is_none() {
                roots.push(page);
            }
        }
        roots.retain(|page| !children.contains(page));
        roots
    }

    fn newest(&self, page: PageId) -> Option<StoredPage> {
        self.remains.images(page).iter().find_map(|(_, image)| read_content(self.trim(image)).ok())
    }

    fn trim<'i>(&self, image: &'i [u8]) -> &'i [u8] {
        &image[..self.remains.page_bytes()]
    }

    /// Reads what is below `page`, which is for `range` and of the level below `above`, or of any. So levels fall from page to page,
    /// whatever refers to what.
    fn below(&mut self, table: &str, page: PageId, range: Range, above: Option<u8>) -> Result<()> {
        self.visited.insert(page);
        let mut gaps = vec![range];
        for (_, image) in self.remains.images(page) {
            if gaps.is_empty() {
                break;
            }
            let Ok(node) = read_content(self.trim(&image)) else { continue };
            let fits = above.is_none_or(|above| node.level.checked_add(1) == Some(above));
            if fits && !matches!(node.content, Content::Overflow(_)) {
                gaps = self.take(table, &node, gaps)?;
            }
        }
        let level = above.map_or(u8::MAX, |above| above - 1);
        let lost = gaps.into_iter().map(|(lower, upper)| LostRange { lower, upper, level });
        self.report.tables.entry(table.to_string()).or_default().lost.extend(lost);
        Ok(())
    }

    /// Takes of a node what lies in the gaps; returns what is left of them.
    fn take(&mut self, table: &str, node: &StoredPage, gaps: Vec<Range>) -> Result<Vec<Range>> {
        let fences = (node.lower.clone(), node.upper.clone());
        let mut left = Vec::new();
        for gap in gaps {
            let Some(part) = common(&gap, &fences) else {
                left.push(gap);
                continue;
            };
            match &node.content {
                Content::Leaf(rows) => {
                    let inside = rows.iter().filter(|row| is_inside(&row.key, &part));
                    inside.into_iter().try_for_each(|row| self.put(table, row))?;
                }
                Content::Inner(children) => {
                    for child in children {
                        let range = common(&part, &(child.lower.clone(), child.upper.clone()));
                        if let Some(range) = range.filter(|_| node.level > 0) {
                            self.below(table, child.page, range, Some(node.level))?;
                        }
                    }
                }
                Content::Overflow(_) => {}
            }
            left.extend(without(&gap, &part));
        }
        Ok(left)
    }

    fn put(&mut self, table: &str, row: &StoredRow) -> Result<()> {
        let value = match &row.value {
            StoredValue::Here(value) => value.clone(),
            StoredValue::Elsewhere(reference) => {
                let mut value = Vec::new();
                let whole = self.large(reference.root, u8::MAX, reference.len, &mut value);
                if !whole || value.len() as u64 != reference.len || crc(&value) != reference.crc {
                    let key = row.key.escape_ascii();
                    self.report
                        .remarks
                        .push(format!("table `{table}`: the large value of key \"{key}\" is lost"));
                    return Ok(());
                }
                value
            }
        };
        self.sink.put(table, &row.key, &value)?;
        self.report.tables.entry(table.to_string()).or_default().rows += 1;
        Ok(())
    }

    /// Appends the bytes of a large value below `page`; false if a page is missing.
    fn large(&self, page: PageId, above: u8, len: u64, value: &mut Vec<u8>) -> bool {
        let part = self.remains.images(page).iter().find_map(|(_, image)| {
            let node = read_content(self.trim(image)).ok()?;
            match node.content {
                Content::Overflow(part) if node.level < above => Some((node.level, part)),
                _ => None,
            }
        });
        match part {
            Some((_, Ok(bytes))) => {
                value.extend_from_slice(&bytes);
                value.len() as u64 <= len
            }
            Some((level, Err(pages))) => pages.iter().all(|page| self.large(*page, level, len, value)),
            None => false,
        }
    }

    /// Leaves that nobody refers to, put where they can only belong; `all` takes those too that could belong anywhere.
    fn fill_gaps(&mut self, all: bool) -> Result<()> {
        let mut lost_nodes =
            self.report.tables.values().flat_map(|table| &table.lost).filter(|lost| lost.level > 0);
        if lost_nodes.next().is_none() && !all {
            return Ok(());
        }
        let mut leaves: Vec<(Csn, StoredPage, PageId)> = Vec::new();
        for page in self.remains.page_ids() {
            if self.visited.contains(&page) {
                continue;
            }
            for (csn, image) in self.remains.images(page) {
                if let Ok(node) = read_content(self.trim(&image))
                    && matches!(node.content, Content::Leaf(_))
                {
                    leaves.push((csn, node, page));
                }
            }
        }
        leaves.sort_by_key(|(csn, _, page)| (std::cmp::Reverse(*csn), *page));
        for (_, leaf, page) in leaves {
            self.place(&leaf, page, all)?;
        }
        Ok(())
    }

    fn place(&mut self, leaf: &StoredPage, page: PageId, all: bool) -> Result<()> {
        let fences = (leaf.lower.clone(), leaf.upper.clone());
        let touches = |lost: &LostRange| {
            lost.level > 0 && common(&(lost.lower.clone(), lost.upper.clone()), &fences).is_some()
        };
        let names: Vec<String> = self
            .report
            .tables
            .iter()
            .filter(|(_, table)| table.lost.iter().any(touches))
            .map(|(name, _)| name.clone())
            .collect();
        match &names[..] {
            [] if !all => Ok(()),
            [name] => {
                let table = self.report.tables.entry(name.clone()).or_default();
                let (fitting, others): (Vec<LostRange>, Vec<LostRange>) =
                    std::mem::take(&mut table.lost).into_iter().partition(touches);
                table.lost = others;
                for lost in fitting {
                    let left = self.take(name, leaf, vec![(lost.lower, lost.upper)])?;
                    let table = self.report.tables.entry(name.clone()).or_default();
                    table.lost.extend(left.into_iter().map(|(lower, upper)| LostRange {
                        lower,
                        upper,
                        level: lost.level,
                    }));
                }
                Ok(())
            }
            _ => {
                let name = format!("salvaged-{page}");
                self.sink.create_table(&name)?;
                self.report.remarks.push(format!("a leaf of an unknown table is in table `{name}`"));
                self.take(&name, leaf, vec![fences.clone()]).map(drop)
            }
        }
    }
}

fn is_inside(key: &[u8], range: &Range) -> bool {
    key >= &range.0[..] && range.1.as_deref().is_none_or(|upper| key < upper)
}

/// The keys in both.
fn common(a: &Range, b: &Range) -> Option<Range> {
    let lower = a.0.clone().max(b.0.clone());
    let upper = match (&a.1, &b.1) {
        (Some(a), Some(b)) => Some(a.min(b).clone()),
        (a, b) => a.clone().or(b.clone()),
    };
    upper.as_ref().is_none_or(|upper| lower < *upper).then_some((lower, upper))
}

/// `range` without `part`, which is in it.
fn without(range: &Range, part: &Range) -> Vec<Range> {
    let mut left = Vec::new();
    if range.0 < part.0 {
        left.push((range.0.clone(), Some(part.0.clone())));
    }
    if let Some(end) = &part.1
        && range.1.as_ref().is_none_or(|upper| end < upper)
    {
        left.push((end.clone(), range.1.clone()));
    }
    left
}

/// Applies the transactions above the checkpoint that are whole, in CSN order.
fn apply_log(
    storage: &Arc<dyn Storage>,
    manifest: &Manifest,
    names: HashMap<TableId, String>,
    sink: &mut dyn SalvageSink,
    report: &mut SalvageReport,
) -> Result<()> {
    if manifest.clean {
        return Ok(());
    }
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
            report.remarks.push(format!("the log is left out: {error}"));
            return Ok(());
        }
    };
    report.remarks.extend(left_out.iter().map(|error| format!("of the log is left out: {error}")));
    let voids = manifest.epochs.iter().fold(CsnSet::default(), |voids, entry| voids.union(&entry.voids));
    let mut records: BTreeMap<Csn, Vec<u8>> = BTreeMap::new();
    for chain in &found.chains {
        let entry = manifest.epochs.iter().find(|entry| entry.epoch == chain.epoch);
        let end = match entry {
            _ if chain.epoch == manifest.epoch => u64::MAX,
            Some(entry) => entry.accepted_end(chain.log).unwrap_or(0),
            None => 0,
        };
        let count = chain.blocks.iter().take_while(|block| block.sequence() <= end).count();
        // One by one: what cannot be read any more is left out alone.
        for block in chain.blocks[..count].iter().map(std::slice::from_ref) {
            let loaded = load(block, 0).unwrap_or_else(|error| {
                report.remarks.push(format!("of the log is left out: {error}"));
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
    let mut applier = Applier { sink, names, misfits: 0, value: Vec::new() };
    let mut missing = 0;
    let mut next = voids.first_absent(manifest.checkpoint.next());
    let mut chunks: BTreeMap<Csn, Vec<Csn>> = BTreeMap::new();
    for (csn, bytes) in &records {
        let record = Record::decode(bytes)?;
        applier.value.clear();
        let (first, last) = match record.fragment {
            Some(fragment) => (fragment.first_of(*csn), fragment.last_of(*csn)),
            None => (*csn, *csn),
        };
        let is_whole = record.fragment.is_none_or(|fragment| is_whole(&records, first, fragment.count));
        if *csn > manifest.checkpoint && last >= next {
            // Of a transaction that is not whole the fragments that are missing count once, with it.
            missing += first.0.saturating_sub(next.0) + u64::from(!is_whole);
            next = voids.first_absent(last.next());
        }
        match record.part {
            Some(part) if record.header.kind == RecordKind::Chunk => {
                chunks.entry(part.first_of(*csn)).or_default().push(*csn);
            }
            _ if *csn <= manifest.checkpoint => {}
            Some(part) => {
                let earlier = chunks.remove(&part.first).unwrap_or_default();
                match put_together(&records, &earlier, &record)? {
                    Some(operations) => {
                        operations.iter().try_for_each(|operations| applier.apply(operations))?;
                        report.transactions += 1;
                    }
                    None => missing += 1,
                }
            }
            None if !is_whole => {}
            None => {
                applier.apply(record.body)?;
                report.transactions += u64::from(*csn == last);
            }
        }
    }
    let misfits = applier.misfits;
    for table in applier.names.values() {
        report.tables.entry(table.clone()).or_default();
    }
    if next < manifest.first_csn {
        missing += manifest.first_csn.0 - next.0;
    }
    if missing > 0 {
        report.remarks.push(format!("about {missing} transactions are missing from the log"));
    }
    if misfits > 0 {
        report.remarks.push(format!("{misfits} changes in the log fit nothing that is there"));
    }
    Ok(())
}

/// Whether all fragments of the transaction whose first one has the CSN `first` are there.
fn is_whole(records: &BTreeMap<Csn, Vec<u8>>, first: Csn, count: u32) -> bool {
    let is_there = |number| {
        let record = records.get(&Csn(first.0 + u64::from(number))).map(|bytes| Record::decode(bytes));
        record.is_some_and(|record| record.is_ok_and(|r| r.fragment == Some(Fragment { number, count })))
    };
    (0..count).all(is_there)
}

/// What counts of the operations of a long transaction, part by part; `None` if not all parts are there.
fn put_together<'a>(
    records: &'a BTreeMap<Csn, Vec<u8>>,
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

struct Applier<'a> {
    sink: &'a mut dyn SalvageSink,
    names: HashMap<TableId, String>,
    misfits: u64,
    /// What there is of a large value that goes on.
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

    /// False if it fits nothing.
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

impl LostRange {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        let shown = |key: &[u8]| format!("\"{}\"", key.escape_ascii());
        let upper =
            self.upper.as_deref().map_or_else(|| "the end".into(), |upper| format!("below {}", shown(upper)));
        let lower = if self.lower.is_empty() { "the beginning".into() } else { shown(&self.lower) };
        format!("keys from {lower} to {upper}")
    }
}
