//! Salvage of rows from pages: the trees as far as they can be read, then leaves without a parent.

use super::report::{LostRange, SalvageReport, SalvageSink};
use crate::backup::progress::ProgressFn;
use crate::base::checksum::crc;
use crate::base::{Csn, PageId, Result, TableId};
use crate::checkpoint::{TableRecord, decode_catalog_prefix};
use crate::store::SalvageScan;
use crate::tree::content::{Content, StoredPage, StoredRow, StoredValue, read_content};
use std::collections::HashSet;

/// A range of keys: the lowest, and the first one above it.
type Range = (Vec<u8>, Option<Vec<u8>>);

/// Reads the rows of the pages of `scan` and writes them to `sink`. Returns the tables of the
/// catalog.
///
/// # Errors
/// Those of the sink. Damage is in the report.
pub(super) fn salvage_pages(
    scan: &SalvageScan,
    sink: &mut dyn SalvageSink,
    report: &mut SalvageReport,
    progress: ProgressFn<'_>,
) -> Result<Vec<TableRecord>> {
    let mut walk = Walk { scan, sink, report, visited: HashSet::new() };
    let (tables, known) = walk.tables();
    for (done, table) in tables.iter().enumerate() {
        progress("tables read", done as u64, tables.len() as u64);
        walk.report.tables.entry(table.name.clone()).or_default();
        walk.sink.create_table(&table.name)?;
        if let Some(types) = &table.types {
            walk.sink.set_types(&table.name, types)?;
        }
        walk.below(&table.name, table.root, (Vec::new(), None), None)?;
    }
    walk.fill_gaps(!known)?;
    Ok(tables)
}

struct Walk<'a> {
    scan: &'a SalvageScan,
    sink: &'a mut dyn SalvageSink,
    report: &'a mut SalvageReport,
    visited: HashSet<PageId>,
}

impl Walk<'_> {
    /// Returns the tables of the catalog, and true. If the catalog cannot be read, returns the
    /// tables of the newest readable older catalog, one more table for each other root, and false.
    fn tables(&mut self) -> (Vec<TableRecord>, bool) {
        if self.scan.manifest.as_ref().is_some_and(|manifest| manifest.store.catalog.is_none()) {
            return (Vec::new(), true);
        }
        if let Some(tables) = self.scan.catalog().and_then(|bytes| decode_catalog_prefix(&bytes)) {
            return (tables, true);
        }
        let what =
            "the catalog cannot be read: tables that no older catalog lists are named after their root pages";
        self.report.remarks.push(what.into());
        let mut older = self.scan.catalogs().into_iter();
        let mut tables = older.find_map(|bytes| decode_catalog_prefix(&bytes)).unwrap_or_default();
        for root in self.roots() {
            if tables.iter().all(|table| table.root != root) {
                tables.push(TableRecord {
                    id: TableId(0),
                    name: format!("salvaged-{root}"),
                    root,
                    types: None,
                });
            }
        }
        (tables, false)
    }

    /// Returns nodes without a parent whose fences span all keys.
    fn roots(&self) -> Vec<PageId> {
        let (mut roots, mut children) = (Vec::new(), HashSet::new());
        for page in self.scan.page_ids() {
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

    /// Returns the newest readable image of `page`.
    fn newest(&self, page: PageId) -> Option<StoredPage> {
        self.scan.images(page).iter().find_map(|(_, image)| read_content(self.trim(image)).ok())
    }

    fn trim<'i>(&self, image: &'i [u8]) -> &'i [u8] {
        &image[..self.scan.page_bytes()]
    }

    /// Reads the rows below `page`, which is for `range` and one level below `above`, or of any
    /// level. Because levels fall from page to page, damaged references cannot form a loop.
    fn below(&mut self, table: &str, page: PageId, range: Range, above: Option<u8>) -> Result<()> {
        self.visited.insert(page);
        let mut gaps = vec![range];
        for (_, image) in self.scan.images(page) {
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

    /// Takes the rows and children of a node that lie in the gaps. Returns the gaps that are left.
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
            StoredValue::Inline(value) => value.clone(),
            StoredValue::Large(reference) => {
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

    /// Appends the bytes of a large value below `page`. Returns false if a page is missing.
    fn large(&self, page: PageId, above: u8, len: u64, value: &mut Vec<u8>) -> bool {
        let part = self.scan.images(page).iter().find_map(|(_, image)| {
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

    /// Puts leaves without a parent into the only table they can belong to. With `all`, leaves that
    /// could belong to several tables get a table of their own.
    fn fill_gaps(&mut self, all: bool) -> Result<()> {
        let mut lost_nodes =
            self.report.tables.values().flat_map(|table| &table.lost).filter(|lost| lost.level > 0);
        if lost_nodes.next().is_none() && !all {
            return Ok(());
        }
        let mut leaves: Vec<(Csn, StoredPage, PageId)> = Vec::new();
        for page in self.scan.page_ids() {
            if self.visited.contains(&page) {
                continue;
            }
            for (csn, image) in self.scan.images(page) {
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

    /// Puts one leaf without a parent into a table.
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

/// Returns the keys in both ranges.
fn common(a: &Range, b: &Range) -> Option<Range> {
    let lower = a.0.clone().max(b.0.clone());
    let upper = match (&a.1, &b.1) {
        (Some(a), Some(b)) => Some(a.min(b).clone()),
        (a, b) => a.clone().or(b.clone()),
    };
    upper.as_ref().is_none_or(|upper| lower < *upper).then_some((lower, upper))
}

/// Returns `range` without `part`, which lies in it.
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
