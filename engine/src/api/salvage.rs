//! Copying what is readable of a damaged database to a new one.

use super::database::Database;
use super::index_list::{INDEX_LIST, ListedIndex};
use super::open::{Progress, or_ignore};
use super::place::Place;
use super::table::Table;
use super::transaction::Transaction;
use crate::backup::{self, SalvageReport, SalvageSink};
use crate::base::settings::Settings;
use crate::base::{Error, ErrorKind, Result, TableId, TableTypes};
use crate::store::SalvageScan;
use std::collections::{BTreeMap, HashMap};

/// Most rows of one transaction.
const ROWS: usize = 512;
/// Bytes after which a transaction is committed.
const BYTES: usize = 1 << 20;

impl Database {
    /// Copies what is readable of the damaged database `source` to a new one in `target`, an empty
    /// directory (created if it is missing). The source is only read, so it may be on read-only
    /// media, and it must not be open. Works without a manifest, mapping or catalog:
    /// `docs/guide/backup.md` says what is taken from where. The report lists what could not be
    /// read. The log records above the checkpoint are held in memory. Pages of the new database are
    /// as long as the settings say, or as those of the source if these are longer, so that every
    /// key has room.
    ///
    /// # Errors
    /// `AlreadyExists` or `InvalidArgument` if the target is not empty; `Busy` if the source is
    /// open; `NotFound` or `Corruption` if nothing is found to begin with. Until then nothing is
    /// written to the target. The errors of writing to the new database: then the target is a
    /// database with a part of the rows.
    pub fn salvage(
        source: impl Into<Place>,
        target: impl Into<Place>,
        settings: Settings,
        progress: Option<Progress>,
    ) -> Result<SalvageReport> {
        let mut progress = or_ignore(progress);
        settings.validate()?;
        let (place, target) = (source.into(), target.into());
        target.refuse_nested([Some(("the source", place.directory()))])?;
        let source = place.open_source(&settings)?;
        let _lock = place.lock_for_reading(&*source)?;
        let target = target.open_target(&settings)?;
        backup::refuse_unless_empty(&*target)?;
        let remains = SalvageScan::look(&*source, &mut *progress)?;
        let page_bytes = settings.page_bytes.max(remains.page_bytes());
        let settings = Settings { page_bytes, create: true, read_only: false, ..settings };
        let database = Database::builder().settings(settings).in_storage(target).open("salvage")?;
        // Another process may have created one meanwhile.
        if database.statistics().newest_csn.0 > 0 || !database.tables().is_empty() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the target directory already holds a database",
            )
            .with_advice("choose an empty one"));
        }
        let mut sink = Sink {
            database: &database,
            tables: HashMap::new(),
            indexes: BTreeMap::new(),
            open: None,
            rows: 0,
            bytes: 0,
        };
        let report = backup::salvage(&source, &remains, &mut sink, &mut *progress)?;
        sink.commit()?;
        drop(sink);
        database.close()?;
        Ok(report)
    }
}

/// Writes salvaged rows, many in a transaction.
struct Sink<'a> {
    database: &'a Database,
    tables: HashMap<String, Table>,
    /// The list of indexes, whose lines have identifiers of the damaged database.
    indexes: BTreeMap<Vec<u8>, Vec<u8>>,
    open: Option<Transaction>,
    rows: usize,
    bytes: usize,
}

impl Sink<'_> {
    fn commit(&mut self) -> Result<()> {
        (self.rows, self.bytes) = (0, 0);
        self.open.take().map_or(Ok(()), |transaction| transaction.commit().map(drop))
    }

    fn with<T>(
        &mut self,
        name: &str,
        bytes: usize,
        f: impl FnOnce(&mut Transaction, &Table) -> Result<T>,
    ) -> Result<T> {
        if self.rows >= ROWS || self.bytes >= BYTES {
            self.commit()?;
        }
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + bytes);
        let table = match self.tables.get(name) {
            Some(table) => table.clone(),
            None => {
                let table = self.database.table(name)?;
                self.tables.insert(name.to_string(), table.clone());
                table
            }
        };
        let transaction = match &mut self.open {
            Some(transaction) => transaction,
            none => none.insert(self.database.begin()?),
        };
        f(transaction, &table)
    }
}

impl SalvageSink for Sink<'_> {
    fn create_table(&mut self, table: &str) -> Result<()> {
        if table == INDEX_LIST {
            return Ok(());
        }
        self.commit()?;
        self.database.table_or_create(table).map(drop)
    }

    fn drop_table(&mut self, table: &str) -> Result<()> {
        if table == INDEX_LIST {
            self.indexes.clear();
            return Ok(());
        }
        self.commit()?;
        self.tables.remove(table);
        self.database.drop_table(table)
    }

    fn rename_table(&mut self, table: &str, new_name: &str) -> Result<()> {
        self.commit()?;
        self.tables.remove(table);
        self.database.rename_table(table, new_name)
    }

    fn set_types(&mut self, table: &str, types: &TableTypes) -> Result<()> {
        self.commit()?;
        self.database.set_types(table, types)
    }

    fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<()> {
        if table == INDEX_LIST {
            self.indexes.insert(key.to_vec(), value.to_vec());
            return Ok(());
        }
        self.with(table, key.len() + value.len(), |transaction, table| transaction.insert(table, key, value))
    }

    fn delete(&mut self, table: &str, key: &[u8]) -> Result<()> {
        if table == INDEX_LIST {
            self.indexes.remove(key);
            return Ok(());
        }
        self.with(table, key.len(), |transaction, table| transaction.remove(table, key).map(drop))
    }

    fn get(&mut self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if table == INDEX_LIST {
            return Ok(self.indexes.get(key).cloned());
        }
        self.with(table, 0, |transaction, table| transaction.get(table, key))
    }

    /// Lists the indexes with the new identifiers, as not complete: each is built again from the
    /// rows that were salvaged when it is opened.
    fn finish(&mut self, names: &HashMap<TableId, String>) -> Result<()> {
        let new_id = |id: u32| self.database.table(names.get(&TableId(id))?).ok().map(|table| table.id());
        let mut lines = Vec::new();
        for (key, line) in &self.indexes {
            let (Ok((table, name)), Ok(listed)) = (ListedIndex::of_key(key), ListedIndex::decode(line))
            else {
                continue;
            };
            if let (Some(table), Some(index)) = (new_id(table), new_id(listed.table)) {
                let listed = ListedIndex { is_complete: false, table: index, ..listed };
                lines.push((ListedIndex::key(table, name), listed.encode()));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.commit()?;
        let list = self.database.table_or_create(INDEX_LIST)?;
        self.database.transact(|tx| lines.iter().try_for_each(|(key, line)| tx.insert(&list, key, line)))
    }
}
