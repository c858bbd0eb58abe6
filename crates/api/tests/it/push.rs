//! Credentials of push services, and tokens they reported invalid.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::service::{OPERATOR, Service, request};

/// With a private key of 32 bytes.
pub(crate) const WEB_PUSH: &str = r#"{"service":"webpush","name":"ours","subject":"mailto:ops@example.com",
    "private_key":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}"#;
const PRIVATE_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
const PATH: &str = "/v1/apps/dev/push";

/// A browser's push token, distinguished by `word`.
fn web_push_token(word: &str) -> Value {
    let p256dh = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    json!({"service": "webpush", "endpoint": format!("https://push.example.net/{word}"),
        "keys": {"p256dh": p256dh, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}})
}

/// Registers a device with a push token, and returns its credential.
pub(crate) async fn web_push_device(service: &Service, device: &str, user: &str) -> String {
    let body = json!({"device": device, "user": user, "push_token": web_push_token(device)}).to_string();
    let made = service.post("/v1/devices", &service.key, &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    made.json()["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn a_credential_is_added_listed_replaced_and_removed_but_never_shown() {
    let service = Service::start().await;
    let made = service.post(PATH, &service.key, WEB_PUSH).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let body = made.json();
    assert_eq!((&body["service"], &body["environment"]), (&json!("webpush"), &json!("production")));
    assert_eq!(body["name"], "ours");
    assert_eq!(service.push.credentials(service.app()), 1, "used immediately");

    service.post(PATH, &service.key, WEB_PUSH).await.problem(409, "already_exists");
    let other = WEB_PUSH.replace("ours", "theirs");
    let replaced = service.post(&format!("{PATH}?replace=true"), &service.key, &other).await;
    assert_eq!((replaced.status, &replaced.json()["name"]), (StatusCode::CREATED, &json!("theirs")));
    let listed = service.get(PATH, &service.key).await;
    let mut with_state = replaced.json();
    let open_until = listed.json()["credentials"][0]["state"]["open_until"].clone();
    assert!(open_until.as_str().is_some_and(|time| time.ends_with('Z')), "{}", listed.text);
    with_state["state"] = json!({
        "node": null, "breaker": "open", "reason": "InvalidProviderToken", "open_until": open_until,
        "paused_until": null, "connections": 2, "in_flight": 3, "waiting": 4,
        "last_error": {"at": "2027-01-15T08:00:00.000Z", "reason": "InvalidProviderToken"},
    });
    assert_eq!(listed.json()["credentials"], json!([with_state]));
    for answer in [&made.text, &replaced.text, &listed.text] {
        assert!(!answer.contains(PRIVATE_KEY), "{answer}");
    }

    let path = format!("{PATH}/{}", body["id"].as_str().expect("an id"));
    assert_eq!(service.delete(&path, &service.key).await.status, StatusCode::NO_CONTENT);
    service.delete(&path, &service.key).await.problem(404, "not_found");
    assert_eq!(service.get(PATH, &service.key).await.json()["credentials"], json!([]));
    assert_eq!(service.push.credentials(service.app()), 0);
}

#[tokio::test]
async fn a_credential_is_rotated_after_its_test() {
    let service = Service::start().await;
    web_push_device(&service, "d1", "u1").await;
    let made = service.post(PATH, &service.key, WEB_PUSH).await.json();
    let path = format!("{PATH}/{}/rotate", made["id"].as_str().expect("an id"));
    let rotate = async |credential: Value, device: &str| {
        let body = json!({"credential": credential, "device": device}).to_string();
        service.post(&path, &service.key, &body).await
    };
    let private_key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI";
    let rotated = rotate(json!({"private_key": private_key}), "d1").await;
    assert_eq!(rotated.status, StatusCode::OK, "{}", rotated.text);
    assert_eq!((&rotated.json()["id"], &rotated.json()["name"]), (&made["id"], &json!("ours")), "kept");
    assert_eq!(rotated.json()["settings"]["subject"], made["settings"]["subject"]);
    assert_ne!(rotated.json()["settings"], made["settings"], "another public key");
    assert!(!rotated.text.contains(private_key), "{}", rotated.text);
    assert_eq!((service.push.tried().len(), service.push.tokens().len()), (1, 1));

    // The push service does not accept it: nothing changes.
    let before = service.get(PATH, &service.key).await.json();
    let broken = rotate(json!({"subject": "mailto:broken@example.com"}), "d1").await;
    let detail = broken.problem(409, "credential_test_failed")["detail"].clone();
    assert!(
        detail.as_str().is_some_and(|text| text.contains("\"later\" (InvalidProviderToken)")),
        "{detail}"
    );
    web_push_device(&service, "gone", "u2").await;
    let gone = rotate(json!({"private_key": PRIVATE_KEY}), "gone").await;
    let detail = gone.problem(409, "credential_test_failed")["detail"].clone();
    assert!(detail.as_str().is_some_and(|text| text.contains("\"gone\" (UNREGISTERED)")), "{detail}");

    // Rejected before any test.
    let tried = service.push.tried().len();
    for (credential, field) in [
        (json!({}), "credential"),
        (json!({"service": "fcm"}), "credential.service"),
        (json!({"environment": "sandbox"}), "credential.environment"),
        (json!({"private_key": "short"}), "credential.private_key"),
        (json!({"private_key": null}), "credential.private_key"),
        (json!({"colour": "red"}), "credential.colour"),
    ] {
        let answer = rotate(credential.clone(), "d1").await;
        assert_eq!(answer.problem(400, "invalid_field")["field"], field, "{credential}: {}", answer.text);
    }
    rotate(json!({"name": "x"}), "nobody").await.problem(404, "not_found");
    let other = json!({"credential": {"name": "x"}, "push_token": {"service": "fcm", "token": "t"}});
    let other = service.post(&path, &service.key, &other.to_string()).await.problem(400, "invalid_field");
    assert_eq!(other["field"], "push_token");
    service.post(&path, &service.key, r#"{"credential": {"name": "x"}}"#).await.problem(400, "invalid_field");
    let missing = path.replace("/rotate", "9/rotate");
    let body = json!({"credential": {"name": "x"}, "device": "d1"}).to_string();
    service.post(&missing, &service.key, &body).await.problem(404, "not_found");
    service.post(&path, &service.other_key, &body).await.problem(404, "not_found");
    assert_eq!(service.push.tried().len(), tried);
    assert_eq!(service.get(PATH, &service.key).await.json()["credentials"], before["credentials"]);
}

#[tokio::test]
async fn errors_of_invalid_credentials_name_the_field_but_not_its_value() {
    let service = Service::start().await;
    for (bad, field) in [
        (json!({"service": "sms"}), "service"),
        (
            json!({"service": "webpush", "private_key": "SECRET", "subject": "mailto:a@b.example"}),
            "private_key",
        ),
        (
            json!({"service": "apns", "key": "SECRET", "key_id": "ABC123DEFG", "team_id": "DEF123GHIJ",
            "topic": "com.example.app"}),
            "key",
        ),
        (json!({"service": "fcm", "service_account": {"private_key": "SECRET"}}), "service_account"),
    ] {
        let refused = service.post(PATH, &service.key, &bad.to_string()).await;
        assert!(!refused.text.contains("SECRET"), "{}", refused.text);
        let problem = refused.problem(400, "invalid_field");
        assert!(problem["field"].as_str().is_some_and(|named| named.starts_with(field)), "{problem}");
    }
    service.post(PATH, &service.key, "{").await.problem(400, "invalid_json");
    service.post(PATH, &service.key, "[]").await.problem(400, "invalid_field");
    let large = json!({"service": "webpush", "name": "n".repeat(70_000)}).to_string();
    service.post(PATH, &service.key, &large).await.problem(413, "body_too_large");
    service.get(&format!("{PATH}?all=1"), &service.key).await;
    service
        .post(&format!("{PATH}?replace=maybe"), &service.key, WEB_PUSH)
        .await
        .problem(400, "invalid_parameter");
}

#[tokio::test]
async fn managers_of_keys_manage_credentials() {
    let service = Service::start().await;
    let publisher = service.key_with(&[Scope::Publish, Scope::Devices, Scope::Read]).await;
    let admin = service.key_with(&[Scope::Admin]).await;
    service.get(PATH, &publisher).await.problem(403, "forbidden");
    service.post(PATH, &publisher, WEB_PUSH).await.problem(403, "forbidden");
    assert_eq!(service.post(PATH, &admin, WEB_PUSH).await.status, StatusCode::CREATED);
    let listed = service.operate(Method::GET, PATH, OPERATOR, "").await;
    assert_eq!(listed.json()["credentials"].as_array().map(Vec::len), Some(1));
    service.operate(Method::GET, PATH, "wrong", "").await.problem(401, "unauthorized");
    service.get(PATH, &service.other_key).await.problem(404, "not_found");
    let other = service.post("/v1/apps/other/push", &service.other_key, WEB_PUSH).await;
    let theirs = format!("{PATH}/{}", other.json()["id"].as_str().expect("an id"));
    service.delete(&theirs, &service.key).await.problem(404, "not_found");
    service
        .post(
            &format!("{theirs}/test"),
            &service.key,
            &json!({"push_token": web_push_token("x")}).to_string(),
        )
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn a_test_returns_the_push_services_answer() {
    let service = Service::start().await;
    let id = service.post(PATH, &service.key, WEB_PUSH).await.json()["id"].clone();
    let path = format!("{PATH}/{}/test", id.as_str().expect("an id"));
    let test = async |body: Value| service.post(&path, &service.key, &body.to_string()).await;

    let taken = test(json!({"push_token": web_push_token("fine")})).await.json();
    assert_eq!((&taken["answer"], &taken["reason"]), (&json!("accepted"), &json!(null)));
    let gone = test(json!({"push_token": web_push_token("gone")})).await.json();
    assert_eq!((&gone["answer"], &gone["reason"]), (&json!("gone"), &json!("UNREGISTERED")));

    service.device("d1", "u1").await;
    test(json!({"device": "d1"})).await.problem(404, "not_found");
    let registered = json!({"device": "d1", "push_token": web_push_token("of-d1")}).to_string();
    service.post("/v1/devices", &service.key, &registered).await;
    assert_eq!(test(json!({"device": "d1"})).await.json()["answer"], "accepted");
    assert!(service.push.tokens().iter().any(|token| token.contains("of-d1")));

    test(json!({"device": "nobody"})).await.problem(404, "not_found");
    let wrong = test(json!({"push_token": {"service": "fcm", "token": "x"}})).await;
    assert_eq!(wrong.problem(400, "invalid_field")["field"], "push_token");
    test(json!({})).await.problem(400, "invalid_field");
}

#[tokio::test]
async fn a_message_too_large_for_a_push_service_is_rejected_with_its_size() {
    let service = Service::start().await;
    let message = |mode: &str| {
        json!({"to": {"topic": "t"}, "notification": {"title": "x".repeat(2_500)}, "data": "y".repeat(2_500),
            "push": {"mode": mode}})
    };
    let refused = service.post("/v1/notifications", &service.key, &message("always").to_string()).await;
    let problem = refused.problem(413, "push_payload_too_large");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("apns") && detail.contains("4096"), "the service and its limit: {detail}");
    let never = service.post("/v1/notifications", &service.key, &message("never").to_string()).await;
    assert_eq!(never.status, StatusCode::ACCEPTED, "no push service is called");
    let batch = format!("{}\n{}\n", message("fallback"), message("never"));
    let lines = service.post("/v1/notifications/batch", &service.key, &batch).await.lines();
    assert_eq!(lines[0]["error"]["code"], "push_payload_too_large");
    assert!(lines[1]["id"].is_string());

    // Between the limits of Web Push (3,993) and of the others: only the service used may reject it.
    let between = json!({"to": {"topic": "t"}, "notification": {"title": "x".repeat(1_900)},
        "data": "y".repeat(2_040), "push": {"mode": "always"}})
    .to_string();
    let refused = service.post("/v1/notifications", &service.key, &between).await;
    let detail = refused.problem(413, "push_payload_too_large")["detail"].to_string();
    assert!(detail.contains("webpush") && detail.contains("3993"), "{detail}");
    let fcm = fcm_credential();
    assert_eq!(service.post(PATH, &service.key, &fcm).await.status, StatusCode::CREATED);
    assert_eq!(service.post("/v1/notifications", &service.key, &between).await.status, StatusCode::ACCEPTED);
}

fn warned(answer: &Value) -> Vec<String> {
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    let one = |warning: &Value| {
        assert!(warning["warning"].as_str().is_some_and(|text| !text.is_empty()), "{warning}");
        format!(
            "{} {}",
            warning["service"].as_str().expect("a service"),
            warning["field"].as_str().expect("a path")
        )
    };
    warnings.map(one).collect()
}

#[tokio::test]
async fn an_accepted_notification_lists_what_the_apps_services_do_not_show() {
    let service = Service::start().await;
    let message = |mode: &str, typed: Value| {
        let mut notification = json!({"title": "T", "url": "https://a.example/"});
        notification.as_object_mut().expect("an object").extend(typed.as_object().expect("fields").clone());
        json!({"to": {"topic": "t"}, "notification": notification, "push": {"mode": mode}}).to_string()
    };
    let publish = async |body: &str| {
        let answer = service.post("/v1/notifications", &service.key, body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
        answer.json()
    };
    let typed = || json!({"badge": 0, "relevance": 1, "actions": [{"id": "a", "title": "A"}]});
    let unconfigured = publish(&message("always", typed())).await;
    assert_eq!(unconfigured.get("warnings"), None, "no service, so nothing to warn of");

    service.post(PATH, &service.key, WEB_PUSH).await;
    assert_eq!(warned(&publish(&message("always", typed())).await), ["webpush notification.relevance"]);
    assert_eq!(service.post(PATH, &service.key, &fcm_credential()).await.status, StatusCode::CREATED);
    let both = ["fcm notification.actions", "fcm notification.badge", "webpush notification.relevance"];
    assert_eq!(warned(&publish(&message("fallback", typed())).await), both);
    for body in
        [message("never", typed()), message("always", json!({})), message("always", json!({"body": "B"}))]
    {
        assert_eq!(publish(&body).await.get("warnings"), None, "{body}");
    }

    let batch =
        [message("always", typed()), message("never", typed()), message("always", json!({"thread": "t"}))];
    let lines = service.post("/v1/notifications/batch", &service.key, &batch.join("\n")).await.lines();
    assert_eq!(warned(&lines[0]), both);
    assert_eq!(lines[1].get("warnings"), None);
    assert_eq!(warned(&lines[2]), ["webpush notification.thread"]);
}

#[tokio::test]
async fn an_idempotent_request_gets_its_warnings_again() {
    let service = Service::start().await;
    service.post(PATH, &service.key, WEB_PUSH).await;
    let body = r#"{"to": {"topic": "t"}, "notification": {"title": "T", "thread": "t"}, "push": {"mode": "always"}}"#;
    let post = async || {
        let mut post = request(Method::POST, "/v1/notifications", &service.key, body);
        post.headers_mut().insert("idempotency-key", "k".parse().expect("a header"));
        service.send(post).await.json()
    };
    let first = post().await;
    assert_eq!(warned(&first), ["webpush notification.url", "webpush notification.thread"]);
    assert_eq!(post().await, first);
}

#[tokio::test]
async fn a_draft_lists_what_the_apps_services_do_not_show() {
    let service = Service::start().await;
    service.post(PATH, &service.key, WEB_PUSH).await;
    let shown = |more: Value| {
        let mut notification = json!({"title": "Hello {{name}}", "url": "https://a.example/"});
        notification.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        json!({"notification": notification})
    };
    let sound = "webpush message.notification.sound";
    let mut campaign = json!({"audience": {"everyone": true}, "start": false, "variables": {"name": "you"},
        "message": shown(json!({"sound": "default"})),
        "locales": {"de": shown(json!({"sound": "ton"})), "ja": shown(json!({"sound": "default", "thread": "t"}))}});
    let expected = [sound, "webpush locales.ja.notification.thread"];
    let made = service.post("/v1/campaigns", &service.key, &campaign.to_string()).await.json();
    assert_eq!(warned(&made), expected);
    let path = format!("/v1/campaigns/{}", made["id"].as_str().expect("an id"));
    assert_eq!(warned(&service.get(&path, &service.key).await.json()), expected);
    let counted =
        service.post("/v1/campaigns?dry_run=true", &service.key, &campaign.to_string()).await.json();
    assert_eq!(warned(&counted), expected);
    assert_eq!(service.post(&format!("{path}/abort"), &service.key, "").await.json().get("warnings"), None);
    assert_eq!(
        service.get(&path, &service.key).await.json().get("warnings"),
        None,
        "nobody can change it any more"
    );

    campaign["message"]["when"] = json!("stored");
    let never = service.post("/v1/campaigns", &service.key, &campaign.to_string()).await.json();
    assert_eq!(never.get("warnings"), None, "no push service gets it");
}

/// A service account with a key generated for this test.
fn fcm_credential() -> String {
    let key = include_str!("service-account.pem");
    json!({"service": "fcm", "service_account": {"type": "service_account", "project_id": "demo",
        "client_email": "demo@demo.iam.gserviceaccount.com", "private_key_id": "1", "private_key": key,
        "token_uri": "https://oauth2.googleapis.com/token"}})
    .to_string()
}

#[tokio::test]
async fn invalidations_are_listed_in_pages_and_lines() {
    let service = Service::running().await;
    service.post(PATH, &service.key, WEB_PUSH).await;
    for device in ["d1", "d2", "d3"] {
        let token = web_push_token(if device == "d3" { "fine" } else { "gone" });
        let body = json!({"device": device, "user": "u1", "push_token": token}).to_string();
        assert_eq!(service.post("/v1/devices", &service.key, &body).await.status, StatusCode::CREATED);
    }
    let id = service
        .publish(r#"{"to": {"users": ["u1"]}, "notification": {"title": "T"}, "push": {"mode": "always"}}"#)
        .await;
    let path = "/v1/push/invalidations";
    let all =
        service.until(path, |body| body["invalidations"].as_array().is_some_and(|all| all.len() == 2)).await;
    let first = &all["invalidations"][0];
    assert_eq!((&first["reason"], &first["removed"]), (&json!("UNREGISTERED"), &json!(true)));
    assert_eq!((&first["service"], &all["next"]), (&json!("webpush"), &json!(null)));

    let page = service.get(&format!("{path}?limit=1"), &service.key).await.json();
    let next = page["next"].as_str().expect("a next page");
    let rest = service.get(&format!("{path}?after={next}"), &service.key).await.json();
    assert_eq!(rest["invalidations"], json!([all["invalidations"][1]]));
    let mut lines = request(Method::GET, path, &service.key, "");
    lines.headers_mut().insert("accept", "application/x-ndjson".parse().expect("a header"));
    let lines = service.send(lines).await;
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(json!(lines.lines()), all["invalidations"]);
    service.get(&format!("{path}?after=x"), &service.key).await.problem(400, "invalid_parameter");
    let publisher = service.key_with(&[Scope::Publish]).await;
    service.get(path, &publisher).await.problem(403, "forbidden");
    assert_eq!(service.get(path, &service.other_key).await.json()["invalidations"], json!([]));

    let trace = service.get(&format!("/v1/notifications/{id}/devices/d1"), &service.key).await.json();
    let step =
        trace["steps"].as_array().expect("steps").iter().find(|step| step["outcome"] == "push_token_gone");
    assert_eq!(step.expect("the push's step")["reason"], "UNREGISTERED");
    assert!(
        trace["summary"].as_str().is_some_and(|text| text.contains("token is invalid (UNREGISTERED)")),
        "{trace}"
    );
    let state = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();
    assert_eq!((&state["counts"]["pushed"], &state["counts"]["push_token_gone"]), (&json!(1), &json!(2)));
    assert_eq!(service.get("/v1/devices/d1", &service.key).await.json()["push_token"], json!(null));
}

#[tokio::test]
async fn suspended_tokens_are_restored() {
    let service = Service::running().await;
    let id = service.post(PATH, &service.key, WEB_PUSH).await.json()["id"].clone();
    let path = format!("{PATH}/{}/restore", id.as_str().expect("an id"));
    let token = web_push_token("suspect");
    let body = json!({"device": "d1", "user": "u1", "push_token": token}).to_string();
    assert_eq!(service.post("/v1/devices", &service.key, &body).await.status, StatusCode::CREATED);
    service
        .publish(r#"{"to": {"users": ["u1"]}, "notification": {"title": "T"}, "push": {"mode": "always"}}"#)
        .await;
    service
        .until("/v1/push/invalidations", |body| {
            body["invalidations"].as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
    let restore = async |body: Value| service.post(&path, &service.key, &body.to_string()).await;
    let listed = async || service.get("/v1/devices/d1/push-tokens", &service.key).await.json();
    assert!(listed().await.to_string().contains("VapidPkHashMismatch"));

    let wrong = restore(json!({"since": "yesterday"})).await;
    assert_eq!(wrong.problem(400, "invalid_field")["field"], "since");
    let wrong = restore(json!({"reason": "not a word"})).await;
    assert_eq!(wrong.problem(400, "invalid_field")["field"], "reason");
    restore(json!({"reasons": "x"})).await.problem(400, "unknown_field");
    let publisher = service.key_with(&[Scope::Publish, Scope::Devices, Scope::Read]).await;
    service.post(&path, &publisher, "{}").await.problem(403, "forbidden");
    service.post(&path, &service.other_key, "{}").await.problem(404, "not_found");
    service.post(&format!("{PATH}/99/restore"), &service.key, "{}").await.problem(404, "not_found");

    assert_eq!(restore(json!({"since": "2100-01-01T00:00:00Z"})).await.json(), json!({"restored": 0}));
    assert_eq!(restore(json!({"reason": "BadTopic"})).await.json(), json!({"restored": 0}));
    let all = restore(json!({"since": null, "reason": "VapidPkHashMismatch"})).await;
    assert_eq!(all.json(), json!({"restored": 1}));
    assert!(!listed().await.to_string().contains("VapidPkHashMismatch"));
    assert_eq!(restore(json!({})).await.json(), json!({"restored": 0}));
}
