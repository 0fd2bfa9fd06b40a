//! What an open database keeps for tables with types, which lie above.

use super::snapshot::Snapshot;
use crate::base::Result;
use crate::sync::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// A check of what an application derives from its rows. Returns the problems.
pub type Check = Box<dyn Fn(&Snapshot) -> Result<Vec<String>> + Send + Sync>;

/// State of tables with types, by the identifiers of the tables, and checks of their indexes.
#[derive(Default)]
pub struct TypedTables {
    shared: Mutex<HashMap<u32, Arc<dyn Any + Send + Sync>>>,
    checks: Mutex<Vec<Arc<Check>>>,
    /// Held while a table is opened with types, from the comparison of its types on, and while they
    /// change.
    opening: Mutex<()>,
}

impl TypedTables {
    /// Returns the state of a table; `make` makes it the first time. `None` if it has another type.
    pub(super) fn get<T: Send + Sync + 'static>(
        &self,
        table: u32,
        make: impl FnOnce() -> T,
    ) -> Option<Arc<T>> {
        let mut shared = self.shared.lock();
        let state = shared.entry(table).or_insert_with(|| Arc::new(make()));
        state.clone().downcast().ok()
    }

    pub(super) fn lock_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock()
    }

    pub(super) fn forget(&self, table: u32) {
        self.shared.lock().remove(&table);
    }

    /// Forgets the state of a table, unless it is in use. Returns false if it is.
    pub(super) fn forget_unused(&self, table: u32) -> bool {
        let mut shared = self.shared.lock();
        if shared.get(&table).is_some_and(|state| Arc::strong_count(state) > 1) {
            return false;
        }
        shared.remove(&table);
        true
    }

    pub(super) fn add_check(&self, check: Check) {
        self.checks.lock().push(Arc::new(check));
    }

    pub(super) fn checks(&self) -> Vec<Arc<Check>> {
        self.checks.lock().clone()
    }
}
