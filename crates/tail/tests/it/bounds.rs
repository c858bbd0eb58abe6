//! The number of tails, the number of events, and the end of a tail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_events::Kind;
use noroshi_tail::tails::{TAILS_MAX, TAILS_OF_PERSON_MAX};
use noroshi_tail::{Filter, Refused};
use noroshi_types::Outcome;

use crate::world::*;

#[tokio::test]
async fn nothing_runs_without_a_tail() {
    let world = World::new().await;
    let node = world.alone();
    assert!(!node.events.is_on());
    let viewer = node.open(Filter::of(world.shop)).await;
    assert!(node.events.is_tapped());
    assert_eq!(node.metrics.tails.get(), 1);
    drop(viewer);
    assert_eq!(node.metrics.tails.get(), 0);
    let deadline = Instant::now() + PATIENCE;
    // The task holds a reference.
    while node.events.is_on() || Arc::strong_count(&node.tails) > 1 {
        assert!(Instant::now() < deadline, "the flushes go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It begins again.
    let mut again = node.open(Filter::of(world.shop)).await;
    assert!(text(&mut again).await.is_some() && node.events.is_tapped());
}

#[tokio::test]
async fn the_number_of_tails_is_bounded() {
    let world = World::new().await;
    let node = world.alone();
    let mut open = Vec::new();
    for _ in 0..TAILS_OF_PERSON_MAX {
        open.push(node.open_as(1, Filter::of(world.shop)).await.expect("room"));
    }
    assert!(matches!(node.open_as(1, Filter::of(world.shop)).await, Err(Refused::FullForPerson)));
    for person in 2.. {
        if open.len() == TAILS_MAX {
            break;
        }
        open.push(node.open_as(person, Filter::of(world.shop)).await.expect("room"));
    }
    assert!(matches!(node.open_as(99, Filter::of(world.shop)).await, Err(Refused::Full)));
    assert_eq!(node.metrics.tails_refused.get(), 2);
    open.remove(0);
    open.push(node.open_as(1, Filter::of(world.shop)).await.expect("room"));
    assert_eq!(node.metrics.tails.get(), TAILS_MAX as i64);
}

#[tokio::test]
async fn a_node_that_stops_ends_all_tails_and_refuses_new_ones() {
    let world = World::new().await;
    let node = world.alone();
    let mut viewer = node.open(Filter::of(world.shop)).await;
    node.tails.set_closed(true);
    while text(&mut viewer).await.is_some() {}
    assert!(matches!(node.open_as(1, Filter::of(world.shop)).await, Err(Refused::Closed)));
    // A drain may be taken back.
    node.tails.set_closed(false);
    assert!(node.open_as(1, Filter::of(world.shop)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_shown_in_part_and_the_rest_is_counted() {
    const FLOOD: u64 = 40_000;
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let node = world.alone();
    let kinds = [Kind::Written, Kind::PushSkipped].into_iter().collect();
    let mut viewer = node.open(Filter { kinds, ..Filter::of(world.shop) }).await;
    let id = node.publish(world.shop, users(&["ann"])).await;
    let emitter = {
        let (app, events) = (world.shop, node.events.clone());
        move || {
            for _ in 0..FLOOD {
                let of = noroshi_events::Subject::Notification(id);
                let event = noroshi_events::Event::Outcome {
                    app,
                    of,
                    outcome: Outcome::Written,
                    devices: Box::new([ann]),
                    count: 1,
                };
                let mut record = noroshi_events::Record { at: NOW, event };
                while let Err(back) = events.try_emit(record) {
                    record = back;
                    std::thread::yield_now();
                }
            }
        }
    };
    let began = Instant::now();
    let thread = std::thread::spawn(emitter);
    node.outcome(world.shop, id, Outcome::NoPushToken, &[ann]);
    let mut seen = Seen::default();
    seen.until(&mut viewer, |seen| seen.events.len() as u64 + seen.omitted > FLOOD).await;
    thread.join().expect("no panic");
    assert!(seen.has("push_skipped"), "a flood hides no other kind");
    assert_eq!(seen.events.len() as u64 + seen.omitted, FLOOD + 1);
    let seconds = began.elapsed().as_secs_f64();
    // 25 of each flush, which are at least 250 ms apart, and the one that began.
    assert!(
        seen.events.len() as f64 <= 100.0 * (seconds + 0.5),
        "{} events in {seconds} s",
        seen.events.len()
    );
    assert!(seen.gaps.is_empty(), "{:?}", seen.gaps);
    assert_eq!(node.metrics.tail_events.get(), seen.events.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_that_does_not_read_holds_a_bounded_number_of_texts() {
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let node = world.alone();
    let kinds = [Kind::Written].into_iter().collect();
    let mut viewer = node.open(Filter { kinds, ..Filter::of(world.shop) }).await;
    let id = node.publish(world.shop, users(&["ann"])).await;
    let mut emitted = 0;
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        node.outcome(world.shop, id, Outcome::Written, &[ann]);
        emitted += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // All are accounted for, although some texts found no room.
    let mut seen = Seen::default();
    seen.until(&mut viewer, |seen| seen.events.len() as u64 + seen.omitted >= emitted).await;
    assert_eq!(seen.events.len() as u64 + seen.omitted, emitted);
    assert!(seen.omitted > 0);
}
