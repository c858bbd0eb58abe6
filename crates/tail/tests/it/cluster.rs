//! Tails over two nodes.

use std::time::{Duration, Instant};

use noroshi_events::Kind;
use noroshi_tail::Filter;
use noroshi_types::{Outcome, PersonId, SessionId, UserId};

use crate::world::*;

async fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn two(world: &World, second_reports: bool) -> (Node, Node) {
    let (a, b) = (world.join("a", true), world.join("b", second_reports));
    let knows = |node: &Node| node.delivery.tails.peers().len() == 1;
    until("both know each other", || knows(&a) && knows(&b)).await;
    (a, b)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_has_the_events_of_all_nodes() {
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let bob = world.device(world.game, "d2", "bob").await;
    let (a, b) = two(&world, true).await;
    let filter =
        Filter { kinds: [Kind::Written, Kind::Closed].into_iter().collect(), ..Filter::of(world.shop) };
    let mut viewer = a.tails.open(PersonId(1), true, filter.clone()).await.expect("room");
    let mut hidden = a.open(filter).await;
    until("the other node takes part", || b.metrics.tails_of_nodes.get() == 2).await;
    assert!(b.events.is_tapped());
    let id = a.publish(world.shop, users(&["ann"])).await;
    a.outcome(world.shop, id, Outcome::Written, &[ann]);
    b.outcome(world.shop, id, Outcome::Written, &[ann]);
    b.closed(world.game, bob, SessionId(1));
    b.closed(world.shop, ann, SessionId(2));
    let mut seen = Seen::default();
    seen.until(&mut viewer, |seen| seen.events.len() == 3).await;
    let mut nodes: Vec<_> =
        seen.events.iter().map(|event| (event["event"].as_str(), event["node"].as_str())).collect();
    nodes.sort_unstable();
    assert_eq!(
        nodes,
        [(Some("closed"), Some("b")), (Some("written"), Some("a")), (Some("written"), Some("b"))]
    );
    assert!(seen.events.iter().all(|event| event["session"] != SessionId(1).to_string()));
    assert_eq!((seen.omitted, seen.missing), (0, 0));
    // People with a role in one app do not see the nodes.
    let mut seen = Seen::default();
    seen.until(&mut hidden, |seen| seen.events.len() == 3).await;
    assert!(seen.events.iter().all(|event| event.get("node").is_none()));
    // The other node stops when the viewer leaves.
    drop((viewer, hidden));
    until("the other node has stopped", || b.metrics.tails_of_nodes.get() == 0 && !b.events.is_on()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_another_node_is_counted_there_and_stated_here() {
    const FLOOD: u64 = 5_000;
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let (a, b) = two(&world, true).await;
    let filter = Filter { kinds: [Kind::Written].into_iter().collect(), ..Filter::of(world.shop) };
    let mut viewer = a.open(filter).await;
    until("the other node takes part", || b.metrics.tails_of_nodes.get() == 1).await;
    let id = a.publish(world.shop, users(&["ann"])).await;
    for _ in 0..FLOOD {
        b.outcome(world.shop, id, Outcome::Written, &[ann]);
    }
    let mut seen = Seen::default();
    seen.until(&mut viewer, |seen| seen.events.len() as u64 + seen.omitted >= FLOOD).await;
    assert_eq!(seen.events.len() as u64 + seen.omitted, FLOOD);
    assert!(!seen.events.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_an_older_version_is_not_asked_and_stated_as_missing() {
    let world = World::new().await;
    let (a, b) = two(&world, false).await;
    let mut viewer = a.tails.open(PersonId(1), true, Filter::of(world.shop)).await.expect("room");
    let shown = text(&mut viewer).await.expect("open");
    assert_eq!((&shown["nodes_missing"], &shown["missing"]), (&1.into(), &serde_json::json!(["b"])));
    assert_eq!(b.metrics.tails_of_nodes.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_silent_is_stated_as_missing() {
    let world = World::new().await;
    let (a, b) = two(&world, true).await;
    let mut viewer = a.open(Filter::of(world.shop)).await;
    until("the other node takes part", || b.metrics.tails_of_nodes.get() == 1).await;
    let mut seen = Seen::default();
    seen.until(&mut viewer, |seen| seen.missing == 0 && seen.gaps.is_empty()).await;
    // Its lease stays for a while, and it answers no more.
    b.member.as_ref().expect("a member").partition();
    seen.missing = 0;
    seen.until(&mut viewer, |seen| seen.missing == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_of_a_user_follows_devices_that_other_nodes_register() {
    let world = World::new().await;
    let old = world.device(world.shop, "old", "ann").await;
    let (a, b) = two(&world, true).await;
    let kinds = [Kind::Written].into_iter().collect();
    let mut viewer =
        a.open(Filter { kinds, user: UserId::parse("ann").ok(), ..Filter::of(world.shop) }).await;
    until("the other node takes part", || b.metrics.tails_of_nodes.get() == 1).await;
    let id = a.publish(world.shop, users(&["ann", "bob"])).await;
    // No event of these changes reaches the nodes: only the store has them.
    let new = world.device(world.shop, "new", "ann").await;
    world.device(world.shop, "old", "bob").await;
    let mut seen = Seen::default();
    let deadline = Instant::now() + PATIENCE;
    while !seen.events.iter().any(|event| event["devices"][0]["id"] == "new") {
        assert!(Instant::now() < deadline, "the new device is not shown");
        b.outcome(world.shop, id, Outcome::Written, &[new]);
        let text = text(&mut viewer).await.expect("open");
        seen.events.extend(text["events"].as_array().expect("a list").iter().cloned());
    }
    // By then the other node has also forgotten the device that is not Ann's any more.
    seen.events.clear();
    b.outcome(world.shop, id, Outcome::Written, &[old]);
    b.outcome(world.shop, id, Outcome::Written, &[new]);
    seen.until(&mut viewer, |seen| seen.has("written")).await;
    assert!(seen.events.iter().all(|event| event["devices"][0]["id"] == "new"), "{:?}", seen.events);
    assert!(seen.gaps.is_empty(), "{:?}", seen.gaps);
}
