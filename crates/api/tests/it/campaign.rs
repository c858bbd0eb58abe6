//! Campaigns: created, filled, started, paused, ended, shown.

use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::push::WEB_PUSH;
use crate::service::{NOW, Service, request};

const PATH: &str = "/v1/campaigns";

async fn make(service: &Service, body: Value) -> (String, Value) {
    let answer = service.post(PATH, &service.key, &body.to_string()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let body = answer.json();
    (format!("{PATH}/{}", body["id"].as_str().expect("an id")), body)
}

/// `count` devices of as many users unreachable by FCM or Web Push, and as many reachable.
async fn devices(service: &Service, words: &[&str]) {
    let line = |(i, word): (usize, &&str)| {
        let token = json!({"service": "fcm", "token": word});
        let body = json!({"device": format!("d{i}"), "user": format!("u{i}"), "platform": "android", "push_token": token});
        format!("{body}\n")
    };
    let body: String = words.iter().enumerate().map(line).collect();
    assert_eq!(service.post("/v1/devices/batch", &service.key, &body).await.status, StatusCode::OK);
    service.post("/v1/apps/dev/push", &service.key, WEB_PUSH).await;
}

#[tokio::test]
async fn a_campaign_reaches_its_audience_and_reports_outcomes() {
    let service = Service::running().await;
    devices(&service, &["a", "b", "gone", "refused"]).await;
    service.device("without-token", "u9").await;
    let (path, made) = make(
        &service,
        json!({"name": "Spring", "audience": {"devices": {"platforms": ["android"]}},
            "message": {"notification": {"title": "Hello"}, "ttl": "1h"}}),
    )
    .await;
    assert_eq!((&made["name"], &made["state"]), (&json!("Spring"), &json!("running")));
    assert_eq!(made["audience"], json!({"devices": {"platforms": ["android"]}}));
    assert_eq!(
        made["message"],
        json!({"notification": {"title": "Hello"}, "urgency": "normal", "ttl": "1h", "push": {"mode": "always"}})
    );
    let done = service.until(&path, |body| body["state"] == "done").await;
    assert_eq!(done["counts"], json!({"pushed": 2, "push_refused": 1, "push_token_gone": 1}));
    assert_eq!((&done["recipients"], &done["done"], &done["queued"]), (&json!(4), &json!(4), &json!(0)));
    assert_eq!((&done["errors"], &done["total"]), (&json!(2), &json!(4)));
    assert_eq!(done["reasons"][0], json!({"outcome": "pushed", "reason": null, "count": 2}));
    assert!(done["reasons"].as_array().is_some_and(|reasons| {
        reasons.contains(&json!({"outcome": "push_refused", "reason": "INVALID_ARGUMENT", "count": 1}))
    }));
    assert!(done["latency"]["p99_ms"].is_u64() && done["finished_at"].is_string(), "{done}");
    let notification = done["notification"].as_str().expect("an id");
    let trace =
        service.get(&format!("/v1/notifications/{notification}/devices/d3"), &service.key).await.json();
    assert!(trace["summary"].as_str().is_some_and(|text| text.contains("INVALID_ARGUMENT")), "{trace}");
    // The campaign's own id tells the same, and of a device outside why it got nothing.
    let id = made["id"].as_str().expect("an id");
    let explained = async |device: &str| {
        service.get(&format!("/v1/notifications/{id}/devices/{device}"), &service.key).await
    };
    assert_eq!(explained("d3").await.json()["steps"], trace["steps"]);
    assert_eq!((&trace["targeted_by"], &trace["reason"]), (&json!("campaign"), &json!("push_refused")));
    let outside = explained("without-token").await.json();
    assert_eq!((&outside["targeted_by"], &outside["reason"]), (&json!("none"), &json!("not_targeted")));
    explained("nobody").await.problem(404, "not_found");
    let only_publish = service.key_with(&[noroshi_types::Scope::Publish]).await;
    service.get(&format!("/v1/notifications/{id}/devices/d3"), &only_publish).await.problem(403, "forbidden");

    assert_eq!(service.delete(&path, &service.key).await.status, StatusCode::NO_CONTENT);
    service.get(&path, &service.key).await.problem(404, "not_found");
}

#[tokio::test]
async fn recipients_are_uploaded_one_per_line() {
    let service = Service::running().await;
    devices(&service, &["a", "b", "c"]).await;
    let (path, made) = make(
        &service,
        json!({"audience": {"upload": true}, "message": {"notification": {"title": "Hello {{name}}"}}}),
    )
    .await;
    assert_eq!(made["state"], "draft");
    let recipients = format!("{path}/recipients");
    let lines = "{\"user\":\"u0\",\"variables\":{\"name\":\"Ana\"}}\n{\"user\":1}\n{\"user\":\"u1\",\"notification\":{\"title\":\"Yours\"}}\n";
    let answer = service.post(&recipients, &service.key, lines).await.lines();
    assert_eq!((&answer[0], &answer[2]), (&json!({"user": "u0"}), &json!({"user": "u1"})));
    assert_eq!(answer[1]["error"]["field"], "user");
    assert_eq!(service.post(&recipients, &service.key, lines).await.status, StatusCode::OK, "again");
    assert_eq!(service.get(&path, &service.key).await.json()["uploaded"], 2, "one per user");

    let over = "{\"user\":\"u\"}\n".repeat(10_001);
    service.post(&recipients, &service.key, &over).await.problem(413, "too_many_lines");
    service.post(&recipients, &service.key, "").await.problem(400, "invalid_json");
    let started = service.post(&format!("{path}/start"), &service.key, "").await;
    assert_eq!((started.status, &started.json()["state"]), (StatusCode::OK, &json!("running")));
    let done = service.until(&path, |body| body["state"] == "done").await;
    assert_eq!(done["counts"], json!({"pushed": 2}));
    let refused = service.post(&recipients, &service.key, lines).await.problem(409, "wrong_state");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("done")), "{refused}");
}

#[tokio::test]
async fn a_campaign_is_started_paused_resumed_and_aborted() {
    let service = Service::start().await;
    let (path, made) =
        make(&service, json!({"audience": {"everyone": true}, "message": {"data": 1}, "start": false})).await;
    assert_eq!(made["state"], "draft");
    let order = async |verb: &str| service.post(&format!("{path}/{verb}"), &service.key, "").await;
    let detail = order("pause").await.problem(409, "wrong_state")["detail"].to_string();
    assert!(detail.contains("draft"), "{detail}");
    for (verb, state) in
        [("start", "running"), ("pause", "paused"), ("resume", "running"), ("abort", "aborted")]
    {
        let answer = order(verb).await;
        assert_eq!((answer.status, &answer.json()["state"]), (StatusCode::OK, &json!(state)), "{verb}");
    }
    let detail = order("resume").await.problem(409, "wrong_state")["detail"].to_string();
    assert!(detail.contains("aborted") && !detail.contains("uploaded"), "{detail}");
    let upload = service.post(&format!("{path}/recipients"), &service.key, "{\"user\":\"u\"}").await;
    let detail = upload.problem(409, "wrong_state")["detail"].to_string();
    assert!(detail.contains("uploaded"), "{detail}");
    let unknown = format!("{PATH}/01890a5d-ac96-774b-bcce-b302099a8057");
    service.post(&format!("{unknown}/start"), &service.key, "").await.problem(404, "not_found");
    service.get(&format!("{PATH}/x"), &service.key).await.problem(400, "invalid_parameter");
    let (later, made) = make(
        &service,
        json!({"audience": {"topic": "t"}, "message": {"data": 1}, "start_at": "2099-01-01T00:00:00Z"}),
    )
    .await;
    assert_eq!(
        (&made["state"], &made["start_at"]),
        (&json!("scheduled"), &json!("2099-01-01T00:00:00.000Z"))
    );
    service.delete(&later, &service.key).await.problem(409, "wrong_state");
}

#[tokio::test]
async fn a_dry_run_counts_and_creates_nothing() {
    let service = Service::start().await;
    devices(&service, &["a", "b"]).await;
    service.device("without-token", "u9").await;
    let dry = async |body: &str| service.post(&format!("{PATH}?dry_run=true"), &service.key, body).await;
    let count = dry(r#"{"audience": {"everyone": true}, "message": {"data": 1}}"#).await;
    assert_eq!(count.status, StatusCode::OK);
    let expected = json!({"devices": 3, "users": 3, "no_push_token": 1, "suspect": 0, "filtered": 0, "by_service": {"fcm": 2}});
    assert_eq!(count.json(), expected);
    let some = dry(r#"{"audience": {"devices": {"platforms": ["android"]}}, "message": {"data": 1}}"#).await;
    assert_eq!((&some.json()["devices"], &some.json()["filtered"]), (&json!(2), &json!(1)));
    let upload = dry(r#"{"audience": {"upload": true}, "message": {"data": 1}}"#).await;
    assert_eq!(upload.problem(400, "invalid_field")["field"], "audience.upload");
    assert_eq!(service.get(PATH, &service.key).await.json()["campaigns"], json!([]));
}

#[tokio::test]
async fn campaigns_are_listed_in_pages_newest_first() {
    let service = Service::start().await;
    let mut made = Vec::new();
    for i in 0..3 {
        // Within one millisecond their order is undefined.
        service.clock.set(NOW.saturating_add(Duration::from_millis(i)));
        let body = json!({"name": format!("c{i}"), "audience": {"everyone": true}, "message": {"data": 1}, "start": false});
        made.push(make(&service, body).await.1["id"].clone());
    }
    let mut seen = Vec::new();
    let mut path = format!("{PATH}?limit=2&after=");
    loop {
        let page = service.get(&path, &service.key).await.json();
        seen.extend(page["campaigns"].as_array().expect("campaigns").iter().map(|one| one["id"].clone()));
        match page["next"].as_str() {
            Some(next) => path = format!("{PATH}?limit=2&after={next}"),
            None => break,
        }
    }
    made.reverse();
    assert_eq!(seen, made);
    service.get(&format!("{PATH}?after=x"), &service.key).await.problem(400, "invalid_parameter");
    service.get(&format!("{PATH}?limit=0"), &service.key).await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn creating_requires_publish_and_reading_requires_read() {
    let service = Service::start().await;
    let body = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "start": false}"#;
    let (reader, publisher) =
        (service.key_with(&[Scope::Read]).await, service.key_with(&[Scope::Publish]).await);
    service.post(PATH, &reader, body).await.problem(403, "forbidden");
    let made = service.post(PATH, &publisher, body).await;
    let path = format!("{PATH}/{}", made.json()["id"].as_str().expect("an id"));
    service.get(&path, &publisher).await.problem(403, "forbidden");
    assert_eq!(service.get(&path, &reader).await.status, StatusCode::OK);
    for verb in ["start", "pause", "resume", "abort", "recipients"] {
        service.post(&format!("{path}/{verb}"), &reader, "{}").await.problem(403, "forbidden");
        service
            .post(&format!("{path}/{verb}"), &service.other_key, "{\"user\":\"u\"}")
            .await
            .problem(404, "not_found");
    }
    service.call(Method::DELETE, &path, &reader, "").await.problem(403, "forbidden");
    assert_eq!(service.get(&path, &service.key).await.json()["state"], "draft");
}

#[tokio::test]
async fn a_message_that_push_services_reject_is_refused_before_the_campaign_is_created() {
    let service = Service::start().await;
    let (long, short) = (json!({"title": "x".repeat(2_500)}), json!({"title": "x"}));
    let data = "y".repeat(2_500);
    let whole = json!({"audience": {"everyone": true}, "message": {"notification": long, "data": data}});
    service.post(PATH, &service.key, &whole.to_string()).await.problem(413, "push_payload_too_large");
    let variant = json!({"audience": {"everyone": true}, "message": {"notification": short, "data": data},
        "locales": {"ja": {"notification": long}}});
    let refused = service.post(PATH, &service.key, &variant.to_string()).await;
    assert_eq!(refused.problem(413, "push_payload_too_large")["field"], "locales.ja");
    let live = json!({"audience": {"everyone": true}, "message": {"notification": long, "data": data, "when": "stored"},
        "start": false});
    let made = service.post(PATH, &service.key, &live.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "no push service is called: {}", made.text);
}

#[tokio::test]
async fn an_idempotency_key_creates_one_campaign() {
    let service = Service::start().await;
    let post = async |path: &str, key: &str, body: &str| {
        let mut request = request(Method::POST, path, &service.key, body);
        request.headers_mut().insert("idempotency-key", key.parse().expect("a header"));
        service.send(request).await
    };
    let body = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "start": false}"#;
    let counted = post(
        &format!("{PATH}?dry_run=true"),
        "k1",
        r#"{"audience": {"everyone": true}, "message": {"data": 2}}"#,
    )
    .await;
    assert_eq!(counted.status, StatusCode::OK, "{}", counted.text);
    let first = post(PATH, "k1", body).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (StatusCode::CREATED, None));
    let id = first.json()["id"].clone();
    service.post(&format!("{PATH}/{}/abort", id.as_str().expect("an id")), &service.key, "").await;
    let second = post(PATH, "k1", body).await;
    assert_eq!((second.status, second.header("idempotent-replayed")), (StatusCode::CREATED, Some("true")));
    assert_eq!(
        (&second.json()["id"], &second.json()["state"]),
        (&id, &json!("aborted")),
        "the current state"
    );
    post(PATH, "k1", &body.replace('1', "2")).await.problem(409, "idempotency_conflict");
    let notification = r#"{"to": {"topic": "t"}, "data": 1}"#;
    post("/v1/notifications", "k1", notification).await.problem(409, "idempotency_conflict");
    assert_eq!(post("/v1/notifications", "n1", notification).await.status, StatusCode::ACCEPTED);
    post(PATH, "n1", body).await.problem(409, "idempotency_conflict");
    post(PATH, "two words", body).await.problem(400, "invalid_parameter");
    assert_ne!(post(PATH, "k2", body).await.json()["id"], id);
}

#[tokio::test]
async fn a_retry_finds_its_campaign_even_without_the_experiment() {
    let service = Service::start().await;
    trial(&service).await;
    let post = async |body: &str| {
        let mut request = request(Method::POST, PATH, &service.key, body);
        request.headers_mut().insert("idempotency-key", "night".parse().expect("a header"));
        service.send(request).await
    };
    let body = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "start": false,
        "experiment": {"name": "cart"}}"#;
    let first = post(body).await;
    assert_eq!(
        (first.status, first.header("idempotent-replayed")),
        (StatusCode::CREATED, None),
        "{}",
        first.text
    );
    let experiment = "/v1/apps/dev/experiments/cart";
    service.call(Method::PATCH, experiment, &service.key, r#"{"killed": true}"#).await;
    let killed = post(body).await;
    service.call(Method::DELETE, experiment, &service.key, "").await;
    let archived = post(body).await;
    for again in [killed, archived] {
        let seen = (again.status, again.header("idempotent-replayed"));
        assert_eq!(seen, (StatusCode::CREATED, Some("true")), "{}", again.text);
        assert_eq!(again.json()["id"], first.json()["id"]);
    }
    post(&body.replace("\"data\": 1", "\"data\": 2")).await.problem(409, "idempotency_conflict");
}

/// Two variants and a holdout over 30 users drawn by name.
async fn trial(service: &Service) {
    let variants = json!([{"name": "plain", "weight": 1}, {"name": "emoji", "weight": 1}, {"name": "none", "weight": 1}]);
    let body = json!({"variants": variants, "overrides": {"users": {"u0": "emoji"}}}).to_string();
    let answer = service.put("/v1/apps/dev/experiments/cart", &service.key, &body).await;
    assert!(answer.status.is_success(), "{}", answer.text);
}

#[tokio::test]
async fn the_variants_of_an_experiment_are_sent_and_compared() {
    let service = Service::running().await;
    let words: Vec<String> = (0..30).map(|i| format!("token-{i}")).collect();
    devices(&service, &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    trial(&service).await;
    let experiment = json!({"name": "cart", "variants": {
        "emoji": {"notification": {"title": "🛒"}}, "none": {"hold_out": true}}});
    let (path, made) = make(
        &service,
        json!({"audience": {"everyone": true}, "message": {"notification": {"title": "Cart"}}, "experiment": experiment}),
    )
    .await;
    assert_eq!(
        (&made["experiment"]["name"], &made["experiment"]["control"]),
        (&json!("cart"), &json!("plain"))
    );
    let done = service.until(&path, |body| body["state"] == "done").await;
    let variant = |body: &Value, place: usize| body["experiment"]["variants"][place].clone();
    let [plain, emoji, none] = [0, 1, 2].map(|place| variant(&done, place));
    let targeted = |variant: &Value| variant["targeted"].as_u64().expect("a count");
    assert_eq!(targeted(&plain) + targeted(&emoji) + targeted(&none), 30);
    assert_eq!(done["counts"]["held_out"], none["targeted"]);
    assert_eq!((&plain["pushed"], &none["pushed"]), (&plain["targeted"], &json!(0)));
    assert_eq!((&none["held_out"], &none["delivered"]["rate"]), (&json!(true), &json!(null)));
    assert_eq!(emoji["delivered"]["rate"], 1.0);
    assert_eq!((&plain["against_control"], &none["against_control"]), (&json!(null), &json!(null)));
    assert_eq!(emoji["against_control"]["delivered"]["distinguishable"], false);

    // A user with an override was sent that variant, under its notification.
    let id = emoji["notification"].as_str().expect("an id");
    let trace = service.get(&format!("/v1/notifications/{id}/devices/d0"), &service.key).await.json();
    assert_eq!(trace["steps"][0]["outcome"], "pushed");
    let token =
        service.post("/v1/devices", &service.key, r#"{"device": "d0"}"#).await.json()["token"].clone();
    let opened = json!({"ids": [id]}).to_string();
    service.post("/v1/me/opened", token.as_str().expect("a token"), &opened).await;
    let opened = variant(&service.get(&path, &service.key).await.json(), 1)["opened"].clone();
    assert_eq!(opened["count"], 1);
    assert!(opened["low"].as_f64() < opened["rate"].as_f64(), "{opened}");
}

#[tokio::test]
async fn outcomes_count_for_the_published_variant() {
    let service = Service::running().await;
    for i in 0..20 {
        service.device(&format!("d{i}"), &format!("u{i}")).await;
    }
    trial(&service).await;
    let treatments = json!({"emoji": {"notification": {"title": "🛒"}}, "none": {"hold_out": true}});
    let (path, _) = make(
        &service,
        json!({"audience": {"everyone": true}, "message": {"notification": {"title": "Cart"}, "when": "stored",
            "push": {"mode": "never"}}, "experiment": {"name": "cart", "control": "emoji", "variants": treatments}}),
    )
    .await;
    let done = service.until(&path, |body| body["state"] == "done").await;
    let held = done["counts"]["held_out"].as_u64().unwrap_or(0);
    assert_eq!(done["counts"]["kept"].as_u64().unwrap_or(0) + held, 20);
    let token =
        service.post("/v1/devices", &service.key, r#"{"device": "d0"}"#).await.json()["token"].clone();
    let token = token.as_str().expect("a token");
    let inbox = service.get("/v1/me/inbox", token).await.json();
    assert_eq!(inbox["messages"][0]["notification"], json!({"title": "🛒"}));
    let ids = json!({"ids": [inbox["messages"][0]["id"]]}).to_string();
    service.post("/v1/me/opened", token, &ids).await;
    service.post("/v1/me/inbox/ack", token, &ids).await;
    let emoji = service.get(&path, &service.key).await.json()["experiment"]["variants"][1].clone();
    assert_eq!(
        (&emoji["acked"], &emoji["delivered"]["count"], &emoji["opened"]["count"]),
        (&json!(1), &json!(1), &json!(1))
    );
}

#[tokio::test]
async fn invalid_variants_are_rejected_by_name() {
    let service = Service::start().await;
    trial(&service).await;
    let refused = async |experiment: Value, field: &str, words: &str| {
        let body = json!({"audience": {"everyone": true}, "message": {"data": 1}, "experiment": experiment})
            .to_string();
        let problem = service.post(PATH, &service.key, &body).await.problem(400, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{problem}");
    };
    let cart = |variants: Value| json!({"name": "cart", "variants": variants});
    refused(json!({"name": "other"}), "experiment.name", "no experiment other").await;
    refused(cart(json!({"red": {"hold_out": true}})), "experiment.variants", "no variant red").await;
    refused(cart(json!({"emoji": {}})), "experiment.variants.emoji", "hold_out").await;
    refused(cart(json!({"emoji": {"data": 2, "hold_out": true}})), "experiment.variants.emoji", "held-out")
        .await;
    refused(json!({"name": "cart", "control": "red"}), "experiment.control", "no variant red").await;
    let all = json!({"plain": {"hold_out": true}, "emoji": {"hold_out": true}, "none": {"hold_out": true}});
    refused(cart(all), "experiment.variants", "at least one").await;
    let experiment = "/v1/apps/dev/experiments/cart";
    service.call(Method::PATCH, experiment, &service.key, r#"{"killed": true}"#).await;
    refused(json!({"name": "cart"}), "experiment.name", "killed").await;
    service.call(Method::DELETE, experiment, &service.key, "").await;
    refused(json!({"name": "cart"}), "experiment.name", "archived").await;
}
