//! Every rule of a notification, at its limit and one above it.

use super::*;

fn read(text: &str) -> Result<Request, Problem> {
    notification(text.as_bytes(), &Limits::default(), Timestamp(0))
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
    assert_eq!(request.push.own.get(PushService::Apns).map(JsonText::as_str), Some(r#"{"aps": {}}"#));
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
fn the_category_of_a_notification_is_that_of_its_item_and_the_other_way_round() {
    let categories = |fields: &str| {
        let request = read(&format!(r#"{{"to":{{"users":["a"]}},"data":1{fields}}}"#)).expect(fields);
        let of_item = request.item.and_then(|item| item.category).map(|name| name.to_string());
        assert!(request.category.as_ref().is_none_or(|category| !category.is_essential));
        (request.category.map(|category| category.name.to_string()), of_item)
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(categories(""), (None, None));
    assert_eq!(categories(r#","category":null,"item":{}"#), (None, None));
    assert_eq!(categories(r#","category":"a""#), (some("a"), None));
    assert_eq!(categories(r#","category":"a","item":{}"#), (some("a"), some("a")));
    assert_eq!(categories(r#","item":{"category":"b"}"#), (some("b"), some("b")));
    assert_eq!(categories(r#","category":"a","item":{"category":"a"}"#), (some("a"), some("a")));
    let two = r#"{"to":{"users":["u"]},"data":1,"category":"a","item":{"category":"b"}}"#;
    refused(read(two), Code::InvalidField, "item.category");
    let topic = read(r#"{"to":{"topic":"t"},"data":1,"category":"a"}"#).expect("a topic");
    assert_eq!(topic.category.map(|category| category.name.to_string()), some("a"));
    for bad in ["\"A B\"", "\"\"", "1", "[]"] {
        let text = format!(r#"{{"to":{{"users":["a"]}},"data":1,"category":{bad}}}"#);
        refused(read(&text), Code::InvalidField, "category");
    }
}

#[test]
fn items_are_for_named_targets() {
    let with_item = |to: &str, item: &str| read(&format!("{{\"to\":{to},\"data\":1,\"item\":{item}}}"));
    let users = r#"{"users": ["a", "b"]}"#;
    let request = with_item(users, "{}").expect("users");
    assert_eq!(request.item, Some(ItemRequest::default()));
    let whole = r#"{"category": "orders", "retention": "1m"}"#;
    let item = with_item(r#"{"devices": ["a"]}"#, whole).expect("devices").item.expect("an item");
    assert_eq!(item.category.as_ref().map(Label::as_str), Some("orders"));
    assert_eq!(item.retention, limits::ITEM_RETENTION_MIN);
    assert_eq!(with_item(users, "null").expect("none").item, None);
    let empty = with_item(users, r#"{"category": null, "retention": null}"#).expect("defaults");
    assert_eq!(empty.item, Some(ItemRequest::default()));
    for to in [r#"{"topic": "t"}"#, r#"{"everyone": true}"#, r#"{"condition": "'t' in topics"}"#] {
        refused(with_item(to, "{}"), Code::InvalidField, "item");
    }
    refused(with_item(users, r#"{"retention": "366d"}"#), Code::InvalidField, "item.retention");
    refused(with_item(users, r#"{"category": "Orders"}"#), Code::InvalidField, "item.category");
    refused(with_item(users, r#"{"read": true}"#), Code::UnknownField, "item.read");
    refused(with_item(users, "true"), Code::InvalidField, "item");
    for (count, is_valid) in [(limits::ITEM_TARGETS_MAX, true), (limits::ITEM_TARGETS_MAX + 1, false)] {
        let text = list("users", count).replace("\"data\":1", "\"data\":1,\"item\":{}");
        assert_eq!(read(&text).is_ok(), is_valid, "{count}");
    }
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
    assert!(notification(text.as_bytes(), &more, Timestamp(0)).is_ok(), "an operator may allow more");

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
    check(r#""notification": {"url": "JavaScript:alert(1)"}"#, "notification.url");
    check(
        r#""notification": {"title": "T", "actions": [{"id": "a", "title": "A", "url": "data:text/html,x"}]}"#,
        "notification.actions[0].url",
    );
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

/// A notification with a title and these additional fields.
fn shown_with(fields: &str) -> Result<Request, Problem> {
    with(&format!("\"notification\": {{\"title\":\"T\",{fields}}}"))
}

#[test]
fn typed_fields_are_accepted_and_kept_as_written() {
    let fields = r##""level": "time-sensitive", "relevance": 0.50, "sound": {"name": "a.caf", "critical": true, "volume": 1},
        "badge": 0, "thread": "t", "actions": [{"id": "a", "title": "A"}, {"id": "b", "title": "B", "url": "app:b"}],
        "mutable": true, "content_available": false, "category": "C", "icon": "https://i/", "lang": "zh-Hant-TW",
        "dir": "rtl", "android_channel": "c", "android_icon": "i", "android_color": "#00aaFF",
        "android_click_action": "OPEN", "fcm_analytics_label": "Az09-_.~%""##;
    let request = shown_with(fields).expect("all fields");
    let expected = format!("{{\"title\":\"T\",{fields}}}");
    assert_eq!(request.notification.as_ref().map(JsonText::as_str), Some(expected.as_str()));
    for fields in [
        r#""level": null, "sound": null, "actions": null, "badge": null"#,
        r#""sound": "default""#,
        r#""sound": {}"#,
        r#""sound": {"critical": true}"#,
        r#""relevance": 0"#,
        r#""relevance": 1"#,
        r#""badge": 2147483647"#,
        r#""badge": "unread""#,
        r#""actions": []"#,
    ] {
        assert!(shown_with(fields).is_ok(), "{fields}");
    }
    assert!(with(r#""notification": {"badge": 0}"#).is_ok(), "a badge alone");
    let long = "n".repeat(limits::NOTIFICATION_NAME_BYTES_MAX);
    assert!(shown_with(&format!("\"thread\": \"{long}\"")).is_ok());
}

#[test]
fn errors_of_typed_fields_name_their_path() {
    let check = |fields: &str, field: &str| {
        refused(shown_with(fields), Code::InvalidField, &format!("notification.{field}"));
    };
    check(r#""level": "loud""#, "level");
    check(r#""level": 1"#, "level");
    for value in ["-0.1", "1.1", "\"1\"", "true"] {
        check(&format!("\"relevance\": {value}"), "relevance");
    }
    for value in ["-1", "1.5", "2147483648", "\"1\"", "\"all\"", "[]"] {
        check(&format!("\"badge\": {value}"), "badge");
    }
    check(r#""sound": """#, "sound");
    check(r#""sound": 1"#, "sound");
    check(r#""sound": ["a"]"#, "sound");
    check(r#""sound": {"name": ""}"#, "sound.name");
    check(r#""sound": {"critical": 1}"#, "sound.critical");
    check(r#""sound": {"critical": true, "volume": 2}"#, "sound.volume");
    check(r#""sound": {"volume": 0.5}"#, "sound.volume");
    check(r#""sound": {"critical": false, "volume": 0.5}"#, "sound.volume");
    let long = "n".repeat(limits::NOTIFICATION_NAME_BYTES_MAX + 1);
    for name in ["thread", "category", "android_channel", "android_icon", "android_click_action"] {
        for value in ["", &long, "a\\nb"] {
            check(&format!("\"{name}\": \"{value}\""), name);
        }
    }
    for value in ["red", "#12345", "#1234567", "#12345g", "123456"] {
        check(&format!("\"android_color\": \"{value}\""), "android_color");
    }
    for value in ["", "a b", "ä", "a/b", &"l".repeat(51)] {
        check(&format!("\"fcm_analytics_label\": \"{value}\""), "fcm_analytics_label");
    }
    check(r#""lang": "de_DE""#, "lang");
    check(r#""lang": """#, "lang");
    check(r#""lang": "toolongapart""#, "lang");
    check(r#""dir": "up""#, "dir");
    check(r#""icon": "ic_news""#, "icon");
    check(r#""mutable": 1"#, "mutable");
    check(r#""content_available": "yes""#, "content_available");
    check(r#""actions": {}"#, "actions");
    check(r#""actions": [{"title": "A"}]"#, "actions[0].id");
    check(r#""actions": [{"id": "a"}]"#, "actions[0].title");
    check(r#""actions": [{"id": "", "title": "A"}]"#, "actions[0].id");
    check(r#""actions": [{"id": "a", "title": "A"}, {"id": "a", "title": "B"}]"#, "actions[1].id");
    check(r#""actions": [{"id": "a", "title": "A", "url": "/x"}]"#, "actions[0].url");
    let five: Vec<String> = (0..5).map(|n| format!("{{\"id\": \"{n}\", \"title\": \"A\"}}")).collect();
    check(&format!("\"actions\": [{}]", five.join(",")), "actions");
    refused(shown_with(r#""sound": {"nam": "x"}"#), Code::UnknownField, "notification.sound.nam");
    let icon = r#""actions": [{"id": "a", "title": "A", "icon": "x"}]"#;
    refused(shown_with(icon), Code::UnknownField, "notification.actions[0].icon");
    refused(with(r#""notification": {"level": "active"}"#), Code::InvalidField, "notification");
}
