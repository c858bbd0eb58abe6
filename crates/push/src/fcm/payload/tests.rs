//! The rendering for FCM, against the names and types of its discovery document.

use super::*;
use crate::content::Payload as _;
use crate::fields::tests::{fields, json_text, own_fields};

const ID: &str = "0197b3f0-1111-7222-8333-444455556666";

/// What the service receives.
pub(crate) fn rendered(fields: &Fields) -> Bytes {
    Payload::new(fields).unwrap().body("T", Timestamp(0))
}

fn payload(fields: Fields) -> Value {
    message(&Payload::new(&fields).unwrap(), Timestamp(0))
}

fn message(payload: &Payload, now: Timestamp) -> Value {
    let body: Value = serde_json::from_slice(&payload.body("T", now)).unwrap();
    let mut message = body["message"].clone();
    assert_eq!(message.as_object_mut().unwrap().remove("token"), Some(json!("T")));
    check_shape(&message);
    message
}

fn own(own: &Value) -> Result<Payload, InvalidContent> {
    let notification = json_text(&json!({"title": "t"}));
    Payload::new(&Fields { notification, own: own_fields(PushService::Fcm, own), ..fields() })
}

fn refused(value: Value, field: &str) {
    match own(&value) {
        Err(InvalidContent::Invalid { service: PushService::Fcm, field: found, .. }) => {
            assert_eq!(found, field)
        }
        other => panic!("{field}: {other:?}"),
    }
}

/// The part of `fcm.v1.json` that a derived message may use: objects with their properties, maps of strings, and values
/// of any type. FCM rejects any other property.
fn check_shape(message: &Value) {
    let objects: [(&[&str], &[&str]); 7] = [
        (&[], &["notification", "data", "android", "androidV2", "apns", "webpush", "fcmOptions"]),
        (&["notification"], &["title", "body", "image"]),
        (
            &["android"],
            &[
                "collapseKey",
                "priority",
                "ttl",
                "restrictedPackageName",
                "data",
                "notification",
                "fcmOptions",
                "directBootOk",
            ],
        ),
        (&["androidV2"], &["collapseKey", "ttl", "data", "remoteNotification", "backgroundSync"]),
        (&["apns"], &["headers", "payload", "fcmOptions", "liveActivityToken"]),
        (&["webpush"], &["headers", "data", "notification", "fcmOptions"]),
        (&["webpush", "fcmOptions"], &["link", "analyticsLabel"]),
    ];
    let whole = message.as_object().unwrap();
    let find = |path: &[&str]| match path {
        [] => Some(message),
        path => at(whole, path),
    };
    for (path, properties) in objects {
        for key in find(path).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            assert!(properties.contains(&key.as_str()), "{path:?} has no {key}");
        }
    }
    let maps: [&[&str]; 4] = [&["data"], &["android", "data"], &["apns", "headers"], &["webpush", "headers"]];
    for path in maps {
        for value in find(path).and_then(Value::as_object).into_iter().flat_map(Map::values) {
            assert!(value.is_string(), "{path:?}: {value}");
        }
    }
    if let Some(ttl) = find(&["android", "ttl"]) {
        let seconds = ttl.as_str().and_then(|ttl| ttl.strip_suffix('s')).unwrap();
        assert!(seconds.parse::<f64>().unwrap() <= 2_419_200.0);
    }
    if let Some(priority) = find(&["android", "priority"]) {
        assert!(["NORMAL", "HIGH"].contains(&priority.as_str().unwrap()));
    }
}

#[test]
fn a_notification_reaches_each_platform() {
    let fields = Fields {
        notification: json_text(&json!({
            "title": "Goal", "body": "1:0", "image": "https://a/b.png", "url": "https://a/c", "x": 1
        })),
        data: json_text(&json!({"match": 7, "text": "as it is", "list": [1, "a"], "none": null})),
        ..fields()
    };
    let expected = json!({
        "notification": {"title": "Goal", "body": "1:0", "image": "https://a/b.png"},
        "data": {
            "match": "7", "text": "as it is", "list": "[1,\"a\"]", "none": "null",
            "noroshi_id": ID, "noroshi_url": "https://a/c",
        },
        "android": {"priority": "NORMAL", "ttl": "86400s"},
        "apns": {
            "headers": {"apns-expiration": "86400", "apns-priority": "10"},
            "payload": {"aps": {"mutable-content": 1}},
        },
        "webpush": {"headers": {"TTL": "86400", "Urgency": "normal"}, "fcmOptions": {"link": "https://a/c"}},
    });
    assert_eq!(payload(fields), expected);
}

#[test]
fn data_only_is_a_background_push_at_apple() {
    let expected = json!({
        "data": {"data": "[1]", "noroshi_id": ID},
        "android": {"priority": "HIGH", "ttl": "86400s"},
        "apns": {
            "headers": {"apns-expiration": "86400", "apns-priority": "5", "apns-push-type": "background"},
            "payload": {"aps": {"content-available": 1}},
        },
        "webpush": {"headers": {"TTL": "86400", "Urgency": "high"}},
    });
    let fields = Fields { data: json_text(&json!([1])), urgency: Urgency::High, ..fields() };
    assert_eq!(payload(fields), expected);
}

#[test]
fn urgency_and_collapse_key_have_their_place_on_each_platform() {
    let of = |urgency| {
        let notification = json_text(&json!({"title": "t"}));
        let message = payload(Fields { urgency, notification, ..fields() });
        let text = |pointer: &str| message.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        [text("/android/priority"), text("/apns/headers/apns-priority"), text("/webpush/headers/Urgency")]
    };
    assert_eq!(of(Urgency::VeryLow), ["NORMAL", "1", "very-low"]);
    assert_eq!(of(Urgency::Low), ["NORMAL", "5", "low"]);
    assert_eq!(of(Urgency::Normal), ["NORMAL", "10", "normal"]);
    assert_eq!(of(Urgency::High), ["HIGH", "10", "high"]);

    let message = payload(Fields { collapse_key: Some("my score".into()), ..fields() });
    assert_eq!(message["android"]["collapseKey"], "my score");
    assert_eq!(message["apns"]["headers"]["apns-collapse-id"], collapse::apns_id("my score"));
    assert_eq!(message["webpush"]["headers"]["Topic"], collapse::web_push_topic("my score"));
}

#[test]
fn the_remaining_time_is_computed_at_each_request() {
    let payload = Payload::new(&Fields { expires_at: Timestamp(90_999), ..fields() }).unwrap();
    let at = |now| {
        let message = message(&payload, Timestamp(now));
        let text = |pointer: &str| message.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        [text("/android/ttl"), text("/apns/headers/apns-expiration"), text("/webpush/headers/TTL")]
    };
    assert_eq!(at(0), ["90s", "90", "90"]);
    assert_eq!(at(1_000), ["89s", "90", "89"]);
    assert_eq!(at(90_000), ["0s", "0", "0"]);
    assert_eq!(at(200_000), ["0s", "0", "0"]);
    assert_eq!(at(0), ["90s", "90", "90"]);
    let far = Payload::new(&Fields { expires_at: Timestamp(u64::MAX / 2), ..fields() }).unwrap();
    assert_eq!(message(&far, Timestamp(0))["android"]["ttl"], "2419200s");
}

#[test]
fn own_fields_override_derived_ones_in_camel_and_snake_case() {
    let own = own(&json!({
        "android": {"ttl": "5s", "collapse_key": "x", "notification": {"channel_id": "goals"}, "fcm_options": {"analytics_label": "a"}},
        "apns": {"headers": {"apns-expiration": "0"}, "payload": {"aps": {"sound": "horn", "thread_id": "kept"}}},
        "webpush": {"headers": {"TTL": "7"}, "notification": {"require_interaction": true}},
        "data": {"noroshi_id": null, "my_key": "v"},
        "fcm_options": {"analytics_label": "l"},
    }));
    let expected = json!({
        "notification": {"title": "t"},
        "data": {"my_key": "v"},
        "android": {
            "priority": "NORMAL", "ttl": "5s", "collapseKey": "x", "notification": {"channelId": "goals"},
            "fcmOptions": {"analyticsLabel": "a"},
        },
        "apns": {
            "headers": {"apns-expiration": "0", "apns-priority": "10"},
            "payload": {"aps": {"sound": "horn", "thread_id": "kept"}},
        },
        "webpush": {
            "headers": {"TTL": "7", "Urgency": "normal"}, "notification": {"require_interaction": true},
        },
        "fcmOptions": {"analyticsLabel": "l"},
    });
    assert_eq!(message(&own.unwrap(), Timestamp(0)), expected);
}

#[test]
fn android_v2_replaces_android() {
    let own = own(&json!({"android_v2": {"background_sync": {}}})).unwrap();
    let message = message(&own, Timestamp(0));
    assert_eq!(message["androidV2"], json!({"backgroundSync": {}, "ttl": "86400s"}));
    assert_eq!(message.get("android"), None);
}

#[test]
fn own_fields_that_fcm_rejects_are_rejected() {
    refused(json!([]), "push.fcm");
    for target in ["token", "topic", "condition", "fid", "name", "validate_only"] {
        refused(json!({target: "x"}), &format!("push.fcm.{target}"));
    }
    refused(json!({"android": 1}), "push.fcm.android");
    refused(json!({"android": {}, "android_v2": {}}), "push.fcm.androidV2");
    refused(json!({"data": {"a": 1}}), "push.fcm.data.a");
    refused(json!({"webpush": {"data": {"a": {}}}}), "push.fcm.webpush.data.a");
    for key in ["", "from", "message_type", "google.x", "gcm.notification.x", "gcm.x"] {
        refused(json!({"data": {key: "v"}}), &format!("push.fcm.data.{key}"));
    }
}

#[test]
fn the_limit_is_exact_and_counts_what_reaches_a_device() {
    let with = |length: usize, own: &Value| {
        let data = json_text(&json!({"d": "x".repeat(length)}));
        Payload::new(&Fields {
            data,
            own: own_fields(PushService::Fcm, own),
            notification: json_text(&json!({"body": "b"})),
            ..fields()
        })
    };
    // {"body":"b"} and {"d":"…","noroshi_id":"…"}
    let bare = 12 + 8 + 13 + 2 + 36 + 1;
    assert!(with(4_096 - bare, &json!({})).is_ok());
    let too_large = |bytes| InvalidContent::TooLarge { service: PushService::Fcm, bytes, bytes_max: 4_096 };
    assert_eq!(with(4_097 - bare, &json!({})).err(), Some(too_large(4_097)));
    // A platform's own part counts for that platform only.
    let own = json!({"android": {"notification": {"tag": "t"}}, "webpush": {"notification": {"tag": "t"}}});
    assert!(with(4_096 - bare - 11, &own).is_ok());
    assert_eq!(with(4_096 - bare - 10, &own).err(), Some(too_large(4_097)));
}

/// The difference that typed fields make to the message of a notification with a title.
#[test]
fn typed_fields_have_their_place_on_each_platform() {
    let of = |mut notification: Value, own: &Value| {
        notification["title"] = json!("t");
        payload(Fields {
            notification: json_text(&notification),
            own: own_fields(PushService::Fcm, own),
            ..fields()
        })
    };
    let plain = of(json!({}), &json!({}));
    let check = |typed: Value, expected: Value| {
        let (Value::Object(mut whole), Value::Object(expected)) = (plain.clone(), expected) else {
            unreachable!()
        };
        merge_patch(&mut whole, expected);
        assert_eq!(of(typed.clone(), &json!({})), Value::Object(whole), "{typed}");
    };
    let android = |notification: Value| json!({"android": {"notification": notification}});
    let aps = |aps: Value| json!({"apns": {"payload": {"aps": aps}}});
    let both = |android_notification: Value, ios: Value| json!({"android": {"notification": android_notification}, "apns": {"payload": {"aps": ios}}});
    let web = |notification: Value| json!({"webpush": {"notification": notification}});
    check(json!({"android_channel": "news"}), android(json!({"channelId": "news"})));
    check(json!({"android_icon": "ic_news"}), android(json!({"icon": "ic_news"})));
    check(json!({"android_color": "#12aBff"}), android(json!({"color": "#12aBff"})));
    check(json!({"android_click_action": "OPEN"}), android(json!({"clickAction": "OPEN"})));
    check(json!({"sound": "chime.caf"}), both(json!({"sound": "chime"}), json!({"sound": "chime.caf"})));
    check(json!({"sound": "default"}), both(json!({"sound": "default"}), json!({"sound": "default"})));
    check(
        json!({"sound": {"name": "alarm.wav", "critical": true, "volume": 1}}),
        both(json!({"sound": "alarm"}), json!({"sound": {"name": "alarm.wav", "critical": 1, "volume": 1}})),
    );
    check(json!({"badge": 7}), both(json!({"notificationCount": 7}), json!({"badge": 7})));
    check(json!({"badge": 0}), aps(json!({"badge": 0})));
    check(json!({"level": "active"}), aps(json!({"interruption-level": "active"})));
    for (level, priority) in [("time-sensitive", "PRIORITY_HIGH"), ("critical", "PRIORITY_MAX")] {
        let expected = both(json!({"notificationPriority": priority}), json!({"interruption-level": level}));
        check(json!({"level": level}), expected);
    }
    let mut passive =
        both(json!({"notificationPriority": "PRIORITY_LOW"}), json!({"interruption-level": "passive"}));
    passive["webpush"] = json!({"notification": {"silent": true}});
    check(json!({"level": "passive"}), passive);
    check(json!({"relevance": 0.5}), aps(json!({"relevance-score": 0.5})));
    check(json!({"thread": "chat"}), aps(json!({"thread-id": "chat"})));
    check(json!({"category": "ASK"}), aps(json!({"category": "ASK"})));
    check(json!({"mutable": true}), aps(json!({"mutable-content": 1})));
    check(json!({"content_available": true}), aps(json!({"content-available": 1})));
    check(json!({"icon": "https://i/i.png"}), web(json!({"icon": "https://i/i.png"})));
    check(json!({"lang": "ar", "dir": "rtl"}), web(json!({"lang": "ar", "dir": "rtl"})));
    check(json!({"fcm_analytics_label": "sale"}), json!({"fcmOptions": {"analyticsLabel": "sale"}}));
    let mut actions = web(json!({"actions": [{"action": "y", "title": "Yes", "navigate": "https://a/y"}]}));
    actions["data"] = json!({"noroshi_actions": r#"[{"id":"y","title":"Yes","url":"https://a/y"}]"#});
    check(json!({"actions": [{"id": "y", "title": "Yes", "url": "https://a/y"}]}), actions);

    // Own fields override them, also with `androidV2`.
    let own = json!({"android": {"notification": {"channel_id": "own", "sound": null}}});
    let overridden = of(json!({"android_channel": "c", "sound": "s"}), &own);
    assert_eq!(overridden["android"]["notification"], json!({"channelId": "own"}));
    let remote = of(
        json!({"android_channel": "c", "mutable": true}),
        &json!({"android_v2": {"remote_notification": {"use_as_v1_data_message": false}}}),
    );
    let expected =
        json!({"notification": {"channelId": "c"}, "mutableContent": true, "useAsV1DataMessage": false});
    assert_eq!((remote.get("android"), &remote["androidV2"]["remoteNotification"]), (None, &expected));
    let background = of(json!({"android_channel": "c"}), &json!({"androidV2": {"backgroundSync": {}}}));
    assert_eq!(background["androidV2"], json!({"backgroundSync": {}, "ttl": "86400s"}));
}

#[test]
fn a_badge_alone_reaches_ios_only() {
    let message = payload(Fields { notification: json_text(&json!({"badge": 0})), ..fields() });
    assert_eq!((message.get("notification"), message["android"].get("notification")), (None, None));
    assert_eq!(message["apns"]["payload"]["aps"], json!({"badge": 0}));
    let headers = json!({"apns-expiration": "86400", "apns-priority": "10"});
    assert_eq!(message["apns"]["headers"], headers, "an alert, which is FCM's default");
}

#[test]
fn a_badge_counts_unread_items() {
    let badge = |unread: Option<u32>| {
        let notification = json_text(&json!({"title": "t", "badge": "unread"}));
        let message = payload(Fields { notification, unread, ..fields() });
        let at = |path: &str| message.pointer(path).cloned();
        (at("/android/notification/notificationCount"), at("/apns/payload/aps/badge"))
    };
    assert_eq!(badge(Some(4)), (Some(json!(4)), Some(json!(4))));
    assert_eq!(badge(Some(0)), (None, Some(json!(0))));
    assert_eq!(badge(None), (None, None));
}
