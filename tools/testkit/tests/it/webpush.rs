//! Each of the Web Push service's rules, violated once.

use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use serde_json::{Value, json};

use crate::client::{Client, Headers, with};
use crate::sign::{b64, encrypt, now_s, vapid};

const PLAIN: &[u8] = br#"{"notification":{"title":"Hello"}}"#;

fn subscribe(fakes: &Fakes, state: State, unrestricted: bool) -> (Value, String) {
    let new =
        NewDevices { service: Service::WebPush, count: 1, topic: None, state, unrestricted, token: None };
    let token = fakes.make_devices(&new).unwrap().remove(0);
    let endpoint = token["endpoint"].as_str().unwrap();
    let path = endpoint.strip_prefix(&fakes.origin(Service::WebPush)).unwrap().to_owned();
    (token, path)
}

fn claims(fakes: &Fakes) -> Value {
    json!({"aud": fakes.origin(Service::WebPush), "exp": now_s() + 3_600, "sub": "mailto:a@example.com"})
}

fn authorization(fakes: &Fakes, claims: &Value) -> String {
    vapid(&fakes.keys().vapid_private, &fakes.keys().vapid_public, claims)
}

fn headers(fakes: &Fakes) -> Headers {
    let pairs = [
        ("ttl", "60".to_owned()),
        ("urgency", "high".to_owned()),
        ("content-encoding", "aes128gcm".to_owned()),
        ("content-type", "application/octet-stream".to_owned()),
        ("authorization", authorization(fakes, &claims(fakes))),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[tokio::test]
async fn a_valid_push_is_decrypted_and_accepted() {
    let fakes = Fakes::start().unwrap();
    let (token, path) = subscribe(&fakes, State::Registered, false);
    let mut client = Client::connect(&fakes, Service::WebPush).await;
    let answer = client.post(&path, &headers(&fakes), encrypt(&token, PLAIN, 2)).await;
    assert_eq!((answer.status, answer.header("ttl")), (201, "60"), "{answer:?}");
    assert!(answer.header("location").starts_with(&fakes.origin(Service::WebPush)));
    let received = &fakes.received(Service::WebPush)[0];
    assert_eq!(received.token, token["endpoint"]);
    assert_eq!(received.payload.as_deref().map(str::as_bytes), Some(PLAIN));
    assert_eq!(received.title.as_deref(), Some("Hello"));
    // A push without a payload only wakes the page.
    let bare = with(&with(&headers(&fakes), "content-encoding", None), "content-type", None);
    assert_eq!(client.post(&path, &bare, "").await.status, 201);
    let receipts = with(&bare, "prefer", Some("respond-async"));
    assert_eq!(client.post(&path, &receipts, "").await.status, 202);
    let long = with(&bare, "ttl", Some("99999999"));
    assert_eq!(client.post(&path, &long, "").await.header("ttl"), "2419200");
}

#[tokio::test]
async fn each_header_is_checked() {
    let fakes = Fakes::start().unwrap();
    let (token, path) = subscribe(&fakes, State::Registered, false);
    let mut client = Client::connect(&fakes, Service::WebPush).await;
    let (right, body) = (headers(&fakes), encrypt(&token, PLAIN, 2));
    let long = "x".repeat(33);
    for (name, value) in [
        ("ttl", None),
        ("ttl", Some("-1")),
        ("ttl", Some("+5")),
        ("ttl", Some("soon")),
        ("urgency", Some("urgent")),
        ("topic", Some("a b")),
        ("topic", Some(&long)),
        ("topic", Some("")),
        ("content-encoding", None),
        ("content-encoding", Some("aesgcm")),
        ("content-type", Some("application/json")),
        ("crypto-key", Some("dh=x")),
    ] {
        let answer = client.post(&path, &with(&right, name, value), body.clone()).await;
        assert_eq!(answer.status, 400, "{name}: {value:?}");
    }
    let mut twice = right.clone();
    twice.push(("ttl".to_owned(), "60".to_owned()));
    assert_eq!(client.post(&path, &twice, body.clone()).await.status, 400);
    assert_eq!(client.send("PUT", &path, &right, body.clone()).await.unwrap().status, 405);
    assert_eq!(client.post("/push/none", &right, body.clone()).await.status, 404);
    assert_eq!(client.post(&path, &right, vec![0; 4_097]).await.status, 413);
    let (gone, path) = subscribe(&fakes, State::Unregistered { at_ms: 1 }, false);
    let answer = client.post(&path, &right, encrypt(&gone, PLAIN, 2)).await;
    assert_eq!((answer.status, &answer.body["errno"]), (410, &json!(106)));
}

#[tokio::test]
async fn vapid_is_checked() {
    let fakes = Fakes::start().unwrap();
    let (token, path) = subscribe(&fakes, State::Registered, false);
    let mut client = Client::connect(&fakes, Service::WebPush).await;
    let (right, body) = (headers(&fakes), encrypt(&token, PLAIN, 2));
    let changed = |claim: &str, value: Value| {
        let mut claims = claims(&fakes);
        claims[claim] = value;
        authorization(&fakes, &claims)
    };
    let other = noroshi_testkit::keys::Keys::generate().unwrap();
    let foreign = vapid(&other.vapid_private, &other.vapid_public, &claims(&fakes));
    let valid = authorization(&fakes, &claims(&fakes));
    let (_, rest) = valid.split_once(' ').unwrap();
    for (what, authorization, status) in [
        ("none", None, 401),
        ("scheme", Some(format!("WebPush {rest}")), 401),
        ("no key", Some(valid.split(',').next().unwrap().to_owned()), 401),
        ("signature", Some(valid.replace(&fakes.keys().vapid_public, &other.vapid_public)), 401),
        ("compressed key", Some(format!("{}, k={}", valid.split(',').next().unwrap(), b64(&[2; 33]))), 401),
        ("aud", Some(changed("aud", json!("https://example.com"))), 401),
        ("aud with a path", Some(changed("aud", json!(format!("{}/", fakes.origin(Service::WebPush))))), 401),
        ("exp past", Some(changed("exp", json!(now_s() - 1))), 401),
        ("exp far", Some(changed("exp", json!(now_s() + 25 * 3_600))), 401),
        ("exp text", Some(changed("exp", json!("soon"))), 401),
        ("sub", Some(changed("sub", json!("me"))), 401),
        ("another key", Some(foreign.clone()), 403),
    ] {
        let headers = with(&right, "authorization", authorization.as_deref());
        assert_eq!(client.post(&path, &headers, body.clone()).await.status, status, "{what}");
    }
    let (token, path) = subscribe(&fakes, State::Registered, true);
    let body = encrypt(&token, PLAIN, 2);
    for authorization in [None, Some(foreign.as_str())] {
        let headers = with(&right, "authorization", authorization);
        assert_eq!(client.post(&path, &headers, body.clone()).await.status, 201, "unrestricted");
    }
}

#[tokio::test]
async fn encryption_is_checked() {
    let fakes = Fakes::start().unwrap();
    let (token, path) = subscribe(&fakes, State::Registered, false);
    let (other, _) = subscribe(&fakes, State::Registered, false);
    let mut client = Client::connect(&fakes, Service::WebPush).await;
    let right = headers(&fakes);
    let body = encrypt(&token, PLAIN, 2);
    let changed = |at: usize, bytes: &[u8]| {
        let mut body = body.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        body
    };
    for (what, body) in [
        ("short", vec![0; 50]),
        ("another's", encrypt(&other, PLAIN, 2)),
        ("delimiter of more records", encrypt(&token, PLAIN, 1)),
        ("no delimiter", encrypt(&token, b"", 0)),
        ("tag", changed(body.len() - 1, &[body[body.len() - 1] ^ 1])),
        ("salt", changed(0, &[0])),
        ("record size", changed(16, &17_u32.to_be_bytes())),
        ("several records", changed(16, &20_u32.to_be_bytes())),
        ("length of the key's id", changed(20, &[64])),
        ("no point", changed(22, &[0xff; 32])),
    ] {
        assert_eq!(client.post(&path, &right, body).await.status, 400, "{what}");
    }
    let largest = encrypt(&token, &[b'x'; 3_993], 2);
    assert_eq!(largest.len(), 4_096);
    assert_eq!(client.post(&path, &right, largest).await.status, 201);
}
