//! Each of APNs' rules, violated once.

use noroshi_testkit::behaviour::Change;
use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use serde_json::{Value, json};

use crate::client::{Client, Headers, with};
use crate::sign::{jwt, jwt_in_der, now_s};

const BODY: &str = r#"{"aps":{"alert":{"title":"Hello","body":"World"}},"noroshi":{"id":"1"}}"#;
const ID: &str = "0192d6a0-0000-7000-8000-000000000001";

pub(crate) fn provider_token(fakes: &Fakes, issued_s: u64) -> String {
    let header = json!({"alg": "ES256", "kid": "DEVKEY0001"});
    let claims = json!({"iss": "DEVTEAM001", "iat": issued_s});
    format!("bearer {}", jwt(&fakes.keys().apns_p8, &header, &claims))
}

pub(crate) fn headers(fakes: &Fakes) -> Headers {
    let pairs = [
        ("authorization", provider_token(fakes, now_s())),
        ("apns-topic", "com.example.app".to_owned()),
        ("apns-push-type", "alert".to_owned()),
        ("apns-priority", "10".to_owned()),
        ("apns-expiration", "0".to_owned()),
        ("apns-id", ID.to_owned()),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn device(fakes: &Fakes, service: Service, state: State, topic: Option<&str>) -> String {
    let topic = topic.map(str::to_owned);
    let new = NewDevices { service, count: 1, topic, state, unrestricted: false, token: None };
    fakes.make_devices(&new).unwrap()[0]["token"].as_str().unwrap().to_owned()
}

pub(crate) fn registered(fakes: &Fakes) -> String {
    device(fakes, Service::Apns, State::Registered, None)
}

#[tokio::test]
async fn a_valid_push_is_accepted_and_recorded() {
    let fakes = Fakes::start().unwrap();
    let token = registered(&fakes);
    let right = headers(&fakes);
    let mut client = Client::connect(&fakes, Service::Apns).await;
    let answer = client.post(&format!("/3/device/{token}"), &right, BODY).await;
    assert_eq!((answer.status, answer.header("apns-id")), (200, ID));
    assert_eq!(answer.header("apns-unique-id"), "", "production has none");
    let received = fakes.received(Service::Apns);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].token.as_str(), received[0].title.as_deref()), (token.as_str(), Some("Hello")));
    assert_eq!(received[0].headers["apns-priority"], "10");
    assert!(!received[0].headers.contains_key("authorization"));
    client.post(&format!("/3/device/{token}"), &right[..1].to_vec(), BODY).await;
    let counts = fakes.counts(Service::Apns);
    assert_eq!((counts.accepted, counts.requests, counts.refused["InvalidPushType"]), (1, 2, 1));
}

#[tokio::test]
async fn each_header_is_checked() {
    let fakes = Fakes::start().unwrap();
    let path = format!("/3/device/{}", registered(&fakes));
    let right = headers(&fakes);
    let mut client = Client::connect(&fakes, Service::Apns).await;
    assert_eq!(client.post(&path, &right, BODY).await.status, 200);
    let long = "x".repeat(65);
    for (name, value, status, reason) in [
        ("apns-topic", None, 400, "MissingTopic"),
        ("apns-topic", Some("com.other.app"), 400, "TopicDisallowed"),
        ("apns-topic", Some("com example"), 400, "BadTopic"),
        ("apns-topic", Some("com.example.other"), 400, "DeviceTokenNotForTopic"),
        ("apns-push-type", None, 400, "InvalidPushType"),
        ("apns-push-type", Some("Alert"), 400, "InvalidPushType"),
        ("apns-push-type", Some("voip"), 400, "BadTopic"),
        ("apns-push-type", Some("background"), 400, "BadPriority"),
        ("apns-priority", Some("7"), 400, "BadPriority"),
        ("apns-expiration", Some("soon"), 400, "BadExpirationDate"),
        ("apns-expiration", Some("-1"), 400, "BadExpirationDate"),
        ("apns-collapse-id", Some(long.as_str()), 400, "BadCollapseId"),
        ("apns-id", Some("1"), 400, "BadMessageId"),
        ("apns-id", Some("0192D6A0-0000-7000-8000-00000000000A"), 400, "BadMessageId"),
        ("apns-colour", Some("red"), 400, "StrictHeaderName"),
        ("x-noroshi", Some("1"), 400, "StrictHeaderName"),
        ("content-type", Some("text/plain"), 400, "StrictContentType"),
        ("authorization", None, 403, "MissingProviderToken"),
    ] {
        let answer = client.post(&path, &with(&right, name, value), BODY).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{name}: {value:?}");
        assert!(!answer.header("apns-id").is_empty());
    }
    let mut twice = right.clone();
    twice.push(("apns-priority".to_owned(), "10".to_owned()));
    assert_eq!(client.post(&path, &twice, BODY).await.reason(), "DuplicateHeaders");
}

#[tokio::test]
async fn paths_methods_and_device_tokens_are_checked() {
    let fakes = Fakes::start().unwrap();
    let right = headers(&fakes);
    let mut client = Client::connect(&fakes, Service::Apns).await;
    let sandbox = device(&fakes, Service::ApnsSandbox, State::Registered, None);
    let gone = device(&fakes, Service::Apns, State::Unregistered { at_ms: 1_700_000_000_000 }, None);
    let expired = device(&fakes, Service::Apns, State::Foreign, None);
    let unknown = "ab".repeat(32);
    for (path, status, reason) in [
        ("/3/devices/ab", 404, "BadPath"),
        ("/3/device/", 400, "MissingDeviceToken"),
        ("/3/device/xyz", 400, "BadDeviceToken"),
        (&format!("/3/device/{unknown}"), 400, "BadDeviceToken"),
        (&format!("/3/device/{sandbox}"), 400, "BadDeviceToken"),
        (&format!("/3/device/{gone}"), 410, "Unregistered"),
        (&format!("/3/device/{expired}"), 410, "ExpiredToken"),
    ] {
        let answer = client.post(path, &right, BODY).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{path}");
        if path.ends_with(&gone) {
            assert_eq!(answer.body["timestamp"], 1_700_000_000_000_u64);
        }
    }
    let answer = client.send("GET", "/3/device/ab", &right, "").await.unwrap();
    assert_eq!((answer.status, answer.reason()), (405, "MethodNotAllowed"));
    let mut client = Client::connect(&fakes, Service::ApnsSandbox).await;
    let answer = client.post(&format!("/3/device/{sandbox}"), &right, BODY).await;
    assert!(answer.status == 200 && !answer.header("apns-unique-id").is_empty());
}

#[tokio::test]
async fn payloads_are_checked() {
    let fakes = Fakes::start().unwrap();
    let path = format!("/3/device/{}", registered(&fakes));
    let alert = headers(&fakes);
    let background = with(&with(&alert, "apns-push-type", Some("background")), "apns-priority", Some("5"));
    let voip =
        with(&with(&alert, "apns-push-type", Some("voip")), "apns-topic", Some("com.example.app.voip"));
    let sized = |bytes: usize| {
        let text = r#"{"aps":{"alert":""}}"#;
        text.replace(r#":"""#, &format!(r#":"{}""#, "x".repeat(bytes - text.len())))
    };
    let mut client = Client::connect(&fakes, Service::Apns).await;
    for (headers, body, status, reason) in [
        (&alert, String::new(), 400, "PayloadEmpty"),
        (&alert, sized(4_096), 200, ""),
        (&alert, sized(4_097), 413, "PayloadTooLarge"),
        (&voip, sized(5_120), 200, ""),
        (&voip, sized(5_121), 413, "PayloadTooLarge"),
        (&alert, "{".to_owned(), 400, "StrictPayload"),
        (&alert, "[1]".to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"alert":"a"}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"allert":"a"}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"alert":{"text":"a"}}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"alert":"a","badge":"1"}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{}}"#.to_owned(), 400, "StrictPayload"),
        (
            &alert,
            r#"{"aps":{"badge":0,"sound":{"critical":1,"name":"a","volume":0.5},"interruption-level":"critical",
                "relevance-score":1,"thread-id":"t","category":"c","mutable-content":1,"content-available":1}}"#
                .to_owned(),
            200,
            "",
        ),
        (&alert, r#"{"aps":{"badge":-1}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"sound":{"name":"a"}}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"sound":{"critical":1,"volume":2}}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"alert":"a","relevance-score":1.5}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"alert":"a","interruption-level":"loud"}}"#.to_owned(), 400, "StrictPayload"),
        (&alert, r#"{"aps":{"alert":"a","mutable-content":true}}"#.to_owned(), 400, "StrictPayload"),
        (&background, r#"{"aps":{"content-available":1}}"#.to_owned(), 200, ""),
        (&background, r#"{"aps":{"content-available":1,"alert":"a"}}"#.to_owned(), 400, "StrictPayload"),
        (&background, r#"{"aps":{}}"#.to_owned(), 400, "StrictPayload"),
    ] {
        let shown: String = body.chars().take(60).collect();
        let answer = client.post(&path, headers, body).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{shown}");
    }
}

#[tokio::test]
async fn provider_tokens_are_checked() {
    let fakes = Fakes::start().unwrap();
    let path = format!("/3/device/{}", registered(&fakes));
    let p8 = &fakes.keys().apns_p8;
    let other = noroshi_testkit::keys::Keys::generate().unwrap().apns_p8;
    let right = headers(&fakes);
    let header = json!({"alg": "ES256", "kid": "DEVKEY0001"});
    let claims = |issued_s: u64| json!({"iss": "DEVTEAM001", "iat": issued_s});
    let now = now_s();
    let bearer = |token: String| format!("bearer {token}");
    let mut client = Client::connect(&fakes, Service::Apns).await;
    let strange: Value = json!({"iss": "DEVTEAM001", "iat": now.to_string()});
    for (what, authorization, reason) in [
        ("no token", "bearer x".to_owned(), "InvalidProviderToken"),
        ("basic", "Basic eDp5".to_owned(), "InvalidProviderToken"),
        ("another key", bearer(jwt(&other, &header, &claims(now))), "InvalidProviderToken"),
        ("DER", bearer(jwt_in_der(p8, &header, &claims(now))), "InvalidProviderToken"),
        ("kid", bearer(jwt(p8, &json!({"alg": "ES256", "kid": "X"}), &claims(now))), "InvalidProviderToken"),
        ("no kid", bearer(jwt(p8, &json!({"alg": "ES256"}), &claims(now))), "InvalidProviderToken"),
        (
            "alg",
            bearer(jwt(p8, &json!({"alg": "RS256", "kid": "DEVKEY0001"}), &claims(now))),
            "InvalidProviderToken",
        ),
        ("iss", bearer(jwt(p8, &header, &json!({"iss": "X", "iat": now}))), "InvalidProviderToken"),
        ("iat as text", bearer(jwt(p8, &header, &strange)), "InvalidProviderToken"),
        ("of the future", bearer(jwt(p8, &header, &claims(now + 600))), "InvalidProviderToken"),
        ("too old", bearer(jwt(p8, &header, &claims(now - 3_700))), "ExpiredProviderToken"),
    ] {
        let answer = client.post(&path, &with(&right, "authorization", Some(&authorization)), BODY).await;
        assert_eq!((answer.status, answer.reason()), (403, reason), "{what}");
    }
    assert_eq!(client.post(&path, &right, BODY).await.status, 200);
}

#[tokio::test]
async fn provider_tokens_are_renewed_after_20_to_60_minutes() {
    let fakes = Fakes::start().unwrap();
    let path = format!("/3/device/{}", registered(&fakes));
    let ahead = |clock_ahead_s| {
        fakes.behave(Change { clock_ahead_s: Some(clock_ahead_s), ..Change::default() }).unwrap();
    };
    let now = now_s();
    let first = headers(&fakes);
    let renewed = |issued_s| with(&first, "authorization", Some(&provider_token(&fakes, issued_s)));
    let mut client = Client::connect(&fakes, Service::Apns).await;
    assert_eq!(client.post(&path, &first, BODY).await.status, 200);
    let answer = client.post(&path, &renewed(now + 1), BODY).await;
    assert_eq!((answer.status, answer.reason()), (429, "TooManyProviderTokenUpdates"));
    ahead(21 * 60);
    let second = renewed(now + 21 * 60);
    assert_eq!(client.post(&path, &second, BODY).await.status, 200);
    assert_eq!(client.post(&path, &first, BODY).await.status, 200, "pushes on their way had the first");
    ahead(61 * 60);
    assert_eq!(client.post(&path, &first, BODY).await.reason(), "ExpiredProviderToken");
    assert_eq!(client.post(&path, &second, BODY).await.status, 200);
}

#[tokio::test]
async fn a_certificate_replaces_the_token() {
    let fakes = Fakes::start().unwrap();
    let path = format!("/3/device/{}", registered(&fakes));
    let certificate = fakes.client_certificate().unwrap();
    let headers = with(&with(&headers(&fakes), "authorization", None), "apns-topic", None);
    let mut client = Client::try_connect(&fakes, Service::Apns, Some(&certificate)).await.unwrap();
    assert_eq!(client.post(&path, &headers, BODY).await.status, 200);
    let mut client = Client::connect(&fakes, Service::Apns).await;
    assert_eq!(client.post(&path, &headers, BODY).await.reason(), "MissingProviderToken");
    let stranger = Fakes::start().unwrap().client_certificate().unwrap();
    let refused = match Client::try_connect(&fakes, Service::Apns, Some(&stranger)).await {
        Ok(mut client) => client.send("POST", &path, &headers, BODY).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a certificate of another authority");
}
