//! Which events a filter shows.

use noroshi_events::event::{Accepted, Connected, Rejected, Routed};
use noroshi_types::{CloseReason, SessionId, Timestamp};

use super::*;

const APP: AppId = AppId(1);

fn id(byte: u8) -> NotificationId {
    NotificationId::from_bytes([byte; 16])
}

fn campaign(byte: u8) -> CampaignId {
    CampaignId::from_bytes([byte; 16])
}

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("an id")
}

fn device(name: &str) -> DeviceId {
    DeviceId::parse(name).expect("an id")
}

fn topic(name: &str) -> Topic {
    Topic::parse(name).expect("a topic")
}

fn record(event: Event) -> Record {
    Record { at: Timestamp(0), event }
}

fn outcome(devices: &[u64]) -> Record {
    let devices: Box<[DeviceNum]> = devices.iter().copied().map(DeviceNum).collect();
    let (of, count) = (Subject::Notification(id(1)), devices.len() as u64);
    record(Event::Outcome { app: APP, of, outcome: Outcome::Written, devices, count })
}

fn accepted(named: Option<Named>, topic: Option<Topic>, campaign: Option<CampaignId>) -> Record {
    record(Event::Accepted(Box::new(Accepted {
        app: APP,
        id: id(1),
        campaign,
        target: "users",
        targets: None,
        topic,
        named,
        when: "stored",
        push: "never",
        urgency: "normal",
        kept: 0,
        trace: None,
    })))
}

fn connected(id: &str, of: Option<&str>) -> Record {
    record(Event::Connected(Box::new(Connected {
        app: APP,
        device: DeviceNum(1),
        device_id: device(id),
        user: of.map(user),
        session: SessionId(1),
        protocol: "native",
    })))
}

fn closed(number: u64) -> Record {
    let (device, session) = (DeviceNum(number), SessionId(1));
    record(Event::Closed { app: APP, device, session, reason: CloseReason::Drain })
}

fn rejected(of: Option<&str>) -> Record {
    record(Event::Rejected(Box::new(Rejected {
        app: Some(APP),
        device_id: of.map(device),
        user: None,
        protocol: "mqtt",
        reason: "expired",
        detail: "".into(),
        network: None,
        suppressed: 0,
    })))
}

fn is_shown(selector: &Selector, record: &Record) -> bool {
    matches!(selector.select(record, None), Selected::Yes(..))
}

#[test]
fn without_conditions_everything_is_shown_with_its_first_devices() {
    let all = Selector::new(Filter::of(APP));
    let many: Vec<u64> = (0..50).collect();
    let first: Vec<_> = (0..LISTED_MAX as u64).map(DeviceNum).collect();
    assert_eq!(all.select(&outcome(&many), None), Selected::Yes(first, 50));
    let routed = record(Event::Routed { app: APP, id: id(1), to: Routed::Here });
    for record in [accepted(None, None, None), routed, connected("a", None), closed(1), rejected(None)] {
        assert!(is_shown(&all, &record), "{record:?}");
    }
}

#[test]
fn a_user_has_the_events_of_its_devices_and_what_names_it() {
    let filter = Filter { user: Some(user("ann")), ..Filter::of(APP) };
    let selector = Selector { filter, devices: [DeviceNum(1), DeviceNum(2)].into() };
    assert_eq!(
        selector.select(&outcome(&[5, 2, 1, 9]), None),
        Selected::Yes(vec![DeviceNum(2), DeviceNum(1)], 2)
    );
    let users = |name| Some(Named::Users(Box::new([user("bob"), user(name)])));
    let shown = [accepted(users("ann"), None, None), connected("x", Some("ann")), closed(2)];
    let hidden = [
        outcome(&[5]),
        outcome(&[]),
        accepted(users("cid"), None, None),
        accepted(None, Some(topic("news")), None),
        connected("x", Some("bob")),
        connected("x", None),
        closed(3),
        rejected(None),
        record(Event::Routed { app: APP, id: id(1), to: Routed::Here }),
    ];
    assert!(shown.iter().all(|record| is_shown(&selector, record)));
    for record in hidden {
        assert_eq!(selector.select(&record, None), Selected::No, "{record:?}");
    }
}

#[test]
fn a_filter_wants_the_devices_with_its_user_and_id() {
    let ann = Selector::new(Filter { user: Some(user("ann")), ..Filter::of(APP) });
    assert_eq!(ann.wants(&device("d"), Some(&user("ann"))), Some(true));
    assert_eq!(ann.wants(&device("d"), Some(&user("bob"))), Some(false));
    let mut of_device = Selector::new(Filter { device: Some(device("d")), ..Filter::of(APP) });
    assert_eq!([device("d"), device("e")].map(|id| of_device.wants(&id, None)), [Some(true), Some(false)]);
    of_device.devices.insert(DeviceNum(7));
    assert!(is_shown(&of_device, &outcome(&[7])) && !is_shown(&of_device, &outcome(&[8])));
    assert!(is_shown(&of_device, &rejected(Some("d"))) && !is_shown(&of_device, &rejected(Some("e"))));
    let named = Some(Named::Devices(Box::new([device("d")])));
    assert!(is_shown(&of_device, &accepted(named, None, None)));
    assert_eq!(Selector::new(Filter::of(APP)).wants(&device("d"), None), None);
}

#[test]
fn a_topic_needs_to_be_known() {
    let selector = Selector::new(Filter { topic: Some(topic("news")), ..Filter::of(APP) });
    let detail = |name| Detail { topic: Some(topic(name)), campaign: None };
    assert_eq!(selector.select(&outcome(&[1]), None), Selected::Unknown(id(1)));
    assert_eq!(selector.select(&outcome(&[1]), Some(&detail("sport"))), Selected::No);
    assert!(matches!(selector.select(&outcome(&[1]), Some(&detail("news"))), Selected::Yes(..)));
    assert!(is_shown(&selector, &accepted(None, Some(topic("news")), None)));
    for record in [accepted(None, None, None), connected("a", None), closed(1)] {
        assert_eq!(selector.select(&record, None), Selected::No, "{record:?}");
    }
    // A device that is not asked for needs no look-up.
    let filter = Filter { topic: Some(topic("news")), device: Some(device("d")), ..Filter::of(APP) };
    let both = Selector { filter, devices: [DeviceNum(1)].into() };
    assert_eq!(both.select(&outcome(&[2]), None), Selected::No);
    assert_eq!(both.select(&outcome(&[1]), None), Selected::Unknown(id(1)));
}

#[test]
fn a_campaign_has_its_pushes_and_its_notifications() {
    let selector = Selector::new(Filter { campaign: Some(campaign(5)), ..Filter::of(APP) });
    let push = |of| {
        record(Event::PushSent {
            app: APP,
            of,
            service: noroshi_types::PushService::Apns,
            devices: Box::default(),
            trace: None.into(),
        })
    };
    let step = |campaign| record(Event::Campaign { app: APP, campaign, step: "running" });
    assert!(is_shown(&selector, &push(Subject::Campaign(campaign(5)))));
    assert!(
        is_shown(&selector, &step(campaign(5)))
            && is_shown(&selector, &accepted(None, None, Some(campaign(5))))
    );
    for record in [push(Subject::Campaign(campaign(6))), step(campaign(6)), push(Subject::Several), closed(1)]
    {
        assert_eq!(selector.select(&record, None), Selected::No, "{record:?}");
    }
    let detail = Detail { topic: None, campaign: Some(campaign(5)) };
    assert_eq!(selector.select(&outcome(&[1]), None), Selected::Unknown(id(1)));
    assert!(matches!(selector.select(&outcome(&[1]), Some(&detail)), Selected::Yes(..)));
}

#[test]
fn a_notification_has_its_own_events_only() {
    let selector = Selector::new(Filter { notification: Some(id(1)), ..Filter::of(APP) });
    assert!(is_shown(&selector, &outcome(&[1])) && is_shown(&selector, &accepted(None, None, None)));
    let other = Selector::new(Filter { notification: Some(id(2)), ..Filter::of(APP) });
    for record in [outcome(&[1]), accepted(None, None, None), connected("a", None)] {
        assert_eq!(other.select(&record, None), Selected::No);
    }
}

#[test]
fn a_refused_push_token_is_two_kinds() {
    let event = Event::PushAnswered {
        app: APP,
        of: Subject::Notification(id(1)),
        service: noroshi_types::PushService::Fcm,
        outcome: Outcome::PushTokenGone,
        reason: None,
        devices: Box::default(),
        trace: None.into(),
    };
    assert_eq!(kinds_of(&record(event)), [Some(Kind::PushAnswered), Some(Kind::TokenInvalidated)]);
    assert_eq!(kinds_of(&outcome(&[])), [Some(Kind::Written), None]);
    assert_eq!(kinds_of(&record(Event::Lost { count: 1 })), [None, None]);
}
