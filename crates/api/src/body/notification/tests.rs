//! Every rule of a notification, at its limit and one above it.

use super::*;

fn read(text: &str) -> Result<Request, Problem> {
    notification(text.as_bytes(), &Limits::default())
}

/// A notification to a topic with these additional fields.
fn with(fields: &str) -> Result<Request, Problem> {
    read(&format!("{{\"to\":{{\"topic\":\"t\"}},\"data\":1,{fields}}}"))
}

fn refused(result: Result<Request, Problem>, code: Code, field: &str) {
    let problem = result.expect_err(field);
    assert_eq!((problem.code(), problem.field_path()), (code, Some(field)), "{problem:?}");
}

fn list(kind: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("\"n{i}\"")).collect();
    format!("{{\"to\":{{\"{kind}\":[{}]}},\"data\":1}}", names.join(","))
}

#[test]
fn the_documents_example_is_parsed() {
    let request = read(
        r#"{ "to": {"users": ["u1", "u2", "u1"]}, "when": "stored", "ttl": "24h", "urgency": "high",
             "collapse_key": "score", "retain": false,
             "notification": {"title": "T", "body": "B", "image": "https://i/i.png", "url": "myapp://match/7"},
             "data": {"b": 1.00,  "a": [1e2]},
             "push": {"mode": "fallback", "after": "20s", "apns": {"aps": {}}, "fcm": {}, "webpush": {}} }"#,
    )
    .expect("the contract's example");
    assert_eq!(request.target.named_count(), Some(2), "without duplicates");
    assert_eq!(request.when, When::Stored);
    assert_eq!(request.ttl.duration(), Duration::from_secs(86_400));
    assert_eq!(request.urgency, Urgency::High);
    assert_eq!(request.collapse_key.as_deref(), Some("score"));
    assert_eq!(request.data.as_ref().map(JsonText::as_str), Some(r#"{"b": 1.00,  "a": [1e2]}"#), "unchanged");
    assert_eq!((request.push.mode, request.push.after), (PushMode::Fallback, Duration::from_secs(20)));
    assert_eq!(request.push.apns.as_ref().map(JsonText::as_str), Some(r#"{"aps": {}}"#));
}

#[test]
fn absent_fields_have_defaults() {
    let request =
        read(r#"{"to": {"everyone": true}, "data": "x", "ttl": null, "push": null}"#).expect("small");
    assert_eq!((request.when, request.ttl, request.urgency), (When::Stored, Ttl::default(), Urgency::Normal));
    assert_eq!(request.push, Push::default());
    let fallback = with(r#""push": {"mode": "fallback"}"#).expect("fallback").push;
    assert_eq!(fallback.after, Duration::from_secs(10));
    let short = with(r#""ttl": 5, "push": {"mode": "fallback"}"#).expect("fallback").push;
    assert_eq!(short.after, Duration::from_secs(5), "at most the ttl");
}

#[test]
fn a_notification_has_exactly_one_kind_of_target() {
    refused(read(r#"{"to": {}, "data": 1}"#), Code::InvalidField, "to");
    refused(read(r#"{"to": {"topic": "a", "everyone": true}, "data": 1}"#), Code::InvalidField, "to");
    refused(read(r#"{"to": {"everyone": false}, "data": 1}"#), Code::InvalidField, "to.everyone");
    refused(read(r#"{"to": {"users": []}, "data": 1}"#), Code::InvalidField, "to.users");
    refused(read(r#"{"to": {"users": ["a", "b", ""]}, "data": 1}"#), Code::InvalidField, "to.users[2]");
    refused(read(r#"{"to": {"user": ["a"]}, "data": 1}"#), Code::UnknownField, "to.user");
    refused(read(r#"{"to": {"topic": "$everyone"}, "data": 1}"#), Code::InvalidField, "to.topic");
    refused(read(r#"{"to": {"condition": "'a' in"}, "data": 1}"#), Code::InvalidField, "to.condition");
}

#[test]
fn targets_are_bounded() {
    for kind in ["users", "devices"] {
        assert!(read(&list(kind, limits::TARGETS_MAX)).is_ok());
        refused(read(&list(kind, limits::TARGETS_MAX + 1)), Code::TooManyTargets, &format!("to.{kind}"));
    }
    let topic = |len: usize| read(&format!("{{\"to\":{{\"topic\":\"{}\"}},\"data\":1}}", "t".repeat(len)));
    assert!(topic(limits::TOPIC_BYTES_MAX).is_ok());
    refused(topic(limits::TOPIC_BYTES_MAX + 1), Code::InvalidField, "to.topic");
}

#[test]
fn passed_through_content_is_bounded_in_bytes() {
    let of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let data = |bytes: usize| read(&format!("{{\"to\":{{\"topic\":\"t\"}},\"data\":{}}}", of(bytes)));
    assert!(data(limits::DATA_BYTES).is_ok());
    refused(data(limits::DATA_BYTES + 1), Code::DataTooLarge, "data");
    let more = Limits { data_bytes: 10_000, ..Limits::default() };
    let text = format!("{{\"to\":{{\"topic\":\"t\"}},\"data\":{}}}", of(10_000));
    assert!(notification(text.as_bytes(), &more).is_ok(), "an operator may allow more");

    let title = |bytes: usize| with(&format!("\"notification\": {{\"title\":{}}}", of(bytes - 10)));
    assert!(title(limits::NOTIFICATION_BYTES_MAX).is_ok());
    refused(title(limits::NOTIFICATION_BYTES_MAX + 1), Code::DataTooLarge, "notification");
    let apns = |bytes: usize| with(&format!("\"push\": {{\"apns\": {{\"k\":{}}}}}", of(bytes - 6)));
    assert!(apns(limits::NOTIFICATION_BYTES_MAX).is_ok());
    refused(apns(limits::NOTIFICATION_BYTES_MAX + 1), Code::DataTooLarge, "push.apns");
}

#[test]
fn fields_keep_their_rules() {
    let check = |fields: &str, field: &str| refused(with(fields), Code::InvalidField, field);
    check(r#""when": "later""#, "when");
    check(r#""ttl": "29d""#, "ttl");
    check(r#""ttl": -1"#, "ttl");
    check(r#""ttl": 1.5"#, "ttl");
    check(r#""urgency": "urgent""#, "urgency");
    check(r#""collapse_key": """#, "collapse_key");
    check(&format!("\"collapse_key\": \"{}\"", "k".repeat(65)), "collapse_key");
    check(r#""retain": "yes""#, "retain");
    check(r#""notification": "hello""#, "notification");
    check(r#""notification": {}"#, "notification");
    check(r#""notification": {"title": 5}"#, "notification.title");
    check(r#""notification": {"image": "javascript:x"}"#, "notification.image");
    check(r#""notification": {"url": "/relative"}"#, "notification.url");
    check(r#""notification": {"url": "https://a b"}"#, "notification.url");
    check(r#""push": {"mode": "sometimes"}"#, "push.mode");
    check(r#""push": {"after": "10s"}"#, "push.after");
    check(r#""ttl": 5, "push": {"mode": "fallback", "after": 6}"#, "push.after");
    check(r#""push": {"apns": []}"#, "push.apns");
    refused(with(r#""notification": {"titel": "x"}"#), Code::UnknownField, "notification.titel");
    refused(with(r#""priority": 1"#), Code::UnknownField, "priority");
    refused(read(r#"{"to": {"topic": "t"}}"#), Code::InvalidField, "data");
    refused(read(r#"{"to": {"users": ["a"]}, "data": 1, "retain": true}"#), Code::InvalidField, "retain");
    assert!(with(r#""retain": true, "collapse_key": "k""#).is_ok());
    assert!(with(&format!("\"collapse_key\": \"{}\"", "k".repeat(64))).is_ok());
}
