//! Items of users: lists, counts and changes of a device for its own user, and what a provider sees of them.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::service::{Service, in_an_hour, jwt};

/// Publishes an item for the users, with the number as data.
async fn publish(service: &Service, users: &[&str], category: Option<&str>, number: u32) -> String {
    let item = category.map_or_else(|| json!({}), |category| json!({"category": category}));
    let body = json!({"to": {"users": users}, "data": number, "item": item});
    service.publish(&body.to_string()).await
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| item["id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test]
async fn a_device_lists_counts_and_changes_items_of_its_user() {
    let service = Service::start().await;
    let (one, other) = (service.device("d1", "u1").await, service.device("d2", "u1").await);
    let mut sent = Vec::new();
    for (number, category) in (0..).zip([Some("orders"), None, Some("news"), Some("orders")]) {
        sent.push(publish(&service, &["u1"], category, number).await);
    }
    let get = async |path: &str| service.get(path, &one).await.json();
    let all = get("/v1/me/items").await;
    let newest: Vec<&str> = sent.iter().rev().map(String::as_str).collect();
    assert_eq!(ids(&all), newest);
    assert_eq!(all["next"], Value::Null);
    let item = &all["items"][0];
    assert_eq!(
        (&item["state"], &item["category"], &item["data"]),
        (&json!("unread"), &json!("orders"), &json!(3))
    );
    assert_eq!(all["items"][2].get("category"), None);
    let page = get("/v1/me/items?limit=3").await;
    let rest =
        get(&format!("/v1/me/items?limit=3&after={}", page["next"].as_str().expect("a position"))).await;
    assert_eq!(
        (ids(&page), ids(&rest), &rest["next"]),
        (newest[..3].to_vec(), newest[3..].to_vec(), &Value::Null)
    );
    let counted = json!({"unread": 4, "categories": {"news": 1, "orders": 2}});
    assert_eq!(get("/v1/me/items/counts").await, counted);
    assert_eq!(get("/v1/me").await["unread_items"], 4);

    let change = async |token: &str, body: Value| {
        service.call(Method::PATCH, "/v1/me/items", token, &body.to_string()).await.json()
    };
    let read = json!({"action": "read", "ids": [sent[0], sent[0], "01890a5d-ac96-774b-bcce-b302099a8057"]});
    let after = json!({"changed": 1, "unread": 3, "categories": {"news": 1, "orders": 1}});
    assert_eq!(change(&other, read.clone()).await, after);
    assert_eq!(change(&one, read).await["changed"], 0);
    assert_eq!(get("/v1/me").await["unread_items"], 3, "the cached answer is stale");
    assert_eq!(ids(&get("/v1/me/items?state=read").await), [&sent[0]]);
    assert_eq!(ids(&get("/v1/me/items?state=unread&category=orders").await), [&sent[3]]);
    let archived = change(&one, json!({"action": "archive", "ids": [sent[3]]})).await;
    assert_eq!((&archived["changed"], &archived["unread"]), (&json!(1), &json!(2)));
    assert_eq!(ids(&get("/v1/me/items").await), newest[1..], "archived ones are hidden");
    assert_eq!(ids(&get("/v1/me/items?state=archived").await), [&sent[3]]);
    assert_eq!(ids(&get("/v1/me/items?state=all").await), newest);
    let late = publish(&service, &["u1"], Some("news"), 9).await;
    let all = change(&one, json!({"action": "read", "up_to": sent[3]})).await;
    assert_eq!(
        all,
        json!({"changed": 2, "unread": 1, "categories": {"news": 1}}),
        "a newer one stays unread"
    );
    assert_eq!(ids(&get("/v1/me/items?state=unread").await), [&late]);

    for bad in ["state=new", "category=A%20B", "after=x", "limit=0", "limit=1001", "page=1"] {
        service.get(&format!("/v1/me/items?{bad}"), &one).await.problem(400, "invalid_parameter");
    }
    let none = service.call(Method::PATCH, "/v1/me/items", &one, r#"{"action": "read"}"#).await;
    assert_eq!(none.problem(400, "invalid_field")["field"], "ids");
}

#[tokio::test]
async fn items_are_of_the_own_user_only() {
    let service = Service::start().await;
    let (mine, stranger) = (service.device("d1", "u1").await, service.device("d2", "u2").await);
    let anonymous = service.post("/v1/devices", &service.key, r#"{"device": "d3"}"#).await.json();
    let anonymous = anonymous["token"].as_str().expect("a token").to_owned();
    let id = publish(&service, &["u1"], None, 1).await;
    let read = json!({"action": "read", "ids": [id]}).to_string();
    let archive = json!({"action": "archive", "up_to": id}).to_string();
    for token in [&stranger, &anonymous] {
        assert_eq!(service.get("/v1/me/items", token).await.json(), json!({"items": [], "next": null}));
        let none = json!({"unread": 0, "categories": {}});
        assert_eq!(service.get("/v1/me/items/counts", token).await.json(), none);
        for body in [&read, &archive] {
            let changed = service.call(Method::PATCH, "/v1/me/items", token, body).await.json();
            assert_eq!(changed["changed"], 0);
        }
    }
    // A key is no device, a device no provider, and another app has users of its own.
    for (method, path) in
        [(Method::GET, "/v1/me/items"), (Method::GET, "/v1/me/items/counts"), (Method::PATCH, "/v1/me/items")]
    {
        for bearer in [&*service.key, "wrong", ""] {
            service.call(method.clone(), path, bearer, &read).await.problem(401, "unauthorized");
        }
    }
    for (method, path) in [
        (Method::GET, "/v1/users/u1/items"),
        (Method::GET, "/v1/users/u1/items/counts"),
        (Method::DELETE, "/v1/users/u1/items"),
    ] {
        for bearer in [&*mine, "wrong", ""] {
            service.call(method.clone(), path, bearer, "").await.problem(401, "unauthorized");
        }
        let other = service.call(method, path, &service.other_key, "").await;
        assert_eq!(other.status, StatusCode::OK);
        assert!(!other.text.contains(&id), "{}", other.text);
    }
    assert_eq!(service.get("/v1/me/items/counts", &mine).await.json()["unread"], 1, "nothing changed");
    service.post("/v1/devices/d1/revoke", &service.key, "").await;
    service.get("/v1/me/items", &mine).await.problem(401, "unauthorized");
    service.call(Method::PATCH, "/v1/me/items", &mine, &read).await.problem(401, "unauthorized");
    assert_eq!(service.get("/v1/users/u1/items/counts", &service.key).await.json()["unread"], 1);
    // A JWT of the user has the same items.
    let token = jwt(&json!({"sub": "u1", "device": "d9", "exp": in_an_hour(), "iat": in_an_hour() - 60}));
    assert_eq!(ids(&service.get("/v1/me/items", &token).await.json()), [&id]);
}

#[tokio::test]
async fn a_device_that_changes_its_user_sees_the_items_of_the_new_one() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    publish(&service, &["u1"], None, 1).await;
    let second = publish(&service, &["u2"], None, 2).await;
    assert_eq!(service.get("/v1/me", &token).await.json()["unread_items"], 1);
    service.post("/v1/devices", &service.key, r#"{"device": "d1", "user": "u2"}"#).await;
    let token = service.device("d1", "u2").await;
    assert_eq!(ids(&service.get("/v1/me/items", &token).await.json()), [&second]);
}

#[tokio::test]
async fn a_provider_reads_and_deletes_items() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let id = publish(&service, &["u1", "nobody"], Some("x"), 1).await;
    let key = async |scopes: Value| {
        let body = json!({"name": "k", "scopes": scopes}).to_string();
        let made = service.post("/v1/apps/dev/keys", &service.key, &body).await.json();
        made["key"].as_str().expect("a key").to_owned()
    };
    let (reads, manages) = (key(json!(["read"])).await, key(json!(["devices"])).await);
    for user in ["u1", "nobody"] {
        let path = format!("/v1/users/{user}/items");
        assert_eq!(ids(&service.get(&path, &reads).await.json()), [&id]);
        let counts = service.get(&format!("{path}/counts"), &reads).await.json();
        assert_eq!(counts, json!({"unread": 1, "categories": {"x": 1}}));
        service.get(&path, &manages).await.problem(403, "forbidden");
        service.get(&format!("{path}/counts"), &manages).await.problem(403, "forbidden");
        service.call(Method::DELETE, &path, &reads, "").await.problem(403, "forbidden");
    }
    let delete = async |user: &str| {
        service.call(Method::DELETE, &format!("/v1/users/{user}/items"), &manages, "").await.json()
    };
    assert_eq!(delete("u1").await, json!({"deleted": 1}));
    assert_eq!(delete("u1").await, json!({"deleted": 0}));
    assert_eq!(service.get("/v1/me/items", &token).await.json()["items"], json!([]));
    assert_eq!(service.get("/v1/users/nobody/items/counts", &reads).await.json()["unread"], 1);
    // The notification itself is still in the inbox.
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["total"], 1);
}

#[tokio::test]
async fn only_named_targets_can_have_items() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let refused = async |to: Value, item: Value, code: &str| {
        let body = json!({"to": to, "data": 1, "item": item}).to_string();
        service.post("/v1/notifications", &service.key, &body).await.problem(400, code)["field"].clone()
    };
    for to in [json!({"topic": "t"}), json!({"everyone": true}), json!({"condition": "'t' in topics"})] {
        assert_eq!(refused(to, json!({}), "invalid_field").await, "item");
    }
    let user = || json!({"users": ["u1"]});
    for (item, field) in [
        (json!({"category": ""}), "item.category"),
        (json!({"category": "A"}), "item.category"),
        (json!({"category": "x".repeat(65)}), "item.category"),
        (json!({"retention": "59s"}), "item.retention"),
        (json!({"retention": "366d"}), "item.retention"),
        (json!({"retention": "soon"}), "item.retention"),
    ] {
        assert_eq!(refused(user(), item, "invalid_field").await, field);
    }
    assert_eq!(refused(user(), json!({"state": "read"}), "unknown_field").await, "item.state");
    let many: Vec<String> = (0..1_001).map(|number| format!("u{number}")).collect();
    assert_eq!(refused(json!({"users": many}), json!({}), "too_many_targets").await, "to");
    let body = json!({"to": {"users": many[..1_000]}, "data": 1, "item": {"retention": "365d"}}).to_string();
    service.publish(&body).await;
    // Also for devices, and for those in use only.
    let body = json!({"to": {"devices": ["d1"]}, "when": "active", "data": 1, "item": null}).to_string();
    service.publish(&body).await;
    let body = json!({"to": {"devices": ["d1"]}, "when": "active", "data": 1, "item": {}}).to_string();
    let id = service.publish(&body).await;
    let listed = service.get("/v1/me/items", &token).await.json();
    assert_eq!((ids(&listed).len(), ids(&listed)[0]), (2, &*id));
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["total"], 1);
    // A cancelled notification is in no list.
    service.call(Method::DELETE, &format!("/v1/notifications/{id}"), &service.key, "").await;
    assert_eq!(ids(&service.get("/v1/me/items", &token).await.json()).len(), 1);
}
