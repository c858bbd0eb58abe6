//! The rendering for APNs, and what is rejected before anything is accepted.

use super::*;
use crate::content::Payload as _;
use crate::fields::tests::{fields, json_text, own_fields};

const ID: &str = "0197b3f0-1111-7222-8333-444455556666";

/// What the service receives.
pub(crate) fn rendered(fields: &Fields) -> Bytes {
    Payload::new(fields).unwrap().body
}

fn payload(notification: Value, data: Value, own: Value) -> Result<Payload, InvalidContent> {
    let some = |value: Value| (!value.is_null()).then(|| json_text(&value)).flatten();
    Payload::new(&Fields {
        notification: some(notification),
        data: some(data),
        own: own_fields(PushService::Apns, &own),
        ..fields()
    })
}

fn body(payload: &Payload) -> Value {
    serde_json::from_slice(&payload.body).unwrap()
}

fn check(notification: Value, data: Value, own: Value, push_type: PushType, expected: Value) {
    let payload = payload(notification, data, own).unwrap();
    assert_eq!((body(&payload), payload.push_type), (expected, push_type));
}

fn refused(own: Value, field: &str) {
    match payload(json!({"title": "t"}), Value::Null, own) {
        Err(InvalidContent::Invalid { service: PushService::Apns, field: found, .. }) => {
            assert_eq!(found, field)
        }
        other => panic!("{field}: {other:?}"),
    }
}

#[test]
fn a_notification_is_an_alert() {
    check(
        json!({"title": "Goal", "body": "1:0", "image": "https://a/b.png", "url": "https://a/c", "x": 1}),
        json!({"match": 7}),
        Value::Null,
        PushType::Alert,
        json!({
            "aps": {"alert": {"title": "Goal", "body": "1:0"}, "mutable-content": 1},
            "noroshi": {"id": ID}, "data": {"match": 7}, "url": "https://a/c", "image": "https://a/b.png",
        }),
    );
    let title_alone = json!({"aps": {"alert": {"title": "Goal"}}, "noroshi": {"id": ID}});
    check(json!({"title": "Goal"}), Value::Null, Value::Null, PushType::Alert, title_alone);
}

#[test]
fn data_only_is_a_background_push_with_priority_5() {
    let expected = json!({"aps": {"content-available": 1}, "noroshi": {"id": ID}, "data": [1, "a"]});
    check(Value::Null, json!([1, "a"]), Value::Null, PushType::Background, expected);
    let urgent = Fields { urgency: Urgency::High, data: json_text(&json!(1)), ..fields() };
    assert_eq!(Payload::new(&urgent).unwrap().priority, "5");
}

#[test]
fn own_fields_override_derived_ones() {
    let notification = json!({"title": "Goal", "body": "1:0"});
    check(
        notification.clone(),
        Value::Null,
        json!({"payload": {"aps": {"sound": "horn", "alert": {"subtitle": "s", "body": null}}, "noroshi": null, "x": {"y": 1}}}),
        PushType::Alert,
        json!({"aps": {"alert": {"title": "Goal", "subtitle": "s"}, "sound": "horn"}, "x": {"y": 1}}),
    );
    // A badge is visible, so a push with only a badge is an alert.
    check(
        Value::Null,
        Value::Null,
        json!({"payload": {"aps": {"badge": 3}}}),
        PushType::Alert,
        json!({"aps": {"badge": 3}, "noroshi": {"id": ID}}),
    );
    // Without its alert nothing is visible.
    check(
        notification,
        Value::Null,
        json!({"payload": {"aps": {"alert": null}}}),
        PushType::Background,
        json!({"aps": {"content-available": 1}, "noroshi": {"id": ID}}),
    );
}

#[test]
fn other_push_types_have_only_the_providers_fields() {
    let activity = json!({"timestamp": 1, "event": "update", "content-state": {"score": 1}});
    check(
        json!({"title": "Goal"}),
        Value::Null,
        json!({"headers": {"apns-push-type": "liveactivity"}, "payload": {"aps": activity}}),
        PushType::LiveActivity,
        json!({"aps": activity, "noroshi": {"id": ID}}),
    );
    check(
        json!({"title": "Goal"}),
        json!({"a": 1}),
        json!({"headers": {"apns-push-type": "mdm"}, "payload": {"mdm": "magic"}}),
        PushType::Mdm,
        json!({"mdm": "magic"}),
    );
    let own = json!({"headers": {"apns-push-type": "background"}});
    let expected = json!({"aps": {"content-available": 1}, "noroshi": {"id": ID}});
    check(json!({"title": "Goal"}), Value::Null, own, PushType::Background, expected);
}

#[test]
fn urgency_time_and_collapse_key_become_headers() {
    let priorities = [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High].map(|urgency| {
        let shown = json_text(&json!({"title": "t"}));
        Payload::new(&Fields { urgency, notification: shown, ..fields() }).unwrap().priority
    });
    assert_eq!(priorities, ["1", "5", "10", "10"]);

    let fields = Fields { collapse_key: Some("score".into()), expires_at: Timestamp(90_999), ..fields() };
    let derived = Payload::new(&fields).unwrap();
    assert_eq!(derived.collapse_id.as_deref(), Some(b"score".as_slice()));
    assert_eq!(derived.expiration.value(Timestamp(0)), "90");
    assert_eq!(derived.expiration.value(Timestamp(90_999)), "0");

    let own = json!({"headers": {"APNS-Expiration": 77, "apns-priority": 5, "apns-collapse-id": "x", "apns-topic": "a.b"}});
    let own = Payload::new(&Fields {
        own: own_fields(PushService::Apns, &own),
        notification: json_text(&json!({"body": "b"})),
        ..fields
    })
    .unwrap();
    assert_eq!(own.expiration.value(Timestamp(90_999)), "77");
    assert_eq!((own.priority, own.collapse_id.as_deref()), ("5", Some(b"x".as_slice())));
    assert_eq!(own.topic.as_deref(), Some(b"a.b".as_slice()));
}

#[test]
fn own_fields_that_apns_rejects_are_rejected() {
    refused(json!([]), "push.apns");
    refused(json!({"aps": {}}), "push.apns.aps");
    refused(json!({"payload": 1}), "push.apns.payload");
    refused(json!({"payload": {"aps": 1}}), "push.apns.payload.aps");
    refused(json!({"headers": 1}), "push.apns.headers");
    refused(json!({"headers": {"apns-id": "x"}}), "push.apns.headers.apns-id");
    refused(json!({"headers": {"authorization": "x"}}), "push.apns.headers.authorization");
    refused(json!({"headers": {"apns-topic": "a\r\nb"}}), "push.apns.headers.apns-topic");
    refused(json!({"headers": {"apns-topic": ""}}), "push.apns.headers.apns-topic");
    refused(json!({"headers": {"apns-push-type": "shout"}}), "push.apns.headers.apns-push-type");
    refused(
        json!({"headers": {"apns-push-type": "voip", "apns-topic": "a.b"}}),
        "push.apns.headers.apns-topic",
    );
    refused(json!({"headers": {"apns-priority": "7"}}), "push.apns.headers.apns-priority");
    refused(
        json!({"headers": {"apns-push-type": "background", "apns-priority": 10}}),
        "push.apns.headers.apns-priority",
    );
    let of = |push_type: &str, aps: Value| json!({"headers": {"apns-push-type": push_type}, "payload": {"aps": aps}});
    refused(of("background", json!({"badge": 1})), "push.apns.payload.aps");
    refused(of("background", json!({"content-available": 0})), "push.apns.payload.aps.content-available");
    refused(of("liveactivity", json!({"timestamp": 1})), "push.apns.payload.aps.event");
    refused(of("liveactivity", json!({"timestamp": 1, "event": "stop"})), "push.apns.payload.aps.event");
    refused(of("liveactivity", json!({"event": "end"})), "push.apns.payload.aps.timestamp");
    refused(json!({"headers": {"apns-expiration": "soon"}}), "push.apns.headers.apns-expiration");
    refused(json!({"headers": {"apns-expiration": -1}}), "push.apns.headers.apns-expiration");
    refused(json!({"headers": {"apns-collapse-id": "c".repeat(65)}}), "push.apns.headers.apns-collapse-id");
}

#[test]
fn every_push_type_has_its_topic() {
    let suffixes = PushType::ALL.map(|push_type| (push_type.as_str(), push_type.topic_suffix()));
    assert_eq!(
        suffixes,
        [
            ("alert", ""),
            ("background", ""),
            ("voip", ".voip"),
            ("complication", ".complication"),
            ("fileprovider", ".pushkit.fileprovider"),
            ("location", ".location-query"),
            ("liveactivity", ".push-type.liveactivity"),
            ("pushtotalk", ".voip-ptt"),
            ("widgets", ".push-type.widgets"),
            ("controls", ".push-type.controls"),
            ("mdm", ""),
        ]
    );
}

#[test]
fn the_limit_is_exact_and_wider_for_calls() {
    for (push_type, bytes_max) in
        [("alert", 4_096), ("background", 4_096), ("location", 4_096), ("voip", 5_120)]
    {
        let own = json!({"headers": {"apns-push-type": push_type}});
        let with = |length: usize| payload(Value::Null, json!("d".repeat(length)), own.clone());
        let bare = with(0).unwrap().body.len();
        let fits = with(bytes_max - bare).unwrap();
        assert_eq!(fits.body.len(), bytes_max);
        let (service, bytes) = (PushService::Apns, bytes_max + 1);
        assert_eq!(with(bytes_max - bare + 1), Err(InvalidContent::TooLarge { service, bytes, bytes_max }));
    }
}

/// A typed field of a notification with a title, and its key of `aps`.
#[test]
fn typed_fields_become_keys_of_aps() {
    let aps_of = |mut notification: Value, title: bool| {
        if title {
            notification["title"] = json!("t");
        }
        let rendered = payload(notification, Value::Null, Value::Null).unwrap();
        let mut aps = body(&rendered)["aps"].clone();
        if title {
            assert_eq!(aps.as_object_mut().unwrap().remove("alert"), Some(json!({"title": "t"})));
        }
        (aps, rendered.push_type)
    };
    let rows = [
        (json!({"level": "passive"}), json!({"interruption-level": "passive"})),
        (json!({"level": "time-sensitive"}), json!({"interruption-level": "time-sensitive"})),
        (json!({"relevance": 0.5}), json!({"relevance-score": 0.5})),
        (json!({"relevance": 1}), json!({"relevance-score": 1})),
        (json!({"sound": "chime.caf"}), json!({"sound": "chime.caf"})),
        (json!({"sound": {"name": "chime.caf"}}), json!({"sound": "chime.caf"})),
        (json!({"sound": {}}), json!({"sound": "default"})),
        (json!({"sound": {"critical": true}}), json!({"sound": {"critical": 1, "name": "default"}})),
        (
            json!({"sound": {"critical": true, "name": "a", "volume": 0.25}}),
            json!({"sound": {"critical": 1, "name": "a", "volume": 0.25}}),
        ),
        (json!({"badge": 0}), json!({"badge": 0})),
        (json!({"badge": 7}), json!({"badge": 7})),
        (json!({"thread": "chat-1"}), json!({"thread-id": "chat-1"})),
        (json!({"category": "MESSAGE"}), json!({"category": "MESSAGE"})),
        (json!({"mutable": true}), json!({"mutable-content": 1})),
        (json!({"mutable": false}), json!({})),
        (json!({"mutable": false, "image": "https://i/"}), json!({})),
        (json!({"content_available": true}), json!({"content-available": 1})),
        (json!({"content_available": false}), json!({})),
        (json!({"icon": "https://i/", "lang": "de", "dir": "ltr", "android_channel": "c"}), json!({})),
        (json!({"android_icon": "i", "android_color": "#123456", "fcm_analytics_label": "l"}), json!({})),
    ];
    for (typed, expected) in rows {
        assert_eq!(aps_of(typed.clone(), true), (expected, PushType::Alert), "{typed}");
    }
    // Without texts, a badge or a sound still makes an alert, and nothing else does.
    assert_eq!(aps_of(json!({"badge": 0}), false), (json!({"badge": 0}), PushType::Alert));
    let sounding = json!({"sound": "default", "level": "active", "mutable": true});
    let expected = json!({"sound": "default", "interruption-level": "active"});
    assert_eq!(aps_of(sounding, false), (expected, PushType::Alert));
    let silent = json!({"url": "a:b", "level": "active", "relevance": 1, "thread": "t", "category": "c"});
    assert_eq!(aps_of(silent, false), (json!({"content-available": 1}), PushType::Background));
}

#[test]
fn actions_are_next_to_aps_for_the_app() {
    let actions =
        json!([{"id": "yes", "title": "Yes"}, {"id": "more", "title": "More", "url": "myapp://more"}]);
    check(
        json!({"title": "t", "category": "ASK", "actions": actions}),
        Value::Null,
        Value::Null,
        PushType::Alert,
        json!({"aps": {"alert": {"title": "t"}, "category": "ASK"}, "noroshi": {"id": ID}, "actions": actions}),
    );
}

#[test]
fn own_fields_override_typed_ones() {
    check(
        json!({"title": "t", "sound": "a", "badge": 1, "level": "passive"}),
        Value::Null,
        json!({"payload": {"aps": {"sound": {"critical": 1}, "badge": null, "interruption-level": "critical"}}}),
        PushType::Alert,
        json!({"aps": {"alert": {"title": "t"}, "sound": {"critical": 1}, "interruption-level": "critical"},
            "noroshi": {"id": ID}}),
    );
}

#[test]
fn the_kind_of_the_token_decides_push_type_and_priority() {
    use noroshi_types::TokenKind;
    let of = |kind, urgency, own: &Value| {
        Payload::new(&Fields {
            kind: Some(kind),
            urgency,
            own: own_fields(PushService::Apns, own),
            ..fields()
        })
    };
    let start = json!({"payload": {"aps": {"event": "start", "timestamp": 1}}});
    let update = json!({"payload": {"aps": {"event": "update", "timestamp": 1}}});
    let nothing = json!({});
    for (kind, own, push_type, low, told) in [
        (TokenKind::Alert, &nothing, PushType::Background, "5", "content-available"),
        (TokenKind::Voip, &nothing, PushType::Voip, "10", ""),
        (TokenKind::Complication, &nothing, PushType::Complication, "1", ""),
        (TokenKind::FileProvider, &nothing, PushType::FileProvider, "1", ""),
        (TokenKind::Widgets, &nothing, PushType::Widgets, "1", "content-changed"),
        (TokenKind::Controls, &nothing, PushType::Controls, "1", "content-changed"),
        (TokenKind::LiveActivityStart, &start, PushType::LiveActivity, "5", "event"),
        (TokenKind::LiveActivity, &update, PushType::LiveActivity, "5", "event"),
    ] {
        let payload = of(kind, Urgency::VeryLow, own).expect("accepted");
        assert_eq!((payload.push_type, payload.priority), (push_type, low), "{kind:?}");
        let body: Value = serde_json::from_slice(&payload.body).expect("JSON");
        assert!(told.is_empty() || body["aps"].get(told).is_some(), "{body}");
    }
    let refused = |kind, own: Value, path: &str| match of(kind, Urgency::Normal, &own) {
        Err(InvalidContent::Invalid { field, .. }) => assert_eq!(field, path),
        other => panic!("{other:?}"),
    };
    refused(
        TokenKind::Voip,
        json!({"headers": {"apns-push-type": "alert"}}),
        "push.apns.headers.apns-push-type",
    );
    refused(TokenKind::LiveActivityStart, update.clone(), "push.apns.payload.aps.event");
    refused(TokenKind::LiveActivity, start, "push.apns.payload.aps.event");
    let mut slow = update;
    slow["headers"] = json!({"apns-priority": "1"});
    refused(TokenKind::LiveActivity, slow, "push.apns.headers.apns-priority");
    let large =
        Fields { kind: Some(TokenKind::Voip), data: json_text(&json!("x".repeat(4_500))), ..fields() };
    assert!(Payload::new(&large).is_ok(), "a call may have 5 KiB");
}

#[test]
fn a_badge_counts_unread_items() {
    let badge = |unread: Option<u32>| {
        let notification = json_text(&json!({"title": "t", "badge": "unread"}));
        let payload = Payload::new(&Fields { notification, unread, ..fields() }).unwrap();
        body(&payload)["aps"].get("badge").cloned()
    };
    assert_eq!([Some(4), Some(0), None].map(badge), [Some(json!(4)), Some(json!(0)), None]);
}
