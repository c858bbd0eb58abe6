//! Requests of providers: their form, their signatures, their ids.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use noroshi_types::{DeviceId, PushService, UserId};
use ring::hmac;
use serde_json::{Value, json};

use super::*;
use crate::Content;
use crate::credential::tests::{parsed, webhook_json};
use crate::fields::Fields;
use crate::fields::tests::{fields, json_text};
use crate::push::Details;
use crate::push::tests::push;

const NOW: Timestamp = Timestamp(1_800_000_000_123);
const SECRETS: [&str; 2] = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"];

fn client(more: Value) -> Arc<dyn exchange::Client> {
    let mut credential = webhook_json();
    credential.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    parsed(&credential).client
}

fn to(number: u128, content: &Arc<Content>) -> Push {
    let token =
        json!({"service": "webhook", "provider": "mail", "token": format!("a\"{number}@example.com")});
    let recipient = Recipient {
        device: DeviceId::parse(&format!("d{number}")).unwrap(),
        user: (number != 2).then(|| UserId::parse("u").unwrap()),
    };
    Push {
        id: uuid::Uuid::from_u128(number),
        content: content.clone(),
        details: Some(Box::new(Details { recipient: Some(recipient), trace: None })),
        ..push(PushService::Webhook, &token, fields())
    }
}

fn content(title: &str) -> Arc<Content> {
    Arc::new(Content::new(Fields { notification: json_text(&json!({"title": title})), ..fields() }))
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    let header = request.headers.iter().find(|header| header.name == name).expect(name);
    std::str::from_utf8(&header.value).unwrap()
}

fn asked(client: &Arc<dyn exchange::Client>, pushes: &[Push]) -> BatchRequest {
    client.batches().unwrap().request(&pushes.iter().collect::<Vec<_>>(), NOW)
}

#[test]
fn pushes_of_one_message_share_its_text() {
    let (one, other) = (content("A"), content("B"));
    let pushes = [to(1, &one), to(2, &one), to(3, &other)];
    let BatchRequest { request, count } = asked(&client(json!({})), &pushes);
    assert_eq!((count, &*request.path), (3, "/push?key=hidden"));
    assert_eq!(header(&request, "content-type"), "application/json");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((&body["type"], &body["provider"]), (&json!("push.batch"), &json!("mail")));
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["notification"], json!({"title": "A"}));
    assert_eq!(
        messages[0]["recipients"],
        json!([
            {"id": "00000000-0000-0000-0000-000000000001", "token": "a\"1@example.com", "device": "d1", "user": "u"},
            {"id": "00000000-0000-0000-0000-000000000002", "token": "a\"2@example.com", "device": "d2"},
        ])
    );
    assert_eq!(messages[1]["recipients"].as_array().unwrap().len(), 1);
}

#[test]
fn each_secret_signs_a_request() {
    let rotating = json!({"previous_secret": format!("whsec_{}", SECRETS[1])});
    for (client, count) in [(client(json!({})), 1), (client(rotating), 2)] {
        let BatchRequest { request, .. } = asked(&client, &[to(1, &content("A"))]);
        let signatures: Vec<&str> = header(&request, "webhook-signature").split(' ').collect();
        assert_eq!(signatures.len(), count);
        assert_eq!(header(&request, "webhook-timestamp"), "1800000000");
        let id = header(&request, "webhook-id");
        let signed = [format!("{id}.1800000000.").as_bytes(), &request.body].concat();
        for (signature, secret) in signatures.into_iter().zip(SECRETS) {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(secret).unwrap());
            let tag = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
            hmac::verify(&key, &signed, &tag).unwrap();
        }
    }
}

#[test]
fn the_same_recipients_have_the_same_request_id() {
    let client = client(json!({}));
    let content = content("A");
    let id = |numbers: &[u128]| {
        let pushes: Vec<Push> = numbers.iter().map(|number| to(*number, &content)).collect();
        header(&asked(&client, &pushes).request, "webhook-id").to_owned()
    };
    assert_eq!(id(&[1, 2]), id(&[2, 1]));
    assert_ne!(id(&[1, 2]), id(&[1]));
    assert_eq!(id(&[1]).len(), "push_".len() + 32);
}

#[test]
fn a_request_has_at_most_a_mebibyte() {
    let client = client(json!({}));
    let large = |_| Arc::new(Content::new(Fields { data: json_text(&json!("x".repeat(4_000))), ..fields() }));
    let pushes: Vec<Push> = (0..500).map(|number| to(number, &large(number))).collect();
    let BatchRequest { request, count } = asked(&client, &pushes);
    assert!(count < 500 && count > 200, "{count}");
    assert!(request.body.len() <= BODY_BYTES_MAX + 4 && request.body.len() > BODY_BYTES_MAX - 8_192);
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), count);
}

#[test]
fn a_test_names_no_device() {
    let push = Push { details: None, ..to(1, &content("A")) };
    let body: Value = serde_json::from_slice(&asked(&client(json!({})), &[push]).request.body).unwrap();
    let recipient = body["messages"][0]["recipients"][0].as_object().unwrap();
    assert!(!recipient.contains_key("device") && !recipient.contains_key("user"));
}
