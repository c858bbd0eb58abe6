//! Which tails show an event, and what waits for the store.

use noroshi_events::event::{Accepted, Connected, Routed};
use noroshi_store::{FoundDevice, FoundNotification};
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

fn outcome(app: AppId, of: NotificationId, outcome: Outcome, devices: &[u64]) -> Record {
    let devices: Box<[DeviceNum]> = devices.iter().copied().map(DeviceNum).collect();
    let count = devices.len() as u64;
    record(Event::Outcome { app, of: Subject::Notification(of), outcome, devices, count })
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

fn closed(app: AppId, device: u64) -> Record {
    let (device, session) = (DeviceNum(device), SessionId(1));
    record(Event::Closed { app, device, session, reason: CloseReason::Drain })
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

/// One tail of the shop, for a topic.
fn on_topic() -> State {
    let mut state = State::default();
    state.open(1, Selector::new(Filter { topic: Topic::parse("news").ok(), ..Filter::of(SHOP) }));
    state
}

fn found(id: NotificationId, app: AppId, topic: &str) -> Found {
    let notification = FoundNotification { id, app, topic: Topic::parse(topic).ok(), campaign: None };
    Found { notifications: vec![notification], ..Found::default() }
}

#[test]
fn each_tail_shows_events_of_its_app() {
    let mut state = two();
    let acked = |app, device| {
        let acked = Box::new([(id(1), DeviceNum(device)), (id(2), DeviceNum(device))]);
        record(Event::Acked { app, acked })
    };
    let all = [
        accepted(SHOP, id(1), None),
        record(Event::Routed { app: SHOP, id: id(1), to: Routed::Here }),
        accepted(GAME, id(2), None),
        connected(SHOP, 7, "a"),
        connected(GAME, 8, "b"),
        acked(SHOP, 7),
        closed(SHOP, 7),
        closed(GAME, 8),
    ];
    state.read(all.into_iter(), 0);
    assert!(state.wanted() == LookupKeys::default(), "the store is not needed");
    assert_eq!(
        kinds(&mut state, 1),
        (vec!["accepted", "routed", "connected", "acked", "acked", "closed"], Vec::new())
    );
    assert_eq!(kinds(&mut state, 2), (vec!["accepted", "connected", "closed"], Vec::new()));
}

#[test]
fn events_of_apps_without_a_tail_leave_nothing() {
    let mut state = on_topic();
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
    let all = [
        accepted(GAME, id(1), Some("news")),
        connected(GAME, 7, "a"),
        outcome(GAME, id(2), Outcome::Written, &[7]),
        record(Event::Rejected(Box::new(rejected))),
    ];
    state.read(all.into_iter(), 0);
    assert_eq!(kinds(&mut state, 1), (Vec::new(), Vec::new()));
    assert!(state.pending.is_empty() && !state.known.has_looked_for(DeviceNum(7)));
    assert!(state.known.detail(GAME, &outcome(GAME, id(1), Outcome::Written, &[]).event).is_none());
}

#[test]
fn the_store_names_devices() {
    let mut state = two();
    let all = [outcome(SHOP, id(1), Outcome::Written, &[7, 8]), closed(SHOP, 9), closed(GAME, 10)];
    state.read(all.into_iter(), 0);
    let asked = state.wanted();
    assert_eq!((&asked.devices[..], asked.notifications.len()), (&[7, 8, 9, 10].map(DeviceNum)[..], 0));
    let device = |num, app, id: &str| FoundDevice {
        num: DeviceNum(num),
        app,
        id: DeviceId::parse(id).expect("an id"),
        user: None,
    };
    // The device 9 does not exist any more.
    let devices = vec![device(7, SHOP, "a"), device(8, SHOP, "b"), device(10, GAME, "c")];
    state.found(&asked, Found { devices, ..Found::default() });
    assert!(state.wanted() == LookupKeys::default());
    let mut shown = |number| -> Vec<_> {
        let events = state.take(number).expect("open").events;
        events.iter().map(|(kind, _, names)| (kind.as_str(), names.len())).collect()
    };
    assert_eq!(shown(1), [("written", 2), ("closed", 0)]);
    assert_eq!(shown(2), [("closed", 1)]);
}

#[test]
fn a_topic_is_asked_for_if_it_is_not_known() {
    let mut state = on_topic();
    let all = [
        accepted(SHOP, id(1), Some("news")),
        accepted(SHOP, id(2), Some("sport")),
        outcome(SHOP, id(1), Outcome::Written, &[7]),
        outcome(SHOP, id(2), Outcome::Written, &[7]),
        connected(SHOP, 7, "a"),
        // Accepted on another node.
        outcome(SHOP, id(3), Outcome::Written, &[7]),
    ];
    state.read(all.into_iter(), 0);
    assert_eq!(kinds(&mut state, 1).0, ["accepted", "written"]);
    let asked = state.wanted();
    assert_eq!((asked.notifications.clone(), asked.devices.len()), (vec![id(3)], 0), "the device is known");
    state.found(&asked, found(id(3), SHOP, "news"));
    state.retry();
    assert_eq!(kinds(&mut state, 1).0, ["written"]);
}

#[test]
fn the_topic_of_a_notification_of_another_app_stays_unknown() {
    let mut state = on_topic();
    // A device of the shop acknowledges a notification of the game.
    state.read([outcome(SHOP, id(1), Outcome::Acked, &[7])].into_iter(), 0);
    let asked = state.wanted();
    assert_eq!(asked.notifications, [id(1)]);
    state.found(&asked, found(id(1), GAME, "news"));
    state.retry();
    assert_eq!(kinds(&mut state, 1), (Vec::new(), Vec::new()));
    assert!(state.pending.is_empty());
}

#[test]
fn a_notification_that_the_store_does_not_find_is_stated() {
    let mut state = on_topic();
    state.read([outcome(SHOP, id(1), Outcome::Written, &[7])].into_iter(), 0);
    for _ in 0..TRIES {
        let asked = state.wanted();
        assert_eq!(asked.notifications, [id(1)]);
        state.found(&asked, Found::default());
        state.retry();
    }
    assert_eq!(kinds(&mut state, 1), (Vec::new(), vec!["unresolved"]));
    assert!(state.wanted() == LookupKeys::default());
}

#[test]
fn what_waits_for_the_store_is_bounded_and_losses_are_stated() {
    let mut state = on_topic();
    let flood = (0..PENDING_MAX * 3).map(|number| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        outcome(SHOP, NotificationId::from_bytes(bytes), Outcome::Written, &[number as u64])
    });
    state.read(flood, 0);
    assert_eq!(state.pending.len(), PENDING_MAX);
    let asked = state.wanted();
    assert_eq!((asked.notifications.len(), asked.devices.len()), (PENDING_MAX, DEVICES_ASKED_MAX));
    assert_eq!(kinds(&mut state, 1), (Vec::new(), vec!["unresolved"]));
    let many: Vec<u64> = (0..(PENDING_BYTES_MAX as u64 / 8) + 1).collect();
    let mut state = on_topic();
    state.read([outcome(SHOP, id(1), Outcome::Written, &many)].into_iter(), 5);
    assert_eq!((state.pending.len(), state.pending_bytes), (0, 0));
    assert_eq!(kinds(&mut state, 1).1, ["lost", "unresolved"]);
}

#[test]
fn a_flood_of_a_notification_that_is_not_known_yet_is_counted() {
    let mut state = on_topic();
    let flood = (0..5_000).map(|number| outcome(SHOP, id(1), Outcome::Written, &[number]));
    state.read(flood, 0);
    assert_eq!(state.pending.len(), EVENTS_MAX);
    let asked = state.wanted();
    state.found(&asked, found(id(1), SHOP, "news"));
    state.retry();
    let shop = state.take(1).expect("open");
    assert_eq!((shop.events.len(), shop.omitted.sum()), (EVENTS_MAX, 5_000 - EVENTS_MAX as u64));
    assert!(shop.gaps.is_empty());
}

#[test]
fn the_last_tail_takes_everything_with_it() {
    let mut state = on_topic();
    state.open(2, Selector::new(Filter::of(GAME)));
    state.read([connected(SHOP, 7, "a"), outcome(SHOP, id(1), Outcome::Written, &[7])].into_iter(), 0);
    state.close(2);
    assert_eq!(state.pending.len(), 1);
    state.close(1);
    assert!(state.pending.is_empty() && !state.known.has_looked_for(DeviceNum(7)));
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
