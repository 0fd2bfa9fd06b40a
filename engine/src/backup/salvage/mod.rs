//! Salvage: copies the readable part of a damaged database to a new one.
//!
//! ```text
//!   manifest, mapping, catalog, as far as they are readable
//!        │ otherwise: every whole block of the file, the newest first
//!        ▼
//!   roots ─▶ inner nodes ─▶ leaves ─▶ rows    unreadable nodes leave gaps in the keys of tables
//!                                      ▲
//!   leaves without a readable parent fill the gaps that their fences lie in
//!        │
//!        ▼
//!   the log above the checkpoint, each transaction that is there whole
//! ```
//!
//! Salvage takes a row only from a whole page whose fences contain the key, and each key from one
//! page only. A row may be older than its newest committed version if only older images or a part
//! of the log are left. The report names everything that could not be read.

mod report;
mod pages;
mod log;

pub use report::{LostRange, SalvageReport, SalvageSink, SalvagedTable};

use super::progress::ProgressFn;
use crate::base::{Result, TableId};
use crate::device::Storage;
use crate::store::SalvageScan;
use log::apply_log;
use pages::salvage_pages;
use std::collections::HashMap;
use std::sync::Arc;

/// Copies everything readable of the database in `storage` to `sink`; `scan` found its pages.
///
/// # Errors
/// Those of the sink. Damage is in the report.
pub fn salvage(
    storage: &Arc<dyn Storage>,
    scan: &SalvageScan,
    sink: &mut dyn SalvageSink,
    progress: ProgressFn<'_>,
) -> Result<SalvageReport> {
    let mut report = SalvageReport { remarks: scan.remarks.clone(), ..SalvageReport::default() };
    let tables = salvage_pages(scan, sink, &mut report, progress)?;
    let names = tables.into_iter().filter(|table| table.id.0 > 0);
    let mut names: HashMap<TableId, String> = names.map(|table| (table.id, table.name)).collect();
    if let Some(manifest) = &scan.manifest {
        names = apply_log(storage, manifest, names, sink, &mut report)?;
    } else {
        report
            .remarks
            .push("the log is left out: without a manifest it is unknown which log records count".into());
    }
    sink.finish(&names)?;
    Ok(report)
}
