//! How many rounds, and which mistake?

/// A deviation from one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A name has only a number, and writers use the lowest free one (O1).
    NamesRepeat,
    /// Manifests of equal extents have equal versions (O2).
    VersionsRepeat,
    /// A put that a read does not show is taken for one that failed (O3).
    PutTakenForFailed,
    /// Dropped objects are deleted before the put is confirmed (O18).
    DeletedBeforeConfirmed,
    /// A manifest names an extent before its upload is confirmed (O24).
    NamedBeforeUploaded,
    /// The holder of an epoch deletes what it finds unnamed of its own epoch, too (O25).
    OwnOrphansCollected,
    /// A writer collects orphans without a claim (O25).
    OrphansCollectedUnclaimed,
    /// A manifest names again what an earlier one dropped (O26).
    DroppedNamedAgain,
    /// A reader does not read the manifest again (O27).
    PinNotChecked,
    /// A writer lists the pins before its put is confirmed (O27).
    PinsListedEarly,
    /// A list of pins serves for a later batch, too (O27).
    PinListKept,
    /// A writer does not look for pins (O27).
    PinsIgnored,
    /// The new holder looks for pins at its claim only for what it drops itself (O27).
    OrphansIgnorePins,
    /// A pin whose time has passed keeps nothing, although it is still there (O27).
    EndedPinIgnored,
    /// What a pin kept is never looked at again (O27).
    KeptForgotten,
}

/// A run of two writers and a reader.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Checkpoints of the first and of the second writer.
    pub rounds: [u8; 2],
    /// Whether there is a reader.
    pub reads: bool,
    /// Whether the time of a pin may pass before its reader ends.
    pub pins_end: bool,
    /// Replies that may be lost.
    pub lost_replies: u8,
    /// What is wrong.
    pub mistake: Option<Mistake>,
}

impl Scenario {
    /// Returns a run of two checkpoints and one, with a reader.
    #[must_use]
    pub fn new() -> Scenario {
        Scenario { rounds: [2, 1], reads: true, pins_end: false, lost_replies: 0, mistake: None }
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
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario::new()
    }
}
