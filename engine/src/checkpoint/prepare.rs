//! Stage 1, *prepare*: free dropped tables, choose C, list the tables as of C, open the checkpoint.

use super::catalog_blob::TableRecord;
use super::checkpointer::Checkpointer;
use crate::base::{PageId, Result, TableId};
use crate::store::OpenCheckpoint;
use crate::transaction::{CheckpointView, FormerTable};
use std::sync::Arc;

/// A checkpoint in progress.
pub(super) struct Prepared {
    /// The snapshot at C.
    pub(super) view: Arc<CheckpointView>,
    pub(super) open: OpenCheckpoint,
    pub(super) tables: Vec<TableRecord>,
    pub(super) former: Vec<FormerTable>,
    /// Pages with images that are part of large values missing at C.
    pub(super) unfinished: Vec<PageId>,
    pub(super) next_table: TableId,
    /// The database is closed with this checkpoint.
    pub(super) closing: bool,
}

impl Checkpointer {
    /// Frees the pages of dropped tables, chooses C, lists the tables as of C, and opens the
    /// checkpoint. No table is created or dropped and no image recorded between these steps.
    pub(super) fn prepare(&self, closing: bool) -> Result<Prepared> {
        let mut catalog = loop {
            let mut catalog = self.system.catalog.lock();
            let dropped = catalog.take_dropped();
            // A table that is dropped after C was chosen stays for the next checkpoint.
            if dropped.is_empty() {
                break catalog;
            }
            drop(catalog);
            // Without the lock: this may take as long as reading all their pages.
            self.free_dropped(dropped, closing)?;
        };
        // Not earlier: no version can be freed until the view has chosen C.
        let mut view = CheckpointView::begin(&self.system)?;
        let _gate = self.imager.gate();
        let mut uncommitted = self.system.large_values.lock_uncommitted();
        let csn = view.choose();
        let unfinished = view.list_uncommitted(&mut uncommitted);
        catalog.forget_former(self.system.commit().feed_source().history_begins());
        let former = catalog.former().to_vec();
        let tables = catalog
            .tables()
            .iter()
            .map(|table| TableRecord {
                id: table.id,
                name: table.name.to_string(),
                root: table.tree.root(),
                types: table.types().as_deref().cloned(),
            })
            .collect();
        let view = Arc::new(view);
        // The store first: pages freed by a structure change that does not see the epoch yet are
        // not in this checkpoint.
        let open = self.pool.frames().begin_epoch(|epoch| {
            let open = self.store.begin_checkpoint(epoch, csn)?;
            self.imager.begin(epoch, view.clone());
            Ok(open)
        })?;
        Ok(Prepared { view, open, tables, former, unfinished, next_table: catalog.next_id(), closing })
    }
}
