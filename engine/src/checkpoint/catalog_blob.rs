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
//!
//! A catalog that ends behind the tables has no retired values.

use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::{Error, PageId, Result, TableId};
use crate::tree::{LargeReference, REFERENCE_BYTES};

/// A table in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// Identity in the log.
    pub id: TableId,
    /// Name.
    pub name: String,
    /// Root of its tree.
    pub root: PageId,
}

/// The stored form of the tables and of the retired values.
#[must_use]
pub fn encode_catalog(tables: &[TableRecord], retired: &[LargeReference]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tables.len() as u64);
    for table in tables {
        put_varint(&mut out, table.id.0.into());
        put_bytes(&mut out, table.name.as_bytes());
        put_varint(&mut out, table.root.0);
    }
    if !retired.is_empty() {
        put_varint(&mut out, retired.len() as u64);
        retired.iter().for_each(|reference| out.extend_from_slice(&reference.encode()));
    }
    out
}

/// The tables and the retired values in `bytes`.
///
/// # Errors
/// `Corruption`.
pub fn decode_catalog(bytes: &[u8]) -> Result<(Vec<TableRecord>, Vec<LargeReference>)> {
    decode(bytes).ok_or_else(|| Error::corruption("the stored catalog is malformed"))
}

/// The tables at the beginning of `bytes`, whatever follows: for who does not know how long the catalog is.
#[must_use]
pub fn decode_catalog_prefix(bytes: &[u8]) -> Option<Vec<TableRecord>> {
    decode_tables(&mut Reader::new(bytes))
}

fn decode_tables(reader: &mut Reader<'_>) -> Option<Vec<TableRecord>> {
    let count = reader.varint()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        let id = TableId(u32::try_from(reader.varint()?).ok()?);
        let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        tables.push(TableRecord { id, name, root: PageId(reader.varint()?) });
    }
    Some(tables)
}

fn decode(bytes: &[u8]) -> Option<(Vec<TableRecord>, Vec<LargeReference>)> {
    let mut reader = Reader::new(bytes);
    let tables = decode_tables(&mut reader)?;
    let mut retired = Vec::new();
    if !reader.is_empty() {
        for _ in 0..reader.varint()? {
            retired.push(LargeReference::decode(reader.take(REFERENCE_BYTES)?).ok()?);
        }
    }
    reader.is_empty().then_some((tables, retired))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogs_read_back_and_truncations_are_errors() {
        let tables = vec![
            TableRecord { id: TableId(1), name: "accounts".into(), root: PageId(7) },
            TableRecord { id: TableId(300), name: "é".into(), root: PageId(1 << 40) },
        ];
        let retired = vec![LargeReference { root: PageId(9), len: 5000, crc: 7 }];
        let without = encode_catalog(&tables, &[]);
        assert_eq!(decode_catalog(&without).expect("valid"), (tables.clone(), Vec::new()));
        let bytes = encode_catalog(&tables, &retired);
        assert_eq!(decode_catalog(&bytes).expect("valid"), (tables, retired));
        for len in (0..bytes.len()).filter(|len| *len != without.len()) {
            assert!(decode_catalog(&bytes[..len]).is_err());
        }
    }
}
