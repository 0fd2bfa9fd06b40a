//! How long work reports its progress.

/// Called with the name of the work, the amount done, and the total amount.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);
