//! The documents match the service: routes, codes, bodies.

mod nulls;

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use noroshi_api::router::{admin_paths, public_paths, session_paths};
use noroshi_api::{Code, Limits, body, document};
use noroshi_protocol::http::REFUSALS;
use serde_json::{Value, json};

use crate::push::WEB_PUSH;
use crate::service::{NOW, OPERATOR, Service};

/// Before the expiry of the key in the examples.
const BEFORE_EXPIRY: noroshi_types::Timestamp = NOW;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            found.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    found
}

#[test]
fn the_documents_list_exactly_the_routes() {
    let documents = [
        (document::PUBLIC, public_paths()),
        (document::ADMIN, admin_paths()),
        (document::CONSOLE, session_paths()),
    ];
    for (text, routes) in documents {
        let described: BTreeSet<_> =
            operations(&parsed(text)).into_iter().map(|(m, p, _)| format!("{m} {p}")).collect();
        let routed: BTreeSet<_> = routes.iter().map(|(method, path)| format!("{method} {path}")).collect();
        assert_eq!(described, routed);
    }
}

#[test]
fn the_documents_list_exactly_the_codes() {
    let own = Code::ALL.map(Code::as_str);
    // Rejections by the connection itself occur on the public listener.
    let of_connections = REFUSALS.map(|refusal| refusal.code);
    let public: Vec<_> =
        own.into_iter().chain(of_connections.into_iter().filter(|code| !own.contains(code))).collect();
    for (text, codes) in
        [(document::PUBLIC, &public[..]), (document::ADMIN, &own[..]), (document::CONSOLE, &own[..])]
    {
        let document = parsed(text);
        let described = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        assert_eq!(*described, json!(codes));
    }
}

#[test]
fn shared_codes_have_the_same_status_and_title() {
    for refusal in REFUSALS {
        if let Some(code) = Code::ALL.into_iter().find(|code| code.as_str() == refusal.code) {
            assert_eq!((refusal.status, refusal.title), (code.status(), code.title()), "{}", refusal.code);
        }
    }
}

#[test]
fn every_reference_resolves_and_every_operation_is_complete() {
    for text in [document::PUBLIC, document::ADMIN, document::CONSOLE] {
        let document = parsed(text);
        for part in text.split("\"$ref\": \"#").skip(1) {
            let pointer = part.split('"').next().expect("a pointer");
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        for (method, path, operation) in operations(&document) {
            assert!(
                operation["summary"].is_string() && operation["operationId"].is_string(),
                "{method} {path}"
            );
            assert!(operation["security"].is_array(), "{method} {path} says who may call");
            let named: BTreeSet<&str> =
                path.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let described: BTreeSet<&str> =
                parameters.iter().filter(|p| p["in"] == "path").filter_map(|p| p["name"].as_str()).collect();
            assert_eq!(named, described, "{method} {path}");
        }
    }
}

/// Examples of request bodies.
fn examples(document: &Value, path: &str, method: &str) -> Vec<Value> {
    let content = document["paths"][path][method]["requestBody"]["content"].as_object().expect("content");
    let content = content.values().next().expect("a media type");
    match content["examples"].as_object() {
        Some(examples) => examples.values().map(|example| example["value"].clone()).collect(),
        None => vec![content["example"].clone()],
    }
}

/// As the token for calls.
fn push_token(bytes: &[u8]) -> Result<(), noroshi_api::Problem> {
    let key = body::token_key("voip", "")?;
    body::token_of_path(bytes, key, noroshi_types::Timestamp(0)).map(drop)
}

pub(super) fn activity(bytes: &[u8]) -> Result<(), noroshi_api::Problem> {
    let id = noroshi_types::ActivityId::parse("drawn").expect("an id");
    body::activity(bytes, || id, noroshi_types::Timestamp(0)).map(drop)
}

#[test]
fn the_parsers_accept_every_example() {
    let document = parsed(document::PUBLIC);
    let check = |path: &str, method: &str, parse: &dyn Fn(&[u8]) -> Result<(), noroshi_api::Problem>| {
        for example in examples(&document, path, method) {
            let lines = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            for line in lines.lines() {
                assert_eq!(parse(line.as_bytes()), Ok(()), "{method} {path}: {line}");
            }
        }
    };
    let notification = |bytes: &[u8]| body::notification(bytes, &Limits::default(), NOW).map(drop);
    let device = |bytes: &[u8]| body::device(bytes).map(drop);
    check("/v1/notifications", "post", &notification);
    check("/v1/notifications/batch", "post", &notification);
    check("/v1/notifications/relay", "post", &|bytes| {
        body::relayed(bytes, &Limits::default(), noroshi_types::Timestamp(0)).map(drop)
    });
    check("/v1/devices", "post", &device);
    check("/v1/devices/batch", "post", &device);
    check("/v1/campaigns", "post", &|bytes| body::campaign(bytes, &Limits::default()).map(drop));
    check("/v1/campaigns/{id}/recipients", "post", &|bytes| {
        body::recipient(bytes, &Limits::default()).map(drop)
    });
    check("/v1/activities", "post", &|bytes| activity(bytes));
    check("/v1/activities/{id}", "patch", &|bytes| {
        body::activity_update(bytes, noroshi_types::Timestamp(0)).map(drop)
    });
    check("/v1/activities/{id}", "delete", &|bytes| {
        body::activity_end(bytes, noroshi_types::Timestamp(2_000_000_000_000)).map(drop)
    });
    check("/v1/apps/{app}/push", "post", &body::push_credential);
    check("/v1/apps/{app}/push/{id}/test", "post", &|bytes| body::push_test(bytes).map(drop));
    check("/v1/apps/{app}/push/{id}/rotate", "post", &|bytes| body::rotation(bytes).map(drop));
    check("/v1/presence", "post", &|bytes| body::presence_query(bytes).map(drop));
    check("/v1/me", "patch", &|bytes| body::device_change(bytes).map(drop));
    check("/v1/me/push-token", "put", &|bytes| body::push_token(bytes).map(drop));
    for path in ["/v1/me/push-tokens/{kind}", "/v1/devices/{device}/push-tokens/{kind}/{name}"] {
        check(path, "put", &push_token);
    }
    check("/v1/push/channels", "post", &|bytes| body::channel(bytes).map(drop));
    check("/v1/push/channels/{name}", "patch", &|bytes| body::channel_change(bytes).map(drop));
    check("/v1/push/channels/{name}/broadcasts", "post", &|bytes| body::broadcast(bytes, NOW).map(drop));
    check("/v1/me/presence", "put", &|bytes| body::presence(bytes).map(drop));
    check("/v1/me/inbox/ack", "post", &|bytes| body::ids(bytes).map(drop));
    check("/v1/me/opened", "post", &|bytes| body::ids(bytes).map(drop));
    check("/v1/me/items", "patch", &|bytes| body::item_change(bytes).map(drop));
    for path in [
        "/v1/me/preferences",
        "/v1/me/user/preferences",
        "/v1/users/{user}/preferences",
        "/v1/devices/{device}/preferences",
    ] {
        check(path, "put", &|bytes| body::preferences(bytes).map(drop));
    }
    check("/v1/me/endpoints", "post", &|bytes| body::endpoint(bytes).map(drop));
    check("/v1/apps/{app}", "patch", &|bytes| {
        body::app_change(bytes, Default::default(), body::Author::Operator).map(drop)
    });
    check("/v1/apps/{app}/experiments/{name}", "put", &|bytes| body::experiment(bytes).map(drop));
    check("/v1/apps/{app}/experiments/{name}", "patch", &|bytes| body::killing(bytes).map(drop));
    check("/v1/apps/{app}/notices/{name}", "put", &|bytes| body::notice(bytes).map(drop));
    check("/v1/me/exposures", "post", &|bytes| body::exposures(bytes).map(drop));
    check("/v1/apps/{app}/keys", "post", &|bytes| body::key(bytes, BEFORE_EXPIRY).map(drop));
}

#[test]
fn the_parsers_know_exactly_the_fields_described() {
    let document = parsed(document::PUBLIC);
    let check = |schema: &str, parse: &dyn Fn(&[u8]) -> Result<(), noroshi_api::Problem>| {
        let described: BTreeSet<String> = document["components"]["schemas"][schema]["properties"]
            .as_object()
            .expect("properties")
            .keys()
            .cloned()
            .collect();
        let problem = parse(br#"{"no-such-field": 1}"#).expect_err("an unknown field");
        assert_eq!(problem.code(), Code::UnknownField);
        // serde lists the expected fields; the detail may be truncated, so each field is also tried.
        for field in &described {
            let tried = parse(format!("{{\"{field}\": []}}").as_bytes()).err();
            assert!(tried.is_none_or(|problem| problem.code() != Code::UnknownField), "{schema}.{field}");
        }
        for wrong in ["null", "1", "\"a\"", "true"] {
            match parse(wrong.as_bytes()) {
                Err(problem) => assert_eq!(problem.detail(), "must be an object", "{schema}: {wrong}"),
                // Preferences may have no quiet hours.
                Ok(()) => assert_eq!((schema, wrong), ("QuietHours", "null")),
            }
            for field in &described {
                let tried = parse(format!("{{\"{field}\": {wrong}}}").as_bytes()).err();
                let detail = tried.as_ref().map_or("", |problem| problem.detail());
                let is_rust = ["struct", "enum", "u8", "u16", "u32", "u64", "f64", "map", "sequence"];
                let has_rust =
                    detail.split(|c: char| !c.is_alphanumeric()).any(|word| is_rust.contains(&word));
                assert!(!has_rust, "{schema}.{field}: {detail}");
            }
        }
        let expected: BTreeSet<String> =
            problem.detail().split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert!(
            expected.iter().all(|field| described.contains(field)),
            "{schema}: {expected:?} {described:?}"
        );
    };
    check("Notification", &|bytes| body::notification(bytes, &Limits::default(), NOW).map(drop));
    check("Relayed", &|bytes| {
        body::relayed(bytes, &Limits::default(), noroshi_types::Timestamp(0)).map(drop)
    });
    check("DeviceRegistration", &|bytes| body::device(bytes).map(drop));
    check("DeviceChange", &|bytes| body::device_change(bytes).map(drop));
    check("NewCampaign", &|bytes| body::campaign(bytes, &Limits::default()).map(drop));
    check("Recipient", &|bytes| body::recipient(bytes, &Limits::default()).map(drop));
    check("NewActivity", &|bytes| activity(bytes));
    check("ActivityUpdate", &|bytes| body::activity_update(bytes, noroshi_types::Timestamp(0)).map(drop));
    check("ActivityEnd", &|bytes| body::activity_end(bytes, noroshi_types::Timestamp(0)).map(drop));
    check("PushTest", &|bytes| body::push_test(bytes).map(drop));
    // The same parser; a path has the kind and the name instead.
    check("NamedPushToken", &|bytes| {
        let token = std::str::from_utf8(bytes).expect("a text");
        body::device(format!("{{\"push_tokens\": [{token}]}}").as_bytes()).map(drop)
    });
    check("AppChange", &|bytes| {
        body::app_change(bytes, Default::default(), body::Author::Operator).map(drop)
    });
    check("NewChannel", &|bytes| body::channel(bytes).map(drop));
    check("NewBroadcast", &|bytes| body::broadcast(bytes, NOW).map(drop));
    check("NewKey", &|bytes| body::key(bytes, BEFORE_EXPIRY).map(drop));
    check("NewExperiment", &|bytes| body::experiment(bytes).map(drop));
    check("NewNotice", &|bytes| body::notice(bytes).map(drop));
    check("NewEndpoint", &|bytes| body::endpoint(bytes).map(drop));
    check("ItemChange", &|bytes| body::item_change(bytes).map(drop));
    check("Preferences", &|bytes| body::preferences(bytes).map(drop));
    let nested = |before: &str, bytes: &[u8], after: &str| {
        let text = std::str::from_utf8(bytes).expect("a text");
        body::preferences(format!("{before}{text}{after}").as_bytes()).map(drop)
    };
    check("CategoryPreference", &|bytes| nested(r#"{"categories": {"a": "#, bytes, "}}"));
    check("QuietHours", &|bytes| nested(r#"{"quiet_hours": "#, bytes, "}"));
}

#[tokio::test]
async fn responses_have_exactly_the_fields_described() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let document = parsed(document::PUBLIC);
    let check = |schema: &str, answer: Value| {
        let schema_body = &document["components"]["schemas"][schema];
        let described: BTreeSet<&String> =
            schema_body["properties"].as_object().expect("properties").keys().collect();
        let given: BTreeSet<&String> = answer.as_object().expect("an object").keys().collect();
        assert!(given.is_subset(&described), "{schema}: {given:?}");
        for required in schema_body["required"].as_array().into_iter().flatten() {
            assert!(given.contains(&required.as_str().expect("a name").to_owned()), "{schema}: {required}");
        }
    };
    let get = async |path: &str| service.get(path, &service.key).await.json();
    check("NotificationState", get(&format!("/v1/notifications/{id}")).await);
    check("Trace", get(&format!("/v1/notifications/{id}/devices/d1")).await);
    check("Topic", get("/v1/topics/t").await);
    check("Topics", get("/v1/topics").await);
    check("Device", get("/v1/devices/d1").await);
    check("Devices", get("/v1/devices").await);
    check("App", get("/v1/apps/dev").await);
    check("Keys", get("/v1/apps/dev/keys").await);
    check("Key", get("/v1/apps/dev/keys").await["keys"][0].clone());
    let credential = service.post("/v1/apps/dev/push", &service.key, WEB_PUSH).await.json();
    check("PushCredential", credential);
    check("PushCredentials", get("/v1/apps/dev/push").await);
    check("Invalidations", get("/v1/push/invalidations").await);
    let campaign = r#"{"audience": {"topic": "t", "devices": {"locales": ["ja"], "app_version": {"min": "1"}}},
        "message": {"data": 1, "when": "stored", "collapse_key": "k", "push": {"mode": "fallback"}}}"#;
    let made = service.post("/v1/campaigns", &service.key, campaign).await.json();
    check("Audience", made["audience"].clone());
    check("CampaignMessage", made["message"].clone());
    check("Push", made["message"]["push"].clone());
    check("Campaign", made);
    let start = r#"{"to": {"users": ["u1"]}, "id": "a1", "attributes_type": "A", "content_state": {}, "alert": {"title": "t"}}"#;
    check("Activity", service.post("/v1/activities", &service.key, start).await.json());
    check("Activity", get("/v1/activities/a1").await);
    check("Activities", get("/v1/activities").await);
    check("ActivityDevice", get("/v1/activities/a1/devices/d1").await);
    let experiment = r#"{"variants": [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}]}"#;
    service.put("/v1/apps/dev/experiments/sent", &service.key, experiment).await;
    let sent = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "experiment": {"name": "sent"}}"#;
    let made = service.post("/v1/campaigns", &service.key, sent).await.json();
    check("CampaignVariantReport", made["experiment"]["variants"][1].clone());
    check("Campaign", made);
    check("Campaigns", get("/v1/campaigns").await);
    check("CampaignCount", service.post("/v1/campaigns?dry_run=true", &service.key, campaign).await.json());
    let put = async |path: &str| {
        let body =
            examples(&document, &path.replace("/dev/", "/{app}/").replace("/x", "/{name}"), "put").remove(0);
        service.put(path, &service.key, &body.to_string()).await.json()
    };
    check("Experiment", put("/v1/apps/dev/experiments/x").await);
    check("Experiments", get("/v1/apps/dev/experiments").await);
    check("ExperimentAssigned", get("/v1/apps/dev/experiments/x/devices/d1").await);
    check("Notice", put("/v1/apps/dev/notices/x").await);
    check("Notices", get("/v1/apps/dev/notices").await);
    let shown = r#"{"experiments": ["x"]}"#;
    check("Exposed", service.post("/v1/me/exposures", &token, shown).await.json());
    check("Me", service.get("/v1/me", &token).await.json());
    check("Inbox", service.get("/v1/me/inbox", &token).await.json());
    let with_item = r#"{"to": {"users": ["u1"]}, "data": 1, "item": {"category": "x"}}"#;
    let item = service.publish(with_item).await;
    check("Items", service.get("/v1/me/items", &token).await.json());
    check("Item", service.get("/v1/me/items", &token).await.json()["items"][0].clone());
    check("ItemCounts", service.get("/v1/me/items/counts", &token).await.json());
    let read = format!(r#"{{"action": "read", "ids": ["{item}"]}}"#);
    check("ItemsChanged", service.call(Method::PATCH, "/v1/me/items", &token, &read).await.json());
    check("ItemsDeleted", service.call(Method::DELETE, "/v1/users/u1/items", &service.key, "").await.json());
    let preferences = &document["paths"]["/v1/me/preferences"]["put"]["requestBody"]["content"];
    let preferences = preferences["application/json"]["example"].to_string();
    let stored = service.put("/v1/me/preferences", &token, &preferences).await.json();
    check("CategoryPreference", stored["categories"]["promo"].clone());
    check("QuietHours", stored["quiet_hours"].clone());
    check("Preferences", stored);
    check("OwnPreferences", service.get("/v1/me", &token).await.json()["preferences"].clone());
    check("Message", service.get("/v1/me/inbox", &token).await.json()["messages"][0].clone());
    let endpoint = service.post("/v1/me/endpoints", &token, "").await.json();
    check("Discovery", service.get(&service.path_of(&endpoint), "").await.json());
    check("Endpoint", endpoint);
    check("Endpoints", service.get("/v1/me/endpoints", &token).await.json());
    check("Registered", service.post("/v1/devices", &service.key, "").await.json());
    check("Problem", service.get("/v1/me", "").await.json());
}

#[tokio::test]
async fn the_documents_and_the_page_are_served() {
    let service = Service::start().await;
    assert_eq!(service.get("/openapi.json", "").await.text, document::PUBLIC);
    assert_eq!(service.operate(Method::GET, "/openapi.json", "", "").await.text, document::ADMIN);
    let page = service.get("/docs", "").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (StatusCode::OK, Some("text/html; charset=utf-8"))
    );
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.text.contains("id=\"publish\""));
    let root = service.get("/", "").await;
    assert_eq!((root.status, root.header("location")), (StatusCode::TEMPORARY_REDIRECT, Some("/docs")));
}

#[tokio::test]
async fn health_and_metrics_are_on_the_admin_listener_only() {
    let service = Service::start().await;
    for path in ["/livez", "/healthz", "/readyz", "/metrics"] {
        assert_eq!(service.operate(Method::GET, path, "", "").await.status, StatusCode::OK, "{path}");
        service.get(path, OPERATOR).await.problem(404, "not_found");
    }
    service.get("/v1/topics", &service.key).await;
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(
        metrics.contains("noroshi_http_requests_total{route=\"GET /v1/topics\",status=\"2xx\"} 1\n"),
        "{metrics}"
    );
    service.state.ready.store(false, std::sync::atomic::Ordering::SeqCst);
    service.operate(Method::GET, "/readyz", "", "").await.problem(503, "unavailable");
    assert_eq!(service.operate(Method::GET, "/healthz", "", "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_failed_thread_makes_the_node_neither_ready_nor_alive() {
    let service = Service::start().await;
    service.state.threads.fail(noroshi_supervision::Failure {
        kind: noroshi_supervision::Kind::Shard,
        thread: "shard-1".to_owned(),
        what: noroshi_supervision::What::Panicked,
    });
    for path in ["/livez", "/healthz", "/readyz"] {
        let answer = service.operate(Method::GET, path, "", "").await;
        assert!(answer.text.contains("the thread shard-1 panicked"), "{}", answer.text);
        answer.problem(503, "unavailable");
    }
    assert_eq!(service.operate(Method::GET, "/metrics", "", "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_unknown_method_creates_no_metric_label() {
    let service = Service::start().await;
    for method in ["BREW", "WHEN"] {
        let method = Method::from_bytes(method.as_bytes()).expect("a token");
        service.call(method, "/v1/me", "", "").await.problem(405, "method_not_allowed");
    }
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(!metrics.contains("BREW") && !metrics.contains("WHEN"), "{metrics}");
    assert!(metrics.contains("requests_total{route=\"unmatched\",status=\"4xx\"} 2\n"), "{metrics}");
}
