//! Valid and invalid push tokens.

use super::super::device;
use super::*;
use crate::error::Code;

fn refused<T: std::fmt::Debug>(result: Result<T, Problem>, code: Code, field: Option<&str>) {
    let problem = result.expect_err("refused");
    assert_eq!((problem.code(), problem.field_path()), (code, field), "{problem:?}");
}

#[test]
fn each_push_service_has_its_own_form() {
    // 65 bytes are 86 digits and two thirds: the spare bits of the last one are zero.
    let p256dh = "A".repeat(87);
    let webpush = |endpoint: &str, p256dh: &str| {
        format!(
            r#"{{"service": "webpush", "endpoint": "{endpoint}", "keys": {{"p256dh": "{p256dh}", "auth": "{}"}}}}"#,
            "A".repeat(22)
        )
    };
    for good in [
        r#"{"service": "apns", "token": "00ffAA"}"#.to_owned(),
        r#"{"service": "apns", "token": "00ff", "environment": "sandbox"}"#.to_owned(),
        r#"{"service": "apns", "token": "00ff", "topic": "com.example.app.voip"}"#.to_owned(),
        r#"{"service": "fcm", "token": "x"}"#.to_owned(),
        webpush("https://push.example.com/x", &p256dh),
    ] {
        assert_eq!(push_token(good.as_bytes()).err(), None, "{good}");
    }
    refused(push_token(br#"{"service": "sms", "token": "x"}"#), Code::InvalidField, Some("service"));
    refused(push_token(br#"{"token": "x"}"#), Code::InvalidField, Some("service"));
    refused(push_token(br#"{"service": "apns", "token": "xyz"}"#), Code::InvalidField, Some("token"));
    refused(
        push_token(br#"{"service": "apns", "token": "00", "environment": "test"}"#),
        Code::InvalidField,
        None,
    );
    refused(push_token(br#"{"service": "apns", "token": "00", "topic": "a b"}"#), Code::InvalidField, None);
    refused(push_token(br#"{"service": "fcm", "token": ""}"#), Code::InvalidField, Some("token"));
    refused(push_token(webpush("http://a/b", &p256dh).as_bytes()), Code::InvalidField, Some("endpoint"));
    refused(push_token(webpush("https://a/b", "AAAA").as_bytes()), Code::InvalidField, Some("keys.p256dh"));
    let nested = device(br#"{"push_token": {"service": "fcm", "token": "a b"}}"#);
    refused(nested, Code::InvalidField, Some("push_token.token"));
    refused(
        device(br#"{"push_token": {"service": "fcm", "token": "a", "x": 1}}"#),
        Code::UnknownField,
        Some("push_token.x"),
    );
    let long =
        format!("{{\"service\": \"fcm\", \"token\": \"{}\"}}", "x".repeat(limits::PUSH_TOKEN_BYTES_MAX));
    refused(push_token(long.as_bytes()), Code::InvalidField, None);
}

#[test]
fn service_and_environment_are_parsed_from_the_text() {
    let check = |text: &str, service: PushService, environment: PushEnvironment| {
        let token = push_token(text.as_bytes()).expect(text);
        assert_eq!((token.service, token.environment, token.json.as_str()), (service, environment, text));
    };
    check(r#"{"service":"apns", "token":"00"}"#, PushService::Apns, PushEnvironment::Production);
    check(
        r#"{"service":"apns","token":"00","environment":"sandbox"}"#,
        PushService::Apns,
        PushEnvironment::Sandbox,
    );
    check(r#"{"service":"fcm","token":"a:b"}"#, PushService::Fcm, PushEnvironment::Production);
}

#[test]
fn a_test_names_a_device_or_a_token() {
    assert!(matches!(push_test(br#"{"device": "d1"}"#), Ok(TestTarget::Device(_))));
    assert!(matches!(
        push_test(br#"{"push_token": {"service": "fcm", "token": "x"}}"#),
        Ok(TestTarget::Token(token)) if token.service == PushService::Fcm
    ));
    refused(push_test(b"{}"), Code::InvalidField, Some("device"));
    refused(
        push_test(br#"{"device": "d1", "push_token": {"service": "fcm", "token": "x"}}"#),
        Code::InvalidField,
        Some("device"),
    );
    refused(
        push_test(br#"{"push_token": {"service": "apns", "token": "x"}}"#),
        Code::InvalidField,
        Some("push_token.token"),
    );
}
