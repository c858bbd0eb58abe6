//! Whose event it is: from events, and from the store.

use noroshi_events::event::{Accepted, Connected, Routed};
use noroshi_store::{OwnedDevice, OwnedNotification};
use noroshi_types::{AppId, CloseReason, DeviceId, SessionId, Timestamp, Topic, UserId};

use super::*;
use crate::filter::Filter;

const SHOP: AppId = AppId(1);
const GAME: AppId = AppId(2);

fn id(byte: u8) -> NotificationId {
    NotificationId::from_bytes([byte; 16])
}

fn record(event: Event) -> Record {
    Record { at: Timestamp(1), event }
}

fn outcome(of: NotificationId, outcome: Outcome, devices: &[u64]) -> Record {
    let devices: Box<[DeviceNum]> = devices.iter().copied().map(DeviceNum).collect();
    let count = devices.len() as u64;
    record(Event::Outcome { of: Subject::Notification(of), outcome, devices, count })
}

fn accepted(app: AppId, of: NotificationId, topic: Option<&str>) -> Record {
    record(Event::Accepted(Box::new(Accepted {
        app,
        id: of,
        campaign: None,
        target: "topic",
        targets: None,
        topic: topic.map(|topic| Topic::parse(topic).expect("a topic")),
        named: None,
        when: "stored",
        push: "never",
        urgency: "normal",
        kept: 0,
        trace: None,
    })))
}

fn connected(app: AppId, device: u64, id: &str) -> Record {
    record(Event::Connected(Box::new(Connected {
        app,
        device: DeviceNum(device),
        device_id: DeviceId::parse(id).expect("an id"),
        user: UserId::parse("ann").ok(),
        session: SessionId(1),
        protocol: "native",
    })))
}

fn closed(device: u64) -> Record {
    let (device, session) = (DeviceNum(device), SessionId(1));
    record(Event::Closed { device, session, reason: CloseReason::Drain })
}

/// Two tails: 1 of the shop, 2 of the game.
fn two() -> State {
    let mut state = State::default();
    state.open(1, Selector::new(Filter::of(SHOP)));
    state.open(2, Selector::new(Filter::of(GAME)));
    state
}

/// The kinds of events in a tail, and what is missing.
fn kinds(state: &mut State, number: u64) -> (Vec<&'static str>, Vec<&'static str>) {
    let batch = state.take(number).expect("open");
    let kinds = batch.events.iter().map(|(kind, ..)| kind.as_str()).collect();
    (kinds, batch.gaps.names().collect())
}

#[test]
fn what_events_tell_assigns_later_ones() {
    let mut state = two();
    let acked = record(Event::Acked(Box::new([(id(1), DeviceNum(7)), (id(2), DeviceNum(8))])));
    let routed = record(Event::Routed { id: id(1), to: Routed::Here });
    let all = [
        accepted(SHOP, id(1), None),
        routed,
        accepted(GAME, id(2), None),
        connected(SHOP, 7, "a"),
        connected(GAME, 8, "b"),
        acked,
        closed(7),
        closed(8),
    ];
    state.read(all.into_iter(), 0);
    assert!(state.wanted() == Owned::default(), "the store is not needed");
    assert_eq!(
        kinds(&mut state, 1),
        (vec!["accepted", "routed", "connected", "acked", "closed"], Vec::new())
    );
    assert_eq!(kinds(&mut state, 2), (vec!["accepted", "connected", "acked", "closed"], Vec::new()));
}

#[test]
fn the_store_assigns_what_events_do_not_tell() {
    let mut state = two();
    let all = [
        outcome(id(1), Outcome::Written, &[7]),
        outcome(id(2), Outcome::Acked, &[8]),
        closed(9),
        outcome(id(3), Outcome::Written, &[10]),
    ];
    state.read(all.into_iter(), 0);
    assert_eq!(kinds(&mut state, 1), (Vec::new(), Vec::new()), "nothing is shown before it is assigned");
    let asked = state.wanted();
    assert_eq!(asked.devices, [7, 8, 9, 10].map(DeviceNum), "also for names");
    assert_eq!(asked.notifications, [id(2)]);
    let device = |num, app, id: &str| OwnedDevice {
        num: DeviceNum(num),
        app,
        id: DeviceId::parse(id).expect("an id"),
        user: None,
    };
    let found = Found {
        notifications: vec![OwnedNotification { id: id(2), app: SHOP, topic: None, campaign: None }],
        devices: vec![device(7, SHOP, "a"), device(9, GAME, "b")],
        campaigns: Vec::new(),
    };
    state.found(&asked, found);
    state.retry();
    let shop = state.take(1).expect("open");
    let shown: Vec<_> = shop.events.iter().map(|(kind, _, names)| (kind.as_str(), names.len())).collect();
    assert_eq!(shown, [("written", 1), ("acked", 0)]);
    assert_eq!(kinds(&mut state, 2).0, ["closed"]);
    // The device 10 does not exist any more: its notification is asked for, some times.
    for _ in 0..TRIES {
        let asked = state.wanted();
        assert!(asked.notifications.is_empty() || asked.notifications == [id(3)]);
        state.found(&asked, Found::default());
        state.retry();
    }
    assert_eq!(kinds(&mut state, 1), (Vec::new(), vec!["unassigned"]));
    assert!(state.wanted() == Owned::default());
}

#[test]
fn a_device_of_another_app_is_never_named() {
    let mut state = two();
    // The game's device acknowledges a notification of the shop together with the shop's.
    let acked = record(Event::Acked(Box::new([(id(1), DeviceNum(7)), (id(1), DeviceNum(8))])));
    let all = [accepted(SHOP, id(1), None), connected(SHOP, 7, "a"), connected(GAME, 8, "b"), acked];
    state.read(all.into_iter(), 0);
    let shop = state.take(1).expect("open");
    let (kind, _, names) = shop.events.last().expect("an event");
    assert_eq!((*kind, names.len(), names[0].id.as_str()), (Kind::Acked, 1, "a"));
    assert_eq!(kinds(&mut state, 2).0, ["connected"]);
}

#[test]
fn a_topic_is_asked_for_if_it_is_not_known() {
    let mut state = State::default();
    let topic = Topic::parse("news").ok();
    state.open(1, Selector::new(Filter { topic: topic.clone(), ..Filter::of(SHOP) }));
    let all = [
        accepted(SHOP, id(1), Some("news")),
        accepted(SHOP, id(2), Some("sport")),
        outcome(id(1), Outcome::Written, &[7]),
        outcome(id(2), Outcome::Written, &[7]),
        connected(SHOP, 7, "a"),
        // Accepted on another node.
        outcome(id(3), Outcome::Written, &[7]),
    ];
    state.read(all.into_iter(), 0);
    assert_eq!(kinds(&mut state, 1).0, ["accepted", "written"]);
    let asked = state.wanted();
    assert_eq!((asked.notifications.clone(), asked.devices.len()), (vec![id(3)], 0), "the device is known");
    let notifications = vec![OwnedNotification { id: id(3), app: SHOP, topic, campaign: None }];
    state.found(&asked, Found { notifications, ..Found::default() });
    state.retry();
    assert_eq!(kinds(&mut state, 1).0, ["written"]);
}

#[test]
fn what_waits_for_the_store_is_bounded_and_losses_are_stated() {
    let mut state = two();
    let flood = (0..PENDING_MAX as u64 * 3).map(closed);
    state.read(flood, 0);
    assert_eq!(state.pending.len(), PENDING_MAX);
    assert!(state.wanted().devices.len() <= ASKED_MAX);
    assert_eq!(kinds(&mut state, 1), (Vec::new(), vec!["unassigned"]));
    let many: Vec<u64> = (0..(PENDING_BYTES_MAX as u64 / 8) + 1).collect();
    let mut state = two();
    state.read([outcome(id(1), Outcome::Written, &many)].into_iter(), 5);
    assert_eq!((state.pending.len(), state.pending_bytes), (0, 0));
    assert_eq!(kinds(&mut state, 1).1, ["lost", "unassigned"]);
}

#[test]
fn a_flood_of_a_notification_that_is_not_known_yet_is_counted() {
    let mut state = two();
    let flood = (0..5_000).map(|number| outcome(id(1), Outcome::Written, &[number]));
    state.read(flood, 0);
    assert_eq!(state.pending.len(), EVENTS_MAX);
    let asked = state.wanted();
    let known = OwnedDevice {
        num: asked.devices[0],
        app: SHOP,
        id: DeviceId::parse("a").expect("an id"),
        user: None,
    };
    state.found(&asked, Found { devices: vec![known], ..Found::default() });
    state.retry();
    let shop = state.take(1).expect("open");
    assert_eq!((shop.events.len(), shop.omitted.sum()), (EVENTS_MAX, 5_000 - EVENTS_MAX as u64));
    assert!(shop.gaps.is_empty());
    let game = state.take(2).expect("open");
    assert_eq!((game.events.len(), game.omitted.sum(), game.gaps.is_empty()), (0, 0, true));
}

#[test]
fn the_last_tail_takes_everything_with_it() {
    let mut state = two();
    state.read([connected(SHOP, 7, "a"), outcome(id(1), Outcome::Acked, &[7])].into_iter(), 0);
    state.close(1);
    assert_eq!(state.pending.len(), 1);
    state.close(2);
    assert!(state.pending.is_empty() && state.owners.device(DeviceNum(7)) == Known::Unknown);
}

#[test]
fn a_device_is_learned_and_forgotten_with_its_user() {
    let ann = UserId::parse("ann").ok();
    let mut tail = Tail::new(Selector::new(Filter { user: ann.clone(), ..Filter::of(SHOP) }));
    let (id, bob) = (DeviceId::parse("d").expect("an id"), UserId::parse("bob").ok());
    let learn =
        |tail: &mut Tail, number, user: &Option<UserId>| tail.learn(DeviceNum(number), &id, user.as_ref());
    let devices = |tail: &Tail| {
        let mut numbers: Vec<u64> = tail.selector.devices.iter().map(|device| device.0).collect();
        numbers.sort_unstable();
        numbers
    };
    learn(&mut tail, 7, &ann);
    learn(&mut tail, 8, &ann);
    learn(&mut tail, 8, &bob);
    assert_eq!(devices(&tail), [7]);
    // A read of the store that began before 7 appeared, and the one after it: device 9 went to another user meanwhile.
    tail.set_devices([DeviceNum(9)].into());
    assert_eq!(devices(&tail), [7, 9]);
    tail.set_devices([DeviceNum(7)].into());
    assert_eq!(devices(&tail), [7]);
    for number in 0..2 * DEVICES_MAX as u64 {
        learn(&mut tail, number, &ann);
    }
    assert_eq!((tail.selector.devices.len(), tail.queue.gaps), (DEVICES_MAX, Gaps::DEVICES));
    tail.set_devices((0..DEVICES_MAX as u64).map(DeviceNum).collect());
    assert_eq!(tail.selector.devices.len(), DEVICES_MAX);
    let mut all = Tail::new(Selector::new(Filter::of(SHOP)));
    learn(&mut all, 7, &ann);
    assert!(all.selector.devices.is_empty());
}

#[test]
fn an_event_without_an_app_is_no_gap_and_pushes_of_several_notifications_have_the_app_of_their_devices() {
    let mut state = two();
    let rejected = noroshi_events::event::Rejected {
        app: None,
        device_id: None,
        user: None,
        protocol: "native",
        reason: "malformed",
        detail: "".into(),
        network: None,
        suppressed: 0,
    };
    let several = Event::PushAnswered {
        of: Subject::Several,
        service: noroshi_types::PushService::Apns,
        outcome: Outcome::PushRefused,
        reason: None,
        devices: Box::new([DeviceNum(1)]),
        trace: None,
    };
    let records = [connected(SHOP, 1, "d"), record(Event::Rejected(Box::new(rejected))), record(several)];
    state.read(records.into_iter(), 0);
    assert_eq!(kinds(&mut state, 1), (vec!["connected", "push_answered"], vec![]));
    assert_eq!(kinds(&mut state, 2), (vec![], vec![]));
}
