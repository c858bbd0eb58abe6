//! Credentials as operators write them: what is accepted, what is rejected and how, and that no output contains a
//! secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use noroshi_types::Timestamp;
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

use super::*;
use crate::exchange::Authorization;

const RSA_KEY: &str = include_str!("../fcm/test_key.pem");
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
/// A VAPID key for tests: the scalar of RFC 8291 §5.
const SCALAR: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
const PUBLIC_OF_SCALAR: &str =
    "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";

fn ec_pem(algorithm: &'static rcgen::SignatureAlgorithm) -> String {
    KeyPair::generate_for(algorithm).unwrap().serialize_pem()
}

pub(crate) fn apns_json() -> Value {
    let key = ec_pem(&PKCS_ECDSA_P256_SHA256);
    json!({"service": "apns", "key": key, "key_id": "ABC123DEFG", "team_id": "DEF123GHIJ", "topic": "com.example.app"})
}

pub(crate) fn fcm_json() -> Value {
    json!({"service": "fcm", "service_account": {
        "type": "service_account", "project_id": "example-1", "private_key_id": "k1", "private_key": RSA_KEY,
        "client_email": "push@example-1.iam.gserviceaccount.com", "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token", "universe_domain": "googleapis.com",
    }})
}

pub(crate) fn webpush_json() -> Value {
    json!({"service": "webpush", "private_key": SCALAR, "subject": "mailto:admin@example.com"})
}

pub(crate) fn webhook_json() -> Value {
    json!({"service": "webhook", "name": "mail", "url": "https://provider.example/push?key=hidden", "secret": SECRET})
}

pub(crate) fn hms_json() -> Value {
    json!({"service": "hms", "service_account": {
        "project_id": "388421841221199999", "key_id": "hms-key-1", "private_key": RSA_KEY, "sub_account": "101",
        "auth_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/authorize",
        "token_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/token",
    }})
}

pub(crate) fn wns_json() -> Value {
    json!({"service": "wns", "client_id": "66666666-7777-8888-9999-000000000000", "client_secret": "a~secret.value",
        "tenant_id": "11111111-2222-3333-4444-555555555555"})
}

fn parse(body: &Value) -> Result<Credential, Invalid> {
    Credential::parse(body.to_string().as_bytes())
}

pub(crate) fn parsed(body: &Value) -> Credential {
    parse(body).unwrap()
}

fn shown(body: &Value) -> Value {
    serde_json::from_str(parsed(body).shown.as_str()).unwrap()
}

/// Replaces one field (null: removes it), and checks the error.
fn refused(mut body: Value, pointer: &str, value: Value, field: &str, rule: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let object = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => drop(object.remove(key)),
        value => drop(object.insert(key.to_owned(), value)),
    }
    let invalid = parse(&body).unwrap_err();
    assert_eq!(invalid.field, field, "{invalid}");
    assert!(invalid.rule.contains(rule), "{invalid}");
}

#[test]
fn a_provider_has_a_name_a_url_and_a_secret() {
    let credential = parsed(&webhook_json());
    assert_eq!((&*credential.provider, &*credential.name), ("mail", "mail"));
    let settings = shown(&webhook_json());
    assert_eq!(settings["url"], "https://provider.example/push", "a query may hold a secret");
    assert_eq!(
        [&settings["batch_size"], &settings["concurrency"], &settings["timeout_seconds"]],
        [&json!(100), &json!(4), &json!(10)]
    );
    assert_eq!((&settings["device_tokens"], settings.get("previous_fingerprint")), (&json!(false), None));
    let mut rotating = webhook_json();
    rotating["previous_secret"] = json!(OTHER_SECRET);
    rotating["device_tokens"] = json!(true);
    rotating["batch_size"] = json!(1);
    let rotating = shown(&rotating);
    assert_ne!(rotating["previous_fingerprint"], rotating["fingerprint"]);
    assert_eq!((&rotating["device_tokens"], &rotating["batch_size"]), (&json!(true), &json!(1)));
    let whole = format!("{credential:?} {rotating}");
    assert!(!whole.contains("MfKQ9r8G") && !whole.contains("hidden") && !whole.contains("AAECAw"), "{whole}");

    refused(webhook_json(), "/name", Value::Null, "name", "is missing");
    refused(webhook_json(), "/name", json!("e mail"), "name", "letters");
    refused(webhook_json(), "/url", Value::Null, "url", "is missing");
    for url in ["http://provider.example/", "ftp://provider.example/", "provider.example"] {
        refused(webhook_json(), "/url", json!(url), "url", "URL");
    }
    refused(webhook_json(), "/url", json!("https://u:p@provider.example/"), "url", "password");
    refused(webhook_json(), "/secret", Value::Null, "secret", "is missing");
    refused(webhook_json(), "/secret", json!("whsec_AAAA"), "secret", "24 to 64 bytes");
    refused(webhook_json(), "/previous_secret", json!(SECRET), "previous_secret", "must differ");
    for (field, bad) in [
        ("batch_size", json!(0)),
        ("batch_size", json!(501)),
        ("concurrency", json!(33)),
        ("timeout_seconds", json!(31)),
        ("timeout_seconds", json!(1.5)),
        ("batch_size", json!("10")),
    ] {
        refused(webhook_json(), &format!("/{field}"), bad, field, "whole number");
    }
    refused(webhook_json(), "/device_tokens", json!("yes"), "device_tokens", "true or false");
    refused(webhook_json(), "/environment", json!("sandbox"), "environment", "production");
    refused(webhook_json(), "/topic", json!("x"), "topic", "not a field");
    let mut local = webhook_json();
    local["url"] = json!("http://127.0.0.1:9000/push");
    assert!(parse(&local).is_ok(), "for development");
}

#[test]
fn a_service_account_of_huawei_and_an_app_of_microsoft_are_read() {
    let hms = shown(&hms_json());
    assert_eq!(
        [&hms["project_id"], &hms["sub_account"], &hms["category"]],
        ["388421841221199999", "101", "MARKETING"]
    );
    assert_eq!(hms["endpoint"], "https://push-api.cloud.huawei.com");
    for field in ["project_id", "sub_account", "key_id", "private_key"] {
        let at = format!("service_account.{field}");
        refused(hms_json(), &format!("/service_account/{field}"), Value::Null, &at, "is missing");
    }
    refused(
        hms_json(),
        "/service_account/project_id",
        json!("a/b"),
        "service_account.project_id",
        "id of a project",
    );
    refused(hms_json(), "/category", json!("im"), "category", "capital letters");

    let wns = shown(&wns_json());
    assert_eq!(wns["client_id"], "66666666-7777-8888-9999-000000000000");
    assert!(!format!("{wns} {:?}", parsed(&wns_json())).contains("a~secret"));
    refused(wns_json(), "/client_secret", Value::Null, "client_secret", "is missing");
    refused(wns_json(), "/tenant_id", Value::Null, "tenant_id", "is missing");
    refused(wns_json(), "/tenant_id", json!("a/../b"), "tenant_id", "tenant");
}

#[test]
fn each_service_has_its_credential() {
    let apns = shown(&apns_json());
    assert_eq!(apns["endpoint"], "https://api.push.apple.com");
    assert_eq!(
        [&apns["key_id"], &apns["team_id"], &apns["topic"]],
        ["ABC123DEFG", "DEF123GHIJ", "com.example.app"]
    );
    assert_eq!(apns["fingerprint"].as_str().unwrap().len(), "sha256:".len() + 32);

    let mut sandbox = apns_json();
    sandbox["environment"] = json!("sandbox");
    sandbox["name"] = json!("main key");
    sandbox["quota"] = json!({"per_second": 50});
    let credential = parsed(&sandbox);
    assert_eq!((credential.environment, &*credential.name), (PushEnvironment::Sandbox, "main key"));
    assert_eq!(credential.quota.per_second, Some(50.0));
    assert_eq!(shown(&sandbox)["endpoint"], "https://api.sandbox.push.apple.com");

    let fcm = shown(&fcm_json());
    assert_eq!([&fcm["project_id"], &fcm["key_id"]], ["example-1", "k1"]);
    assert_eq!(fcm["token_endpoint"], "https://oauth2.googleapis.com/token");
    assert_eq!(parsed(&fcm_json()).quota.per_second, Some(10_000.0));

    let webpush = shown(&webpush_json());
    assert_eq!(webpush["public_key"], PUBLIC_OF_SCALAR);
    assert_eq!(webpush["service"], "webpush");
}

#[test]
fn a_certificate_replaces_a_key() {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
    let body = json!({
        "service": "apns", "certificate": certificate.pem(), "private_key": key.serialize_pem(), "topic": "a.b",
    });
    let client = parsed(&body).client;
    assert!(client.identity().is_some());
    assert!(!client.one_until_authorised());
    assert_eq!(client.authorization("", Timestamp(0)), Authorization::NotNeeded);
    assert_eq!(shown(&body)["certificate"], true);

    let other = json!(ec_pem(&PKCS_ECDSA_P256_SHA256));
    refused(body.clone(), "/private_key", other, "private_key", "does not belong");
    refused(body.clone(), "/private_key", Value::Null, "private_key", "missing");
    refused(body.clone(), "/certificate", json!(key.serialize_pem()), "certificate", "must be PEM");
    refused(body.clone(), "/certificate", json!(certificate.pem().repeat(9)), "certificate", "1 to 8");
    refused(body, "/key", json!("x"), "key", "instead");
}

#[test]
fn keys_are_accepted_in_common_formats() {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut body = webpush_json();
    body["private_key"] = json!(key.serialize_pem());
    let public = URL_SAFE_NO_PAD.encode(key.public_key_raw());
    assert_eq!(shown(&body)["public_key"], public.as_str());
    // SEC 1 is the part of PKCS#8 after 36 - 2 bytes; openssl writes the curve into it.
    let scalar = URL_SAFE_NO_PAD.decode(SCALAR).unwrap();
    let curve: &[u8] = &[0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    let sec1 = [&[0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20], &*scalar, curve].concat();
    let pem = |label: &str, der: &[u8]| {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    };
    body["private_key"] = json!(pem("EC PRIVATE KEY", &sec1));
    assert_eq!(shown(&body)["public_key"], PUBLIC_OF_SCALAR);
    // PKCS#8 without the public half, as `openssl pkcs8 -topk8` of such a key writes it.
    let inner = [&[0x30, 0x25, 0x02, 0x01, 0x01, 0x04, 0x20], &*scalar].concat();
    let algorithm: &[u8] = &[
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
        0x3d, 0x03, 0x01, 0x07,
    ];
    let pkcs8 = [&[0x30, 0x41, 0x02, 0x01, 0x00], algorithm, &[0x04, 0x27], &*inner].concat();
    body["private_key"] = json!(pem("PRIVATE KEY", &pkcs8));
    assert_eq!(shown(&body)["public_key"], PUBLIC_OF_SCALAR);
    body["public_key"] = json!(PUBLIC_OF_SCALAR);
    parsed(&body);
    for length in 0..pkcs8.len() {
        body["private_key"] = json!(pem("PRIVATE KEY", &pkcs8[..length]));
        assert_eq!(parse(&body).unwrap_err().field, "private_key", "{length}");
    }
}

#[test]
fn errors_of_an_apns_credential_name_field_and_rule() {
    let check = |pointer, value, field, rule| refused(apns_json(), pointer, value, field, rule);
    check("/service", Value::Null, "service", "missing");
    check("/service", json!("sms"), "service", "must be");
    check("/environment", json!("test"), "environment", "must be");
    check("/key", Value::Null, "key", "is required");
    check("/key", json!("nonsense"), "key", "PEM");
    check("/key", json!(""), "key", "non-empty");
    check("/key", json!(5), "key", "string");
    check("/key", json!(RSA_KEY), "key", "P-256");
    check("/key", json!(ec_pem(&PKCS_ECDSA_P384_SHA384)), "key", "P-256");
    check("/key", json!(ec_pem(&PKCS_ED25519)), "key", "P-256");
    check("/key", json!("-----BEGIN PRIVATE KEY-----\nMIG"), "key", "damaged");
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check("/key", json!(certificate), "key", "certificate");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    check("/key", json!(encrypted), "key", "passphrase");
    check("/key_id", json!("abc123defg"), "key_id", "10");
    check("/key_id", json!("ABC123DEF"), "key_id", "10");
    check("/key_id", Value::Null, "key_id", "missing");
    check("/team_id", json!("DEF123GHIJK"), "team_id", "10");
    check("/topic", Value::Null, "topic", "missing");
    check("/topic", json!("com.example.\u{e4}pp"), "topic", "bundle id");
    check("/endpoint", json!("http://127.0.0.1:2197"), "endpoint", "https");
    check("/endpoint", json!("https://127.0.0.1:2197/3"), "endpoint", "only");
    check("/endpoint", json!("https://u:p@127.0.0.1"), "endpoint", "no user name");
    check("/endpoint", json!("nowhere"), "endpoint", "URL");
    check("/quota", json!({"per_second": 0}), "quota.per_second", "above 0");
    check("/quota", json!({"per_second": "1"}), "quota.per_second", "number");
    check("/quota", json!({"per_second": 1, "burst": 1}), "quota.burst", "not a field");
    check("/name", json!("a\nb"), "name", "control");
    check("/tpoic", json!("x"), "tpoic", "not a field");
}

#[test]
fn errors_of_an_fcm_credential_name_field_and_rule() {
    let check = |pointer: &str, value, field: &str, rule| {
        refused(
            fcm_json(),
            &format!("/service_account{pointer}"),
            value,
            &format!("service_account{field}"),
            rule,
        );
    };
    check("", Value::Null, "", "is required");
    check("", json!("text"), "", "object");
    check("/type", Value::Null, ".type", "google-services.json");
    check("/project_id", json!("a/b"), ".project_id", "project id");
    check("/client_email", json!("nobody"), ".client_email", "e-mail");
    check("/private_key", Value::Null, ".private_key", "missing");
    check("/private_key", json!(ec_pem(&PKCS_ECDSA_P256_SHA256)), ".private_key", "RSA");
    check("/token_uri", json!("ftp://x"), ".token_uri", "https");
    refused(fcm_json(), "/token_endpoint", json!("http://example.com/token"), "token_endpoint", "https");
    refused(fcm_json(), "/environment", json!("sandbox"), "environment", "production");
    let mut local = fcm_json();
    local["token_endpoint"] = json!("http://127.0.0.1:1234/token");
    assert_eq!(shown(&local)["token_endpoint"], "http://127.0.0.1:1234/token");
}

#[test]
fn errors_of_a_webpush_credential_name_field_and_rule() {
    let check = |pointer, value, field, rule| refused(webpush_json(), pointer, value, field, rule);
    check("/private_key", json!("AAAA"), "private_key", "32 bytes");
    check("/private_key", json!(URL_SAFE_NO_PAD.encode([0; 32])), "private_key", "P-256");
    check("/private_key", json!(URL_SAFE_NO_PAD.encode([0xff; 32])), "private_key", "P-256");
    check("/subject", Value::Null, "subject", "missing");
    check("/subject", json!("admin@example.com"), "subject", "mailto");
    check("/subject", json!("mailto:"), "subject", "mailto");
    check("/public_key", json!("BAAA"), "public_key", "does not belong");
}

#[test]
fn a_body_that_is_not_an_object_is_rejected() {
    for body in ["", "[]", "null", "{", "\"x\""] {
        assert_eq!(Credential::parse(body.as_bytes()).unwrap_err().field, "credential");
    }
    let large = vec![b' '; CREDENTIAL_BYTES_MAX + 1];
    assert!(Credential::parse(&large).unwrap_err().rule.contains("64 KiB"));
    let odd =
        json!({"service": "webpush", "private_key": SCALAR, "subject": "mailto:a@b", "Weird Secret": 1});
    assert!(!parse(&odd).unwrap_err().to_string().contains("Weird"));
}

/// Every run of twelve characters of the secrets in a body.
fn secrets(body: &Value) -> Vec<String> {
    let texts = [&body["key"], &body["private_key"], &body["service_account"]["private_key"]];
    let lines = texts.into_iter().filter_map(Value::as_str).flat_map(str::lines);
    lines
        .filter(|line| !line.starts_with('-') && line.len() >= 12)
        .map(|line| line[..12].to_owned())
        .collect()
}

fn check_silent(body: &Value, texts: &[String]) {
    for secret in secrets(body) {
        for text in texts {
            assert!(!text.contains(&secret), "{text}");
        }
    }
}

#[test]
fn shown_values_contain_no_secret() {
    for body in [apns_json(), fcm_json(), webpush_json()] {
        assert!(!secrets(&body).is_empty());
        let credential = parsed(&body);
        check_silent(&body, &[credential.shown.as_str().to_owned(), format!("{credential:?}")]);
    }
}

#[test]
fn signed_tokens_are_not_shown() {
    for body in [apns_json(), webpush_json()] {
        let client = parsed(&body).client;
        let authorization = client.authorization("https://push.example", Timestamp(0));
        let Authorization::Ready(value) = &authorization else { panic!("{authorization:?}") };
        let value = std::str::from_utf8(value).unwrap();
        let token = &value[value.find("ey").unwrap()..][..12];
        for text in [format!("{client:?}"), format!("{authorization:?}")] {
            assert!(!text.contains(token), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A secret in the wrong field, of the wrong type or damaged may be rejected or accepted, but is never shown.
    #[test]
    fn errors_never_contain_input(which in 0..3_usize, from in 0..12_usize, to in 0..12_usize, cut in 0..2_000_usize) {
        let body = [apns_json(), fcm_json(), webpush_json()][which].clone();
        let mut mixed = body.clone();
        let object = mixed.as_object_mut().unwrap();
        let keys: Vec<String> = object.keys().cloned().collect();
        let (from, to) = (&keys[from % keys.len()], &keys[to % keys.len()]);
        let moved = object[from].clone();
        object.insert(to.clone(), moved);
        if let Some(Value::String(text)) = object.get_mut(from) {
            text.truncate(text.floor_char_boundary(cut));
        }
        if let Err(invalid) = parse(&mixed) {
            check_silent(&body, &[invalid.to_string(), format!("{invalid:?}")]);
        }
    }
}
