//! What all services accept, refuse and warn of.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fields::tests::{fields, json_text};

#[test]
fn only_the_named_services_are_checked() {
    let large = Fields { data: json_text(&json!({"x": "y".repeat(3_940)})), ..fields() };
    assert!(check_content(&large, &[PushService::Apns]).is_ok());
    assert!(matches!(
        check_content(&large, &PushService::ALL),
        Err(InvalidContent::TooLarge { service: PushService::WebPush, bytes_max: 3_993, .. })
    ));
}

/// The services of most apps.
const USUAL: [PushService; 3] = [PushService::Apns, PushService::Fcm, PushService::WebPush];

fn warned(notification: &Value, own: &Value) -> Vec<String> {
    warned_by(&USUAL, notification, own)
}

fn warned_by(services: &[PushService], notification: &Value, own: &Value) -> Vec<String> {
    let own = |service: PushService| Some((service, json_text(own.get(service.as_str())?)?));
    let fields = Fields {
        notification: json_text(notification),
        own: PushService::ALL.into_iter().filter_map(own).collect(),
        ..fields()
    };
    let warnings = check_content(&fields, services).unwrap().warnings(&fields, services);
    let name = |warning: Warning| {
        assert!(!warning.warning.is_empty());
        format!(
            "{} {}",
            warning.service.as_str(),
            warning.field.strip_prefix("notification.").unwrap_or(&warning.field)
        )
    };
    warnings.into_iter().map(name).collect()
}

#[test]
fn each_service_warns_of_what_it_does_not_show() {
    let check = |typed: Value, own: Value, expected: &[&str]| {
        let mut notification = json!({"title": "T", "url": "https://a/"});
        notification.as_object_mut().unwrap().extend(typed.as_object().unwrap().clone());
        assert_eq!(warned(&notification, &own), expected, "{typed}");
    };
    let none = || json!({});
    check(none(), none(), &[]);
    check(json!({"level": "active"}), none(), &[]);
    check(json!({"level": "passive", "mutable": true, "badge": 3}), none(), &[]);
    check(json!({"level": "time-sensitive"}), none(), &["apns level", "fcm level", "webpush level"]);
    check(json!({"level": "critical", "android_channel": "c"}), none(), &["apns level", "webpush level"]);
    check(json!({"relevance": 1}), none(), &["webpush relevance"]);
    check(json!({"sound": "default"}), none(), &["webpush sound"]);
    check(json!({"sound": {"critical": true}}), none(), &["apns sound", "fcm sound", "webpush sound"]);
    check(json!({"badge": 0}), none(), &["fcm badge"]);
    check(json!({"thread": "t"}), none(), &["webpush thread"]);
    check(json!({"icon": "https://i/"}), none(), &["apns icon"]);
    check(json!({"lang": "de"}), none(), &["apns lang"]);
    check(json!({"content_available": true}), none(), &["webpush content_available"]);
    let actions = |count: usize| {
        let action = |n: usize| json!({"id": n.to_string(), "title": "A"});
        json!({"actions": (0..count).map(action).collect::<Vec<_>>()})
    };
    check(actions(2), none(), &["apns actions", "fcm actions"]);
    check(actions(3), none(), &["apns actions", "fcm actions", "webpush actions"]);
    let category = json!({"apns": {"payload": {"aps": {"category": "c"}}}});
    check(actions(1), category, &["fcm actions"]);
    check(json!({"category": "c"}), none(), &["webpush category"]);
    // Fields that name their platform surprise nobody.
    let named = json!({"android_channel": "c", "android_icon": "i", "android_color": "#000000",
        "android_click_action": "a", "fcm_analytics_label": "l"});
    check(named, none(), &[]);
    // The provider's own payload is not Noroshi's to judge.
    check(json!({"sound": "default"}), json!({"webpush": {"payload": 1}}), &[]);
    let activity = json!({"apns": {"headers": {"apns-push-type": "liveactivity"},
        "payload": {"aps": {"event": "end", "timestamp": 1}}}});
    check(json!({"icon": "https://i/"}), activity, &[]);
}

#[test]
fn other_vendors_warn_of_what_they_do_not_show() {
    let all = json!({"title": "T", "level": "active", "relevance": 1, "sound": {"critical": true}, "badge": 100, "thread": "t",
        "actions": [{"id": "a", "title": "A"}], "category": "c", "content_available": true, "icon": "https://i/", "lang": "de"});
    let hms = [
        "level",
        "relevance",
        "sound",
        "badge",
        "thread",
        "actions",
        "category",
        "content_available",
        "icon",
        "lang",
    ];
    assert_eq!(warned_by(&[PushService::Hms], &all, &json!({})), hms.map(|field| format!("hms {field}")));
    let wns = ["relevance", "sound", "badge", "thread", "category", "content_available"];
    assert_eq!(warned_by(&[PushService::Wns], &all, &json!({})), wns.map(|field| format!("wns {field}")));
    assert_eq!(
        warned_by(&[PushService::Wns], &all, &json!({"wns": {"payload": "<toast/>"}})),
        [] as [&str; 0]
    );
    assert_eq!(warned_by(&[PushService::Hms], &json!({"badge": 1}), &json!({})), ["hms badge"]);
    assert_eq!(warned_by(&[PushService::Wns], &json!({"badge": 1}), &json!({})), [] as [&str; 0]);
    assert_eq!(
        warned_by(&[PushService::Webhook], &all, &json!({})),
        [] as [&str; 0],
        "a provider gets everything"
    );
}

#[test]
fn web_push_warns_of_messages_that_need_a_service_worker() {
    assert_eq!(warned(&json!({"title": "T", "badge": 1}), &json!({})), ["webpush url"]);
    assert_eq!(warned(&json!({"title": "T", "url": "app://x", "badge": 1}), &json!({})), ["webpush url"]);
    assert_eq!(warned(&json!({"body": "B", "url": "https://a/", "badge": 1}), &json!({})), ["webpush title"]);
    let large = json!({"title": "T".repeat(3_850), "url": "https://a/", "badge": 1});
    assert_eq!(warned(&large, &json!({})), ["webpush notification"]);
    let badge = json!({"badge": 1});
    assert_eq!(warned(&badge, &json!({})), ["fcm badge", "webpush title"]);
    // Without typed fields nobody asked for anything that some browsers lack.
    assert_eq!(warned(&json!({"title": "T"}), &json!({})), [] as [&str; 0]);
}

/// Texts with everything that JSON, HTML and templates give a meaning.
fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just("\"}]}".to_owned()),
        Just("\",\"web_push\":1,\"x\":\"".to_owned()),
        Just("{{name}}".to_owned()),
        Just("\u{0}\u{1f}\u{7f}\u{2028}\u{feff}".to_owned()),
        Just("</script>".to_owned()),
        Just("狼煙🔥".to_owned()),
        any::<char>().prop_map(String::from),
        "[a-z]{0,8}",
    ];
    proptest::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

fn notification() -> impl Strategy<Value = Value> {
    let keys = [
        "title",
        "body",
        "image",
        "url",
        "sound",
        "thread",
        "category",
        "icon",
        "lang",
        "android_channel",
        "android_icon",
        "android_color",
        "android_click_action",
        "fcm_analytics_label",
    ];
    let texts = proptest::collection::vec(proptest::option::of(hostile()), keys.len());
    let actions = proptest::collection::vec((hostile(), hostile(), proptest::option::of(hostile())), 0..4);
    let address = prop_oneof![hostile(), hostile().prop_map(|text| format!("https://a.example/{text}"))];
    (texts, actions, address, proptest::option::of(any::<u32>())).prop_map(
        move |(texts, actions, url, badge)| {
            let texts =
                keys.iter().zip(texts).filter_map(|(key, text)| Some(((*key).to_owned(), json!(text?))));
            let mut fields: serde_json::Map<String, Value> = texts.collect();
            let action = |(id, title, url)| json!({"id": id, "title": title, "url": url});
            fields.insert("actions".to_owned(), actions.into_iter().map(action).collect());
            fields.insert("url".to_owned(), json!(url));
            if let Some(badge) = badge {
                fields.insert("badge".to_owned(), json!(badge));
            }
            Value::Object(fields)
        },
    )
}

proptest! {
    /// Whatever a provider or a recipient's variable writes, it stays inside its own string.
    #[test]
    fn no_text_escapes_its_field(shown in notification()) {
        let fields = Fields { notification: json_text(&shown), ..fields() };
        let texts = [apns::rendered(&fields), fcm::rendered(&fields), webpush::rendered(&fields), hms::rendered(&fields)];
        let [apns, fcm, web, hms] = texts.map(|text| serde_json::from_slice::<Value>(&text).expect("JSON"));
        let text = |key: &str| shown.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        for (key, aps) in [("thread", "thread-id"), ("category", "category")] {
            if let Some(found) = apns["aps"].get(aps) {
                prop_assert_eq!(found.as_str(), text(key));
            }
        }
        let android = &fcm["message"]["android"]["notification"];
        for (key, name) in [("android_channel", "channelId"), ("android_icon", "icon"), ("android_click_action", "clickAction")] {
            if let Some(found) = android.get(name) {
                prop_assert_eq!(found.as_str(), text(key));
            }
        }
        if let Some(visible) = hms["payload"].get("notification") {
            let expected = text("title").map_or_else(|| text("body").map(|text| text.chars().take(60).collect()), |text| Some(text.to_owned()));
            prop_assert_eq!(visible["title"].as_str().map(str::to_owned), expected);
        }
        let xml = String::from_utf8(wns::rendered(&fields).to_vec()).expect("text");
        if xml.starts_with("<toast ") {
            let images = usize::from(shown.get("image").is_some()) + usize::from(text("icon").is_some());
            let actions = shown["actions"].as_array().map_or(0, Vec::len);
            prop_assert_eq!((xml.matches("<image ").count(), xml.matches("<action ").count()), (images, actions));
            prop_assert!(xml.matches("<text>").count() <= 2 && xml.ends_with("</toast>"));
        }
        let known = ["web_push", "id", "notification", "data", "app_badge", "mutable"];
        for key in web.as_object().expect("an object").keys() {
            prop_assert!(known.contains(&key.as_str()), "{}", key);
        }
        let notification = &web["notification"];
        prop_assert_eq!(notification.get("title").and_then(Value::as_str).filter(|title| !title.is_empty()), text("title"));
        match web.get("web_push") {
            None => prop_assert!(notification.get("navigate").is_none()),
            Some(number) => {
                prop_assert_eq!(number, &json!(8_030));
                prop_assert_eq!(notification["navigate"].as_str(), text("url"));
                for action in notification.get("actions").and_then(Value::as_array).into_iter().flatten() {
                    let fields = ["action", "title", "navigate"];
                    prop_assert!(action.as_object().is_some_and(|action| action.len() == 3));
                    prop_assert!(fields.iter().all(|field| action[*field].is_string()));
                    prop_assert!(crate::shown::is_web_url(action["navigate"].as_str().unwrap_or_default()));
                }
            }
        }
    }
}
