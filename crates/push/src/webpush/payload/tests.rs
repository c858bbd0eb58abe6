//! The rendering for Web Push.

use noroshi_types::Urgency;
use serde_json::{Value, json};

use super::*;
use crate::content::Payload as _;
use crate::fields::tests::{fields, json_text};

const ID: &str = "0197b3f0-1111-7222-8333-444455556666";

fn own(own: &Value) -> Result<Payload, InvalidContent> {
    Payload::new(&Fields { webpush: json_text(own), ..fields() })
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
