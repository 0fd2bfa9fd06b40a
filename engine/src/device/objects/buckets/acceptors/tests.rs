//! Bodies that are put at the same moment, by the writer and by the repair of a bucket.

use super::super::super::body::{Nonce, WriterEpoch};
use super::super::super::simulated::{SimulatedClient, SimulatedStore};
use super::super::super::store::ObjectStore;
use super::super::set::BucketSet;
use super::*;

const BALLOT: Ballot = Ballot { epoch: WriterEpoch(1), nonce: Nonce([7; 16]) };

/// Returns the connections to three buckets, and the registers in them, which a writer has claimed.
fn claimed() -> (Vec<Arc<SimulatedClient>>, Arc<Acceptors>, Body) {
    let clients: Vec<_> = (0..3).map(|zone| SimulatedStore::new(zone).client()).collect();
    let named = |(zone, client): (usize, &Arc<SimulatedClient>)| {
        (format!("sim://zone{zone}"), client.clone() as Arc<dyn ObjectStore>)
    };
    let stores = clients.iter().enumerate().map(named).collect();
    let acceptors =
        Acceptors::new(Buckets::new(BucketSet::new(stores, false, None)), Duration::from_secs(20));
    acceptors.create().expect("no fault");
    // A look learns of which database the buckets are.
    let look = Request::Get { name: MANIFEST_NAME.into(), range: None };
    perform(acceptors.buckets(), look).expect("it was created");
    match acceptors.claim(BALLOT).expect("no fault") {
        Claimed::Confirmed(body) => (clients, acceptors, *body),
        Claimed::Later => panic!("it is the only writer"),
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_repair_does_not_displace_the_next_manifest() {
    let (clients, acceptors, first) = claimed();
    let generation = |generation| Body { generation, ..first.clone() };
    assert_eq!(acceptors.accept(&generation(2)).expect("no fault"), None);
    acceptors.buckets().all()[0].exclude("two are left, and both are needed", false);
    wait_until(|| !acceptors.slots[1].lock().is_busy);
    clients[1].hold_requests();
    std::thread::scope(|scope| {
        let third = scope.spawn(|| acceptors.accept(&generation(3)));
        let is_under_way = |slot: &Slot| slot.is_busy && slot.wanted.is_none();
        wait_until(|| is_under_way(&acceptors.slots[1].lock()));
        let fourth = scope.spawn(|| acceptors.accept(&generation(4)));
        wait_until(|| acceptors.slots[1].lock().wanted.is_some());
        let round = Round::new(3);
        let again = Proposal { ballot: BALLOT, body: Arc::new(generation(2)), round: round.clone() };
        acceptors.propose(1, again);
        let is_skipped = matches!(round.votes.lock()[1], Some(Vote::No(_)));
        clients[1].release();
        assert_eq!(third.join().expect("no panic").expect("both have taken it"), None);
        assert_eq!(fourth.join().expect("no panic").expect("both have taken it"), None);
        assert!(is_skipped, "the newer one stays");
    });
    assert!(acceptors.refresh(1, generation(4)), "it has this one");
}

#[test]
fn a_refused_manifest_says_what_is_wrong_with_each_bucket() {
    let (_, acceptors, first) = claimed();
    acceptors.buckets().all()[0].exclude("it was emptied", true);
    acceptors.buckets().all()[2].exclude("it was restored", true);
    let error = acceptors.accept(&Body { generation: 2, ..first }).expect_err("one is left").to_string();
    assert!(error.contains("sim://zone0: it was emptied; sim://zone2: it was restored"), "{error}");
}
