//! APNs' requests and provider tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_types::PushService;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::*;
use crate::Credential;
use crate::credential::tests::{apns_json, parsed};
use crate::exchange::Quota;
use crate::fields::Fields;
use crate::fields::tests::{fields, json_text, own_fields};
use crate::push::tests::push;

const MINUTE: u64 = 60_000;

fn alert() -> Fields {
    Fields { notification: json_text(&json!({"title": "t"})), ..fields() }
}

fn device(fields: Fields) -> Push {
    push(PushService::Apns, &json!({"service": "apns", "token": "00ffAB"}), fields)
}

fn ready(credential: &Credential, minute: u64) -> Bytes {
    match credential.client.authorization("", Timestamp(minute * MINUTE)) {
        Authorization::Ready(value) => value,
        other => panic!("{other:?}"),
    }
}

fn headers(request: &Request) -> Vec<(&str, &str, bool)> {
    let text =
        |header: &'static Header| (header.name, std::str::from_utf8(&header.value).unwrap(), header.shared);
    request.headers.clone().leak().iter().map(text).collect()
}

#[test]
fn a_request_has_its_device_in_the_path_and_the_rest_in_headers() {
    let credential = parsed(&apns_json());
    let client = &credential.client;
    let authorization = Bytes::from_static(b"bearer x");
    let fields = Fields { collapse_key: Some("score".into()), expires_at: Timestamp(90_000), ..alert() };
    let mut push = device(fields);
    let request = client.request(&push, Some(&authorization), Timestamp(0)).unwrap();
    assert_eq!(request.path, "/3/device/00ffAB");
    assert_eq!(
        headers(&request),
        [
            ("authorization", "bearer x", true),
            ("apns-topic", "com.example.app", true),
            ("apns-push-type", "alert", true),
            ("apns-priority", "10", true),
            ("apns-expiration", "90", false),
            ("apns-collapse-id", "score", false),
            ("apns-id", "0197b3f0-aaaa-7bbb-8ccc-ddddeeeeffff", false),
        ]
    );
    let again = client.request(&push, Some(&authorization), Timestamp(0)).unwrap();
    assert_eq!(again.body.as_ptr(), request.body.as_ptr(), "rendered once");

    // In a campaign all pushes have the same time and key.
    push.lane = Lane::Campaign;
    let request = client.request(&push, None, Timestamp(0)).unwrap();
    let shared: Vec<_> =
        headers(&request).into_iter().filter(|header| header.2).map(|header| header.0).collect();
    assert_eq!(
        shared,
        ["apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id"]
    );
}

#[test]
fn the_topic_is_the_providers_else_the_devices_else_the_credentials() {
    let credential = parsed(&apns_json());
    let topic = |token: Value, own: Value| {
        let push =
            push(PushService::Apns, &token, Fields { own: own_fields(PushService::Apns, &own), ..alert() });
        let request = credential.client.request(&push, None, Timestamp(0))?;
        Ok(headers(&request)[0].1.to_owned())
    };
    let (plain, own_topic) = (json!({"token": "00"}), json!({"token": "00", "topic": "com.example.watch"}));
    let voip = json!({"headers": {"apns-push-type": "voip"}});
    assert_eq!(topic(plain.clone(), json!({})), Ok("com.example.app".to_owned()));
    assert_eq!(topic(plain.clone(), voip.clone()), Ok("com.example.app.voip".to_owned()));
    assert_eq!(topic(own_topic.clone(), voip), Ok("com.example.watch.voip".to_owned()));
    let own = json!({"headers": {"apns-topic": "mine"}});
    assert_eq!(topic(own_topic, own), Ok("mine".to_owned()));
    let bad = json!({"token": "00", "topic": "a b"});
    assert_eq!(topic(bad, json!({})), Err(Answer::Suspect { reason: "bad_token" }));
}

#[test]
fn an_invalid_token_never_becomes_a_path() {
    let credential = parsed(&apns_json());
    for token in [
        json!({"token": "../x"}),
        json!({"token": "00 HTTP"}),
        json!({"token": ""}),
        json!({}),
        json!({"token": 1}),
    ] {
        let push = push(PushService::Apns, &token, alert());
        let refused = credential.client.request(&push, None, Timestamp(0)).unwrap_err();
        assert_eq!(refused, Answer::Suspect { reason: "bad_token" }, "{token}");
    }
}

#[test]
fn content_that_apns_rejects_becomes_an_answer() {
    let credential = parsed(&apns_json());
    let check = |fields: Fields, reason| {
        let refused = credential.client.request(&device(fields), None, Timestamp(0)).unwrap_err();
        assert_eq!(refused, Answer::Refused { reason });
    };
    check(Fields { data: json_text(&json!("x".repeat(4_096))), ..fields() }, "payload_too_large");
    check(Fields { own: own_fields(PushService::Apns, &json!({"x": 1})), ..fields() }, "invalid_push_fields");
}

#[test]
fn a_provider_token_is_a_jwt_that_verifies() {
    let body = apns_json();
    let value = ready(&parsed(&body), 30);
    let token = std::str::from_utf8(&value).unwrap().strip_prefix("bearer ").unwrap();
    let (text, signature) = token.rsplit_once('.').unwrap();
    let part =
        |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    let (header, claims) = text.split_once('.').unwrap();
    assert_eq!(part(header), json!({"alg": "ES256", "kid": "ABC123DEFG"}));
    assert_eq!(part(claims), json!({"iss": "DEF123GHIJ", "iat": 30 * 60}));
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    assert_eq!(signature.len(), 64, "r and s, not DER");
    let key = rcgen::KeyPair::from_pem(body["key"].as_str().unwrap()).unwrap();
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key_raw());
    public.verify(text.as_bytes(), &signature).unwrap();
}

#[test]
fn a_provider_token_lives_between_20_and_50_minutes() {
    let credential = parsed(&apns_json());
    let first = ready(&credential, 100);
    assert_eq!(ready(&credential, 100), first);
    assert_eq!(ready(&credential, 120), first);
    assert_eq!(ready(&credential, 139), first);
    let second = ready(&credential, 150);
    assert_ne!(second, first);
    assert_eq!(ready(&credential, 169), second);
}

#[test]
fn many_rejections_cause_one_new_token() {
    let credential = parsed(&apns_json());
    let renew = |used: &Bytes, minute: u64| credential.client.renew("", used, Timestamp(minute * MINUTE));
    let first = ready(&credential, 100);
    assert!(!renew(&first, 119), "within 20 minutes");
    assert_eq!(ready(&credential, 119), first);
    assert!(renew(&first, 120));
    let second = ready(&credential, 120);
    assert_ne!(second, first);
    // The other pushes that were rejected with the first.
    assert!(renew(&first, 120));
    assert_eq!(ready(&credential, 120), second);
    assert!(!renew(&second, 121));
    // The clock was an hour ahead at the signature.
    assert!(renew(&second, 60));
}

#[test]
fn a_token_from_the_future_is_renewed_at_once() {
    let credential = parsed(&apns_json());
    let ahead = ready(&credential, 1_000);
    assert_eq!(ready(&credential, 999), ahead, "clocks are corrected by seconds every day");
    let now = ready(&credential, 100);
    assert_ne!(now, ahead);
    assert_eq!(ready(&credential, 101), now);
}

#[test]
fn a_credential_that_is_stored_again_keeps_its_token() {
    let body = apns_json();
    let one = parsed(&body);
    let first = ready(&one, 0);
    let mut other_app = body.clone();
    other_app["topic"] = json!("com.example.other");
    assert_eq!(ready(&parsed(&other_app), 1), first);
    let mut other_key = body;
    other_key["key"] = apns_json()["key"].clone();
    assert_ne!(ready(&parsed(&other_key), 1), first);
}

#[test]
fn a_token_credential_starts_with_one_stream() {
    let credential = parsed(&apns_json());
    assert!(credential.client.one_until_authorised());
    assert!(credential.client.identity().is_none());
    assert_eq!(credential.client.origin(&device(fields()).token), Ok("https://api.push.apple.com".into()));
    assert_eq!(credential.quota, Quota::UNLIMITED);
}

fn to_channel(is_stored: bool, channel: &str) -> Push {
    let to = ToChannel {
        bundle: "com.example.app".to_owned(),
        channel: channel.to_owned(),
        payload: Bytes::from_static(b"{}"),
        priority: 5,
        is_stored,
        expires_at: Timestamp(90_000),
    };
    Push { content: std::sync::Arc::new(crate::Content::broadcast(to)), ..device(fields()) }
}

#[test]
fn a_broadcast_names_its_channel_and_app() {
    let credential = parsed(&apns_json());
    let request = |push: &Push, now| credential.client.request(push, None, Timestamp(now)).unwrap();
    let sent = request(&to_channel(true, "Y2g="), 0);
    assert_eq!((sent.path.as_str(), &*sent.body), ("/4/broadcasts/apps/com.example.app", &b"{}"[..]));
    assert_eq!(
        headers(&sent),
        [
            ("apns-channel-id", "Y2g=", false),
            ("apns-push-type", "liveactivity", true),
            ("apns-priority", "5", true),
            ("apns-expiration", "90", false),
            ("apns-request-id", "0197b3f0-aaaa-7bbb-8ccc-ddddeeeeffff", false),
        ]
    );
    // Now or never.
    for late in [request(&to_channel(true, "Y2g="), 90_000), request(&to_channel(false, "Y2g="), 0)] {
        assert_eq!(headers(&late)[3].1, "0");
    }
    let odd = credential.client.request(&to_channel(true, "a b"), None, Timestamp(0)).unwrap_err();
    assert_eq!(odd, Answer::Refused { reason: "BadChannelId" });
}

#[test]
fn channels_have_hosts_of_their_own() {
    let site = |body: &Value| {
        let credential = parsed(body);
        let client = &credential.client;
        let channels = client.channels().unwrap();
        (client.broadcast_origin().unwrap().to_string(), channels.origin.to_string(), channels.bundle.clone())
    };
    let mut body = apns_json();
    let production = ("https://api.push.apple.com", "https://api-manage-broadcast.push.apple.com:2196");
    let own =
        |(send, manage): (&str, &str)| (send.to_owned(), manage.to_owned(), "com.example.app".to_owned());
    assert_eq!(site(&body), own(production));
    body["environment"] = json!("sandbox");
    let sandbox =
        ("https://api.sandbox.push.apple.com", "https://api-manage-broadcast.sandbox.push.apple.com:2195");
    assert_eq!(site(&body), own(sandbox));
    body["endpoint"] = json!("https://localhost:1");
    assert_eq!(site(&body), own(("https://localhost:1", sandbox.1)));
    body["broadcast_endpoint"] = json!("https://localhost:2");
    body["channels_endpoint"] = json!("https://localhost:3");
    assert_eq!(site(&body), own(("https://localhost:2", "https://localhost:3")));
}
