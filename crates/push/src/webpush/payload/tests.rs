//! The rendering for Web Push.

use noroshi_types::Urgency;
use serde_json::{Value, json};

use super::*;
use crate::content::Payload as _;
use crate::fields::tests::{fields, json_text, own_fields};

const ID: &str = "0197b3f0-1111-7222-8333-444455556666";

/// What the service receives.
pub(crate) fn rendered(fields: &Fields) -> Bytes {
    Payload::new(fields).unwrap().plaintext
}

fn own(own: &Value) -> Result<Payload, InvalidContent> {
    Payload::new(&Fields { own: own_fields(PushService::WebPush, own), ..fields() })
}

fn refused(value: Value, field: &str) {
    match own(&value) {
        Err(InvalidContent::Invalid { service: PushService::WebPush, field: found, .. }) => {
            assert_eq!(found, field)
        }
        other => panic!("{field}: {other:?}"),
    }
}

#[test]
fn the_plaintext_matches_the_live_message() {
    let text = |text: &str| Some(noroshi_types::JsonText::from_valid(text));
    let fields = Fields {
        notification: text("{\"title\":  \"Goal\",\"x\":1.50}"),
        data: text("{\"large\":123456789012345678901234567890}"),
        ..fields()
    };
    let plaintext = Payload::new(&fields).unwrap().plaintext;
    let expected = format!(
        "{{\"id\":\"{ID}\",\"notification\":{{\"title\":  \"Goal\",\"x\":1.50}},\"data\":{{\"large\":123456789012345678901234567890}}}}"
    );
    assert_eq!(plaintext, expected);
    assert_eq!(
        Payload::new(&Fields { notification_id: None, notification: None, data: None, ..fields })
            .unwrap()
            .plaintext,
        "{}"
    );
}

#[test]
fn an_own_payload_replaces_the_derived_one() {
    for payload in [json!({"a": [1]}), json!("text"), json!(null), json!(7)] {
        assert_eq!(own(&json!({"payload": payload})).unwrap().plaintext, payload.to_string());
    }
}

#[test]
fn urgency_time_and_collapse_key_become_headers() {
    for urgency in [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High] {
        let payload = Payload::new(&Fields { urgency, ..fields() }).unwrap();
        assert_eq!(payload.urgency, urgency.as_str());
    }
    let payload = Payload::new(&Fields { expires_at: Timestamp(90_999), ..fields() }).unwrap();
    let left = [0, 1_000, 90_000, 90_999, 100_000].map(|now| payload.ttl(Timestamp(now)));
    assert_eq!(left, ["90", "89", "0", "0", "0"]);
    assert_eq!(payload.topic, None);

    let headers = json!({"headers": {"ttl": 60, "URGENCY": "low", "Topic": "mine"}});
    let own = own(&headers).unwrap();
    assert_eq!(
        (own.ttl(Timestamp(0)), own.urgency, own.topic),
        ("60".into(), "low".into(), Some("mine".into()))
    );
}

#[test]
fn own_fields_that_the_protocol_rejects_are_rejected() {
    refused(json!(1), "push.webpush");
    refused(json!({"ttl": 1}), "push.webpush.ttl");
    refused(json!({"headers": {"X": "1"}}), "push.webpush.headers.X");
    refused(json!({"headers": {"TTL": "-1"}}), "push.webpush.headers.TTL");
    refused(json!({"headers": {"TTL": 2_147_483_648_u64}}), "push.webpush.headers.TTL");
    refused(json!({"headers": {"TTL": 1.5}}), "push.webpush.headers.TTL");
    refused(json!({"headers": {"Urgency": "now"}}), "push.webpush.headers.Urgency");
    refused(json!({"headers": {"Topic": "k".repeat(33)}}), "push.webpush.headers.Topic");
    refused(json!({"headers": {"Topic": "a b"}}), "push.webpush.headers.Topic");
}

#[test]
fn the_limit_is_exact() {
    let with = |length: usize| own(&json!({"payload": "x".repeat(length)}));
    assert_eq!(with(3_991).unwrap().plaintext.len(), 3_993);
    let expected = InvalidContent::TooLarge { service: PushService::WebPush, bytes: 3_994, bytes_max: 3_993 };
    assert_eq!(with(3_992), Err(expected));
}

fn derived_of(notification: &str, data: Option<&Value>) -> String {
    let notification = Some(noroshi_types::JsonText::from_valid(notification));
    let fields = Fields { notification, data: data.and_then(json_text), ..fields() };
    let payload = Payload::new(&fields).unwrap();
    String::from_utf8(payload.plaintext.to_vec()).unwrap()
}

#[test]
fn a_title_and_a_url_make_a_declarative_message() {
    // The provider's text stays byte for byte.
    let text = "{ \"url\": \"https://a.example/\\u00fc\",  \"title\":\"T\" , \"x\": {\"y\": {}} }";
    let expected = format!(
        "{{\"web_push\":8030,\"id\":\"{ID}\",\"notification\":{{ \"url\": \"https://a.example/\\u00fc\",  \"title\":\"T\" , \"x\": {{\"y\": {{}}}} ,\"navigate\":\"https://a.example/ü\",\"mutable\":true}},\"data\":[1],\"mutable\":true}}"
    );
    assert_eq!(derived_of(text, Some(&json!([1]))), expected);
    // Otherwise only a service worker shows it, with the bytes of a live message.
    for text in [
        r#"{"title":"T"}"#,
        r#"{"url":"https://a/"}"#,
        r#"{"title":"","url":"https://a/"}"#,
        r#"{"title":"T","url":"myapp://a"}"#,
        r#"{"title":"T","url":"javascript:alert(1)"}"#,
        r#"{"title":"T","url":"https://a b/"}"#,
        r#"{"title":5,"url":"https://a/"}"#,
    ] {
        assert_eq!(derived_of(text, None), format!("{{\"id\":\"{ID}\",\"notification\":{text}}}"));
    }
}

#[test]
fn typed_fields_have_the_names_of_the_standard() {
    let notification = |typed: Value| {
        let mut notification = json!({"title": "T", "url": "https://a/"});
        notification.as_object_mut().unwrap().extend(typed.as_object().unwrap().clone());
        let whole: Value = serde_json::from_str(&derived_of(&notification.to_string(), None)).unwrap();
        let mut whole = whole.as_object().unwrap().clone();
        assert_eq!(whole.remove("web_push"), Some(json!(8_030)));
        assert_eq!(whole.remove("id"), Some(json!(ID)));
        let mut shown = whole.remove("notification").unwrap().as_object().unwrap().clone();
        for (key, value) in [("title", "T"), ("url", "https://a/"), ("navigate", "https://a/")] {
            assert_eq!(shown.remove(key), Some(json!(value)));
        }
        let expected = Some(notification.get("mutable").cloned().unwrap_or(json!(true)));
        assert_eq!([shown.remove("mutable"), whole.remove("mutable")], [expected.clone(), expected]);
        (Value::Object(shown), Value::Object(whole))
    };
    let rows = [
        (json!({"level": "passive"}), json!({"level": "passive", "silent": true}), json!({})),
        (json!({"level": "critical"}), json!({"level": "critical"}), json!({})),
        (json!({"badge": 3}), json!({"app_badge": 3}), json!({"app_badge": 3})),
        (json!({"badge": 0}), json!({"app_badge": 0}), json!({"app_badge": 0})),
        (json!({"mutable": true}), json!({}), json!({})),
        (json!({"mutable": false}), json!({}), json!({})),
        (json!({"icon": "https://i/"}), json!({"icon": "https://i/"}), json!({})),
        (json!({"lang": "ar", "dir": "rtl"}), json!({"lang": "ar", "dir": "rtl"}), json!({})),
        (json!({"thread": "t", "body": "B"}), json!({"thread": "t", "body": "B"}), json!({})),
        (
            json!({"actions": [{"id": "a", "title": "A"}, {"id": "b", "title": "B", "url": "https://b/"},
                {"id": "c", "title": "C", "url": "myapp://c"}]}),
            json!({"actions": [{"action": "a", "title": "A", "navigate": "https://a/"},
                {"action": "b", "title": "B", "navigate": "https://b/"},
                {"action": "c", "title": "C", "navigate": "https://a/"}]}),
            json!({}),
        ),
        // Nothing that another platform needs.
        (
            json!({"android_channel": "c", "android_icon": "i", "android_color": "#123456", "android_click_action": "a",
                "fcm_analytics_label": "l", "category": "c", "content_available": true, "relevance": 1,
                "sound": "default"}),
            json!({}),
            json!({}),
        ),
    ];
    for (typed, shown, whole) in rows {
        assert_eq!(notification(typed.clone()), (shown, whole), "{typed}");
    }
    // A recipient's icon that is no URL must not make the message invalid.
    assert_eq!(notification(json!({"icon": "none", "thread": "t"})).0, json!({"thread": "t"}));

    let classic =
        derived_of(r#"{"title":"T","badge":2,"mutable":true,"actions":[{"id":"a","title":"A"}]}"#, None);
    let expected = json!({"id": ID, "notification": {"title": "T", "actions": [{"action": "a", "title": "A"}]},
        "app_badge": 2});
    assert_eq!(serde_json::from_str::<Value>(&classic).unwrap(), expected);
}

#[test]
fn a_message_that_is_too_large_for_the_declarative_form_stays_classic() {
    let text =
        |length: usize| format!("{{\"title\":\"{}\",\"url\":\"https://a.example/\"}}", "x".repeat(length));
    // With "web_push":8030, and ,"navigate":"https://a.example/" and twice ,"mutable":true
    let more = 16 + 32 + 2 * 15;
    let bare = derived_of(&text(1), None).len() - 1;
    let declarative = derived_of(&text(3_993 - bare), None);
    assert!(declarative.starts_with("{\"web_push\"") && declarative.len() == 3_993, "{}", declarative.len());
    for length in [3_994 - bare, 3_993 - bare + more] {
        let classic = derived_of(&text(length), None);
        assert!(classic.starts_with("{\"id\"") && classic.len() <= 3_993, "{}", classic.len());
    }
    let too_large = noroshi_types::JsonText::from_valid(text(3_994 - bare + more));
    let fields = Fields { notification: Some(too_large), ..fields() };
    let expected = InvalidContent::TooLarge { service: PushService::WebPush, bytes: 3_994, bytes_max: 3_993 };
    assert_eq!(Payload::new(&fields), Err(expected));
}

#[test]
fn a_badge_counts_unread_items() {
    let sent = |unread: Option<u32>| {
        let notification = json_text(&json!({"title": "T", "badge": "unread"}));
        let payload = Payload::new(&Fields { notification, unread, ..fields() }).unwrap();
        serde_json::from_slice::<Value>(&payload.plaintext).unwrap()
    };
    // The word never reaches a browser, which expects a URL there.
    let text = json!({"title": "T"});
    assert_eq!(sent(Some(4)), json!({"id": ID, "notification": text, "app_badge": 4}));
    assert_eq!(sent(None), json!({"id": ID, "notification": text}));
}
