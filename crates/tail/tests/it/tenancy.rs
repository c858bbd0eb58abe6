//! Whose events a tail shows, with a real log and a real store.

use noroshi_events::Event;
use noroshi_events::event::Rejected;
use noroshi_tail::Filter;
use noroshi_types::{AppId, DeviceId, Outcome, SessionId, Target, UserId};

use crate::world::*;

#[tokio::test]
async fn each_app_sees_its_own_events_with_the_ids_of_its_devices() {
    let world = World::new().await;
    let (ann, bob) =
        (world.device(world.shop, "d1", "ann").await, world.device(world.game, "d1", "bob").await);
    let node = world.alone();
    let mut shop = node.open(Filter::of(world.shop)).await;
    let mut game = node.open(Filter::of(world.game)).await;
    let in_shop = node.publish(world.shop, users(&["ann"])).await;
    let in_game = node.publish(world.game, users(&["bob"])).await;
    node.outcome(world.shop, in_shop, Outcome::Written, &[ann]);
    node.outcome(world.game, in_game, Outcome::Written, &[bob]);
    node.closed(world.shop, ann, SessionId(1));
    node.closed(world.game, bob, SessionId(2));
    for (viewer, id, user, session) in
        [(&mut shop, in_shop, "ann", SessionId(1)), (&mut game, in_game, "bob", SessionId(2))]
    {
        let mut seen = Seen::default();
        seen.until(viewer, |seen| seen.has("written") && seen.has("closed")).await;
        let mut kinds = seen.kinds();
        kinds.sort_unstable();
        assert_eq!(kinds, ["accepted", "closed", "kept", "routed", "written"]);
        for event in &seen.events {
            match event["event"].as_str() {
                Some("closed") => {
                    assert_eq!((&event["device"], &event["user"]), (&"d1".into(), &user.into()));
                    assert_eq!(event["session"], session.to_string());
                }
                _ => assert_eq!(event["id"], id.to_string()),
            }
            if event["event"] == "accepted" {
                assert_eq!(event["users"], serde_json::json!([user]));
            }
            assert_eq!((event.get("node"), event.get("app")), (None, None));
        }
        assert_eq!((seen.omitted, seen.gaps.len(), seen.missing), (0, 0, 0));
    }
}

#[tokio::test]
async fn a_tail_that_opens_later_asks_the_store() {
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let bob = world.device(world.game, "d2", "bob").await;
    let node = world.alone();
    let id = node.publish(world.shop, Target::Topic(topic("news"))).await;
    let other = node.publish(world.game, users(&["bob"])).await;
    let mut on_topic = node.open(Filter { topic: Some(topic("news")), ..Filter::of(world.shop) }).await;
    let mut shop = node.open(Filter::of(world.shop)).await;
    node.outcome(world.game, other, Outcome::Acked, &[bob]);
    node.outcome(world.shop, id, Outcome::Acked, &[ann]);
    for viewer in [&mut on_topic, &mut shop] {
        let mut seen = Seen::default();
        seen.until(viewer, |seen| seen.has("acked")).await;
        assert_eq!(seen.events.len(), 1);
        assert_eq!(
            (&seen.events[0]["id"], &seen.events[0]["devices"][0]["id"]),
            (&id.to_string().into(), &"d1".into())
        );
    }
    assert!(node.metrics.tail_lookups.get() > 0);
}

/// With real acknowledgements and openings, of two apps in one write.
#[tokio::test]
async fn a_device_that_names_a_notification_of_another_app_shows_only_in_its_own() {
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let bob = world.device(world.game, "d2", "bob").await;
    let node = world.alone();
    let id = node.publish(world.shop, Target::Topic(topic("news"))).await;
    let stored = node.publish(world.shop, users(&["ann"])).await;
    let in_game = node.publish(world.game, users(&["bob"])).await;
    let mut shop = node.open(Filter::of(world.shop)).await;
    let mut game = node.open(Filter::of(world.game)).await;
    let mut on_topic = node.open(Filter { topic: Some(topic("news")), ..Filter::of(world.game) }).await;
    node.delivery.acks.push(world.game, bob, vec![stored, in_game]);
    node.delivery.acks.push(world.shop, ann, vec![stored]);
    node.delivery.clone().run(std::future::ready(())).await;
    node.outcome(world.game, id, Outcome::Acked, &[bob]);
    let opened = node.delivery.devices.open(world.game, bob, vec![id, stored, in_game]).await;
    assert_eq!(opened.expect("written"), 1, "the store opens those of the device's app");
    node.closed(world.shop, ann, SessionId(1));
    node.closed(world.game, bob, SessionId(2));
    let mut seen = Seen::default();
    seen.until(&mut shop, |seen| seen.has("closed")).await;
    assert_eq!(seen.kinds(), ["acked", "closed"]);
    assert_eq!(seen.events[0]["devices"], serde_json::json!([{"id": "d1", "user": "ann"}]));
    let mut seen = Seen::default();
    seen.until(&mut game, |seen| seen.has("closed")).await;
    let mut kinds = seen.kinds();
    kinds.sort_unstable();
    assert_eq!(kinds, ["acked", "acked", "acked", "closed", "opened"]);
    for event in seen.events.iter().filter(|event| event["event"] != "closed") {
        assert_eq!(event["devices"], serde_json::json!([{"id": "d2", "user": "bob"}]));
    }
    // Not even that the notification has this topic.
    let mut seen = Seen::default();
    node.publish(world.game, Target::Topic(topic("news"))).await;
    seen.until(&mut on_topic, |seen| seen.has("accepted")).await;
    assert!(seen.events.iter().all(|event| event["id"] != id.to_string()), "{:?}", seen.events);
    assert!(seen.gaps.is_empty());
}

#[tokio::test]
async fn the_end_of_a_session_of_a_deleted_device_is_shown() {
    let world = World::new().await;
    let ann = world.device(world.shop, "d1", "ann").await;
    let node = world.alone();
    let mut shop = node.open(Filter::of(world.shop)).await;
    let device = DeviceId::parse("d1").expect("an id");
    node.delivery.delete_device(world.shop, &device).await.expect("deleted");
    node.closed(world.shop, ann, SessionId(1));
    let mut seen = Seen::default();
    seen.until(&mut shop, |seen| seen.has("closed")).await;
    let event = &seen.events[0];
    assert_eq!((&event["session"], event.get("device")), (&SessionId(1).to_string().into(), None));
    assert!(seen.gaps.is_empty());
}

#[tokio::test]
async fn a_user_and_a_device_have_their_own_events() {
    let world = World::new().await;
    let (phone, tablet) =
        (world.device(world.shop, "phone", "ann").await, world.device(world.shop, "tablet", "ann").await);
    let bob = world.device(world.shop, "other", "bob").await;
    // Another app may have the same ids.
    let of_game = world.device(world.game, "phone", "ann").await;
    let node = world.alone();
    let of_ann = Filter { user: UserId::parse("ann").ok(), ..Filter::of(world.shop) };
    let mut user = node.open(of_ann.clone()).await;
    let mut device =
        node.open(Filter { device: DeviceId::parse("phone").ok(), ..Filter::of(world.shop) }).await;
    let strange = Filter { device: DeviceId::parse("other").ok(), ..of_ann };
    let mut neither = node.open(strange).await;
    let id = node.publish(world.shop, users(&["ann", "bob"])).await;
    let in_game = node.publish(world.game, users(&["ann"])).await;
    node.outcome(world.game, in_game, Outcome::Written, &[of_game]);
    node.outcome(world.shop, id, Outcome::Written, &[bob]);
    node.outcome(world.shop, id, Outcome::Written, &[tablet, bob, phone]);
    let mut seen = Seen::default();
    seen.until(&mut user, |seen| seen.has("written")).await;
    assert_eq!(seen.kinds(), ["accepted", "kept", "written"]);
    assert!(seen.events.iter().all(|event| event["id"] == id.to_string()));
    assert_eq!(seen.events[2]["count"], 2);
    let mut seen = Seen::default();
    seen.until(&mut device, |seen| seen.has("written")).await;
    assert_eq!(seen.kinds(), ["kept", "written"]);
    assert_eq!(seen.events[1]["devices"], serde_json::json!([{"id": "phone", "user": "ann"}]));
    // The device of another user: nothing is shown, and the tail says that it is open.
    let text = text(&mut neither).await.expect("open");
    assert_eq!(text["events"], serde_json::json!([]));
}

#[tokio::test]
async fn rejected_log_ins_are_shown_to_the_app_that_they_name() {
    let world = World::new().await;
    let node = world.alone();
    let mut shop = node.open(Filter::of(world.shop)).await;
    let rejected = |app: Option<AppId>, reason| {
        let (device_id, user, network) = (None, None, Some("192.0.2.1".into()));
        let rejected = Rejected {
            app,
            device_id,
            user,
            protocol: "native",
            reason,
            detail: "no".into(),
            network,
            suppressed: 0,
        };
        node.events.emit(NOW, || Event::Rejected(Box::new(rejected)));
    };
    rejected(Some(world.game), "signature");
    rejected(None, "malformed");
    rejected(Some(world.shop), "expired");
    let mut seen = Seen::default();
    seen.until(&mut shop, |seen| seen.has("rejected")).await;
    assert_eq!((seen.events.len(), &seen.events[0]["reason"]), (1, &"expired".into()));
}
