//! How many writers, blocks and lanes, and which mistake?

/// What the store can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// Objects take appends at an offset.
    Appends,
    /// Objects are created if absent, and never change.
    Creates,
    /// As `Creates`, and a block is reported after a look at the manifest that began when the block
    /// was there (O29).
    CreatesWithLooks,
}

/// A deviation from one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The claim puts what is there now with a higher epoch, whatever was read (O14).
    ClaimOfAnOldCopy,
    /// The claim is put without a condition (O14).
    ClaimWithoutCondition,
    /// Every other put of the manifest is without a condition (O2).
    PutsWithoutCondition,
    /// Nothing is fenced (O13).
    NothingFenced,
    /// The log is read before the fences (O13).
    ReadBeforeFences,
    /// The fences come before the claim (O14).
    FencedBeforeClaim,
    /// Only the newest segment is fenced (O15).
    OldSegmentNotFenced,
    /// Only one lane of a segment is fenced (O15).
    OneLaneFenced,
    /// A refused append is sent again to the new end (O6).
    AppendedAtNewEnd,
    /// A refused append or creation is taken for one's own earlier copy (O11, O21).
    RefusedTakenForOwn,
    /// A segment is used before a confirmed manifest names it (O10).
    UnregisteredSegment,
    /// An object is created with its first block (O8).
    CreatedWithBlock,
    /// A creation is sent again, and its name is used (O8).
    CreationRepeated,
    /// An append without a reply is sent again to the new end, without a look (O11).
    ResentUnseen,
    /// An object that takes one more append is taken for a full one, and not fenced (O12).
    FullTooEarly,
    /// A block is reported although a lower one is missing (O7, O21).
    ReportedWithGap,
    /// A writer serves before its manifest is confirmed (O17).
    ServedBeforePublished,
    /// The log is dropped by the put that publishes a recovery (O18).
    LogDroppedAtPublication,
    /// Objects are deleted before the put that drops them is confirmed (O18).
    DeletedBeforeConfirmed,
    /// What an earlier recovery discarded is accepted again (O17).
    DiscardedAccepted,
    /// A database is marked as closed while an append is in flight (O20).
    ClosedTooEarly,
    /// A fence is put behind the highest number (O22).
    FencedBehindHighest,
    /// A fence is deleted with its segment, although blocks are reported without a look (O23).
    FenceDeleted,
    /// A look at the manifest covers a block that was confirmed after it (O29).
    LookedTooEarly,
    /// A look at the manifest finds a later claim, and the block is reported (O29).
    LookIgnored,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the store can do.
    pub store: Store,
    /// Objects of a segment, on a store that takes appends.
    pub lanes: u8,
    /// Parts of an object, on a store that takes appends: the header, blocks and fences.
    pub parts: usize,
    /// Blocks of the first writer, of the second, and so on. As many writers.
    pub blocks: Vec<u8>,
    /// Blocks that one writer has in flight, on a store that only creates.
    pub in_flight: usize,
    /// Writers that make a checkpoint, which drops the log, as bits.
    pub checkpoints: u8,
    /// Whether the first writer may continue in a second segment.
    pub second_segment: bool,
    /// Replies that may be lost.
    pub lost_replies: u8,
    /// Whether writers may close the database.
    pub closes: bool,
    /// What is wrong.
    pub mistake: Option<Mistake>,
}

impl Scenario {
    /// Returns a run of two writers.
    #[must_use]
    pub fn new(store: Store) -> Scenario {
        Scenario {
            store,
            lanes: 1,
            parts: usize::MAX,
            blocks: vec![2, 1],
            in_flight: 2,
            checkpoints: 0,
            second_segment: false,
            lost_replies: 0,
            closes: false,
            mistake: None,
        }
    }

    /// Returns the run with changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Scenario {
        change(&mut self);
        self
    }

    /// Returns whether each block is an object of its own.
    pub(super) fn creates(&self) -> bool {
        self.store != Store::Appends
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
