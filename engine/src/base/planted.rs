//! Planted bugs: named faults that tests switch on, one at a time, to see that something notices.
//!
//! A suite that never fails proves little. So each invariant that the engine insists on has a bug
//! here that breaks it, at the place that keeps it, and some test has to catch it. Without the
//! cargo feature `planted`, which only tests have, [`is`] is a constant `false`: the compiler
//! removes the condition with what is behind it, and no trace is left.
//!
//! A place that can be broken asks one short question, and has no second path of its own:
//!
//! ```ignore
//! let hardened = csn <= durable || planted::is(Bug::AcknowledgedBeforeFlush);
//! ```
//!
//! With the feature a bug is chosen by `plant`, or by the environment variable `QUENCH_PLANTED`,
//! which is read once. It holds for the whole process.

/// Declares the bugs: variant, name, room, what is wrong, and what it breaks.
macro_rules! bugs {
    ($($bug:ident $name:literal $room:literal $wrong:literal $breaks:literal;)*) => {
        /// A named bug. See the module's text.
        #[cfg_attr(not(feature = "object-storage"), allow(dead_code, reason = "bugs of stores of objects"))]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Bug {
            $(#[doc = $wrong] $bug,)*
        }

        #[cfg(feature = "internals")]
        impl Bug {
            /// All of them, by room.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug),*];

            /// Its name: lower case, with hyphens.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Bug::$bug => $name,)* }
            }

            /// The layer in which it is planted.
            #[must_use]
            pub fn room(self) -> &'static str {
                match self { $(Bug::$bug => $room,)* }
            }

            /// What is wrong, in one line.
            #[must_use]
            pub fn wrong(self) -> &'static str {
                match self { $(Bug::$bug => $wrong,)* }
            }

            /// The invariant or rule that it breaks.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self { $(Bug::$bug => $breaks,)* }
            }
        }
    };
}

bugs! {
    ShortWriteIgnored "short-write-ignored" "device" "A write that the system cut short counts as whole." "I5";

    FrontierIsHighest "frontier-is-highest" "log" "The durable frontier is the highest block that completed, not the end of the gap-free prefix." "rule 3, parking lot 1";
    LogChecksumNotCompared "log-checksum-not-compared" "log" "The checksum of a block's records is not compared." "I12";
    CarriedBlockForgotten "carried-block-forgotten" "log" "Recovery skips piggybacked blocks: those in a segment of another log." "rule 3";
    StolenCsnNotCounted "stolen-csn-not-counted" "log" "A retired segment ignores the CSNs of the blocks that it carries for other logs." "I8, stream 5";
    SegmentRecycledEarly "segment-recycled-early" "log" "A segment is reused although it holds records above the checkpoint." "I8";
    PlaceUsedEarly "place-used-early" "log" "A segment is reused although a block with a place in it is not written yet." "segment 4";
    SegmentForgotten "segment-forgotten" "log" "A segment that is not reused is not removed." "segment 6: no file is lost";
    KilledSegmentAdopted "killed-segment-adopted" "log" "A segment of a killed process is reused instead of removed." "segment 3";
    SegmentNameNotFlushed "segment-name-not-flushed" "log" "The directory is not flushed after a segment was made." "I5";
    FenceSkipped "fence-skipped" "log" "Records in mapped memory count without a fence." "I5, I1";
    BufferEntryNotFenced "buffer-entry-not-fenced" "log" "A mapped buffer gets its first record before its new entry is fenced." "mapped buffers 1";
    FenceCoversOthers "fence-covers-others" "log" "A fence beside the latch counts for the unfenced records of other threads, too." "I5, I1";
    MemoryHeaderBelieved "memory-header-believed" "log" "Recovery relies on the mapped memory of a killed process without flushing it." "I5";
    RolledBackChunkCounts "rolled-back-chunk-counts" "log" "A change that a rollback to a savepoint undid counts if a chunk holds it." "parts 4";

    AcknowledgedBeforeFlush "acknowledged-before-flush" "commit" "A commit is acknowledged before its record is durable." "I1";
    LogWriteNotDurable "log-write-not-durable" "commit" "Log blocks are written without a flush." "I5";
    FailedWriteRetried "failed-write-retried" "commit" "After a failed write of the log, a successful flush counts as success of the write." "I11";
    CommitsAfterFailure "commits-after-failure" "commit" "New commits are accepted after a failed write of the log." "I11";
    FlushNotAcknowledged "flush-not-acknowledged" "commit" "Commits that a flush found durable are acknowledged only when their writer reports them." "rule 10: snapshots after it see it";
    ReaderNotAwaited "reader-not-awaited" "commit" "A read-only transaction is acknowledged before the versions that it read are durable." "I1";
    SlotNotAnnounced "slot-not-announced" "commit" "A log does not announce in its slot that it draws a CSN." "rule 1";
    AnnouncedAfterDraw "announced-after-draw" "commit" "A log announces its CSN after the draw, not before." "rule 1";
    SlotsBeforeCounter "slots-before-counter" "commit" "The scan for W reads the slots before it reads the counter." "rule 1";
    DirectPredecessorsOnly "direct-predecessors-only" "commit" "Under the exact rule a predecessor counts as committed once its own record is durable." "rule 13";
    GsnNotAbovePredecessors "gsn-not-above-predecessors" "commit" "A record's GSN is above its log's, but not above its transaction's." "rule 13";
    DrainedClockBelieved "drained-clock-believed" "commit" "After a drain a log takes the clock of a record that may belong to another log." "rule 13";
    OwnLogIsEnough "own-log-is-enough" "commit" "A transaction that avoids remote flushes does not wait for earlier transactions of its log." "rule 13";
    FragmentsNotAwaited "fragments-not-awaited" "commit" "A transaction divided by page is acknowledged when its last fragment is durable." "I1";
    QueueTellsEarly "queue-tells-early" "commit" "A group acknowledgment includes one transaction more than is durable." "I1";
    WatermarkNotStored "watermark-not-stored" "commit" "Records do not store the watermark." "I10";
    StolenBehindOlder "stolen-behind-older" "commit" "A stolen block gets its place behind the worker's newest block, but is written behind an older one." "I1, I3";
    StolenRangeLost "stolen-range-lost" "commit" "The bytes that a worker stole are not copied into its write." "rule 3";
    StragglersNotDrained "stragglers-not-drained" "commit" "A transaction takes a straggler that it depends on for fenced, without a barrier." "I1, I5";
    NeedsForgotten "needs-forgotten" "commit" "A held-up commit of bounded loss does not cause the writes of other logs that it needs." "I14";
    BoundedLossNeverDue "bounded-loss-never-due" "commit" "A commit of bounded loss is not written before the loss window has passed." "I14";
    WrittenBeforeWrite "written-before-write" "commit" "A commit of level written returns before its record is written." "written: survives a kill";
    WrittenCountsAsDurable "written-counts-as-durable" "commit" "A block that was written without a flush counts as durable." "I5";
    WrittenAlone "written-alone" "commit" "A commit of level written does not wait for what it depends on in other logs." "written 3";
    ChunksNotPinned "chunks-not-pinned" "commit" "A checkpoint covers chunks of transactions that are still open." "rule 16";

    DependencySkipped "dependency-skipped" "transaction" "A transaction ignores its dependency on every fourth CSN that it meets." "rule 13, I9";
    AbsenceIsNoRead "absence-is-no-read" "transaction" "A transaction that finds a deleted row does not depend on the deletion." "rule 9";
    SnapshotTooHigh "snapshot-too-high" "transaction" "A snapshot sees the transaction just above it." "rule 8";
    SnapshotTooLow "snapshot-too-low" "transaction" "A snapshot does not see the transaction at its own CSN." "I6";
    StampedBeforeRecord "stamped-before-record" "transaction" "A committing transaction becomes READY, and visible, before a log has room for its record." "I2, I1";
    PreparingNotAnnounced "preparing-not-announced" "transaction" "A transaction does not announce that it is about to draw its CSN." "rule 8";
    SnapshotReturnsVolatile "snapshot-returns-volatile" "transaction" "A snapshot returns an uncommitted version without waiting." "I1, rule 10";
    ValidationUnmarked "validation-unmarked" "transaction" "A commit validates its reads without marking them, then draws its CSN." "CSN order is the serial order";
    MarksIgnored "marks-ignored" "transaction" "A commit draws its CSN while another commit validates reads of the rows that it changed." "CSN order is the serial order";
    AbsentKeyForgotten "absent-key-forgotten" "transaction" "A serializable transaction does not remember a key that it did not find." "reads of a serializable transaction";
    RangeForgotten "range-forgotten" "transaction" "A serializable transaction remembers the rows of a range, not the gaps between them." "reads of a serializable transaction";
    ValidationSeesTop "validation-sees-top" "transaction" "A validation ignores versions below one that is in progress." "reads of a serializable transaction";
    RollbackForgetsReads "rollback-forgets-reads" "transaction" "A rollback to a savepoint forgets that the transaction knows the rows that it restores." "reads of a serializable transaction";
    RemoveIsNoRead "remove-is-no-read" "transaction" "A removal that finds no row does not count as a read." "reads of a serializable transaction";
    LockedReadIsOld "locked-read-is-old" "transaction" "A locking read returns the version that the transaction's snapshot sees." "a locking read sees the newest version";
    LockedReadPasses "locked-read-passes" "transaction" "A locking read does not wait for a row that another transaction has changed." "a locking read sees the newest version";
    LockAfterRead "lock-after-read" "transaction" "A locking read publishes its lock after the read, not before." "publish, then look";
    LocksIgnored "locks-ignored" "transaction" "A writer does not look for locks of others." "look under the latch";
    RangeLocksRows "range-locks-rows" "transaction" "A locking scan locks the rows that it returns, not the gaps between them." "ranges are intervals of keys";
    LocksReleasedEarly "locks-released-early" "transaction" "Shared locks end before the CSN is drawn." "shared locks are kept until the draw";
    UpgradeUnchecked "upgrade-unchecked" "transaction" "A writer with a shared lock of its own ignores the shared locks of others." "look under the latch";
    ErrorNotAwaited "error-not-awaited" "transaction" "An error of the closure is returned before the versions that it observed are durable." "an answer is an acknowledgment";
    LateReleaseIgnored "late-release-ignored" "transaction" "A row that is locked until its commit is durable is locked by another transaction earlier." "late release";
    NoConflict "no-conflict" "transaction" "A row that changed after the snapshot is overwritten." "first updater wins";
    AbortLeavesRow "abort-leaves-row" "transaction" "An abort undoes all rows but the first." "atomicity";
    RollbackLeavesRow "rollback-leaves-row" "transaction" "A rollback to a savepoint undoes all rows but the first." "rule 12";
    RollbackKeepsRedo "rollback-keeps-redo" "transaction" "A rollback to a savepoint keeps the redo of the changes that it undid." "rule 12";
    TombstonePurgedEarly "tombstone-purged-early" "transaction" "The version and the entry of a deleted row are freed while a snapshot may need them." "rule 9";
    VersionFreedEarly "version-freed-early" "transaction" "Versions are freed although a pinned snapshot may see them." "versions 2";
    VersionFreedVolatile "version-freed-volatile" "transaction" "Versions are freed although their transactions are not durable." "versions 2, rule 9";
    DeadRangeKept "dead-range-kept" "transaction" "A writer does not remove its key from the dead range that covers it." "dead ranges 3";
    DeadRangeTooNew "dead-range-too-new" "transaction" "A snapshot skips a dead range with deletions that it does not see." "dead ranges 1";
    DeadRangeIsNoRead "dead-range-is-no-read" "transaction" "A transaction that skips a dead range does not depend on the deletions in it." "rule 9, dead ranges 2";
    ClaimNotBroken "claim-not-broken" "transaction" "A dead range is recorded although a writer has changed it since it was verified." "dead ranges 4";
    ValueFreedEarly "value-freed-early" "transaction" "Pages of a large value are freed although a snapshot may read it." "overflow 1";
    RetiredNotListed "retired-not-listed" "transaction" "A checkpoint does not list the deferred frees of large values." "retired 1: no page is lost";
    RetiredFreedEarly "retired-freed-early" "checkpoint" "Large values that a checkpoint lists as deferred frees are freed before its epoch closes." "retired 1";
    UnfinishedNotListed "unfinished-not-listed" "transaction" "A checkpoint does not list the pages of large values in progress." "I7";

    WriterNotFenced "writer-not-fenced" "objects" "A new writer puts no fence into the log of its predecessor." "O15";
    LogReadBeforeFence "log-read-before-fence" "objects" "The end of a log object is read before its fence is confirmed." "O13";
    AppendedBehindFence "appended-behind-fence" "objects" "A refused append is sent again at the new end of the object." "O6";
    ManifestPutAlways "manifest-put-always" "objects" "The manifest is put without a condition." "O2";
    NamesRepeat "names-repeat" "objects" "Every writer gives its objects the same names." "O1";
    UnregisteredSegment "unregistered-segment" "objects" "A segment takes blocks before a manifest names it." "O10";
    BlockReportedEarly "block-reported-early" "objects" "Without appends, a block is reported although a lower one is missing." "O21";
    NumberedFenceDeleted "numbered-fence-deleted" "objects" "Without appends, a fence is deleted with its segment." "O23";
    ExtentDeletedEarly "extent-deleted-early" "objects" "An extent is deleted before a manifest without it is confirmed." "O18";
    ExtentNamedEarly "extent-named-early" "objects" "A manifest is put while an extent that it names is being uploaded." "O24";
    StreamNotFinalized "stream-not-finalized" "objects" "A takeover opens the stream of a log object, and does not finalize the object." "O15";
    StreamReadBeforeFinalize "stream-read-before-finalize" "objects" "A log object counts up to the length before it was finalized." "O13";
    StreamResentWhole "stream-resent-whole" "objects" "After a lost stream a torn block is sent whole, at the end of what is there." "O11";
    StreamReportedUnflushed "stream-reported-unflushed" "objects" "A block is reported when it was handed to the stream." "O7";
    StreamUncut "stream-uncut" "objects" "A torn block at the end of a lane counts, and shifts the lanes behind it." "O11";
    OneBucketAcknowledges "one-bucket-acknowledges" "objects" "One of several buckets makes a block or an extent durable." "O30";
    FirstRegisterTaken "first-register-taken" "objects" "A claim continues from the manifest of the first bucket that promised." "O31";
    BallotWithoutGeneration "ballot-without-generation" "objects" "A claim compares the writers of manifests, and not their generations." "O31";
    PromiseNotChecked "promise-not-checked" "objects" "A manifest is put into a bucket that has promised a later claim." "O31";
    OneBucketPublishes "one-bucket-publishes" "objects" "A manifest counts when one of several buckets has accepted it." "O31";
    OneBucketFenced "one-bucket-fenced" "objects" "A takeover fences and reads one of several buckets." "O32";
    BucketReadBeforeFence "bucket-read-before-fence" "objects" "A takeover reads what each bucket has before it fences the bucket." "O32";
    NothingPutAgain "nothing-put-again" "objects" "Blocks that a takeover found in one bucket only stay there only." "O33";
    AcceptedIgnored "accepted-ignored" "objects" "A takeover takes all that it finds of a writer that ended long ago." "O34";
    OldBucketCounted "old-bucket-counted" "objects" "A bucket that was restored from an old copy is counted." "O35";
    JoinedEmpty "joined-empty" "objects" "A bucket that was emptied joins before it has everything." "O35";
    FencesForgotten "fences-forgotten" "objects" "A bucket that joins does not get the fences of ended writers." "O37";
    MinorityFollowed "minority-followed" "objects" "A follower believes a block that one of several buckets has." "O38";
    PinIgnored "pin-ignored" "device" "A writer deletes extents that the pin of a reader keeps." "O27";
    PinNotChecked "pin-not-checked" "device" "A reader does not read the manifest again after it has put its pin." "O27";

    SeparatorLost "separator-lost" "tree" "A split does not add the new page to the parent." "tree order";
    MergeDropsRow "merge-drops-row" "tree" "A merge leaves out the last row of the right leaf." "tree order";
    ScanSkipsAtBorder "scan-skips-at-border" "tree" "A scan that continues with the next batch skips its first row." "every row once";
    ValueFreedTwice "value-freed-twice" "tree" "After a failed read, a large value of a dropped table is freed again from its beginning." "free 1";
    OverflowPageLeaked "overflow-page-leaked" "tree" "The last page of a large value is not freed." "overflow 3";

    BlockReusedEarly "block-reused-early" "store" "The block of a page is free as soon as the page has a newer image." "I8, F1";
    ImagesNotFlushed "images-not-flushed" "store" "A manifest is published before the images that it names are flushed." "I5, checkpoint 3";
    ExtentNotDiscarded "extent-not-discarded" "store" "An extent without blocks in use is allocated again before it is discarded." "X2";
    BlockLeaked "block-leaked" "store" "A replaced block of the mapping is not freed." "F4: no block is lost";
    MappingSlotSkipped "mapping-slot-skipped" "store" "Of each part of the mapping, the reference of the first changed page is not written." "R1";
    ManifestBelievedDurable "manifest-believed-durable" "store" "An open believes that the manifest is durable although no process has closed the database." "N8";
    NewestSlotNotFirst "newest-slot-not-first" "store" "An open copies the newest manifest to the other slot before the newest slot is durable." "N7";
    SecondSlotSkipped "second-slot-skipped" "store" "A manifest is written to one slot only." "N2";
    RemovalForgotten "removal-forgotten" "store" "A page that is freed while its first image is being written stays in the next checkpoint." "no page is lost";
    ReserveNotKept "reserve-not-kept" "store" "No blocks are reserved for dirty pages." "reserve";
    LostWriteBelieved "lost-write-believed" "store" "An older image in the place of a newer one is accepted." "B1";
    ReadAheadIsStale "read-ahead-is-stale" "store" "Read-ahead reads pages as of the last checkpoint." "buffer: newest image";
    CopyIsStale "copy-is-stale" "store" "A scan uses its copy of a page that has been in memory and changed since." "copies 1";
    FailedImageRecorded "failed-image-recorded" "store" "An image counts although its write failed." "W1";
    ReadersNotAsked "readers-not-asked" "store" "Blocks are free although readers in other processes may need them." "I8";

    UncommittedImage "uncommitted-image" "checkpoint" "A page with rows of an open transaction is written and leaves memory." "I7";
    ImageBeforeLog "image-before-log" "checkpoint" "A page leaves memory before the log of its changes is durable." "I7";
    ImageAfterCheckpoint "image-after-checkpoint" "checkpoint" "The image of a page that leaves memory during a checkpoint is newer than the checkpoint." "I7";
    NotHandedOver "not-handed-over" "checkpoint" "A split during a checkpoint makes no copy-on-write images of its pages." "checkpoint 1, rule 17";
    DirtyPageDropped "dirty-page-dropped" "checkpoint" "A dirty page leaves memory without being written." "checkpoint 5";

    VoidForgotten "void-forgotten" "recovery" "The manifest does not record the CSNs that a recovery discarded." "I9, select 9";
    DiscardedReplayed "discarded-replayed" "recovery" "A recovery replays transactions that an earlier recovery discarded." "I9, select 5";
    LaterEpochBelieved "later-epoch-believed" "recovery" "Blocks of an interrupted recovery count as valid." "select 2";
    AcceptedEndIgnored "accepted-end-ignored" "recovery" "All blocks of an earlier epoch count, not only those below its accepted end." "I9, select 1";
    FragmentCountIgnored "fragment-count-ignored" "recovery" "A transaction divided by page is replayed although a fragment is missing." "select 13";
    ChunkOrderIgnored "chunk-order-ignored" "recovery" "The chunks of a transaction are replayed in the wrong order." "select 11";
    FrontierTooHigh "frontier-too-high" "recovery" "A transaction that depends on the first missing transaction is replayed." "select 6";
    PredecessorsIgnored "predecessors-ignored" "recovery" "A record is replayed although a predecessor that it lists is missing." "select 12";
    HoleIsTornTail "hole-is-torn-tail" "recovery" "A missing CSN below a stored watermark is taken for a torn tail." "I10";
    NotAppendedAgain "not-appended-again" "recovery" "Replayed records that may be volatile are not written again." "select 10, rule 14";
    VoidCsnDrawnAgain "void-csn-drawn-again" "recovery" "CSNs that were found but not replayed are drawn again." "select 9";
    RedoSkipsFirst "redo-skips-first" "recovery" "Recovery assumes that the checkpoint contains the first transaction above it." "select 4";
    RedoOutOfOrder "redo-out-of-order" "recovery" "Changes of one row are replayed in the wrong order." "redo";
    CleanMarkKept "clean-mark-kept" "recovery" "An open for writing keeps the mark of a clean close." "recovery 1";
    PromotedEndForgotten "promoted-end-forgotten" "recovery" "A promotion does not accept the ends of logs that the standby has read." "applied 1";
    PromotedVoidForgotten "promoted-void-forgotten" "recovery" "A promotion forgets void CSNs between the checkpoint and what the standby shows." "applied 2";

    FollowedUnlocked "followed-unlocked" "feed" "A standby of a directory does not look which process has the lock." "I9";

    IncrementMissesPage "increment-misses-page" "backup" "An increment leaves out the first changed page." "backup";
    BackupHoldsNothing "backup-holds-nothing" "backup" "Blocks are reused while a backup copies them." "I8, F1";
}

#[cfg(feature = "internals")]
impl Bug {
    /// The bug with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Whether `bug` is planted: never, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is(bug: Bug) -> bool {
    let _ = bug;
    false
}

/// Makes the moment longer in which `bug`, if it is planted, can be met by other threads. Without
/// the feature nothing.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn linger(bug: Bug) {
    let _ = bug;
}

#[cfg(feature = "planted")]
pub use chosen::{is, linger, plant};

#[cfg(feature = "planted")]
mod chosen {
    use super::Bug;
    use std::sync::atomic::{AtomicU8, Ordering};

    const NOTHING: u8 = u8::MAX;
    const NOT_ASKED: u8 = u8::MAX - 1;
    const VARIABLE: &str = "QUENCH_PLANTED";

    /// Not one of the model checkers' atomics: looking at it is no step of the program.
    static PLANTED: AtomicU8 = AtomicU8::new(NOT_ASKED);

    /// Plants `bug` instead of what was planted before, in the whole process.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(NOTHING, |bug| bug as u8), Ordering::Relaxed);
    }

    /// Whether `bug` is planted.
    #[inline]
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        match PLANTED.load(Ordering::Relaxed) {
            NOT_ASKED => ask() == bug as u8,
            planted => planted == bug as u8,
        }
    }

    /// Makes the moment longer in which `bug`, if it is planted, can be met by other threads.
    #[inline]
    pub fn linger(bug: Bug) {
        if is(bug) {
            std::thread::yield_now();
        }
    }

    #[cold]
    fn ask() -> u8 {
        let bug = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()).map(|name| {
            // Planting nothing would look like a bug that no test notices.
            Bug::named(&name).unwrap_or_else(|| panic!("{VARIABLE} = {name}: there is no such planted bug"))
        });
        let chosen = bug.map_or(NOTHING, |bug| bug as u8);
        let before = PLANTED.compare_exchange(NOT_ASKED, chosen, Ordering::Relaxed, Ordering::Relaxed);
        before.err().unwrap_or(chosen)
    }
}

#[cfg(test)]
mod tests;
