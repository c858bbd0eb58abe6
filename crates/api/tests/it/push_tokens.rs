//! Several push tokens of a device: of the device itself, and of its provider.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::service::Service;

const OWN: &str = "/v1/me/push-tokens";
const TOKEN: &str = r#"{"token": "00aa11"}"#;

/// Kind, name and whether it is the main token.
fn keys(answer: &Value) -> Vec<(String, String, bool)> {
    let tokens = answer["push_tokens"].as_array().expect("a list").iter();
    let text = |token: &Value, field: &str| token[field].as_str().expect("a text").to_owned();
    tokens.map(|token| (text(token, "kind"), text(token, "name"), token["main"] == true)).collect()
}

fn key(kind: &str, name: &str, main: bool) -> (String, String, bool) {
    (kind.to_owned(), name.to_owned(), main)
}

#[tokio::test]
async fn a_device_keeps_several_tokens() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    for (path, body) in [
        ("/voip", TOKEN),
        (
            "/alert",
            r#"{"service": "apns", "token": "00bb", "environment": "sandbox", "topic": "com.example.watch"}"#,
        ),
        ("/controls/lamp", r#"{"token": "00cc"}"#),
        ("/live-activity/a1", r#"{"token": "00dd", "expires_at": "2027-01-15T09:00:00Z"}"#),
    ] {
        let put = service.put(&format!("{OWN}{path}"), &token, body).await;
        assert_eq!(put.status, StatusCode::NO_CONTENT, "{path}: {}", put.text);
    }
    service.put("/v1/me/push-token", &token, r#"{"service": "fcm", "token": "f"}"#).await;
    let listed = service.get(OWN, &token).await.json();
    let expected = [
        key("fcm", "", true),
        key("alert", "", false),
        key("voip", "", false),
        key("controls", "lamp", false),
        key("live-activity", "a1", false),
    ];
    assert_eq!(keys(&listed), expected);
    let alert = &listed["push_tokens"][1];
    assert_eq!(alert["environment"], "sandbox");
    assert_eq!(alert["topic"], "com.example.watch");
    assert_eq!(alert["token"]["token"], "00bb");
    assert_eq!(listed["push_tokens"][4]["expires_at"], "2027-01-15T09:00:00.000Z");

    // Documents of devices do not have the tokens themselves.
    for document in [
        service.get("/v1/me", &token).await.json(),
        service.get("/v1/devices/d1", &service.key).await.json(),
        service.get("/v1/devices", &service.key).await.json()["devices"][0].clone(),
    ] {
        assert_eq!(keys(&document), expected);
        assert_eq!(document["push_token"]["token"], "f");
        assert!(!document["push_tokens"].to_string().contains("00bb"), "{document}");
    }

    assert_eq!(service.delete("/v1/me/push-tokens/fcm", &token).await.status, StatusCode::NO_CONTENT);
    assert_eq!(keys(&service.get(OWN, &token).await.json())[0], key("alert", "", true));
    assert_eq!(service.get("/v1/me", &token).await.json()["push_token"]["token"], "00bb");
    service.delete(&format!("{OWN}/fcm"), &token).await.problem(404, "not_found");
    service.delete(&format!("{OWN}/controls/door"), &token).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_provider_manages_tokens_of_its_devices() {
    let service = Service::start().await;
    let body = json!({"device": "d1", "push_token": {"service": "fcm", "token": "f"}, "push_tokens": [
        {"kind": "voip", "token": "00aa"},
        {"service": "apns", "token": "00bb"},
        {"kind": "widgets", "name": "board", "service": "apns", "token": "00cc"},
        {"kind": "live-activity", "name": "old", "token": "00dd", "expires_at": "2020-01-01T00:00:00Z"},
    ]});
    let made = service.post("/v1/devices", &service.key, &body.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let path = "/v1/devices/d1/push-tokens";
    let listed = service.get(path, &service.key).await.json();
    let expected = [
        key("fcm", "", true),
        key("alert", "", false),
        key("voip", "", false),
        key("widgets", "board", false),
    ];
    assert_eq!(keys(&listed), expected);
    // An import keeps what the device has registered since.
    let line = json!({"device": "d1", "push_tokens": [
        {"kind": "voip", "token": "00ff", "only_if_missing": true},
        {"kind": "controls", "name": "lamp", "token": "00ee", "only_if_missing": true},
    ]});
    let lines = service.post("/v1/devices/batch", &service.key, &line.to_string()).await;
    assert_eq!(lines.status, StatusCode::OK, "{}", lines.text);
    let listed = service.get(path, &service.key).await.json();
    assert_eq!(listed["push_tokens"][2]["token"]["token"], "00aa");
    assert_eq!(keys(&listed)[3..], [key("widgets", "board", false), key("controls", "lamp", false)]);

    let put = service.put(&format!("{path}/voip"), &service.key, TOKEN).await;
    assert_eq!(put.status, StatusCode::NO_CONTENT, "{}", put.text);
    let removed = service.delete(&format!("{path}/controls/lamp"), &service.key).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
    service.delete(&format!("{path}/controls/lamp"), &service.key).await.problem(404, "not_found");
    service.put("/v1/devices/d2/push-tokens/voip", &service.key, TOKEN).await.problem(404, "not_found");
    service.get("/v1/devices/d2/push-tokens", &service.key).await.problem(404, "not_found");
}

#[tokio::test]
async fn nobody_else_sees_or_changes_tokens() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.put(&format!("{OWN}/voip"), &token, TOKEN).await;
    let reader = service.key_with(&[Scope::Read, Scope::Publish]).await;
    let of_device = "/v1/devices/d1/push-tokens";
    for (bearer, status, code) in
        [("", 401, "unauthorized"), (&reader, 403, "forbidden"), (&service.other_key, 404, "not_found")]
    {
        service.get(of_device, bearer).await.problem(status, code);
        service.put(&format!("{of_device}/voip"), bearer, TOKEN).await.problem(status, code);
        service.delete(&format!("{of_device}/voip"), bearer).await.problem(status, code);
        service.put(&format!("{of_device}/controls/x"), bearer, TOKEN).await.problem(status, code);
        service.delete(&format!("{of_device}/controls/x"), bearer).await.problem(status, code);
    }
    // A device has no access to others, and a key is no device.
    service.get(of_device, &token).await.problem(401, "unauthorized");
    for bearer in ["", "wrong", &service.key] {
        service.get(OWN, bearer).await.problem(401, "unauthorized");
        service.put(&format!("{OWN}/voip"), bearer, TOKEN).await.problem(401, "unauthorized");
        service.delete(&format!("{OWN}/voip"), bearer).await.problem(401, "unauthorized");
    }
    assert_eq!(
        service.get(of_device, &service.key).await.json()["push_tokens"].as_array().map(Vec::len),
        Some(1)
    );
    service.post("/v1/devices/d1/revoke", &service.key, "").await;
    service.get(OWN, &token).await.problem(401, "unauthorized");
    service.put(&format!("{OWN}/voip"), &token, TOKEN).await.problem(401, "unauthorized");
    service.delete(&format!("{OWN}/voip"), &token).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn errors_name_the_field() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let long = "x".repeat(65);
    for (path, field) in [
        ("/pager".to_owned(), "kind"),
        ("/alert/x".to_owned(), "name"),
        ("/live-activity".to_owned(), "name"),
        ("/controls/a%20b".to_owned(), "name"),
        (format!("/controls/{long}"), "name"),
    ] {
        for method in [Method::PUT, Method::DELETE] {
            let answer = service.call(method, &format!("{OWN}{path}"), &token, TOKEN).await;
            assert_eq!(answer.problem(400, "invalid_parameter")["field"], field, "{path}");
        }
    }
    for (path, body, code, field) in [
        ("/voip", r#"{"token": "xyz"}"#, "invalid_field", "token"),
        ("/voip", r#"{}"#, "invalid_field", "token"),
        ("/voip", r#"{"service": "fcm", "token": "f"}"#, "invalid_field", "service"),
        ("/voip", r#"{"token": "00", "topic": "a b"}"#, "invalid_field", "topic"),
        ("/voip", r#"{"token": "00", "expires_at": "soon"}"#, "invalid_field", "expires_at"),
        ("/voip", r#"{"token": "00", "expires_at": "2020-01-01T00:00:00Z"}"#, "invalid_field", "expires_at"),
        ("/fcm", r#"{"token": "f", "expires_at": "2030-01-01T00:00:00Z"}"#, "invalid_field", "expires_at"),
        ("/voip", r#"{"token": "00", "kind": "voip"}"#, "unknown_field", "kind"),
        ("/voip", r#"{"token": "00", "shape": 1}"#, "unknown_field", "shape"),
        (
            "/webpush",
            r#"{"endpoint": "http://x", "keys": {"p256dh": "", "auth": ""}}"#,
            "invalid_field",
            "endpoint",
        ),
    ] {
        let problem = service.put(&format!("{OWN}{path}"), &token, body).await.problem(400, code);
        assert_eq!(problem["field"], field, "{path} {body}: {problem}");
    }
    for (tokens, field) in [
        (json!([{"kind": "voip", "token": "zz"}]), "push_tokens[0].token"),
        (json!([{"kind": "voip", "token": "00"}, {"kind": "voip", "token": "11"}]), "push_tokens[1]"),
        (json!([{"kind": "live-activity", "token": "00"}]), "push_tokens[0].name"),
        (json!([{"kind": "pager", "token": "00"}]), "push_tokens[0].kind"),
        (json!([{"token": "00"}]), "push_tokens[0].service"),
        (json!(vec![json!({"kind": "voip", "token": "00"}); 33]), "push_tokens"),
    ] {
        let body = json!({"device": "d2", "push_tokens": tokens}).to_string();
        let problem = service.post("/v1/devices", &service.key, &body).await.problem(400, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    for number in 0..32 {
        service.put(&format!("{OWN}/controls/c{number}"), &token, TOKEN).await;
    }
    let problem = service.put(&format!("{OWN}/voip"), &token, TOKEN).await.problem(409, "limit_exceeded");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("32")), "{problem}");
}

#[tokio::test]
async fn a_push_names_its_token() {
    let service = Service::running().await;
    service.device("d1", "u1").await;
    let send = async |push: Value| {
        let body = json!({"to": {"users": ["u1"]}, "notification": {"title": "t"}, "push": push});
        service.post("/v1/notifications", &service.key, &body.to_string()).await
    };
    let accepted = send(json!({"token": "voip"})).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text);
    let id = accepted.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/notifications/{id}");
    service.until(&path, |state| state["counts"]["no_push_token"] == 1).await;
    for (push, field) in [
        (json!({"token": "pager"}), "push.token"),
        (json!({"token": "voip/"}), "push.token"),
        (json!({"token": "alert/x"}), "push.token"),
        (json!({"token": 1}), "push.token"),
        (json!({"token": "voip", "mode": "never"}), "push.mode"),
        (
            json!({"token": "voip", "apns": {"headers": {"apns-push-type": "alert"}}}),
            "push.apns.headers.apns-push-type",
        ),
        (json!({"token": "live-activity/a"}), "push.apns.payload.aps.event"),
    ] {
        let problem = send(push).await.problem(400, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let campaign = json!({"audience": {"everyone": true}, "message": {"notification": {"title": "t"},
        "push": {"token": "controls/lamp"}}});
    let made = service.post("/v1/campaigns", &service.key, &campaign.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let path = format!("/v1/campaigns/{}", made.json()["id"].as_str().expect("an id"));
    let done = service.until(&path, |campaign| campaign["state"] == "done").await;
    assert_eq!(done["message"]["push"]["token"], "controls/lamp");
}

const CREDENTIALS: &str = "/v1/apps/dev/push";

fn provider(name: &str, device_tokens: bool) -> String {
    json!({"service": "webhook", "name": name, "url": "https://provider.example/push", "device_tokens": device_tokens,
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
    .to_string()
}

#[tokio::test]
async fn an_app_has_a_credential_for_each_provider() {
    let service = Service::start().await;
    for name in ["mail", "sms"] {
        let made = service.post(CREDENTIALS, &service.key, &provider(name, false)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        assert!(!made.text.contains("MfKQ9r8G"), "{}", made.text);
    }
    service.post(CREDENTIALS, &service.key, &provider("mail", true)).await.problem(409, "already_exists");
    let replaced =
        service.post(&format!("{CREDENTIALS}?replace=true"), &service.key, &provider("mail", true)).await;
    assert_eq!(replaced.status, StatusCode::CREATED, "{}", replaced.text);
    let listed = service.get(CREDENTIALS, &service.key).await.json();
    let listed: Vec<_> = listed["credentials"].as_array().expect("a list").iter().collect();
    let of = |name: &str| listed.iter().find(|one| one["name"] == name).expect("listed")["settings"].clone();
    assert_eq!(
        (listed.len(), &of("mail")["device_tokens"], &of("sms")["device_tokens"]),
        (2, &json!(true), &json!(false))
    );
    let without = json!({"service": "webhook", "url": "https://provider.example/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
    let problem =
        service.post(CREDENTIALS, &service.key, &without.to_string()).await.problem(400, "invalid_field");
    assert_eq!(problem["field"], "name");
}

/// A token of a provider may be the address of another person, so a device cannot choose one.
#[tokio::test]
async fn only_servers_register_addresses_unless_the_provider_allows_it() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let address = json!({"service": "webhook", "provider": "mail", "token": "victim@example.com"});
    let (main, named) = (address.to_string(), json!({"token": "victim@example.com"}).to_string());
    let change = json!({"push_token": address}).to_string();
    let again = json!({"device": "d1", "push_tokens": [address]}).to_string();
    let refused = async || {
        for (path, body) in [
            ("/v1/me/push-token", &main),
            ("/v1/me/push-tokens/webhook", &main),
            ("/v1/me/push-tokens/webhook/mail", &named),
        ] {
            let problem = service.put(path, &token, body).await.problem(403, "forbidden");
            assert_eq!(problem["field"], "provider", "{path}");
        }
        let problem = service.call(Method::PATCH, "/v1/me", &token, &change).await.problem(403, "forbidden");
        assert_eq!(problem["field"], "push_token.provider");
        let problem = service.post("/v1/devices", &token, &again).await.problem(403, "forbidden");
        assert_eq!(problem["field"], "push_tokens[0].provider");
    };
    refused().await;
    service.post(CREDENTIALS, &service.key, &provider("mail", false)).await;
    // Of another app, and of another provider.
    service.post("/v1/apps/other/push", &service.other_key, &provider("mail", true)).await;
    service.post(CREDENTIALS, &service.key, &provider("vendor", true)).await;
    refused().await;
    assert_eq!(keys(&service.get(OWN, &token).await.json()), []);

    let path = "/v1/devices/d1/push-tokens/webhook/mail";
    service.put(path, &service.other_key, &named).await.problem(404, "not_found");
    let publisher = service.key_with(&[Scope::Publish]).await;
    service.put(path, &publisher, &named).await.problem(403, "forbidden");
    service.put(path, &token, &named).await.problem(401, "unauthorized");
    assert_eq!(service.put(path, &service.key, &named).await.status, StatusCode::NO_CONTENT);
    let vendor = json!({"provider": "vendor", "token": "RID-1"}).to_string();
    let put = service.put("/v1/me/push-tokens/webhook", &token, &vendor).await;
    assert_eq!(put.status, StatusCode::NO_CONTENT, "{}", put.text);
    let listed = service.get(OWN, &token).await.json();
    assert_eq!(keys(&listed), [key("webhook", "", true), key("webhook", "mail", false)]);
    assert_eq!(listed["push_tokens"][1]["token"], address, "the name is the provider");
    // A device may withdraw an address.
    let removed = service.delete("/v1/me/push-tokens/webhook/mail", &token).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn tokens_of_each_service_have_their_form() {
    let service = Service::start().await;
    let put = async |kind: &str, body: Value| {
        let path = format!("/v1/devices/d1/push-tokens/{kind}");
        service.put(&path, &service.key, &body.to_string()).await
    };
    service.device("d1", "u1").await;
    let channel = "https://db5p.notify.windows.com/?token=AwYAAAB%2f1";
    for (kind, body) in [
        ("hms", json!({"token": "IQAAAA-_x"})),
        ("wns", json!({"channel": channel})),
        ("webhook", json!({"provider": "mail", "token": "a b@example.com"})),
        ("webhook/mail", json!({"token": "ä@example.com", "expires_at": "2027-06-01T00:00:00Z"})),
        ("webhook/other", json!({"token": "x", "provider": "mail"})),
    ] {
        let answer = put(kind, body).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{kind}: {}", answer.text);
    }
    for (kind, body, field) in [
        ("hms", json!({"token": ""}), "token"),
        ("hms", json!({"token": "a\"b"}), "token"),
        ("wns", json!({"channel": "https://example.com/?token=1"}), "channel"),
        ("wns", json!({"channel": "https://notify.windows.com.example.com/"}), "channel"),
        ("wns", json!({"channel": "https://u@a.notify.windows.com/"}), "channel"),
        ("wns", json!({"channel": "http://a.notify.windows.com/"}), "channel"),
        ("webhook", json!({"token": "x"}), "provider"),
        ("webhook", json!({"provider": "e mail", "token": "x"}), "provider"),
        ("webhook/mail", json!({"token": ""}), "token"),
        ("webhook/mail", json!({"token": "x".repeat(1_025)}), "token"),
        ("webhook/mail", json!({"token": "a\r\nBcc: b"}), "token"),
        (
            "webhook",
            json!({"provider": "mail", "token": "x", "expires_at": "2027-06-01T00:00:00Z"}),
            "expires_at",
        ),
    ] {
        let problem = put(kind, body).await.problem(400, "invalid_field");
        assert_eq!(problem["field"], field, "{kind} {problem}");
    }
    put("hms/x", json!({"token": "x"})).await.problem(400, "invalid_parameter");
}
