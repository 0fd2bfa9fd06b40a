//! The detectors of each planted bug, the cheapest first.

use quenchdb::internals::base::planted::Bug;

/// A test or simulation that should notice a bug.
#[derive(Clone, Copy, Debug)]
pub enum Detector {
    /// Tests of the engine: those of `binary` (`lib` for unit tests) whose names contain `filter`.
    Tests { binary: &'static str, filter: &'static str },
    /// Seeds of the simulation, from the first to this one.
    Seeds(u64),
    /// As many seeds of the simulation on a store of objects.
    ObjectsSeeds(u64),
    /// As many seeds of the simulation with log objects that take appends over streams.
    StreamedSeeds(u64),
}

const fn tests(binary: &'static str, filter: &'static str) -> Detector {
    Detector::Tests { binary, filter }
}

/// Most seeds tried. One of the first few notices, in a second or two; this many take a minute.
const SEEDS: Detector = Detector::Seeds(300);
const OBJECTS_SEEDS: Detector = Detector::ObjectsSeeds(100);
const STREAMED_SEEDS: Detector = Detector::StreamedSeeds(100);

const LEAVE_MEMORY: Detector =
    tests("engine", "checkpoint_exact::a_checkpoint_is_of_one_moment_while_its_pages_leave_memory");

macro_rules! detectors {
    ($($bug:ident: $($detector:expr),+;)*) => {
        /// Returns the detectors of `bug`, in the order in which they run.
        pub fn detectors(bug: Bug) -> &'static [Detector] {
            match bug {
                $(Bug::$bug => const { &[$($detector),+] },)*
            }
        }
    };
}

detectors! {
    ShortWriteIgnored: tests("engine", "bad_input::a_write_that_is_cut_short_is_an_error");

    FrontierIsHighest: tests("lib", "log::parking"), SEEDS;
    LogChecksumNotCompared: tests("lib", "log::tests"), SEEDS;
    CarriedBlockForgotten: tests("engine", "stealing::"), SEEDS;
    StolenCsnNotCounted: tests("lib", "log::tests");
    SegmentRecycledEarly: tests("lib", "log::tests");
    PlaceUsedEarly: tests("lib", "log::tests");
    SegmentForgotten: tests("engine", "verify::no_block_and_no_segment_is_leaked");
    KilledSegmentAdopted: tests("engine", "late_writes::");
    SegmentNameNotFlushed: SEEDS;
    FenceSkipped: SEEDS;
    BufferEntryNotFenced: tests("lib", "log::memory");
    FenceCoversOthers: tests("lib", "log::memory"), SEEDS;
    MemoryHeaderBelieved: tests("engine", "passive::a_killed_open_leaves_nothing_half_durable");
    RolledBackChunkCounts: SEEDS;

    AcknowledgedBeforeFlush: SEEDS;
    LogWriteNotDurable: SEEDS;
    FailedWriteRetried: tests("lib", "commit::tests::behaviour::a_failed_write_reaches");
    CommitsAfterFailure: tests("lib", "poison");
    FlushNotAcknowledged: tests("lib", "what_a_flush_found_durable");
    ReaderNotAwaited: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted");
    SlotNotAnnounced: tests("lib", "watermark");
    AnnouncedAfterDraw: tests("lib", "watermark");
    SlotsBeforeCounter: tests("lib", "watermark");
    DirectPredecessorsOnly: tests("lib", "commit::papers::exact::undecided");
    GsnNotAbovePredecessors: tests("lib", "commit::papers::clocks::lamport");
    DrainedClockBelieved: tests("lib", "commit::tests::passive");
    OwnLogIsEnough: tests("lib", "commit::papers::clocks::lamport");
    FragmentsNotAwaited: tests("engine", "by_page::a_transaction_is_whole_or_absent_after_any_two_crashes");
    QueueTellsEarly: tests("lib", "commit::tests::behaviour::a_queue_acknowledges_what_is_durable");
    WatermarkNotStored: tests("engine", "presets::a_hole_in_the_log_is_refused_in_every_preset");
    StolenBehindOlder: tests("lib", "commit::tests::stealing");
    StolenRangeLost: tests("engine", "stealing::"), SEEDS;
    StragglersNotDrained: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_passive"), SEEDS;
    NeedsForgotten: tests("lib", "commit::tests::held_up"), SEEDS;
    BoundedLossNeverDue: tests("lib", "commit::core::levels");
    WrittenBeforeWrite: tests("engine", "written::a_written_commit_survives_a_kill");
    WrittenCountsAsDurable: tests("engine", "written::a_durable_commit_keeps_what_was_written_before");
    WrittenAlone: tests("engine", "written::a_written_commit_survives_a_kill");
    ChunksNotPinned: tests("engine", "chunks::a_checkpoint_keeps_the_log_for_an_open_transaction"), SEEDS;

    DependencySkipped: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted");
    AbsenceIsNoRead: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted");
    SnapshotTooHigh: tests("engine", "basics::a_snapshot_does_not_move"), SEEDS;
    SnapshotTooLow: tests("engine", "basics::what_is_committed_is_read_by_others"), SEEDS;
    StampedBeforeRecord: tests("engine", "dependencies::what_is_in_no_log_is_seen_by_nobody"), SEEDS;
    PreparingNotAnnounced: SEEDS;
    SnapshotReturnsVolatile: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted");
    ValidationUnmarked: tests("engine", "serializable::the_order_of_csns_is_the_serial_order"), SEEDS;
    MarksIgnored: tests("engine", "serializable::the_order_of_csns_is_the_serial_order"), SEEDS;
    AbsentKeyForgotten: tests("engine", "serializable::optimistic_transactions_have_no_write_skew"), SEEDS;
    RangeForgotten: tests("engine", "serializable::a_gap_in_a_range_is_validated"), SEEDS;
    ValidationSeesTop: tests("engine", "serializable::a_validation_looks_beneath_changes_in_progress"), SEEDS;
    RollbackForgetsReads: tests("engine", "serializable::rows_taken_back_are_validated"), SEEDS;
    RemoveIsNoRead: tests("engine", "serializable::a_removal_that_finds_nothing_is_a_read"), SEEDS;
    LockedReadIsOld: tests("engine", "serializable::increments_by_locked_reads_are_not_lost"), SEEDS;
    LockedReadPasses: tests("engine", "locks::a_locking_read_waits_and_sees_the_newest_value"), SEEDS;
    LockAfterRead: tests("engine", "serializable::increments_by_locked_reads_are_not_lost"), SEEDS;
    LocksIgnored: tests("engine", "locks::an_empty_range_is_locked_too"), SEEDS;
    RangeLocksRows: tests("engine", "locks::an_empty_range_is_locked_too"), SEEDS;
    LocksReleasedEarly: tests("engine", "serializable::the_order_of_csns_is_the_serial_order"), SEEDS;
    UpgradeUnchecked: tests("engine", "locks::of_two_upgrades_one_is_aborted"), SEEDS;
    ErrorNotAwaited: tests("engine", "serializable::transact_returns_an_error_once_its_reason_is_durable"), SEEDS;
    LateReleaseIgnored: tests("engine", "locks::a_row_released_at_commit_is_durable_when_it_is_read"), SEEDS;
    NoConflict: tests("engine", "basics::the_first_updater_wins"), SEEDS;
    AbortLeavesRow: tests("engine", "basics::an_abort_leaves_no_trace_and_dropping_is_aborting"), SEEDS;
    RollbackLeavesRow: tests("engine", "basics::savepoints_take_back_what_came_after_them"), SEEDS;
    RollbackKeepsRedo: SEEDS;
    TombstonePurgedEarly: tests("engine", "presets::deletes_and_inserts_and_ranges_agree_with_an_exact_model");
    VersionFreedEarly: tests("engine", "basics::a_long_snapshot_does_not_keep_what_nobody_sees"), SEEDS;
    VersionFreedVolatile: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted");
    DeadRangeKept: tests("engine", "dead_rows::row_inserted_into_a_dead_range"), SEEDS;
    DeadRangeTooNew: tests("engine", "dead_rows::older_snapshot_sees_rows_of_a_dead_range"), SEEDS;
    DeadRangeIsNoRead: tests("engine", "dependencies::an_acknowledged_reader_keeps_what_it_observed_restricted"), SEEDS;
    ClaimNotBroken: tests("lib", "transaction::dead_ranges::tests::claim_is_broken"), SEEDS;
    ValueFreedEarly: tests("engine", "large_values::an_old_snapshot_reads_the_value_that_it_saw");
    RetiredNotListed: SEEDS;
    RetiredFreedEarly: tests("engine", "large_values::a_value_released_while_a_checkpoint_is_made_is_freed_once");
    UnfinishedNotListed: tests("engine", "longer_than_memory::copies_of_a_checkpoint_have_nothing_of_a_value_in_progress");

    WriterNotFenced: tests("engine", "objects::requests_that_arrive_after_a_takeover_change_nothing"), OBJECTS_SEEDS;
    LogReadBeforeFence: tests("engine", "objects::a_takeover_loses_nothing"), OBJECTS_SEEDS;
    AppendedBehindFence: tests("engine", "objects::requests_that_arrive_after_a_takeover_change_nothing"), OBJECTS_SEEDS;
    ManifestPutAlways: tests("engine", "objects::requests_that_arrive_after_a_takeover_change_nothing"), OBJECTS_SEEDS;
    NamesRepeat: tests("engine", "objects::"), OBJECTS_SEEDS;
    UnregisteredSegment: tests("engine", "objects::a_crash_between_any_two_changes"), OBJECTS_SEEDS;
    BlockReportedEarly: tests("engine", "objects::a_crash_between_any_two_changes"), OBJECTS_SEEDS;
    NumberedFenceDeleted: tests("engine", "objects::requests_that_arrive_after_a_takeover_change_nothing"), OBJECTS_SEEDS;
    ExtentDeletedEarly: tests("engine", "objects::a_crash_between_any_two_changes"), OBJECTS_SEEDS;
    ExtentNamedEarly: OBJECTS_SEEDS, tests("engine", "objects::requests_of_unknown_outcome");
    StreamNotFinalized: tests("engine", "objects::a_takeover_loses_nothing");
    StreamReadBeforeFinalize: tests("engine", "objects::a_takeover_loses_nothing");
    StreamResentWhole: tests("engine", "objects::requests_of_unknown_outcome"), STREAMED_SEEDS;
    StreamReportedUnflushed: tests("engine", "objects::torn_block_at_the_end_of_a_lane_is_its_end"), STREAMED_SEEDS;
    StreamUncut: tests("engine", "objects::torn_block_at_the_end_of_a_lane_is_its_end"), STREAMED_SEEDS;
    OneBucketAcknowledges: tests("engine", "objects_several::a_writer_with_one_of_three_buckets_acknowledges_nothing");
    FirstRegisterTaken: tests("engine", "objects_several_rules::a_claim_takes_the_newest_manifest_of_a_writer");
    BallotWithoutGeneration: tests("engine", "objects_several_rules::a_claim_takes_the_newest_manifest_of_a_writer");
    PromiseNotChecked: tests("engine", "objects_several_rules::a_checkpoint_of_a_writer_that_has_ended_changes_nothing");
    OneBucketPublishes: tests("engine", "objects_several_rules::a_checkpoint_in_one_bucket_does_not_count");
    OneBucketFenced: tests("engine", "objects_several::every_pattern_of_failed_buckets_loses_nothing");
    BucketReadBeforeFence: tests("engine", "objects_several_rules::takeovers_beside_a_busy_writer_lose_nothing");
    NothingPutAgain: tests("engine", "objects_several_rules::what_a_takeover_served_from_one_bucket_survives_it");
    AcceptedIgnored: tests("engine", "objects_several_rules::what_a_takeover_discarded_does_not_come_back");
    OldBucketCounted: tests("engine", "objects_several_rules::an_old_bucket_beside_a_missing_one_is_refused");
    JoinedEmpty: tests("engine", "objects_several_repair::an_emptied_bucket_is_filled_and_counts_again");
    FencesForgotten: tests("engine", "objects_several_repair::a_writer_that_was_ended_reports_nothing_after_repairs");
    MinorityFollowed: tests("engine", "standby_several::a_block_of_a_minority_is_not_shown");
    PinIgnored: tests("engine", "objects_readers::a_checkpoint_beside_each_request_of_an_opening_reader");
    PinNotChecked: tests("engine", "objects_readers::a_checkpoint_beside_each_request_of_an_opening_reader");

    SeparatorLost: tests("lib", "tree::tests::checkpoint");
    MergeDropsRow: tests("lib", "tree::tests::checkpoint");
    ScanSkipsAtBorder: tests("engine", "basics::ranges_run_from_both_ends_and_meet"), SEEDS;
    ValueFreedTwice: tests("engine", "large_values::values_written_after_a_failed_drop_outlive_the_table");
    OverflowPageLeaked: tests("engine", "large_values::overwriting_deleting_and_aborting_free_every_page"), SEEDS;

    BlockReusedEarly: SEEDS;
    ImagesNotFlushed: SEEDS;
    ExtentNotDiscarded: tests("engine", "extents::");
    BlockLeaked: tests("engine", "verify::no_block_and_no_segment_is_leaked");
    MappingSlotSkipped: tests("lib", "store::tests::crash"), SEEDS;
    ManifestBelievedDurable: tests("lib", "store::tests::manifest");
    NewestSlotNotFirst: tests("lib", "store::tests::manifest");
    SecondSlotSkipped: tests("lib", "store::tests::manifest");
    RemovalForgotten: tests("lib", "store::tests::pages");
    ReserveNotKept: tests("engine", "full_disk::at_every_fill_level_work_is_refused_kept_and_resumed");
    LostWriteBelieved: tests("lib", "store::block");
    ReadAheadIsStale: tests("engine", "larger_than_memory::announcing_rows_in_a_tiny_memory_changes_nothing");
    CopyIsStale: tests("lib", "buffer::scan_buffer");
    FailedImageRecorded: tests("engine", "faults::any_operation_may_fail_autonomous");
    ReadersNotAsked: tests("engine", "readers::a_reader_stays_at_its_checkpoint_between_any_steps");

    UncommittedImage: tests("engine", "checkpoint_exact::a_checkpoint_has_nothing_of_a_transaction_that_is_open");
    ImageBeforeLog: LEAVE_MEMORY;
    ImageAfterCheckpoint: LEAVE_MEMORY;
    NotHandedOver: tests("engine", "checkpoint_exact::a_checkpoint_is_of_one_moment_while_pages_split_and_merge"), SEEDS;
    DirtyPageDropped: tests("engine", "presets::content_is_right_with_a_pool_of_a_few_dozen_pages");

    VoidForgotten: tests("lib", "recovery::select"), SEEDS;
    DiscardedReplayed: tests("lib", "recovery::select");
    LaterEpochBelieved: tests("lib", "recovery::select"), SEEDS;
    AcceptedEndIgnored: tests("lib", "recovery::select");
    FragmentCountIgnored: tests("lib", "recovery::select");
    ChunkOrderIgnored: tests("engine", "chunks::long_transactions_survive_whole_or_not_at_all"), SEEDS;
    FrontierTooHigh: tests("lib", "recovery::select");
    PredecessorsIgnored: tests("lib", "recovery::select");
    HoleIsTornTail: tests("lib", "recovery::select");
    NotAppendedAgain: tests("lib", "recovery::select");
    VoidCsnDrawnAgain: tests("lib", "recovery::select"), SEEDS;
    RedoSkipsFirst: tests("lib", "recovery::select"), SEEDS;
    RedoOutOfOrder: tests("lib", "recovery::redo"), SEEDS;
    CleanMarkKept: SEEDS;
    PromotedEndForgotten: tests("engine", "standby_promotion::a_promotion_continues_from_what_was_applied");
    PromotedVoidForgotten: tests("engine", "standby_promotion::what_a_recovery_discarded_stays_so_after_a_promotion");

    FollowedUnlocked: tests("engine", "standby_directory::nothing_new_is_shown_while_the_lock_names_another_epoch");

    IncrementMissesPage: tests("engine", "backup::every_increment_of_a_chain_restores_its_moment");
    BackupHoldsNothing: tests("lib", "store::tests::free");
}
