//! Each of the rules of FCM and its token endpoint, violated once.

use noroshi_testkit::behaviour::Change;
use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use serde_json::{Value, json};

use crate::client::{Client, Headers, with};
use crate::sign::{assertion, now_s};

const PATH: &str = "/v1/projects/noroshi-dev/messages:send";
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";

fn device(fakes: &Fakes, state: State) -> String {
    let new =
        NewDevices { service: Service::Fcm, count: 1, topic: None, state, unrestricted: false, token: None };
    fakes.make_devices(&new).unwrap()[0]["token"].as_str().unwrap().to_owned()
}

fn form(assertion: &str) -> String {
    format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}")
}

fn claims(fakes: &Fakes) -> Value {
    let account = &fakes.credential(Service::Fcm)["service_account"];
    json!({
        "iss": account["client_email"], "scope": SCOPE, "aud": account["token_uri"],
        "iat": now_s(), "exp": now_s() + 3_600,
    })
}

fn form_headers() -> Headers {
    vec![("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned())]
}

async fn access(fakes: &Fakes) -> Headers {
    let account = fakes.credential(Service::Fcm)["service_account"].clone();
    let mut client = Client::connect(fakes, Service::OAuth).await;
    let answer = client.post("/token", &form_headers(), form(&assertion(&account, &claims(fakes)))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let token = answer.body["access_token"].as_str().unwrap();
    [("authorization", format!("Bearer {token}")), ("content-type", "application/json".to_owned())]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

fn code(body: &Value) -> &str {
    let details = body["error"]["details"].as_array().map(Vec::as_slice).unwrap_or_default();
    details.iter().find_map(|detail| detail["errorCode"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_valid_message_is_accepted() {
    let fakes = Fakes::start().unwrap();
    let (token, headers) = (device(&fakes, State::Registered), access(&fakes).await);
    let mut client = Client::connect(&fakes, Service::Fcm).await;
    let message = json!({"message": {
        "token": token,
        "notification": {"title": "Hello", "body": "World", "image": "https://e.example/i.png"},
        "data": {"noroshi_id": "1", "notification": "a key like any other"},
        "android": {"priority": "HIGH", "ttl": "3600s", "collapseKey": "k", "notification": {"color": "#00ff00"}},
        "apns": {"headers": {"apns-priority": "10"}, "payload": {"aps": {"badge": 1}}},
        "webpush": {"notification": {"renotify": true}},
        "fcm_options": {"analytics_label": "l"},
    }});
    let answer = client.post(PATH, &headers, message.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body["name"].as_str().unwrap().starts_with("projects/noroshi-dev/messages/"));
    assert_eq!(fakes.received(Service::Fcm)[0].title.as_deref(), Some("Hello"));
    let second = json!({"message": {
        "token": token,
        "androidV2": {"ttl": "60s", "remoteNotification": {"mutableContent": true, "notification": {"id": 7}}},
    }});
    let answer = client.post(PATH, &headers, second.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn messages_are_checked_as_strictly_as_by_google() {
    let fakes = Fakes::start().unwrap();
    let (token, headers) = (device(&fakes, State::Registered), access(&fakes).await);
    let mut client = Client::connect(&fakes, Service::Fcm).await;
    let t = token.as_str();
    for message in [
        json!({"message": {"token": t}, "to": t}),
        json!({"message": {"token": t, "urgency": "high"}}),
        json!({"message": {"token": t, "notification": {"title": "a", "subtitle": "b"}}}),
        json!({"message": {"token": t, "notification": {"title": 1}}}),
        json!({"message": {"token": t, "data": {"n": 1}}}),
        json!({"message": {"token": t, "data": {"from": "a"}}}),
        json!({"message": {"token": t, "data": {"google.x": "a"}}}),
        json!({"message": {"token": t, "android": {"priority": "URGENT"}}}),
        json!({"message": {"token": t, "androidV2": {"priority": "HIGH"}}}),
        json!({"message": {"token": t, "android": {"ttl": "1h"}}}),
        json!({"message": {"token": t, "android": {"ttl": 5}}}),
        json!({"message": {"token": t, "android": {"ttl": "2419201s"}}}),
        json!({"message": {"token": t, "android": {"collapse_key": "a", "collapseKey": "a"}}}),
        json!({"message": {"token": t, "android": {"notification": {"color": "green"}}}}),
        json!({"message": {"token": t, "android": {"notification": {"notificationCount": "1"}}}}),
        json!({"message": {"token": t, "android": {"notification": {"notificationCount": 2_147_483_648_u64}}}}),
        json!({"message": {"token": t, "android": {"notification": {"notificationPriority": "HIGH"}}}}),
        json!({"message": {"token": t, "android": {"notification": {"actions": []}}}}),
        json!({"message": {"token": t, "fcmOptions": {"analyticsLabel": "a b"}}}),
        json!({"message": {"token": t, "fcmOptions": {"analyticsLabel": ""}}}),
        json!({"message": {"token": t, "fcmOptions": {"analyticsLabel": "l".repeat(51)}}}),
        json!({"message": {"token": t, "apns": {"headers": {"apns-priority": 10}}}}),
        json!({"message": {"token": t, "data": {"x": "y".repeat(4_096)}}}),
        json!({"message": {"token": t, "topic": "news"}}),
        json!({"message": {"token": ""}}),
        json!({"message": {"token": "short"}}),
        json!({"message": {"notification": {}}}),
        json!({"message": []}),
        json!({}),
        json!([]),
    ] {
        let answer = client.post(PATH, &headers, message.to_string()).await;
        let shown: String = message.to_string().chars().take(200).collect();
        assert_eq!((answer.status, code(&answer.body)), (400, "INVALID_ARGUMENT"), "{shown}");
        assert_eq!(answer.body["error"]["status"], "INVALID_ARGUMENT");
    }
    assert_eq!(client.post(PATH, &headers, "{").await.status, 400);
    let right = json!({"message": {"token": t}}).to_string();
    for (name, value, status) in [
        ("content-type", Some("text/plain"), 400),
        ("x-noroshi", Some("1"), 400),
        ("authorization", None, 401),
        ("authorization", Some("Bearer none"), 401),
    ] {
        let answer = client.post(PATH, &with(&headers, name, value), right.clone()).await;
        assert_eq!(answer.status, status, "{name}: {value:?}");
    }
    assert_eq!(client.post("/v1/projects/other/messages:send", &headers, right).await.status, 404);
}

#[tokio::test]
async fn device_states_are_reported() {
    let fakes = Fakes::start().unwrap();
    let headers = access(&fakes).await;
    let mut client = Client::connect(&fakes, Service::Fcm).await;
    for (state, status, expected) in
        [(State::Unregistered { at_ms: 1 }, 404, "UNREGISTERED"), (State::Foreign, 403, "SENDER_ID_MISMATCH")]
    {
        let message = json!({"message": {"token": device(&fakes, state)}}).to_string();
        let answer = client.post(PATH, &headers, message).await;
        assert_eq!((answer.status, code(&answer.body)), (status, expected));
    }
    let unknown = format!("{}:APA91b", "x".repeat(30));
    let answer = client.post(PATH, &headers, json!({"message": {"token": unknown}}).to_string()).await;
    assert_eq!((answer.status, code(&answer.body)), (400, "INVALID_ARGUMENT"));
}

#[tokio::test]
async fn access_tokens_expire() {
    let fakes = Fakes::start().unwrap();
    let (token, headers) = (device(&fakes, State::Registered), access(&fakes).await);
    let message = json!({"message": {"token": token}}).to_string();
    let mut client = Client::connect(&fakes, Service::Fcm).await;
    assert_eq!(client.post(PATH, &headers, message.clone()).await.status, 200);
    fakes.behave(Change { clock_ahead_s: Some(3_700), ..Change::default() }).unwrap();
    let answer = client.post(PATH, &headers, message.clone()).await;
    assert_eq!(answer.body["error"]["details"][0]["reason"], "ACCESS_TOKEN_EXPIRED");
    fakes.behave(Change { clock_ahead_s: Some(0), ..Change::default() }).unwrap();
    fakes.revoke_access_tokens();
    assert_eq!(client.post(PATH, &headers, message).await.status, 401);
}

#[tokio::test]
async fn assertions_are_checked() {
    let fakes = Fakes::start().unwrap();
    let account = fakes.credential(Service::Fcm)["service_account"].clone();
    let mut client = Client::connect(&fakes, Service::OAuth).await;
    let now = now_s();
    for (claim, value, error) in [
        ("iss", json!("x@y.z"), "invalid_grant"),
        ("aud", json!("https://example.com/token"), "invalid_grant"),
        ("scope", json!("https://www.googleapis.com/auth/drive"), "invalid_scope"),
        ("exp", json!(now + 7_200), "invalid_grant"),
        ("exp", json!(now - 1), "invalid_grant"),
        ("iat", json!(now + 600), "invalid_grant"),
        ("iat", json!("now"), "invalid_grant"),
    ] {
        let mut claims = claims(&fakes);
        claims[claim] = value.clone();
        let answer = client.post("/token", &form_headers(), form(&assertion(&account, &claims))).await;
        assert_eq!((answer.status, &answer.body["error"]), (400, &json!(error)), "{claim} {value}");
    }
    let mut google = claims(&fakes);
    google["aud"] = json!("https://oauth2.googleapis.com/token");
    let right = form(&assertion(&account, &google));
    assert_eq!(client.post("/token", &form_headers(), right.clone()).await.status, 200);
    let mut forged = right.clone();
    let last = forged.pop().unwrap();
    forged.push(if last == 'A' { 'Q' } else { 'A' });
    for (headers, body, error) in [
        (form_headers(), forged, "invalid_grant"),
        (form_headers(), right.replace("jwt-bearer", "password"), "unsupported_grant_type"),
        (form_headers(), format!("{right}&scope=x"), "invalid_request"),
        (form_headers(), format!("{right}&assertion=x"), "invalid_request"),
        (vec![("content-type".to_owned(), "application/json".to_owned())], right, "invalid_request"),
    ] {
        let answer = client.post("/token", &headers, body).await;
        assert_eq!((answer.status, &answer.body["error"]), (400, &json!(error)));
    }
}
