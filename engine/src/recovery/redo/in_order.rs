//! Applying one transaction operation by operation, in its order: one that changes the catalog, has
//! more steps than a batch, or has chunks.
//!
//! Rows are applied sorted and side by side all the same, as many as there are between two
//! operations that cannot be. A large value that continues from part to part is written piece by
//! piece: only its pages are in memory.

use super::apply::apply_ranges;
use super::step::{Effort, PARALLEL_AT, Redo, Step, range_of, splitters};
use crate::base::{Csn, Error, Location, Result, TableId};
use crate::log::{Operation, first_operation};
use crate::transaction::{ReplayedValue, TransactionSystem};

/// Applies all of `record`, chunks included.
pub(super) fn apply_in_order(system: &TransactionSystem, record: &Redo<'_>, effort: Effort) -> Result<()> {
    let mut order = InOrder { system, csn: record.csn, effort, value: None };
    if let Some(earlier) = record.earlier {
        earlier.each(|operations| order.apply(operations)).map_err(|error| order.located(error))?;
    }
    order.apply(record.body).map_err(|error| order.located(error))?;
    if order.value.is_some() {
        return Err(order.located(Error::corruption("a large value in the log has no end")));
    }
    Ok(())
}

struct InOrder<'s> {
    system: &'s TransactionSystem,
    csn: Csn,
    effort: Effort,
    /// A large value that continues in the next part.
    value: Option<ReplayedValue>,
}

impl InOrder<'_> {
    fn located(&self, error: Error) -> Error {
        if error.location().is_some() { error } else { error.at(Location::Transaction(self.csn)) }
    }

    /// Applies encoded operations.
    fn apply(&mut self, operations: &[u8]) -> Result<()> {
        let mut steps = Vec::new();
        let mut rest = operations;
        while let Some((operation, after)) = first_operation(rest)? {
            let value_goes_on = matches!(operation, Operation::LargePart { .. }) || self.value.is_some();
            let step = if value_goes_on { None } else { Step::new(0, &operation, rest) };
            rest = after;
            steps.extend(step);
            if step.is_none() || steps.len() >= self.effort.steps_max || rest.is_empty() {
                self.apply_steps(&mut steps)?;
            }
            match operation {
                Operation::LargePart { table, key, pieces } => {
                    self.value_of(table, key)?.write(pieces)?;
                }
                Operation::PutLarge { table, key, pieces } if value_goes_on => {
                    self.value_of(table, key)?.write(pieces)?;
                    self.value.take().map_or(Ok(()), |value| value.finish(self.csn))?;
                }
                _ if value_goes_on => {
                    return Err(Error::corruption("something else comes in the middle of a large value"));
                }
                Operation::CreateTable { table, name } => self.system.replay_create(table, name, self.csn)?,
                Operation::RenameTable { table, name } => self.system.replay_rename(table, name, self.csn)?,
                Operation::SetTypes { table, types } => {
                    self.system.replay_types(table, types.decode()?, self.csn)?;
                }
                Operation::DropTable { table } => self.system.replay_drop(table, self.csn)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the large value of that row that continues, or begins one.
    fn value_of(&mut self, table: TableId, key: &[u8]) -> Result<&mut ReplayedValue> {
        let value = match self.value.take() {
            Some(value) if value.is_of(table, key) => value,
            Some(_) => return Err(Error::corruption("a large value comes in the middle of another")),
            None => self.system.replay_value(table, key)?,
        };
        Ok(self.value.insert(value))
    }

    /// Applies and forgets steps.
    fn apply_steps(&self, steps: &mut Vec<Step<'_>>) -> Result<()> {
        let threads = if steps.len() < PARALLEL_AT { 1 } else { self.effort.threads };
        let sample = steps.iter().copied().step_by(steps.len() / 1024 + 1).collect();
        let splitters = splitters(sample, threads);
        let mut ranges = vec![Vec::new(); splitters.len() + 1];
        for step in steps.drain(..) {
            ranges[range_of(&step, &splitters)].push(step);
        }
        let record = Redo { csn: self.csn, operations: 0, body: &[], earlier: None };
        apply_ranges(self.system, &[record], &[&ranges], threads)
    }
}
