//! The JSON of events.

use noroshi_events::event::{Accepted, Rejected};
use noroshi_types::{
    AppId, CampaignId, CloseReason, DeviceId, NotificationId, PushService, SessionId, UserId,
};
use serde_json::{Value, json};

use super::*;

const AT: Timestamp = Timestamp(1_795_366_800_042);

fn name(id: &str, user: Option<&str>) -> Arc<Name> {
    let user = user.map(|user| UserId::parse(user).expect("an id"));
    Arc::new(Name { app: AppId(1), id: DeviceId::parse(id).expect("an id"), user })
}

fn shown(event: Event, kind: Kind, count: u64, names: &[Arc<Name>]) -> Value {
    let entry = Entry::new(&Record { at: AT, event }, Vec::new(), count);
    let mut json: Value = serde_json::from_str(&entry.shown(kind, names, true).json).expect("JSON");
    assert_eq!((&json["at"], &json["event"]), (&json!(AT.to_string()), &json!(kind.as_str())));
    let fields = json.as_object_mut().expect("an object");
    fields.remove("at");
    fields.remove("event");
    json
}

#[test]
fn devices_have_their_ids_and_the_count_is_of_all() {
    let id = NotificationId::from_bytes([1; 16]);
    let of = Subject::Notification(id);
    let (app, devices) = (AppId(1), Box::new([DeviceNum(9); 30]));
    let event = Event::Outcome { app, of, outcome: Outcome::Slow, devices, count: 30 };
    let names = [name("</script>\"", Some("ann")), name("b", None)];
    assert_eq!(
        shown(event, Kind::Dropped, 30, &names),
        json!({"id": id.to_string(), "why": "slow", "count": 30, "devices": [{"id": "</script>\"", "user": "ann"}, {"id": "b"}]})
    );
    let (device, session) = (DeviceNum(9), SessionId(10));
    let closed = || Event::Closed { app, device, session, reason: CloseReason::Drain };
    assert_eq!(
        shown(closed(), Kind::Closed, 1, &names[..1]),
        json!({"device": "</script>\"", "user": "ann", "session": "000000000000000a", "reason": "drain"})
    );
    let of_deleted = shown(closed(), Kind::Closed, 1, &[]);
    assert_eq!(of_deleted, json!({"session": "000000000000000a", "reason": "drain"}));
}

#[test]
fn an_answer_of_a_push_service_is_an_answer_and_the_end_of_a_token() {
    let answered = || Event::PushAnswered {
        app: AppId(1),
        of: Subject::Campaign(CampaignId::from_bytes([5; 16])),
        service: PushService::Apns,
        outcome: Outcome::PushTokenGone,
        reason: Some("Unregistered"),
        devices: Box::new([DeviceNum(9)]),
        trace: TraceId::from_bytes([7; 16]).into(),
    };
    for kind in [Kind::PushAnswered, Kind::TokenInvalidated] {
        assert_eq!(
            shown(answered(), kind, 1, &[]),
            json!({
                "campaign": "05050505-0505-0505-0505-050505050505", "service": "apns",
                "result": "push_token_gone", "reason": "Unregistered", "trace": "07070707070707070707070707070707",
                "count": 1, "devices": [],
            })
        );
    }
}

#[test]
fn an_acceptance_lists_the_first_recipients() {
    let users: Vec<UserId> =
        (0..30).map(|number| UserId::parse(&format!("u{number}")).expect("an id")).collect();
    let event = Event::Accepted(Box::new(Accepted {
        app: AppId(1),
        id: NotificationId::from_bytes([1; 16]),
        campaign: None,
        target: "users",
        targets: Some(30),
        topic: None,
        named: Some(Named::Users(users.into())),
        when: "stored",
        push: "fallback",
        urgency: "normal",
        kept: 3,
        trace: None,
    }));
    let json = shown(event, Kind::Accepted, 0, &[]);
    assert_eq!((json["users"].as_array().map(Vec::len), &json["targets"]), (Some(LISTED_MAX), &json!(30)));
    assert_eq!((&json["users"][0], json.get("topic"), json.get("app")), (&json!("u0"), None, None));
}

#[test]
fn a_rejected_log_in_has_no_more_than_is_known() {
    let event = Event::Rejected(Box::new(Rejected {
        app: Some(AppId(1)),
        device_id: None,
        user: None,
        protocol: "mqtt",
        reason: "expired",
        detail: "the token has expired".into(),
        network: Some("192.0.2.7".into()),
        suppressed: 7,
    }));
    assert_eq!(
        shown(event, Kind::Rejected, 0, &[]),
        json!({"protocol": "mqtt", "reason": "expired", "detail": "the token has expired", "network": "192.0.2.7", "suppressed": 7})
    );
}
