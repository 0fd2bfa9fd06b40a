//! How many writers and blocks, what does the service do, and which mistake?

/// A deviation from one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A fence is appended at a length that was looked up, which may be stale.
    FencedAtLookup,
    /// A fence shorter than a block is appended at the length that the takeover answered.
    FencedAtTakeover,
    /// A fence as long as a block is appended at the length that the takeover answered.
    FencedLikeBlock,
    /// The takeover alone counts as the fence.
    TakeoverAlone,
    /// The object is read before it is finalized.
    ReadBeforeFinalize,
    /// The object is read up to a length that was looked up before it was finalized.
    LengthFromLookup,
    /// A torn block at the end of a lane is taken for corruption.
    TornBlockRefused,
    /// After a lost stream the block that is not durable is sent whole, at the length of the
    /// answer.
    ResentWhole,
    /// A lane is finalized before its last block is confirmed, and the answer counts for all.
    FinalizedTooEarly,
    /// A block is reported when it was sent.
    ReportedUnflushed,
    /// A refused block is sent to a lane of the successor, at that lane's length.
    AppendedToSuccessor,
    /// The manifest is replaced by an appendable object, which is empty at first.
    ManifestEmptied,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Blocks of the first writer, of the second, and so on. As many writers.
    pub blocks: Vec<u8>,
    /// Blocks that one writer has in flight.
    pub in_flight: u8,
    /// A takeover ends the stream before it. Otherwise that stream ends when it is finalized.
    pub revokes: bool,
    /// Streams that may be lost.
    pub cuts: u8,
    /// Handles that may expire, so that their writer opens its lane without one.
    pub expiries: u8,
    /// A writer without a handle opens its lane again although another writer has claimed the
    /// database.
    pub reopens_blindly: bool,
    /// The first writer may leave its lane.
    pub leaves: bool,
    /// What is wrong.
    pub mistake: Option<Mistake>,
}

impl Scenario {
    /// Returns a run of two writers.
    #[must_use]
    pub fn new(revokes: bool) -> Scenario {
        Scenario {
            blocks: vec![2, 1],
            in_flight: 2,
            revokes,
            cuts: 0,
            expiries: 0,
            reopens_blindly: false,
            leaves: false,
            mistake: None,
        }
    }

    /// Returns the run with changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Scenario {
        change(&mut self);
        self
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The bit of block `number` of writer `writer`.
    pub(super) fn bit(&self, writer: usize, number: u8) -> u16 {
        1 << (self.blocks[..writer].iter().sum::<u8>() + number)
    }

    /// The bits of the first `count` blocks of a writer.
    pub(super) fn first(&self, writer: usize, count: u8) -> u16 {
        (0..count).map(|number| self.bit(writer, number)).sum()
    }

    /// The bits of all blocks of earlier writers.
    pub(super) fn before(&self, writer: usize) -> u16 {
        (0..writer).map(|earlier| self.first(earlier, self.blocks[earlier])).sum()
    }
}
