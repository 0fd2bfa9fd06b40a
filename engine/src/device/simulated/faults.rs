//! Faults that tests arm.

/// An operation that a fault can strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Opening, creating or removing a file.
    Open,
    /// Reading.
    Read,
    /// A write that is not durable at once.
    Write,
    /// A write that is.
    DurableWrite,
    /// A flush of a file or directory.
    Flush,
    /// Extending a file with zeros.
    ZeroExtend,
    /// Mapped memory. It has no errors to tell of: a store or fence that a fault strikes does nothing.
    Memory,
}

/// How often a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Once.
    Once,
    /// From then on always.
    ForEver,
}

/// Strikes the operation number `after` (from 0) of `operation`, counted from when it is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations are counted.
    pub operation: OperationKind,
    /// How many of them still succeed.
    pub after: u64,
    /// Once or for ever.
    pub kind: FaultKind,
    /// The operating system's error number: 5 is EIO, 28 is ENOSPC.
    pub error: i32,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<Fault>,
    struck: u64,
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts an operation; the error number if a fault strikes it.
    pub(super) fn strikes(&mut self, kind: OperationKind) -> Option<i32> {
        let mut error = None;
        self.armed.retain_mut(|fault| {
            if fault.operation != kind {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            error = Some(fault.error);
            fault.kind == FaultKind::ForEver
        });
        self.struck += u64::from(error.is_some());
        error
    }
}
