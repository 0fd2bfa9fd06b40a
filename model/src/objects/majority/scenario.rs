//! How many writers and blocks, and which mistake?

/// What a takeover puts again before it publishes (O33).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Again {
    /// What is not in each of the buckets that it has fenced, a majority. The engine does that.
    Missing,
    /// Everything from the highest watermark that it has found.
    FromWatermark,
    /// Everything above the checkpoint.
    All,
}

/// A rule that is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// A claim continues from the body of the first register that promised.
    FirstRegisterTaken,
    /// A claim compares the writers of bodies, and not their generations.
    GenerationIgnored,
    /// A takeover fences one bucket.
    OneBucketFenced,
    /// A takeover reads the buckets before it fences them.
    ReadBeforeFence,
    /// A takeover puts nothing again.
    NothingPutAgain,
    /// A takeover publishes before it puts blocks again.
    PutAgainLate,
    /// A takeover takes all that it finds of writers that ended long ago.
    AcceptedIgnored,
    /// A register is put without a look at its promise.
    PromiseNotChecked,
    /// A publication counts when one bucket has accepted it.
    OneBucketPublishes,
    /// A block counts when one bucket has it.
    OneBucketAcknowledges,
    /// The log is trimmed when one bucket has accepted the checkpoint.
    TrimmedEarly,
    /// A manifest names extents that are in one bucket.
    ExtentInOneBucket,
    /// A bucket that came back old is counted.
    OldBucketCounted,
    /// Orphans are collected after the claim, before the publication.
    OrphansCollectedEarly,
}

/// A run of the model.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scenario {
    /// Blocks of the first writer; each later one has one.
    pub blocks: u8,
    /// Writers. The last one writes nothing.
    pub writers: usize,
    /// Later writers write, too.
    pub later_write: bool,
    /// What a takeover puts again.
    pub again: Again,
    /// The first writer makes a checkpoint and trims the log.
    pub checkpoint: bool,
    /// Later writers collect extents that their manifest does not name.
    pub collect: bool,
    /// One bucket comes back as it was at first.
    pub one_is_old: bool,
    /// What is wrong.
    pub mistake: Option<Mistake>,
}

/// Buckets.
pub const BUCKETS: usize = 3;
/// A majority of them.
pub const MAJORITY: u32 = 2;

impl Scenario {
    /// Returns the run of three writers, of which the first has two blocks.
    #[must_use]
    pub fn new() -> Scenario {
        Scenario {
            blocks: 2,
            writers: 3,
            later_write: true,
            again: Again::Missing,
            checkpoint: false,
            collect: false,
            one_is_old: false,
            mistake: None,
        }
    }

    /// Returns the run with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Scenario {
        change(&mut self);
        self
    }

    /// Returns whether this mistake is made.
    #[must_use]
    pub fn errs(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Returns a majority, or one bucket if this mistake is made.
    #[must_use]
    pub fn quorum(&self, unless: Mistake) -> u32 {
        if self.errs(unless) { 1 } else { MAJORITY }
    }

    /// Returns the first CSN of a writer. The first writer is 1.
    #[must_use]
    pub fn first(&self, epoch: u8) -> u8 {
        if epoch == 1 { 0 } else { self.blocks + epoch - 2 }
    }

    /// Returns the CSNs of all earlier writers.
    #[must_use]
    pub fn before(&self, epoch: u8) -> u8 {
        (1 << self.first(epoch)) - 1
    }

    /// Returns how many blocks a writer has.
    #[must_use]
    pub fn blocks_of(&self, epoch: u8) -> u8 {
        if epoch == 1 { self.blocks } else { 1 }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario::new()
    }
}
