//! Machines that stall, die or are cut off.

use super::*;

fn step_to_end(store: &SimulatedStore) {
    while store.step() {}
}

#[test]
fn requests_of_one_client_overtake_each_other() {
    let (store, outcomes) = (stepped(3), Outcomes::default());
    let client = store.client();
    for number in 0..20 {
        start(&client, put("a", "x"), number, &outcomes);
    }
    assert_eq!((store.changes(), store.requests_in_flight().len()), (0, 20));
    step_to_end(&store);
    let order: Vec<usize> = outcomes.lock().iter().map(|(number, _)| *number).collect();
    assert!(order.len() == 20 && !order.is_sorted(), "{order:?}");
    let counts = store.fault_counts();
    assert!(counts.of("out-of-order effect") > 0 && counts.of("out-of-order reply") > 0);
}

#[test]
fn requests_of_a_dead_client_come_late_or_never() {
    let (mut late, mut never, mut lands) = (0, 0, 0);
    for seed in 0..50 {
        let (store, outcomes) = (stepped(seed), Outcomes::default());
        let (dead, next) = (store.client(), store.client());
        start(&dead, put("a", "dead"), 0, &outcomes);
        start(&dead, get("a"), 1, &outcomes);
        dead.kill();
        start(&dead, put("b", "dead"), 2, &outcomes);
        assert_eq!(Arc::strong_count(&outcomes), 1, "the callbacks are dropped");
        let waits = store.requests_in_flight().len();
        (late, never) = (late + waits, never + 1 - waits);
        for number in 0..200 {
            start(&next, put("c", "x"), number, &outcomes);
            step_to_end(&store);
        }
        let lost = store.fault_counts().of("late effect never");
        assert_eq!(u64::from(text(&store, "a").is_none()), lost, "400 steps suffice");
        lands += store.fault_counts().of("late effect after the client's death");
        assert_eq!((outcomes.lock().len(), text(&store, "b")), (200, None));
    }
    assert!(late > 10 && never > 5 && lands > 10, "{late} {never} {lands}");
}

#[test]
fn threads_of_a_stopped_machine_find_out() {
    let (store, outcomes) = (stepped(1), Outcomes::default());
    let client = store.client();
    client.hold_replies();
    start(&client, put("a", "x"), 0, &outcomes);
    step_to_end(&store);
    client.hold_requests();
    start(&client, put("b", "x"), 1, &outcomes);
    start(&client, get("a"), 2, &outcomes);
    client.stop();
    step_to_end(&store);
    assert_eq!(kinds(&outcomes), [Some(FailureKind::Unknown); 3]);
    start(&client, get("a"), 3, &outcomes);
    step_to_end(&store);
    assert_eq!(kinds(&outcomes)[3], Some(FailureKind::Denied));
    assert_eq!(text(&store, "a").as_deref(), Some("x"));
}

#[test]
fn held_replies_arrive_after_the_release() {
    let (store, outcomes) = (stepped(1), Outcomes::default());
    let (client, other) = (store.client(), store.client());
    client.hold_replies();
    start(&client, put("a", "x"), 0, &outcomes);
    step_to_end(&store);
    assert_eq!((text(&store, "a").as_deref(), outcomes.lock().len()), (Some("x"), 0));
    start(&other, put("a", "y"), 1, &outcomes);
    step_to_end(&store);
    assert_eq!(outcomes.lock().len(), 1);
    client.release();
    step_to_end(&store);
    assert_eq!((kinds(&outcomes), text(&store, "a").as_deref()), (vec![None; 2], Some("y")));
}

#[test]
fn held_requests_take_effect_after_the_release() {
    let (store, outcomes) = (stepped(1), Outcomes::default());
    let (client, other) = (store.client(), store.client());
    client.hold_requests();
    start(&client, create("a", "x"), 0, &outcomes);
    start(&other, create("a", "y"), 1, &outcomes);
    step_to_end(&store);
    assert_eq!((text(&store, "a").as_deref(), outcomes.lock().len()), (Some("y"), 1));
    client.release();
    step_to_end(&store);
    assert_eq!(kinds(&outcomes), [None, Some(FailureKind::Refused)]);
}

#[test]
fn callbacks_of_a_dropped_stalled_client_are_dropped() {
    let (store, outcomes) = (SimulatedStore::new(1), Outcomes::default());
    let client = store.client();
    client.hold_replies();
    start(&client, put("a", "x"), 0, &outcomes);
    drop(client);
    assert_eq!((Arc::strong_count(&outcomes), outcomes.lock().len()), (1, 0));
}

#[test]
fn partition_hides_every_outcome() {
    let (mut there, mut late, mut never) = (0, 0, 0);
    for seed in 0..50 {
        let (store, outcomes) = (stepped(seed), Outcomes::default());
        let client = store.client();
        start(&client, put("a", "x"), 0, &outcomes);
        if seed % 2 == 0 {
            store.step();
        }
        client.partition();
        start(&client, put("b", "x"), 1, &outcomes);
        start(&client, get("b"), 2, &outcomes);
        step_to_end(&store);
        assert_eq!(kinds(&outcomes), [Some(FailureKind::Unknown); 3]);
        assert!(seed % 2 == 1 || text(&store, "a").is_some());
        match (text(&store, "b"), store.requests_in_flight().iter().any(|request| request.name() == "b")) {
            (Some(_), false) => there += 1,
            (None, true) => late += 1,
            (None, false) => never += 1,
            (Some(_), true) => panic!("seed {seed}: the request took effect and is in flight"),
        }
        client.reconnect();
        start(&client, put("c", "x"), 3, &outcomes);
        step_to_end(&store);
        assert_eq!(kinds(&outcomes)[3], None);
    }
    assert!(there > 5 && late > 5 && never > 5, "{there} {late} {never}");
}
