//! The rate, the rounds of a shard, and the state after an order, its change and its end.

use super::*;

fn order(rate_per_second: u32) -> Order {
    Order { rate_per_second, spread: Duration::from_secs(5), deadline: None }
}

#[test]
fn a_shard_with_connections_gets_the_whole_rate() {
    let mut allowance = Allowance { per_second: 40, refilled_ms: 0, thousandths: 0 };
    let mut moved = 0;
    for now_ms in (0..=1_000).step_by(20) {
        // One shard is empty; the other has as many as one wants.
        moved += allowance.take(now_ms, 0) + allowance.take(now_ms, 1_000);
    }
    assert_eq!(moved, 40);
}

#[test]
fn unused_allowance_lasts_for_a_second() {
    let mut allowance = Allowance { per_second: 10, refilled_ms: 0, thousandths: 0 };
    assert_eq!(allowance.take(99, 5), 0);
    assert_eq!(allowance.take(100, 5), 1);
    assert_eq!(allowance.take(3_600_000, 1_000), 10);
    assert_eq!(allowance.take(u64::MAX, 1_000), 10, "no overflow");
    let mut allowance = Allowance { per_second: u32::MAX, refilled_ms: 0, thousandths: 0 };
    assert_eq!(allowance.take(u64::MAX, u64::MAX), u64::from(u32::MAX));
}

#[test]
fn every_slot_is_visited_and_a_turn_is_bounded() {
    let places = 3 * PLACES_PER_TURN + 5;
    let (mut round, mut found, mut turns) = (Round::default(), Vec::new(), 0);
    while found.len() < 2 {
        turns += 1;
        assert!(turns < 10, "{found:?}");
        let looked = std::cell::Cell::new(0);
        found.extend(round.look(places, 7, |place| {
            looked.set(looked.get() + 1);
            place == 3 || place == places - 1
        }));
        assert!(looked.get() <= PLACES_PER_TURN);
    }
    assert_eq!((&found[..2], turns), (&[3, places - 1][..], 4));
    let mut round = Round { next: 2, ..Round::default() };
    assert_eq!(round.look(4, 2, |_| true), [2, 3]);
    assert_eq!(round.look(4, 9, |_| true), [0, 1, 2, 3]);
    assert!(round.look(0, 9, |_| true).is_empty());
}

#[test]
fn a_shard_continues_at_once_only_while_it_finds_connections() {
    let check = |round: &mut Round, places, wanted, movable: bool, wait_ms| {
        let found = round.look(places, wanted, |_| movable).len();
        round.schedule(1_000, places, found, wanted);
        assert_eq!(round.patience_ms(1_000), wait_ms);
    };
    let many = 2 * PLACES_PER_TURN;
    let mut round = Round::default();
    check(&mut round, many, MOVES_PER_TURN, true, 0);
    check(&mut round, many, 5, true, STEP_MS);
    check(&mut round, many, 0, true, STEP_MS);
    check(&mut round, many, 5, false, 0);
    check(&mut round, many, 5, false, IDLE_STEP_MS);
    check(&mut round, many, 5, true, STEP_MS);
}

#[test]
fn an_order_is_changed_cancelled_and_overruled_by_the_end() {
    let drain = Drain::new();
    assert_eq!((drain.report(3).state, drain.cancel()), (State::Serving, Ok(false)));
    assert_eq!(drain.begin(order(10), false), Ok(true));
    assert_eq!((drain.report(3).state, drain.report(0).state), (State::Draining, State::Drained));
    assert_eq!(drain.begin(order(20), false), Ok(false));
    assert_eq!(drain.report(3).progress.map(|progress| progress.order), Some(order(20)));
    assert_eq!((drain.cancel(), drain.is_active(), drain.take(5)), (Ok(true), false, 0));
    assert_eq!(drain.begin(order(10), false), Ok(true));
    assert_eq!(drain.begin(Order { deadline: Some(Duration::ZERO), ..order(1) }, true), Ok(false));
    assert_eq!((drain.report(0).state, drain.is_ending()), (State::Stopping, true));
    let other = Order { spread: Duration::from_secs(60), ..order(10) };
    assert_eq!((drain.begin(other, false), drain.cancel()), (Err(Stopping), Err(Stopping)));
    assert_eq!(drain.spread_ms(), 5_000, "of the order that stands");
    assert_eq!((drain.allowed(), drain.take(1_000)), (usize::MAX, 1_000), "the deadline has passed");
    assert_eq!(drain.report(0).progress.map(|progress| progress.moved), Some(1_000));
}

#[test]
fn the_times_of_a_drain_do_not_change() {
    let drain = Drain::new();
    drain.begin(Order { deadline: Some(Duration::ZERO), ..order(10) }, false).expect("not stopping");
    let first = drain.report(3).progress.expect("it drains");
    assert_eq!(first.deadline_at, Some(first.began_at));
    std::thread::sleep(Duration::from_millis(5));
    let later = drain.report(3).progress.expect("it drains");
    assert_eq!((later.began_at, later.deadline_at), (first.began_at, first.deadline_at), "it has passed");
    drain.begin(Order { deadline: Some(Duration::from_secs(9)), ..order(10) }, false).expect("not stopping");
    let changed = drain.report(3).progress.expect("it drains");
    assert_eq!(changed.began_at, first.began_at, "a change does not begin it anew");
    assert!(changed.deadline_at > Some(first.began_at + Duration::from_secs(8)), "{changed:?}");
}

#[test]
fn completion_is_reported_once() {
    let drain = Drain::new();
    assert!(!drain.is_news());
    drain.begin(order(10), false).expect("not stopping");
    assert_eq!((drain.is_news(), drain.is_news()), (true, false));
}
