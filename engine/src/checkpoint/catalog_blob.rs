//! The catalog as a checkpoint stores it.
//!
//! | bytes | content |
//! |---|---|
//! | varint | number of tables |
//! | per table: varint | table identifier |
//! | varint + bytes | name, UTF-8 |
//! | varint | root page |
//! | varint | number of retired large values: in the images, but no entry refers to them |
//! | per value: 24 bytes | its reference, as in an entry |
//! | varint | number of pages of large values in progress: they have images, but are free |
//! | per page: varint | its identifier less that of the one before; ascending |
//! | varint | number of dropped tables that change feeds may meet; nothing if the blob ends with it and it is 0 |
//! | per table: varint | table identifier |
//! | varint + bytes | last name, UTF-8 |
//! | varint | CSN of the drop |
//! | varint | number of tables with types; nothing if it is 0 |
//! | per table: varint | table identifier; ascending |
//! | types | what the table is, and its types (`base::table_types`) |

use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::{Csn, Error, PageId, Result, TableId, TableTypes};
use crate::transaction::FormerTable;
use crate::tree::{LargeReference, REFERENCE_BYTES};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A table in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// Identity in the log.
    pub id: TableId,
    /// Name.
    pub name: String,
    /// Root of its tree.
    pub root: PageId,
    /// Its types, if it was opened with types.
    pub types: Option<TableTypes>,
}

/// The content of a checkpoint besides pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCatalog {
    /// All tables.
    pub tables: Vec<TableRecord>,
    /// Large values in the images that no entry refers to: their frees are deferred.
    pub retired: Vec<LargeReference>,
    /// Free pages that have images, because they were part of uncommitted large values. Ascending.
    pub unfinished: Vec<PageId>,
    /// Dropped tables that change feeds may meet.
    pub former: Vec<FormerTable>,
}

/// Returns the stored form.
#[must_use]
pub fn encode_catalog(catalog: &StoredCatalog) -> Vec<u8> {
    let StoredCatalog { tables, retired, unfinished, former } = catalog;
    let mut out = Vec::new();
    put_varint(&mut out, tables.len() as u64);
    for table in tables {
        put_varint(&mut out, table.id.0.into());
        put_bytes(&mut out, table.name.as_bytes());
        put_varint(&mut out, table.root.0);
    }
    put_varint(&mut out, retired.len() as u64);
    retired.iter().for_each(|reference| out.extend_from_slice(&reference.encode()));
    put_varint(&mut out, unfinished.len() as u64);
    let mut before = 0;
    for page in unfinished {
        put_varint(&mut out, page.0 - before);
        before = page.0;
    }
    let typed = with_types(tables);
    if !former.is_empty() || !typed.is_empty() {
        put_varint(&mut out, former.len() as u64);
        for table in former {
            put_varint(&mut out, table.id.0.into());
            put_bytes(&mut out, table.name.as_bytes());
            put_varint(&mut out, table.dropped.0);
        }
    }
    if !typed.is_empty() {
        put_varint(&mut out, typed.len() as u64);
        for (id, types) in typed {
            put_varint(&mut out, id.0.into());
            types.encode(&mut out);
        }
    }
    out
}

/// Returns the tables that have types, in the order of their identifiers.
fn with_types(tables: &[TableRecord]) -> BTreeMap<TableId, &TableTypes> {
    tables.iter().filter_map(|table| Some((table.id, table.types.as_ref()?))).collect()
}

/// Returns the catalog in `bytes`.
///
/// # Errors
/// `Corruption`.
pub fn decode_catalog(bytes: &[u8]) -> Result<StoredCatalog> {
    decode(bytes).ok_or_else(|| Error::corruption("the stored catalog is malformed"))
}

/// Returns the tables at the beginning of `bytes`, for a caller that does not know the catalog's
/// length: with their types, if the bytes behind the tables can be read.
#[must_use]
pub fn decode_catalog_prefix(bytes: &[u8]) -> Option<Vec<TableRecord>> {
    let mut reader = Reader::new(bytes);
    let tables = decode_tables(&mut reader)?;
    Some(decode_rest(&mut reader, tables.clone()).map_or(tables, |catalog| catalog.tables))
}

fn decode_tables(reader: &mut Reader<'_>) -> Option<Vec<TableRecord>> {
    let count = reader.varint()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        let id = TableId(u32::try_from(reader.varint()?).ok()?);
        let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        tables.push(TableRecord { id, name, root: PageId(reader.varint()?), types: None });
    }
    Some(tables)
}

fn decode(bytes: &[u8]) -> Option<StoredCatalog> {
    let mut reader = Reader::new(bytes);
    let tables = decode_tables(&mut reader)?;
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    if !tables
        .iter()
        .all(|table| table.id < TableId::LIMIT && ids.insert(table.id) && names.insert(&table.name))
    {
        return None;
    }
    let catalog = decode_rest(&mut reader, tables)?;
    // A catalog has one stored form: no empty list at the end, tables with types once and in order.
    (encode_catalog(&catalog) == bytes).then_some(catalog)
}

/// Takes what follows the tables.
fn decode_rest(reader: &mut Reader<'_>, mut tables: Vec<TableRecord>) -> Option<StoredCatalog> {
    let mut retired = Vec::new();
    for _ in 0..reader.varint()? {
        retired.push(LargeReference::decode(reader.take(REFERENCE_BYTES)?).ok()?);
    }
    let (mut unfinished, mut before) = (Vec::new(), 0u64);
    for _ in 0..reader.varint()? {
        before = before.checked_add(reader.varint()?)?;
        unfinished.push(PageId(before));
    }
    let former = if reader.is_empty() { Vec::new() } else { decode_former(reader)? };
    let mut types = if reader.is_empty() { HashMap::new() } else { decode_types(reader)? };
    tables.iter_mut().for_each(|table| table.types = types.remove(&table.id));
    Some(StoredCatalog { tables, retired, unfinished, former })
}

fn decode_former(reader: &mut Reader<'_>) -> Option<Vec<FormerTable>> {
    let count = reader.varint()?;
    let mut former = Vec::new();
    for _ in 0..count {
        let id = TableId(u32::try_from(reader.varint()?).ok()?);
        let name = std::str::from_utf8(reader.bytes()?).ok()?.into();
        former.push(FormerTable { id, name, dropped: Csn(reader.varint()?) });
    }
    Some(former)
}

fn decode_types(reader: &mut Reader<'_>) -> Option<HashMap<TableId, TableTypes>> {
    let count = reader.varint()?;
    let mut types = HashMap::new();
    for _ in 0..count {
        let id = TableId(u32::try_from(reader.varint()?).ok()?);
        types.insert(id, TableTypes::decode(reader)?);
    }
    Some(types)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TableKind;

    #[test]
    fn catalogs_read_back_and_truncations_are_errors() {
        let tables = vec![
            TableRecord { id: TableId(1), name: "accounts".into(), root: PageId(7), types: None },
            TableRecord { id: TableId(300), name: "é".into(), root: PageId(1 << 40), types: None },
        ];
        let retired = vec![LargeReference { root: PageId(9), len: 5000, crc: 7 }];
        let unfinished = vec![PageId(3), PageId(4), PageId(1 << 30)];
        let only_tables = StoredCatalog { tables, ..StoredCatalog::default() };
        let with_retired = StoredCatalog { retired, ..only_tables.clone() };
        let with_pages = StoredCatalog { unfinished: unfinished.clone(), ..only_tables.clone() };
        let former = vec![FormerTable { id: TableId(2), name: "gone".into(), dropped: Csn(77) }];
        let with_former = StoredCatalog { former: former.clone(), ..only_tables.clone() };
        let full = StoredCatalog { unfinished, ..with_retired.clone() };
        let with_all_but_types = StoredCatalog { former, ..full.clone() };
        let types = TableTypes::new(TableKind::Table, "u64".into(), "String".into()).expect("short");
        let mut tables_with_types = only_tables.clone();
        tables_with_types.tables[1].types = Some(types);
        let all = StoredCatalog { tables: tables_with_types.tables.clone(), ..with_all_but_types.clone() };
        for catalog in [
            &only_tables,
            &with_retired,
            &with_pages,
            &with_former,
            &full,
            &with_all_but_types,
            &tables_with_types,
            &all,
        ] {
            assert_eq!(decode_catalog(&encode_catalog(catalog)).expect("valid"), *catalog);
        }
        let bytes = encode_catalog(&all);
        for wrong in [
            TableRecord { id: TableId(2), ..only_tables.tables[0].clone() },
            TableRecord { name: "other".into(), ..only_tables.tables[0].clone() },
        ] {
            let twice = [only_tables.tables.clone(), vec![wrong]].concat();
            decode_catalog(&encode_catalog(&StoredCatalog { tables: twice, ..StoredCatalog::default() }))
                .expect_err("one name or identifier for two tables");
        }
        // Without former tables, or tables with types, their number is not there either.
        let whole = [&full, &with_all_but_types].map(|catalog| encode_catalog(catalog).len());
        for len in (0..bytes.len()).filter(|len| !whole.contains(len)) {
            assert!(decode_catalog(&bytes[..len]).is_err());
        }
        decode_catalog(&[&bytes[..whole[1]], &[0]].concat()).expect_err("an empty list at the end");
        let of_no_table = [&bytes[..bytes.len()], &[0]].concat();
        decode_catalog(&of_no_table).expect_err("a byte is left");
    }

    #[test]
    fn the_beginning_of_a_catalog_is_enough_for_tables() {
        let types = TableTypes::new(TableKind::Index, "u64".into(), String::new()).expect("short");
        let table = |types| TableRecord { id: TableId(4), name: "a".into(), root: PageId(7), types };
        let catalog = StoredCatalog { tables: vec![table(Some(types.clone()))], ..StoredCatalog::default() };
        let bytes = encode_catalog(&catalog);
        let behind = [&bytes[..], &[0; 100]].concat();
        assert_eq!(decode_catalog_prefix(&behind), Some(vec![table(Some(types))]));
        assert_eq!(decode_catalog_prefix(&bytes[..bytes.len() - 1]), Some(vec![table(None)]));
        assert_eq!(decode_catalog_prefix(&bytes[..2]), None);
    }
}
