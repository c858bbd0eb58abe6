//! Valid and invalid attributes of devices.

use super::*;
use crate::error::Code;

fn refused<T: std::fmt::Debug>(result: Result<T, Problem>, code: Code, field: Option<&str>) {
    let problem = result.expect_err("refused");
    assert_eq!((problem.code(), problem.field_path()), (code, field), "{problem:?}");
}

#[test]
fn the_documents_example_is_parsed() {
    let read = device(
        br#"{"user": "u1", "platform": "ios", "locale": "ja-JP", "timezone": "Asia/Tokyo", "app_version": "1.2.3",
             "tags": {"k": "v"}, "topics": ["news", "news"], "push_token": {"service": "fcm", "token": "abc:d"}}"#,
    )
    .expect("the contract's example");
    assert_eq!(read.device, None);
    let Registration { user, attributes, topics, push_token, .. } = read.registration;
    assert_eq!(user.as_ref().map(UserId::as_str), Some("u1"));
    assert_eq!(attributes.timezone.as_deref(), Some("Asia/Tokyo"));
    assert_eq!(attributes.tags.get("k").map(String::as_str), Some("v"));
    assert_eq!(topics.len(), 1);
    assert!(push_token.is_some_and(|token| token.json.as_str().contains("abc:d")));
    assert!(device(b"{}").is_ok(), "all optional");
}

#[test]
fn attributes_keep_their_rules() {
    let check = |body: &str, field: &str| refused(device(body.as_bytes()), Code::InvalidField, Some(field));
    check(r#"{"platform": "toaster"}"#, "platform");
    check(r#"{"locale": "japanese!"}"#, "locale");
    check(r#"{"locale": "-ja"}"#, "locale");
    check(r#"{"timezone": "Asia//Tokyo"}"#, "timezone");
    check(r#"{"timezone": "../etc/passwd"}"#, "timezone");
    check(&format!("{{\"app_version\": \"{}\"}}", "1".repeat(65)), "app_version");
    check(r#"{"tags": {"k": 1}}"#, "tags.k");
    check(&format!("{{\"tags\": {{\"k\": \"{}\"}}}}", "v".repeat(256)), "tags.k");
    check(r#"{"topics": ["a", "b/#"]}"#, "topics[1]");
    refused(device(br#"{"plattform": "ios"}"#), Code::UnknownField, Some("plattform"));
    for locale in ["ja", "ja-JP", "zh-Hant-TW", "en_US", "sr-Latn"] {
        assert!(device(format!("{{\"locale\": \"{locale}\"}}").as_bytes()).is_ok(), "{locale}");
    }
    for zone in ["UTC", "Asia/Tokyo", "America/Argentina/Buenos_Aires", "Etc/GMT+9"] {
        assert!(device(format!("{{\"timezone\": \"{zone}\"}}").as_bytes()).is_ok(), "{zone}");
    }
}

#[test]
fn tags_and_topics_are_bounded() {
    let tags = |count: usize| {
        let tags: Vec<String> = (0..count).map(|i| format!("\"k{i}\": \"v\"")).collect();
        device(format!("{{\"tags\": {{{}}}}}", tags.join(",")).as_bytes())
    };
    assert!(tags(limits::TAGS_MAX).is_ok());
    refused(tags(limits::TAGS_MAX + 1), Code::InvalidField, Some("tags"));
    let topics = |count: usize| {
        let topics: Vec<String> = (0..count).map(|i| format!("\"t{i}\"")).collect();
        device(format!("{{\"topics\": [{}]}}", topics.join(",")).as_bytes())
    };
    assert!(topics(limits::TOPICS_PER_DEVICE_MAX).is_ok());
    refused(topics(limits::TOPICS_PER_DEVICE_MAX + 1), Code::InvalidField, Some("topics"));
}

#[test]
fn a_change_distinguishes_absent_from_null() {
    let change = device_change(
        br#"{"user": null, "locale": "en", "tags": {"a": null, "b": "1"}, "push_token": null}"#,
    )
    .expect("a change");
    assert_eq!(change.user, Some(None));
    assert_eq!(change.locale, Some(Some("en".to_owned())));
    assert_eq!(change.platform, None);
    assert_eq!(change.tags.get("a"), Some(&None));
    assert_eq!(change.tags.get("b"), Some(&Some("1".to_owned())));
    assert_eq!(change.push_token, Some(None));
    refused(device_change(br#"{"topics": []}"#), Code::UnknownField, Some("topics"));
    refused(
        device_change(br#"{"push_token": {"service": "fcm"}}"#),
        Code::InvalidField,
        Some("push_token.token"),
    );
}
