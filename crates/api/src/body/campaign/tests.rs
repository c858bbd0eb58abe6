//! Valid campaigns, and the fields that errors name.

use noroshi_delivery::campaign::filter::{Filter, VALUES_MAX};

use noroshi_types::JsonText;

use super::*;
use crate::error::Code;

fn read(text: &str) -> Result<Spec, Problem> {
    campaign(text.as_bytes(), &Limits::default())
}

/// A campaign to everyone with these additional fields.
fn with(fields: &str) -> Result<Spec, Problem> {
    read(&format!(
        r#"{{"audience":{{"everyone":true}},"message":{{"notification":{{"title":"T"}}}},{fields}}}"#
    ))
}

fn to(audience: &str) -> Result<Spec, Problem> {
    read(&format!(r#"{{"audience":{audience},"message":{{"data":1}}}}"#))
}

fn refused<T: std::fmt::Debug>(result: Result<T, Problem>, code: Code, field: &str) {
    let problem = result.expect_err(field);
    assert_eq!((problem.code(), problem.field_path().unwrap_or_default()), (code, field), "{problem:?}");
}

fn wrong<T: std::fmt::Debug>(result: Result<T, Problem>, field: &str) {
    refused(result, Code::InvalidField, field);
}

#[test]
fn all_fields_are_parsed() {
    let spec = read(
        r#"{"name": "Spring", "audience": {"topic": "news", "devices": {"platforms": ["ios", "android"],
            "locales": ["ja"], "timezones": ["asia/tokyo"], "app_version": {"min": "1.2", "max": "2.0"},
            "tags": {"plan": ["free", "trial"]}}},
            "message": {"notification": {"title": "Hello {{name}}", "url": "{{link}}"}, "data": {"b":  1.0},
              "urgency": "high", "ttl": "2h", "collapse_key": "k", "category": "offers", "when": "stored",
              "push": {"mode": "fallback", "after": "1m", "apns": {"payload": {}}}},
            "locales": {"ja": {"notification": {"title": "やあ {{name}}"}}},
            "variables": {"name": "you", "link": "app:"},
            "start_at": "2026-01-15T09:30:00+09:00", "local_time": "09:00",
            "quiet_hours": {"from": "22:00", "to": "07:00"},
            "rate_per_second": 1000, "lane": "extra", "batch_size": 100, "start": false}"#,
    )
    .expect("a campaign");
    assert_eq!(spec.name.as_deref(), Some("Spring"));
    assert!(matches!(&spec.audience, Audience::Topic(topic) if topic.as_str() == "news"));
    assert_eq!(spec.filter.timezones, ["Asia/Tokyo"], "as the database writes it");
    assert_eq!((spec.filter.platforms.len(), spec.filter.tags["plan"].len()), (2, 2));
    assert_eq!(spec.message.data.as_ref().map(JsonText::as_str), Some(r#"{"b":  1.0}"#), "unchanged");
    assert_eq!((spec.message.when, spec.message.push.mode), (Some(When::Stored), PushMode::Fallback));
    assert_eq!(spec.message.urgency, Urgency::High);
    assert_eq!(spec.message.category.as_ref().map(Label::as_str), Some("offers"));
    assert!(spec.locales.contains_key("ja"));
    assert_eq!(spec.start_at, Some(Timestamp(1_768_437_000_000)));
    assert_eq!(spec.quiet_hours.map(|hours| hours.to.to_string()).as_deref(), Some("07:00"));
    assert_eq!((spec.rate_per_second, spec.batch_size, spec.start), (Some(1_000), 100, false));
    assert_eq!(spec.lane, Lane::Extra);
    assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec));
}

#[test]
fn absent_fields_have_defaults() {
    let spec = to(r#"{"everyone": true}"#).expect("small");
    assert_eq!((spec.filter, spec.lane, spec.batch_size), (Filter::default(), Lane::Campaign, 500));
    assert!(spec.start, "at once");
    assert_eq!((spec.message.when, spec.message.push.mode), (None, PushMode::Always), "only push services");
    assert!(!to(r#"{"upload": true}"#).expect("an upload").start, "its recipients are not uploaded yet");
    let live = read(r#"{"audience": {"everyone": true}, "message": {"data": 1, "when": "stored"}}"#);
    assert_eq!(live.expect("live").message.push.mode, PushMode::Never, "as for any notification");
}

#[test]
fn an_audience_has_exactly_one_kind() {
    for good in [
        r#"{"condition": "'a' in topics"}"#,
        r#"{"devices": {}}"#,
        r#"{"everyone": true, "devices": {"platforms": ["web"]}}"#,
        r#"{"condition": "'a' in topics", "devices": {"locales": ["zh-Hant"]}}"#,
    ] {
        assert!(to(good).is_ok(), "{good}");
    }
    wrong(to("{}"), "audience");
    wrong(to(r#"{"everyone": true, "topic": "t"}"#), "audience");
    wrong(to(r#"{"everyone": false}"#), "audience.everyone");
    wrong(to(r#"{"topic": "a/#"}"#), "audience.topic");
    wrong(to(r#"{"upload": true, "devices": {"platforms": ["ios"]}}"#), "audience.devices");
    refused(to(r#"{"users": ["u1"]}"#), Code::UnknownField, "audience.users");
    wrong(to(r#"{"devices": {"platforms": []}}"#), "audience.devices.platforms");
    wrong(to(r#"{"devices": {"platforms": ["toaster"]}}"#), "audience.devices.platforms[0]");
    wrong(to(r#"{"devices": {"timezones": ["Asia/Edo"]}}"#), "audience.devices.timezones[0]");
    wrong(to(r#"{"devices": {"tags": {"k": []}}}"#), "audience.devices.tags.k");
    wrong(to(r#"{"devices": {"app_version": {"min": "v1"}}}"#), "app_version.min");
    let many: Vec<String> = (0..=VALUES_MAX).map(|_| "\"ja\"".to_owned()).collect();
    wrong(to(&format!(r#"{{"devices": {{"locales": [{}]}}}}"#, many.join(","))), "audience.devices.locales");
}

#[test]
fn fields_keep_their_rules() {
    wrong(with(r#""start_at": "tomorrow""#), "start_at");
    wrong(with(r#""local_time": "9:00""#), "local_time");
    wrong(with(r#""quiet_hours": {"from": "07:00", "to": "07:00"}"#), "quiet_hours");
    wrong(with(r#""rate_per_second": 0"#), "rate_per_second");
    wrong(with(r#""rate_per_second": -1"#), "rate_per_second");
    wrong(with(r#""lane": "direct""#), "lane");
    wrong(with(r#""batch_size": 1001"#), "batch_size");
    wrong(with(r#""variables": {"a b": "x"}"#), "variables.a b");
    wrong(with(&format!(r#""variables": {{"a": "{}"}}"#, "x".repeat(1_025))), "variables");
    wrong(with(r#""locales": {"japanese!": {"data": 1}}"#), "locales.japanese!");
    wrong(with(r#""locales": {"ja": {}}"#), "locales.ja");
    wrong(with(r#""locales": {"ja": {"notification": {}}}"#), "locales.ja.notification");
    wrong(with(r#""locales": {"ja": {"data": "{{"}}"#), "locales.ja.data");
    wrong(with(r#""locales": {"ja": {"data": "{{who}}"}}"#), "variables");
    refused(with(r#""retain": true"#), Code::UnknownField, "retain");
    wrong(with(&format!(r#""name": "{}""#, "n".repeat(256))), "name");
}

#[test]
fn a_message_without_when_goes_to_push_services() {
    let message = |fields: &str| {
        read(&format!(r#"{{"audience": {{"everyone": true}}, "message": {{"data": 1, {fields}}}}}"#))
    };
    assert!(message(r#""push": {"mode": "always"}"#).is_ok());
    assert!(message(r#""push": {"apns": {}}"#).is_ok());
    wrong(message(r#""push": {"mode": "never"}"#), "message.push.mode");
    wrong(message(r#""push": {"mode": "fallback"}"#), "message.push.mode");
    wrong(
        message(r#""when": "stored", "ttl": "5s", "push": {"mode": "fallback", "after": "6s"}"#),
        "message.push.after",
    );
    wrong(message(r#""push": {"fcm": 1}"#), "message.push.fcm");
    wrong(message(r#""ttl": "29d""#), "message.ttl");
    wrong(message(r#""notification": {"url": "nowhere"}"#), "message.notification.url");
    refused(
        message(&format!(r#""push": {{"apns": {{"a": "{}"}}}}"#, "x".repeat(4_096))),
        Code::DataTooLarge,
        "message.push.apns",
    );
    wrong(read(r#"{"audience": {"everyone": true}, "message": {}}"#), "message");
    wrong(read(r#"{"audience": {"everyone": true}}"#), "message");
}

#[test]
fn a_recipient_has_a_user_and_own_content() {
    let line = |text: &str| recipient(text.as_bytes(), &Limits::default());
    let read = line(r#"{"user":"u1","variables":{"name":"Ana"},"data":{"n":  1}}"#).expect("a line");
    assert_eq!((read.user.as_str(), read.own.variables["name"].as_str()), ("u1", "Ana"));
    assert_eq!(read.own.data.as_ref().map(JsonText::as_str), Some(r#"{"n":  1}"#), "unchanged");
    assert!(line(r#"{"user":"u1","notification":{"title":"for you"},"data":[1]}"#).is_ok());
    assert!(line(r#"{"user":"u1"}"#).is_ok());
    wrong(line("{}"), "user");
    wrong(line(r#"{"user":""}"#), "user");
    wrong(line(r#"{"user":"u1","variables":{"a":1}}"#), "variables.a");
    wrong(line(&format!(r#"{{"user":"u1","variables":{{"a":"{}"}}}}"#, "x".repeat(1_025))), "variables");
    assert!(line(r#"{"user":"u1","notification":{"title":"{{"}}"#).is_ok(), "no placeholders here");
    wrong(line(r#"{"user":"u1","notification":{"url":"{{link}}"}}"#), "notification.url");
    refused(line(r#"{"user":"u1","name":"Ana"}"#), Code::UnknownField, "name");
    refused(line("user"), Code::InvalidJson, "");
    refused(line(&format!(r#"{{"user":"u1","data":"{}"}}"#, "x".repeat(5_000))), Code::DataTooLarge, "data");
}

#[test]
fn typed_fields_are_validated_in_the_message_and_in_every_variant() {
    let check = |fields: &str, path: &str| {
        let shown = format!("{{\"notification\":{{\"title\":\"T\",{fields}}}}}");
        let message = format!(r#"{{"audience":{{"everyone":true}},"message":{shown}}}"#);
        wrong(read(&message), &format!("message.notification.{path}"));
        wrong(with(&format!("\"locales\":{{\"ja\":{shown}}}")), &format!("locales.ja.notification.{path}"));
        let trial = format!("\"experiment\":{{\"name\":\"x\",\"variants\":{{\"b\":{shown}}}}}");
        wrong(with(&trial), &format!("experiment.variants.b.notification.{path}"));
    };
    check(r#""level": "loud""#, "level");
    check(r#""actions": [{"id": "a", "title": ""}]"#, "actions[0].title");
    check(r#""fcm_analytics_label": "{{label}}""#, "fcm_analytics_label");
    check(r#""android_color": "{{color}}""#, "android_color");
}

#[test]
fn texts_of_typed_fields_may_have_placeholders() {
    let fields = r#""thread": "{{chat}}", "sound": "{{sound}}", "icon": "{{icon}}", "category": "{{kind}}",
        "android_channel": "{{channel}}", "actions": [{"id": "{{id}}", "title": "{{yes}}", "url": "{{link}}"}]"#;
    let message =
        format!(r#"{{"audience":{{"upload":true}},"message":{{"notification":{{"title":"T",{fields}}}}}}}"#);
    let spec = read(&message).expect("a campaign");
    let template = Template::parse(spec.message.notification.expect("a notification")).expect("a template");
    let names: Vec<&str> = template.names().collect();
    assert_eq!(names, ["chat", "sound", "icon", "kind", "channel", "id", "yes", "link"]);
}
