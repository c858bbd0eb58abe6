//! The list of notifications, and the filters of the list of devices.

use noroshi_types::{DeviceId, Scope, Timestamp, UtcDay};
use serde_json::{Value, json};

use crate::service::{NOW, Service};

fn column(page: &Value, list: &str, name: &str) -> Vec<String> {
    let entries = page[list].as_array().expect("a list");
    entries.iter().map(|entry| entry[name].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn notifications_are_listed_with_filters() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let body = r#"{"to": {"users": ["u1"]}, "notification": {"title": "狼煙", "body": "It is on its way"}, "category": "orders"}"#;
    let to_user = service.publish(body).await;
    let to_topic =
        service.publish(r#"{"to": {"topic": "news"}, "urgency": "low", "data": {"secret": 1}}"#).await;
    let page = service.get("/v1/notifications", &service.key).await.json();
    assert_eq!(column(&page, "notifications", "id"), [to_topic.clone(), to_user.clone()]);
    assert_eq!((&page["next"], page.get("searched_to")), (&Value::Null, None));
    let shown = &page["notifications"][1];
    let expected = json!({
        "id": to_user, "sent_at": NOW.to_string(), "expires_at": shown["expires_at"], "when": "stored",
        "urgency": "normal", "target": {"kind": "users"}, "targets": 1, "title": "狼煙", "text": "It is on its way",
        "category": "orders", "campaign": null, "state": "pending", "counts": {"kept": 1},
    });
    assert_eq!(*shown, expected);
    assert!(!page.to_string().contains("secret"), "data is not listed: {page}");

    let list = async |query: &str| {
        let page = service.get(&format!("/v1/notifications?{query}"), &service.key).await;
        column(&page.json(), "notifications", "id")
    };
    assert_eq!(list("target=users").await, std::slice::from_ref(&to_user));
    assert_eq!(list("topic=news").await, std::slice::from_ref(&to_topic));
    assert_eq!(list("category=orders").await, std::slice::from_ref(&to_user));
    assert_eq!(list("urgency=low").await, std::slice::from_ref(&to_topic));
    assert_eq!(list("device=d1").await, std::slice::from_ref(&to_user));
    assert_eq!(list("user=u1&urgency=low").await, Vec::<String>::new());
    assert_eq!(list("campaign=0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10").await, Vec::<String>::new());
    assert_eq!(list("user=&topic=&since=").await, [to_topic.clone(), to_user.clone()], "empty values");
    assert_eq!(list(&format!("since={NOW}")).await, [to_topic.clone(), to_user.clone()]);
    assert_eq!(list("until=2001-01-01T00:00:00Z").await, Vec::<String>::new());

    let first = service.get("/v1/notifications?limit=1", &service.key).await.json();
    assert_eq!((&first["next"], &first["searched_to"]), (&json!(to_topic), &json!(NOW.to_string())));
    assert_eq!(list(&format!("limit=1&after={to_topic}")).await, std::slice::from_ref(&to_user));

    let acked = service.post("/v1/me/inbox/ack", &token, &format!("{{\"ids\": [\"{to_user}\"]}}")).await;
    assert_eq!(acked.json(), json!({"acked": 1}));
    let page = service.get("/v1/notifications?user=u1", &service.key).await.json();
    let recipient = &page["notifications"][0]["recipients"][0];
    assert_eq!(
        (&recipient["device"], &recipient["outcome"], &recipient["in_inbox"]),
        (&json!("d1"), &json!("acked"), &json!(false))
    );
}

#[tokio::test]
async fn wrong_filters_of_notifications_are_named() {
    let service = Service::start().await;
    for (query, field) in [
        ("since=yesterday", "since"),
        ("until=1", "until"),
        ("target=all", "target"),
        ("user=u1&device=d1", "device"),
        ("topic=a%23", "topic"),
        ("campaign=1", "campaign"),
        ("category=A%20B", "category"),
        ("urgency=urgent", "urgency"),
        ("after=1", "after"),
        ("limit=201", "limit"),
        ("limit=0", "limit"),
    ] {
        let path = format!("/v1/notifications?{query}");
        let problem = service.get(&path, &service.key).await.problem(400, "invalid_parameter");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
    service.get("/v1/notifications?secret=1", &service.key).await.problem(400, "invalid_parameter");
    let publisher = service.key_with(&[Scope::Publish]).await;
    service.get("/v1/notifications", &publisher).await.problem(403, "forbidden");
}

#[tokio::test]
async fn devices_are_filtered_by_platform_and_token() {
    let service = Service::start().await;
    for body in [
        r#"{"device": "bare", "user": "u1", "platform": "web"}"#,
        r#"{"device": "phone", "user": "u1", "platform": "android", "push_token": {"service": "fcm", "token": "t"}}"#,
        r#"{"device": "other", "user": "u2", "platform": "android"}"#,
    ] {
        let answer = service.post("/v1/devices", &service.key, body).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    }
    let list = async |query: &str| {
        let page = service.get(&format!("/v1/devices?{query}"), &service.key).await;
        column(&page.json(), "devices", "device")
    };
    assert_eq!(list("").await, ["bare", "phone", "other"]);
    assert_eq!(list("platform=android").await, ["phone", "other"]);
    assert_eq!(list("token=none").await, ["bare", "other"]);
    assert_eq!(list("token=none&user=u1").await, ["bare"]);
    assert_eq!(list("token=any").await, ["phone"]);
    assert_eq!(list("token=usable&service=fcm").await, ["phone"]);
    assert_eq!(list("service=apns").await, Vec::<String>::new());
    assert_eq!(list("kind=fcm&platform=android").await, ["phone"]);
    assert_eq!(list("token=suspended").await, Vec::<String>::new());
    let first = service.get("/v1/devices?token=none&limit=1", &service.key).await.json();
    let next = first["next"].as_str().expect("more follow");
    assert_eq!(list(&format!("token=none&limit=1&after={next}")).await, ["other"]);
    for (query, field) in [
        ("platform=phone", "platform"),
        ("token=some", "token"),
        ("token=none&service=fcm", "token"),
        ("service=gcm", "service"),
        ("kind=push", "kind"),
    ] {
        let path = format!("/v1/devices?{query}");
        let problem = service.get(&path, &service.key).await.problem(400, "invalid_parameter");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
}

#[tokio::test]
async fn devices_are_filtered_by_the_day_they_were_seen() {
    let service = Service::start().await;
    let mut tokens = Vec::new();
    for device in ["never", "old", "today", "first"] {
        tokens.push(service.device(device, "u1").await);
    }
    let day = UtcDay::of(NOW);
    let old =
        service.store.device(service.app(), &DeviceId::parse("old").expect("an id")).await.expect("read");
    let old = vec![old.expect("a device").num];
    service.store.record_seen(old, UtcDay(day.0 - 40)).await.expect("recorded");
    // Devices that use the API. The drain writes what waits.
    let answer = service.put("/v1/me/topics/news", &tokens[2], "").await;
    assert!(answer.status.is_success(), "{}", answer.text);
    let answer = service.get("/v1/me", &tokens[3]).await;
    assert!(answer.status.is_success() && !answer.text.contains("last_seen"), "{}", answer.text);
    service.state.delivery.clone().run(std::future::ready(())).await;

    let list = async |query: &str| {
        let page = service.get(&format!("/v1/devices?{query}"), &service.key).await;
        column(&page.json(), "devices", "device")
    };
    let time = |days: u32| Timestamp(u64::from(day.0 - days) * 86_400_000 + 43_200_000);
    let (today, month, before) = (time(0), time(40), time(41));
    assert_eq!(list(&format!("seen_after={today}")).await, ["today", "first"]);
    assert_eq!(list(&format!("seen_after={month}")).await, ["old", "today", "first"]);
    assert_eq!(list(&format!("seen_before={today}")).await, ["old"]);
    assert_eq!(list(&format!("seen_before={month}")).await, Vec::<String>::new());
    assert_eq!(list(&format!("seen_after={before}&seen_before={today}&user=u1")).await, ["old"]);
    assert_eq!(list(&format!("seen_after={today}&token=none&seen=")).await, ["today", "first"]);
    assert_eq!(list("seen=never").await, ["never"]);
    let first = service.get(&format!("/v1/devices?seen_after={month}&limit=1"), &service.key).await.json();
    let next = first["next"].as_str().expect("more follow");
    assert_eq!(list(&format!("seen_after={month}&limit=1&after={next}")).await, ["today"]);
    let shown = service.get("/v1/devices", &service.key).await.json();
    let days: Vec<_> =
        shown["devices"].as_array().expect("a list").iter().map(|one| &one["last_seen"]).collect();
    assert_eq!(
        days,
        [
            &Value::Null,
            &json!(UtcDay(day.0 - 40).to_string()),
            &json!(day.to_string()),
            &json!(day.to_string())
        ]
    );
    let shown = service.get("/v1/devices/today", &service.key).await.json();
    assert_eq!(shown["last_seen"], day.to_string());

    for (query, field) in [
        ("seen_after=yesterday", "seen_after"),
        ("seen_before=2026-11-27", "seen_before"),
        ("seen=always", "seen"),
        ("seen=never&seen_after=2026-11-27T00:00:00Z", "seen"),
    ] {
        let path = format!("/v1/devices?{query}");
        let problem = service.get(&path, &service.key).await.problem(400, "invalid_parameter");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
}
