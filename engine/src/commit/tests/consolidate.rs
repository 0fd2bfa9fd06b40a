//! Records that the holder of the latch appends for other threads.

use super::*;
use std::thread::{ScopedJoinHandle, scope};

const MEMBERS: usize = 3;

fn in_groups(preset: Preset) -> Settings {
    Settings { logs: 1, ..settings(preset) }.with_protocol(|axes| axes.append = Append::Consolidated)
}

fn waiting(world: &World) -> usize {
    world.commit.appending.path.as_ref().expect("in groups").waiting()
}

/// Appends a record that no thread waits for.
fn append(world: &World, preparing: impl FnMut() -> bool + Send) -> Result<Option<Ticket>> {
    let (body, kind) = (vec![3; world.body_bytes], RecordKind::Whole);
    let record = Record { body: &body, body_crc: crc(&body), operations: 1, gsn: Gsn(0), kind };
    let pending = world.pending(Csn::ZERO, Durability::Durable, false);
    world.commit.precommit(LogId(0), record, &pending, preparing)
}

type Appended = std::thread::Result<Result<Option<Ticket>>>;

/// Appends a record while `members` threads wait for the latch, which run `member`. Returns what
/// became of the first record, and of theirs.
fn beside_members(
    world: &World,
    members: usize,
    member: impl Fn() -> Result<Option<Ticket>> + Sync,
) -> (Appended, Vec<Appended>) {
    let holds = std::sync::atomic::AtomicBool::new(false);
    scope(|scope| {
        let holder = scope.spawn(|| {
            append(world, || {
                holds.store(true, Ordering::SeqCst);
                eventually("all wait", || waiting(world) == members);
                true
            })
        });
        eventually("the latch is held", || holds.load(Ordering::SeqCst));
        let members: Vec<_> = (0..members).map(|_| scope.spawn(&member)).collect();
        (holder.join(), members.into_iter().map(ScopedJoinHandle::join).collect())
    })
}

#[test]
fn the_holder_of_the_latch_appends_for_a_group() {
    for preset in [Preset::Group, Preset::Queued, Preset::Pipelined] {
        let world = World::with(in_groups(preset), Hooks::default());
        let (holder, members) = beside_members(&world, MEMBERS, || append(&world, || true));
        let csn =
            |appended: Appended| appended.expect("no panic").expect("room").expect("not withdrawn").csn.0;
        assert_eq!(csn(holder), 1, "its own is the first");
        let mut csns: Vec<u64> = members.into_iter().map(csn).collect();
        csns.sort_unstable();
        assert_eq!(csns, (2..=1 + MEMBERS as u64).collect::<Vec<_>>());
        assert_eq!(world.commit.inspect().metrics().consolidated.get(), MEMBERS as u64);
        world.commit.waits().flush_all().expect("the disk is whole");
        assert_eq!(world.durable_csns().len(), 1 + MEMBERS);
        eventually("acknowledged", || world.commit.inspect().metrics().committed.get() == 1 + MEMBERS as u64);
    }
}

#[test]
fn a_member_may_withdraw() {
    let world = World::with(in_groups(Preset::Pipelined), Hooks::default());
    let (holder, members) = beside_members(&world, 1, || append(&world, || false));
    assert!(matches!(holder, Ok(Ok(Some(_)))));
    assert!(members.iter().all(|member| matches!(member, Ok(Ok(None)))));
    assert_eq!(world.commit.progress().newest_drawn(), Csn(1));
}

#[test]
fn members_learn_that_commits_have_stopped() {
    let world = World::with(in_groups(Preset::Pipelined), Hooks::default());
    let fail = || {
        world.commit.failure.fail(Error::new(ErrorKind::Io, "a write failed"));
        true
    };
    let (holder, members) = beside_members(&world, 2, || append(&world, fail));
    assert!(matches!(holder, Ok(Ok(Some(_)))));
    let refused = |member: &Appended| matches!(member, Ok(Err(error)) if error.kind() == ErrorKind::Poisoned);
    assert_eq!(members.iter().filter(|member| refused(member)).count(), 1, "the second one: {members:?}");
}

#[test]
fn a_panic_of_the_holder_leaves_the_outcome_unknown() {
    let world = World::with(in_groups(Preset::Pipelined), Hooks::default());
    let (holder, members) = beside_members(&world, 1, || append(&world, || panic!("planned")));
    assert!(holder.is_err(), "the work of the member panics in its thread");
    let unknown =
        |member: &Appended| matches!(member, Ok(Err(error)) if error.kind() == ErrorKind::OutcomeUnknown);
    assert!(members.iter().all(unknown), "{members:?}");
    // The record of the holder is whole, and nothing is left in the array.
    assert_eq!((waiting(&world), world.commit.progress().newest_drawn()), (0, Csn(1)));
    world.commit.waits().flush_all().expect("the disk is whole");
    assert_eq!(world.durable_csns().len(), 1);
}

/// Records of which two fill a buffer, so that members find no room.
#[test]
fn members_without_room_wait_for_it_alone() {
    let mut world = World::with(
        in_groups(Preset::Pipelined).with(|s| s.lab.log_buffer_bytes = 64 << 10),
        Hooks::default(),
    );
    world.body_bytes = 30_000;
    let each = crate::base::depth::depth(400).clamp(25, 100);
    scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..each {
                    append(&world, || true).expect("room").expect("not withdrawn");
                }
            });
        }
    });
    world.commit.waits().flush_all().expect("the disk is whole");
    assert!(world.commit.inspect().metrics().backpressure_waits.get() > 0, "no record had to wait");
    assert_eq!(world.commit.progress().newest_drawn(), Csn(8 * each));
    assert_eq!(world.durable_csns().len() as u64, 8 * each);
}

#[test]
fn groups_are_refused_where_they_do_not_fit() {
    let refused = |settings: &Settings| {
        let error = presets::check(settings, presets::log_count(settings, 2)).expect_err("refused");
        assert!(error.to_string().contains("`append`"), "{error}");
    };
    refused(&Settings { logs: 2, ..in_groups(Preset::Group) });
    refused(&Settings { log_memory: Some("memory".into()), ..in_groups(Preset::Passive) });
}
