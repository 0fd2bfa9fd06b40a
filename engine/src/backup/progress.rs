//! How a long operation reports its progress.

/// Called with the name of the step, the amount done and the total amount.
pub type ProgressFn<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);

/// Pages between two progress reports.
pub(super) const PROGRESS_PAGES: u64 = 256;
