//! Several nodes over one cluster engine and one store, with faults of the engine and the network.

mod cell;
mod first_call;
mod items;
mod preferences;

use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_cluster::{NodeInfo, Roles};
use noroshi_delivery::activity::{Spec, Start, Update};
use noroshi_delivery::cluster::Config;
use noroshi_delivery::{Error, LoginAttempt, LoginResult};
use noroshi_store::{Devices, Registration};
use noroshi_types::{
    ActivityId, AppId, CloseReason, DeviceId, JsonText, Position, Presence, Push, PushMode, PushService,
    Request, Target, TokenKey, When,
};

use crate::{NOW, request, users};
use cell::{Cell, PATIENCE, cell, cell_with, quiet, topic, user};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_its_devices_on_every_node() {
    let cell = cell(3).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u1", &[]).await);
    let c = cell.device("c", "u2", &[]).await;
    for (node, device) in [(0, &a), (1, &b), (2, &c)] {
        cell.connect(node, device).await;
    }
    for when in [When::Stored, When::Connected] {
        let received = cell.nodes[0].edge.received_by(&a);
        let id = cell.publish(0, users(&["u1", "u2", "nobody"]), when).await;
        let expected = [received, vec![id]].concat();
        for (node, device) in [(0, &a), (1, &b), (2, &c)] {
            cell.until_received(node, device, &expected).await;
        }
    }
    let ids = cell.nodes[1].edge.received_by(&b);
    assert_eq!(cell.offline(ids[0]).await, 0, "it is kept for who is away");
    assert_eq!(cell.offline(ids[1]).await, 1, "only nobody");
    let by_name = cell.publish(1, Target::Devices(vec![a.clone(), c.clone()]), When::Connected).await;
    cell.until_received(0, &a, &[ids.clone(), vec![by_name]].concat()).await;
    cell.until_received(2, &c, &[ids, vec![by_name]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_publishes_on_two_nodes_arrive_in_order() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &["news"]).await;
    cell.connect(1, &device).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let target = if n % 3 == 0 { Target::Topic(topic("news")) } else { users(&["u1"]) };
        ids.push(cell.publish(n % 2, target, When::Stored).await);
    }
    cell.until_received(1, &device, &ids).await;
    assert!(ids.is_sorted());
}

/// An older node would send the push to the main token.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_a_token_needs_all_nodes_to_know_it() {
    let cell = cell(2).await;
    cell.device("a", "u1", &[]).await;
    let push = Push { mode: PushMode::Always, token: TokenKey::parse("voip").ok(), ..Push::default() };
    let ordinary =
        Request { push: Push { token: None, ..push.clone() }, ..request(users(&["u1"]), When::Stored) };
    let to_token = Request { push, ..ordinary.clone() };
    let publish = async |request: &Request| {
        cell.nodes[0].delivery.publisher.publish(cell.app, request.clone(), None).await
    };
    let announce = |node: usize, push_tokens| {
        let info =
            NodeInfo { name: format!("n{node}"), roles: Roles::ALL, push_tokens, ..NodeInfo::default() };
        cell.nodes[node].member.cluster().members.set_info(info);
    };
    announce(0, true);
    let refused = publish(&to_token).await;
    assert!(matches!(&refused, Err(Error::OldNode { reason, .. }) if reason.contains("n1")), "{refused:?}");
    publish(&ordinary).await.expect("accepted");
    announce(1, true);
    publish(&to_token).await.expect("accepted");
    announce(1, false);
    assert!(publish(&to_token).await.is_err());
}

/// An older node would read no credential of the app, and report the pushes as impossible.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_service_needs_all_nodes_to_know_it() {
    let cell = cell(2).await;
    let announce = |node: usize, services: &[&str]| {
        let push_services = services.iter().map(|name| (*name).to_owned()).collect();
        let info = NodeInfo {
            name: format!("n{node}"),
            roles: Roles::ALL,
            push_tokens: true,
            push_services,
            ..NodeInfo::default()
        };
        cell.nodes[node].member.cluster().members.set_info(info);
    };
    announce(0, &["webhook", "hms"]);
    announce(1, &[]);
    let nodes = &cell.nodes[0].delivery.nodes;
    for known in [PushService::Apns, PushService::Fcm, PushService::WebPush] {
        nodes.require_push_service("service", known).expect("every version knows it");
    }
    let refused = nodes.require_push_service("service", PushService::Webhook);
    assert!(matches!(&refused, Err(Error::OldNode { reason, .. }) if reason.contains("n1")), "{refused:?}");
    announce(1, &["webhook"]);
    nodes.require_push_service("service", PushService::Webhook).expect("both know it");
    assert!(nodes.require_push_service("service", PushService::Hms).is_err());
    // An older node could not read the work for such a token.
    cell.device("a", "u1", &[]).await;
    let publish = async |token: &str| {
        let push = Push { mode: PushMode::Always, token: TokenKey::parse(token).ok(), ..Push::default() };
        let request = Request { push, ..request(users(&["u1"]), When::Stored) };
        cell.nodes[0].delivery.publisher.publish(cell.app, request, None).await
    };
    publish("webhook/mail").await.expect("accepted");
    let refused = publish("hms").await;
    assert!(matches!(&refused, Err(Error::OldNode { reason, .. }) if reason.contains("hms")), "{refused:?}");
}

/// Older senders leave broadcasts in the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_needs_a_sender_that_knows_it() {
    let cell = cell(2).await;
    let announce = |node: usize, roles, broadcasts| {
        let info = NodeInfo { name: format!("n{node}"), roles, broadcasts, ..NodeInfo::default() };
        cell.nodes[node].member.cluster().members.set_info(info);
    };
    let require = || cell.nodes[0].delivery.nodes.require_broadcasts();
    let api = Roles { sender: false, ..Roles::ALL };
    announce(0, api, true);
    announce(1, Roles::ALL, false);
    assert!(
        matches!(require(), Err(Error::OldNode { field: Some("push.broadcast"), .. })),
        "{:?}",
        require()
    );
    announce(1, Roles::ALL, true);
    require().expect("a sender knows it");
    // Without any sender it waits, like pushes.
    announce(1, api, false);
    require().expect("no sender");
}

/// An older node would not let devices join.
#[tokio::test(flavor = "multi_thread")]
async fn an_activity_needs_all_nodes_to_know_activities() {
    let cell = cell(2).await;
    let activities = &cell.nodes[0].delivery.activities;
    let id = |name: &str| ActivityId::parse(name).expect("an id");
    let update = || Update { content: Some(JsonText::from_valid("{}")), ..Update::default() };
    let start = async |name: &str| {
        let spec = Spec {
            attributes_type: "A".to_owned(),
            attributes: None,
            when: When::Connected,
            ios_via: None,
            frequent_updates: false,
            named: false,
        };
        let (target, ttl) = (users(&["u1"]), Duration::from_secs(60));
        let start = Start { id: id(name), target, spec, first: update(), ttl, joinable: false };
        activities.start(cell.app, start, None).await
    };
    let announce = |node: usize, activities| {
        let info =
            NodeInfo { name: format!("n{node}"), roles: Roles::ALL, activities, ..NodeInfo::default() };
        cell.nodes[node].member.cluster().members.set_info(info);
    };
    announce(0, true);
    let refused = start("a").await;
    assert!(
        matches!(&refused, Err(Error::OldNode { field: None, reason }) if reason.contains("n1")),
        "{refused:?}"
    );
    announce(1, true);
    start("a").await.expect("started");
    announce(1, false);
    assert!(activities.update(cell.app, &id("a"), update()).await.is_err());
    assert!(activities.end(cell.app, &id("a"), update(), None).await.is_err());
    announce(1, true);
    activities.update(cell.app, &id("a"), update()).await.expect("updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_message_costs_one_bus_message_per_node_and_no_look_up() {
    let cell = cell(4).await;
    for (node, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let device = cell.device(name, name, &["news"]).await;
        cell.connect(node, &device).await;
    }
    let (look_ups, messages) = (cell.world.look_ups(), cell.world.messages());
    let id = cell.publish(0, Target::Topic(topic("news")), When::Stored).await;
    cell.until("received", |cell| {
        cell.nodes.iter().all(|node| node.edge.record().received.iter().any(|(_, received)| *received == id))
    })
    .await;
    assert_eq!(cell.world.look_ups(), look_ups);
    // Three other nodes, and the marker for this one.
    assert_eq!(cell.world.messages() - messages, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_targets_cost_one_look_up() {
    let cell = cell(3).await;
    let names: Vec<String> = (0..10_000).map(|n| format!("u{n}")).collect();
    let device = |name: &String| DeviceId::parse(&format!("{name}d")).expect("an id");
    // Every fourth user is offline. The store has the others too: a node under load may read it at any time.
    for node in 0..3 {
        let here: Vec<&String> = names.iter().skip(node).step_by(4).collect();
        for part in here.chunks(500) {
            let one = |name: &&String| Registration {
                device: Some(device(name)),
                user: Some(user(name)),
                ..Registration::default()
            };
            let made =
                cell.store.register(cell.app, part.iter().map(one).collect(), NOW).await.expect("stored");
            made.into_iter().for_each(|made| drop(made.expect("accepted")));
            cell.connect_all(node, &part.iter().map(|name| device(name)).collect::<Vec<_>>()).await;
        }
    }
    let look_ups = cell.world.look_ups();
    let targets = Target::Users(names.iter().map(|name| user(name)).collect());
    let id = cell.publish(0, targets, When::Connected).await;
    cell.until("received", |cell| cell.nodes.iter().all(|node| node.edge.record().received.len() == 2_500))
        .await;
    assert_eq!(cell.world.look_ups() - look_ups, 1);
    assert_eq!(cell.offline(id).await, 2_500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_entry_counts_as_offline_once_and_is_removed() {
    let cell = cell(3).await;
    let device = cell.device("a", "u1", &[]).await;
    // An old login whose connection is gone.
    let ago = (NOW.0 - 120_000) << 20;
    cell.take(1, &device, Some(&user("u1")), ago).await;
    let id = cell.publish(0, users(&["u1"]), When::Connected).await;
    cell.until("noticed", |cell| cell.nodes[1].metric("stale_entries") == 1).await;
    assert_eq!(cell.offline(id).await, 1);
    let cluster = cell.nodes[0].member.cluster();
    let key = cluster.keys.user(cell.app, &user("u1"));
    let until = tokio::time::Instant::now() + PATIENCE;
    while cluster.directory.locate(vec![key]).await.expect("located") != [noroshi_cluster_none()] {
        assert!(tokio::time::Instant::now() < until, "the entry stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The directory names two nodes for a user, and one has the session: no target is offline.
    let other = cell.device("b", "u1", &[]).await;
    cell.take(1, &device, Some(&user("u1")), ago + 1).await;
    cell.connect(2, &other).await;
    let id = cell.publish(0, users(&["u1"]), When::Connected).await;
    cell.until_received(2, &other, &[id]).await;
    cell.until("noticed", |cell| cell.nodes[1].metric("stale_entries") == 2).await;
    assert_eq!(cell.offline(id).await, 0);
}

fn noroshi_cluster_none() -> smallvec::SmallVec<[noroshi_cluster::Epoch; 2]> {
    smallvec::SmallVec::new()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_engine_a_node_serves_its_own_sessions_and_others_sweep_later() {
    let cell = cell(2).await;
    let (here, there) = (cell.device("a", "u1", &[]).await, cell.device("b", "u2", &["news"]).await);
    cell.connect(0, &here).await;
    cell.connect(1, &there).await;
    cell.world.stop();
    let id = cell.publish(0, users(&["u1", "u2"]), When::Stored).await;
    let of_topic = cell.publish(0, Target::Topic(topic("news")), When::Stored).await;
    cell.until_received(0, &here, &[id]).await;
    assert!(cell.nodes[1].edge.received_by(&there).is_empty());
    cell.world.start();
    cell.until("made good", |cell| {
        let record = cell.nodes[1].edge.record();
        let reread = record.reread.iter().any(|(device, since)| *device == there && *since < id);
        reread && record.offered.contains(&of_topic)
    })
    .await;
    // From now on messages arrive as before, without a long wait.
    while cell.nodes[1].edge.received_by(&there).is_empty() {
        cell.publish(0, users(&["u2"]), When::Connected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_node_reports_where_others_must_sweep_from() {
    let cell = cell(2).await;
    let there = cell.device("b", "u2", &[]).await;
    cell.connect(1, &there).await;
    // The other node does not notice: only the publisher knows.
    cell.nodes[0].member.partition();
    let id = cell.publish(0, users(&["u2"]), When::Stored).await;
    cell.nodes[0].member.heal();
    cell.is_reread(1, &there, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_record_is_repeated_until_it_can_be_sent() {
    let cell = cell(2).await;
    let there = cell.device("b", "u2", &[]).await;
    cell.connect(1, &there).await;
    cell.nodes[0].member.partition();
    let id = cell.publish(0, users(&["u2"]), When::Stored).await;
    // The message and the sweep record; both fail.
    cell.until("tried", |cell| cell.nodes[0].metric("dispatched") >= 3).await;
    cell.nodes[0].member.heal();
    cell.is_reread(1, &there, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_bus_lost_is_found_later() {
    let cell = cell(2).await;
    let a = cell.device("a", "u1", &[]).await;
    cell.connect(1, &a).await;
    cell.nodes[0].member.partition();
    // A record for all gateways needs no look-up: the bus fails.
    cell.nodes[0].delivery.close_app(AppId(99)).await;
    assert!(cell.nodes[0].metric("untold") >= 1);
    cell.nodes[0].member.heal();
    cell.until("others look", |cell| cell.nodes[1].metric("sweeps") >= 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_node_delays_no_other() {
    let cell = cell(3).await;
    let (near, far) = (cell.device("a", "u1", &["news"]).await, cell.device("b", "u2", &["news"]).await);
    cell.connect(1, &near).await;
    cell.connect(2, &far).await;
    cell.nodes[2].member.cut();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(cell.publish(0, Target::Topic(topic("news")), When::Connected).await);
        ids.push(cell.publish(0, users(&["u2", "u1"]), When::Connected).await);
    }
    cell.until_received(1, &near, &ids).await;
    assert_eq!(cell.nodes[0].metric("outages"), 0);
    let kept = cell.publish(0, users(&["u2"]), When::Stored).await;
    cell.nodes[2].member.heal();
    cell.until("made good", |cell| {
        let record = cell.nodes[2].edge.record();
        record.reread.iter().any(|(device, since)| *device == far && *since < kept)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_a_topic_is_closed_at_once() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &["news"]).await;
    cell.connect(1, &device).await;
    let sweeps = cell.nodes[1].metric("sweeps");
    cell.nodes[1].member.lose_messages_unseen(1);
    let lost = cell.publish(0, Target::Topic(topic("news")), When::Stored).await;
    // The gateway has seen the position before.
    let behind = Position { epoch: cell.topic_head("news").await.epoch, offset: 0 };
    cell.nodes[1].delivery.nodes.topic_gap(cell.app, topic("news"), behind);
    let reached = Position { offset: 1, ..behind };
    cell.until("offered", |cell| cell.nodes[1].edge.record().reached == [reached]).await;
    assert_eq!(cell.nodes[1].edge.record().offered, [lost]);
    assert_eq!(cell.nodes[1].metric("sweeps"), sweeps, "no sweep was needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_replacement_is_found_soon() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &[]).await;
    cell.connect(0, &device).await;
    cell.nodes[0].member.lose_messages(1);
    let entering = vec![LoginAttempt { login: cell.login(&device), generation: u64::MAX / 2 }];
    let (reply, entered) = tokio::sync::oneshot::channel();
    cell.nodes[1].delivery.logins.log_in(entering, |result| drop(reply.send(result)));
    let entered = entered.await.expect("answered").expect("no failure");
    assert!(matches!(entered[..], [LoginResult::In { .. }]));
    let replaced = [(device.clone(), CloseReason::Replaced)];
    cell.until("replaced", |cell| cell.nodes[0].edge.record().closed == replaced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_messages_are_delivered_from_the_store() {
    let cell = cell(2).await;
    let (a, b) = (cell.device("a", "u1", &["news"]).await, cell.device("b", "u2", &[]).await);
    cell.connect(1, &a).await;
    cell.connect(1, &b).await;
    cell.nodes[1].member.lose_messages(2);
    let direct = cell.publish(0, users(&["u1"]), When::Stored).await;
    let of_topic = cell.publish(0, Target::Topic(topic("news")), When::Stored).await;
    cell.until("made good", |cell| {
        let record = cell.nodes[1].edge.record();
        let reread = record.reread.iter().any(|(device, since)| *device == a && *since < direct);
        reread && record.offered.contains(&of_topic)
    })
    .await;
    let record = cell.nodes[1].edge.record();
    assert!(record.reread.iter().all(|(device, _)| *device != b), "nothing was for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_expired_lease_all_sessions_are_registered_again() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &[]).await;
    cell.connect(1, &device).await;
    cell.nodes[1].member.partition();
    cell.nodes[1].member.lapse();
    cell.until("gone", |cell| cell.nodes[0].member.cluster().members.nodes().len() == 1).await;
    let missed = cell.publish(0, users(&["u1"]), When::Stored).await;
    let offline = cell.publish(0, users(&["u1"]), When::Connected).await;
    assert_eq!(cell.offline(offline).await, 1);
    cell.nodes[1].member.heal();
    cell.until("made good", |cell| {
        let record = cell.nodes[1].edge.record();
        record.reread.iter().any(|(one, since)| *one == device && *since < missed)
    })
    .await;
    let received = cell.publish(0, users(&["u1"]), When::Connected).await;
    cell.until_received(1, &device, &[received]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_if_another_node_took_the_device() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &[]).await;
    cell.connect(0, &device).await;
    cell.nodes[0].member.partition();
    cell.nodes[0].member.lapse();
    let newer = cell.connect(1, &device).await;
    cell.nodes[0].member.heal();
    cell.until("replaced", |cell| {
        cell.nodes[0].edge.record().closed == [(device.clone(), CloseReason::Replaced)]
    })
    .await;
    assert!(cell.nodes[1].edge.record().closed.is_empty());
    // Sessions are registered again in a directory that lost everything.
    cell.world.wipe();
    let cluster = cell.nodes[0].member.cluster();
    let key = cluster.keys.device(cell.app, &device);
    let until = tokio::time::Instant::now() + PATIENCE;
    while cluster.directory.locate(vec![key]).await.expect("located")[0].is_empty() {
        assert!(tokio::time::Instant::now() < until, "nobody put session {newer} in again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_node_delivers_nothing_to_a_session_that_another_took() {
    let config = Config { sweep_interval: Duration::from_millis(20), ..quiet() };
    let cell = cell_with(2, config).await;
    let (moved, stayed) = (cell.device("a", "u1", &[]).await, cell.device("b", "u2", &[]).await);
    cell.connect(0, &moved).await;
    cell.connect(0, &stayed).await;
    cell.nodes[0].member.partition();
    cell.nodes[0].member.lapse();
    cell.connect(1, &moved).await;
    cell.publish(1, users(&["u1", "u2"]), When::Stored).await;
    // Its clock makes it read the store before it notices the new lease.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cell.nodes[0].member.heal();
    let reread = |cell: &Cell, device: &DeviceId| {
        cell.nodes[0].edge.record().reread.iter().any(|(one, _)| one == device)
    };
    cell.until("made good", |cell| reread(cell, &stayed)).await;
    assert!(!reread(&cell, &moved));
    assert_eq!(cell.nodes[0].edge.record().closed, [(moved.clone(), CloseReason::Replaced)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn presence_is_read_and_set_on_any_node() {
    let cell = cell(3).await;
    let (a, b) = (cell.device("a", "u1", &["news"]).await, cell.device("b", "u1", &["news"]).await);
    cell.connect(1, &a).await;
    cell.connect(2, &b).await;
    let asker = &cell.nodes[0].delivery;
    assert!(asker.sessions.set_presence(cell.app, &b, Presence::Idle).await);
    assert!(
        !asker.sessions.set_presence(cell.app, &DeviceId::parse("x").expect("an id"), Presence::Idle).await
    );
    let mut sessions = asker.sessions.of_users(cell.app, &[user("u2"), user("u1")]).await;
    sessions[1].sort_by(|one, other| one.device.cmp(&other.device));
    let of = |session: &noroshi_delivery::Session| (session.device.clone(), session.presence);
    assert!(sessions[0].is_empty());
    let found: Vec<_> = sessions[1].iter().map(of).collect();
    assert_eq!(found, [(a.clone(), Presence::Active), (b.clone(), Presence::Idle)]);
    let one = cell.nodes[2].delivery.sessions.of_device(cell.app, &a).await.map(|session| session.presence);
    assert_eq!(one, Some(Presence::Active));
    assert_eq!(asker.sessions.of_topics(cell.app, &[topic("sport"), topic("news")]).await, [0, 2]);
    // A lost question gives a partial answer in time.
    cell.nodes[1].member.lose_messages(1);
    let partial = asker.sessions.of_users(cell.app, &[user("u1")]).await;
    assert_eq!(partial[0].iter().map(|session| session.device.clone()).collect::<Vec<_>>(), [b]);
    assert_eq!(cell.nodes[0].metric("unanswered"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_reach_a_session_on_another_node() {
    let cell = cell(2).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u2", &[]).await);
    let c = cell.device("c", "u3", &[]).await;
    for device in [&a, &b, &c] {
        cell.connect(1, device).await;
    }
    let delivery = &cell.nodes[0].delivery;
    let subscribes = |name: &'static str| {
        let a = a.clone();
        move |cell: &Cell| cell.nodes[1].edge.topics_of(&a).contains(&topic(name))
    };
    assert!(delivery.devices.subscribe(cell.app, &a, &topic("news")).await.expect("stored"));
    cell.until("subscribed", subscribes("news")).await;
    let id = cell.publish(0, Target::Topic(topic("news")), When::Connected).await;
    cell.until_received(1, &a, &[id]).await;
    assert!(delivery.devices.unsubscribe(cell.app, &a, &topic("news")).await.expect("stored"));
    cell.until("unsubscribed", |cell| !subscribes("news")(cell)).await;
    delivery.devices.revoke(cell.app, &a).await.expect("revoked");
    delivery.delete_device(cell.app, &b).await.expect("deleted");
    let closed = [(a.clone(), CloseReason::Revoked), (b.clone(), CloseReason::Revoked)];
    cell.until("closed", |cell| cell.nodes[1].edge.record().closed == closed).await;
    delivery.close_app(cell.app).await;
    cell.until("the app's", |cell| cell.nodes[1].edge.record().closed.len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_could_not_be_sent_is_found_later() {
    let cell = cell(2).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u2", &[]).await);
    cell.connect(1, &a).await;
    cell.connect(1, &b).await;
    cell.nodes[1].member.lose_messages(1);
    cell.nodes[0].delivery.devices.revoke(cell.app, &a).await.expect("revoked");
    // It connects again, and is refused.
    let closed = [(a.clone(), CloseReason::Drain)];
    cell.until("closed", |cell| cell.nodes[1].edge.record().closed == closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_offline_devices_sends_no_record() {
    let cell = cell(3).await;
    let away: Vec<DeviceId> =
        (0..500).map(|n| DeviceId::parse(&format!("away{n}")).expect("an id")).collect();
    let (look_ups, messages) = (cell.world.look_ups(), cell.world.messages());
    let topics = [topic("news")];
    let subscribed: Vec<_> = away.iter().map(|device| (device, &topics[..])).collect();
    cell.nodes[0].delivery.sessions.subscribed(cell.app, &subscribed).await;
    assert_eq!(cell.nodes[0].delivery.sessions.of_devices(cell.app, &away).await, vec![None; 500]);
    assert_eq!(cell.world.messages(), messages);
    assert!(cell.world.look_ups() - look_ups <= 4, "{}", cell.world.look_ups() - look_ups);
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_are_reloaded_when_another_node_changed_them() {
    let cell = cell(3).await;
    cell.nodes[0].delivery.nodes.apps_changed();
    cell.until("told", |cell| cell.nodes[1..].iter().all(|node| node.reloads.0.load(Ordering::SeqCst) == 1))
        .await;
    assert_eq!(cell.nodes[0].reloads.0.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_delivered_without_its_marker() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &[]).await;
    cell.connect(0, &device).await;
    cell.nodes[0].member.lose_messages(1);
    let first = cell.publish(0, users(&["u1"]), When::Stored).await;
    let second = cell.publish(0, users(&["u1"]), When::Stored).await;
    cell.until_received(0, &device, &[first, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_are_refused_when_the_outbox_is_full() {
    let cell = cell_with(1, Config { requests_max: 0, ..quiet() }).await;
    let refused =
        cell.nodes[0].delivery.publisher.publish(cell.app, request(users(&["u1"]), When::Stored), None).await;
    assert!(matches!(refused, Err(noroshi_delivery::Error::NoRoom { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_began_without_the_directory_is_registered_later() {
    let cell = cell(2).await;
    let device = cell.device("a", "u1", &[]).await;
    // The pause after the first sweep is over: the next one starts at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    cell.nodes[1].member.partition();
    let generation = cell.generation.fetch_add(1, Ordering::SeqCst);
    let entering = vec![LoginAttempt { login: cell.login(&device), generation }];
    let (reply, entered) = tokio::sync::oneshot::channel();
    cell.nodes[1].delivery.logins.log_in(entering, |result| drop(reply.send(result)));
    let mut entered = entered.await.expect("answered").expect("let in without the directory");
    let Some(LoginResult::In { logged_in, .. }) = entered.pop() else { panic!("it is let in") };
    cell.nodes[1].member.heal();
    // The shard needs a moment to process the answer.
    tokio::time::sleep(Duration::from_millis(150)).await;
    cell.begin_session(1, &device, *logged_in, generation);
    let cluster = cell.nodes[0].member.cluster();
    let (key, epoch) =
        (cluster.keys.device(cell.app, &device), cell.nodes[1].member.cluster().members.epoch());
    let until = tokio::time::Instant::now() + PATIENCE;
    while cluster.directory.locate(vec![key]).await.expect("located")[0].first().copied() != epoch {
        assert!(tokio::time::Instant::now() < until, "nobody put it in");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let received = cell.publish(0, users(&["u1"]), When::Connected).await;
    cell.until_received(1, &device, &[received]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_wait_while_most_gateways_are_late() {
    let cell = cell(3).await;
    let late = |node: usize, ms| cell.nodes[node].edge.delay_ms.store(ms, Ordering::Relaxed);
    let publish = || {
        let request = request(users(&["nobody"]), When::Connected);
        cell.nodes[0].delivery.publisher.publish(cell.app, request, None)
    };
    let refused = async |wanted: bool| {
        let until = tokio::time::Instant::now() + PATIENCE;
        while matches!(publish().await, Err(Error::NoRoom { .. })) != wanted {
            assert!(tokio::time::Instant::now() < until, "refused: {wanted}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    late(1, 5_000);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(publish().await.is_ok(), "one late gateway of three delays only its own devices");
    late(2, 3_000);
    refused(true).await;
    let Err(Error::NoRoom { after }) = publish().await else { panic!("accepted") };
    assert_eq!(after, Duration::from_secs(3), "the median");
    // A request that waits is admitted as soon as there is room.
    let waits = publish();
    late(2, 0);
    assert!(waits.await.is_ok());
    refused(false).await;
}
