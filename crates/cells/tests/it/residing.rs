//! The assignment of devices to cells, and their management there.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{World, in_an_hour, jwt, within};

/// In an hour, as `exp` is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_follow_the_weights_and_assignments_stay() {
    let world = World::weighted([1, 2, 1], |_| {}).await;
    let lines: Vec<String> = (0..800)
        .map(|n| json!({"device": format!("d{n}"), "user": format!("u{}", n / 2)}).to_string())
        .collect();
    let answers = world.post("/v1/devices/batch", &lines.join("\n")).await.lines();
    assert_eq!(answers.len(), 800);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["device"], format!("d{n}"), "in the order of the lines: {answer}");
        assert!(answer["token"].is_string());
    }
    let mut shares = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let listed = world.listed(name).await;
        let devices = listed["devices"].as_u64().expect("a number");
        assert_eq!(devices, listed["users"].as_u64().expect("a number") * 2, "users' devices live together");
        shares.insert(name, devices / 2);
    }
    // Of 400 users; four standard deviations are 40.
    for (name, expected) in [("a", 100_u64), ("b", 200), ("c", 100)] {
        assert!(shares[name].abs_diff(expected) <= 40, "{shares:?}");
    }
    let before = world.cell_of("d7").await;
    world.operate(Method::PATCH, &format!("/v1/cells/{before}"), r#"{"weight": 0}"#).await;
    world.device("d7", "u3").await;
    assert_eq!(world.cell_of("d7").await, before, "an assigned user keeps its cell");
    world.device("another", "u3").await;
    assert_eq!(world.cell_of("another").await, before, "so do its other devices");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_without_weight_gets_no_devices() {
    let world = World::start().await;
    let change = async |cell: &str, body: &str| {
        let answer = world.operate(Method::PATCH, &format!("/v1/cells/{cell}"), body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json()
    };
    assert_eq!(change("a", r#"{"weight": 0}"#).await["weight"], 0);
    assert_eq!(change("b", r#"{"draining": true}"#).await["draining"], true);
    for n in 0..20 {
        let name = format!("d{n}");
        world.device(&name, &name).await;
        assert_eq!(world.cell_of(&name).await, "c");
    }
    change("c", r#"{"weight": 0}"#).await;
    let refused = world.post("/v1/devices", r#"{"user": "late"}"#).await;
    refused.problem(503, "cell_unavailable");
    assert_eq!(change("a", r#"{"weight": null}"#).await["weight"], 1, "as configured again");
    assert_eq!(world.post("/v1/devices", r#"{"user": "late"}"#).await.status, StatusCode::CREATED);
    world.operate(Method::PATCH, "/v1/cells/x", "{}").await.problem(404, "not_found");
    world.operate(Method::PATCH, "/v1/cells/a", r#"{"wait": 1}"#).await.problem(400, "invalid_field");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_manages_itself_through_the_front() {
    let world = World::start().await;
    let token = world.device("d1", "u1").await;
    let me = world.call(Method::GET, "/v1/me", &token, "").await.json();
    assert_eq!((&me["device"], &me["user"]), (&json!("d1"), &json!("u1")));
    let changed = world.call(Method::PATCH, "/v1/me", &token, r#"{"locale": "ja-JP"}"#).await.json();
    assert_eq!(changed["locale"], "ja-JP");
    world.call(Method::PATCH, "/v1/me", &token, r#"{"local": 1}"#).await.problem(400, "unknown_field");
    let subscribed = world.call(Method::PUT, "/v1/me/topics/a%2Fb", &token, "").await;
    assert_eq!(subscribed.status, StatusCode::NO_CONTENT, "{}", subscribed.text);
    assert_eq!(world.get("/v1/devices/d1").await.json()["topics"], json!(["a/b"]));
    // With its own token it registers again, but cannot become another device.
    let own = world.call(Method::POST, "/v1/devices", &token, r#"{"app_version": "2"}"#).await;
    assert_eq!(own.status, StatusCode::CREATED, "{}", own.text);
    world.call(Method::POST, "/v1/devices", &token, r#"{"device": "d2"}"#).await.problem(403, "forbidden");
    let revoked = world.post("/v1/devices/d1/revoke", "").await;
    assert_eq!(revoked.status, StatusCode::OK, "{}", revoked.text);
    world.call(Method::GET, "/v1/me", &token, "").await.problem(401, "unauthorized");
    let token = world.device("d1", "u1").await;
    assert_eq!(world.call(Method::DELETE, "/v1/me", &token, "").await.status, StatusCode::NO_CONTENT);
    world.call(Method::GET, "/v1/me", &token, "").await.problem(401, "unauthorized");
    world.get("/v1/devices/d1").await.problem(404, "not_found");
    world.call(Method::GET, "/v1/me", &world.key, "").await.problem(401, "unauthorized");
    world.call(Method::GET, "/v1/me", "nd1.AAAA.AAAA", "").await.problem(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_jwt_creates_its_device_in_its_users_cell() {
    let world = World::start().await;
    world.device("first", "u1").await;
    let cell = world.cell_of("first").await;
    let claims = json!({"sub": "u1", "device": "second", "exp": in_an_hour(), "topics": ["news"]});
    let token = jwt(&claims);
    let me = world.call(Method::GET, "/v1/me", &token, "").await;
    assert_eq!(me.status, StatusCode::OK, "{}", me.text);
    assert_eq!((&me.json()["user"], &me.json()["topics"]), (&json!("u1"), &json!(["news"])));
    assert_eq!(world.cell_of("second").await, cell);
    let registered = world.call(Method::POST, "/v1/devices", &token, "").await;
    assert_eq!(registered.status, StatusCode::CREATED, "{}", registered.text);
    let id = world.publish(json!({"to": {"users": ["u1"]}, "data": 1})).await;
    world.until_done(&id).await;
    assert_eq!(world.inbox(&token).await, [json!(1)]);
    let forged = format!("{}x", &token[..token.len() - 1]);
    world.call(Method::GET, "/v1/me", &forged, "").await.problem(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_id_in_two_apps_is_two_devices() {
    let world = World::start().await;
    let made = world.operate(Method::POST, "/v1/apps", r#"{"name": "other"}"#).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let key =
        world.operate(Method::POST, "/v1/apps/other/keys", r#"{"name": "k", "scopes": ["devices", "read"]}"#);
    let key = key.await.json()["key"].as_str().expect("a key").to_owned();
    let token = world.device("d1", "u1").await;
    let other =
        world.call(Method::POST, "/v1/devices", &key, r#"{"device": "d1", "user": "somebody"}"#).await;
    assert_eq!(other.status, StatusCode::CREATED, "{}", other.text);
    let other = other.json()["token"].as_str().expect("a token").to_owned();
    let user = async |token: &str| world.call(Method::GET, "/v1/me", token, "").await.json()["user"].clone();
    assert_eq!((user(&token).await, user(&other).await), (json!("u1"), json!("somebody")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_listed_over_all_cells() {
    let world = World::start().await;
    let lines: Vec<String> =
        (0..25).map(|n| json!({"device": format!("d{n:02}"), "user": format!("u{n}")}).to_string()).collect();
    world.post("/v1/devices/batch", &lines.join("\n")).await;
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/devices?limit=4&after={after}")).await.json();
        let devices = page["devices"].as_array().expect("devices");
        assert!(devices.len() <= 4);
        names.extend(devices.iter().map(|one| one["device"].as_str().expect("a name").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, (0..25).map(|n| format!("d{n:02}")).collect::<Vec<_>>());
    let of_one = world.get("/v1/devices?user=u7").await.json();
    assert_eq!(of_one["devices"].as_array().expect("devices").len(), 1);
    world.get("/v1/devices?after=9.zz").await.problem(400, "invalid_parameter");

    // The cells filter.
    let mut seen = Vec::new();
    for cell in &world.cells {
        let app = cell.state().auth.app("dev").expect("the app").id;
        let store = cell.state().delivery.store();
        let first = noroshi_store::DeviceFilter { limit: 1, ..Default::default() };
        for device in store.devices(app, first).await.expect("read") {
            store.record_seen(vec![device.num], noroshi_types::UtcDay(20_000)).await.expect("recorded");
            seen.push(device.id.to_string());
        }
    }
    let list = async |query: &str| {
        let page = world.get(&format!("/v1/devices?{query}")).await.json();
        let devices = page["devices"].as_array().expect("devices");
        devices.iter().map(|one| one["device"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    // The day 20,000 is 2024-10-04.
    assert_eq!(list("seen_after=2024-10-04T12:00:00Z").await, seen);
    assert_eq!(list("seen_before=2024-10-05T00:00:00Z").await, seen);
    assert_eq!(list("seen_before=2024-10-04T23:59:59Z").await, Vec::<String>::new());
    assert_eq!(list("seen=never").await.len(), 25 - seen.len());
    let problem = world.get("/v1/devices?seen_after=yesterday").await.problem(400, "invalid_parameter");
    assert_eq!(problem["field"], "seen_after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_know_the_apps_and_keys_of_the_front() {
    let mut world = World::start().await;
    let works = async |world: &World, cell: &str, key: &str| {
        world.cell(cell).call(Method::GET, "/v1/topics", key, "").await.status == StatusCode::OK
    };
    for cell in ["a", "b", "c"] {
        within("the provider's key to work in the cell", async || {
            works(&world, cell, &world.key).await.then_some(())
        })
        .await;
    }
    // While a cell is down, one key is created and another deleted.
    world.cell_mut("b").kill().await;
    let made: Value = world.post("/v1/apps/dev/keys", r#"{"name": "late", "scopes": ["read"]}"#).await.json();
    let late = made["key"].as_str().expect("a key").to_owned();
    world.operate(Method::POST, "/v1/apps", r#"{"name": "brief"}"#).await;
    within("the others to know it", async || world.cell("a").has_app("brief").then_some(())).await;
    world.cell_mut("b").revive().await;
    within("the new key to work there", async || works(&world, "b", &late).await.then_some(())).await;
    within("the new app to be there", async || world.cell("b").has_app("brief").then_some(())).await;
    world.cell_mut("c").kill().await;
    let id = made["id"].as_str().expect("an id");
    let gone = world.call(Method::DELETE, &format!("/v1/apps/dev/keys/{id}"), &world.key, "").await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(world.operate(Method::DELETE, "/v1/apps/brief", "").await.status, StatusCode::NO_CONTENT);
    world.cell_mut("c").revive().await;
    for cell in ["a", "b", "c"] {
        within("the key to be gone", async || (!works(&world, cell, &late).await).then_some(())).await;
        within("the app to be gone", async || (!world.cell(cell).has_app("brief")).then_some(())).await;
    }
}

/// Two apps have a device with the same id: a token identifies the device of the app that issued it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_two_apps_with_one_id_stay_separate() {
    // All in one cell, so that its first lookup could find either.
    let world = World::weighted([1, 0, 0], |_| {}).await;
    let other = world.app("other").await;
    let token = world.device("d1", "u1").await;
    let register = async |key: &str| {
        let body = json!({"device": "d1", "user": "u1"}).to_string();
        world.call(Method::POST, "/v1/devices", key, &body).await
    };
    let registered = register(&other).await;
    assert_eq!(registered.status, StatusCode::CREATED, "{}", registered.text);
    let others = registered.json()["token"].as_str().expect("a token").to_owned();
    let removed = world.call(Method::DELETE, "/v1/me", &others, "").await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text);
    world.call(Method::GET, "/v1/me", &others, "").await.problem(401, "unauthorized");
    assert_eq!(world.call(Method::GET, "/v1/me", &token, "").await.status, StatusCode::OK);
    let id = world.publish(json!({"to": {"devices": ["d1"]}, "data": "kept"})).await;
    world.until_done(&id).await;
    assert_eq!(world.inbox(&token).await, ["kept"]);
    // A new device of the other app changes nothing.
    assert_eq!(register(&other).await.status, StatusCode::CREATED);
    let id = world.publish(json!({"to": {"devices": ["d1"]}, "data": "too"})).await;
    world.until_done(&id).await;
    assert_eq!(world.inbox(&token).await, ["kept", "too"]);
}

/// A valid token is never answered 401.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_without_the_app_numbers_of_a_cell_does_not_reject_its_tokens() {
    let mut world = World::start().await;
    let (_, token) = world.resident("b", 0).await;
    world.cell_mut("b").kill().await;
    world.kill_front().await;
    world.start_front().await;
    world.call(Method::GET, "/v1/me", &token, "").await.problem(503, "cell_unavailable");
    world.cell_mut("b").revive().await;
    within("the cell to be heard", async || {
        (world.call(Method::GET, "/v1/me", &token, "").await.status == StatusCode::OK).then_some(())
    })
    .await;
    // Every cell has reported its apps: now an unknown token is rejected.
    let unknown = format!("nd1.{}.AAAA", &token[4..40]);
    within("all cells to be heard", async || {
        let answer = world.call(Method::GET, "/v1/me", &unknown, "").await;
        (answer.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferences_of_a_user_are_in_the_users_cell() {
    let world = World::start().await;
    let (one, other) = (world.device("d1", "u1").await, world.device("d2", "u1").await);
    let stranger = world.device("d3", "u2").await;
    let mute = |name: &str| json!({"categories": {name: {"muted": true}}});
    let put = async |path: &str, bearer: &str, body: &serde_json::Value| {
        world.call(Method::PUT, path, bearer, &body.to_string()).await.json()
    };
    let get = async |path: &str, bearer: &str| world.call(Method::GET, path, bearer, "").await.json();
    let delete = async |path: &str| world.call(Method::DELETE, path, &world.key, "").await.status;
    assert_eq!(put("/v1/me/user/preferences", &one, &mute("a")).await, mute("a"));
    assert_eq!(put("/v1/me/preferences", &other, &mute("b")).await, mute("b"));
    assert_eq!(get("/v1/users/u1/preferences", &world.key).await, mute("a"));
    assert_eq!(get("/v1/devices/d2/preferences", &world.key).await, mute("b"));
    let shown = get("/v1/me", &other).await["preferences"].clone();
    assert_eq!(shown, json!({"user": mute("a"), "device": mute("b")}));
    assert_eq!(get("/v1/me/user/preferences", &stranger).await, json!({}));
    assert_eq!(put("/v1/users/u1/preferences", &world.key, &mute("c")).await, mute("c"));
    assert_eq!(put("/v1/devices/d1/preferences", &world.key, &mute("d")).await, mute("d"));
    assert_eq!(get("/v1/me/user/preferences", &one).await, mute("c"));
    assert_eq!(get("/v1/me/preferences", &one).await, mute("d"));
    for path in ["/v1/users/u1/preferences", "/v1/devices/d1/preferences"] {
        assert_eq!(delete(path).await, StatusCode::NO_CONTENT);
        assert_eq!(get(path, &world.key).await, json!({}));
        world.call(Method::GET, path, &one, "").await.problem(401, "unauthorized");
        let bad = world.call(Method::PUT, path, &world.key, r#"{"channels": ["x"]}"#).await;
        assert_eq!(bad.problem(400, "invalid_field")["field"], "channels[0]");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        world
            .call(method, "/v1/devices/nobody/preferences", &world.key, "{}")
            .await
            .problem(404, "not_found");
    }
    // Those of a user without a device hold in whichever cell gets the first one.
    let users: Vec<String> = (0..8).map(|number| format!("later-{number}")).collect();
    for user in &users {
        assert_eq!(put(&format!("/v1/users/{user}/preferences"), &world.key, &mute(user)).await, mute(user));
    }
    for user in &users {
        let token = world.device(user, user).await;
        assert_eq!(get("/v1/me/user/preferences", &token).await, mute(user));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_of_a_user_are_in_the_users_cell() {
    let world = World::start().await;
    let (one, other) = (world.device("d1", "u1").await, world.device("d2", "u1").await);
    let stranger = world.device("d3", "u2").await;
    let body = json!({"to": {"users": ["u1", "u2", "nobody"]}, "data": 1, "item": {"category": "x"}});
    let sent = world.publish(body).await;
    world.until_done(&sent).await;
    let list = async |token: &str| world.call(Method::GET, "/v1/me/items", token, "").await.json();
    let items = list(&one).await["items"].clone();
    let id = items[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!((items.as_array().map(Vec::len), &items[0]["state"]), (Some(1), &json!("unread")));
    let read = json!({"action": "read", "ids": [id]}).to_string();
    let changed = world.call(Method::PATCH, "/v1/me/items", &other, &read).await.json();
    assert_eq!(changed, json!({"changed": 1, "unread": 0, "categories": {}}));
    let counts = world.call(Method::GET, "/v1/me/items/counts", &stranger, "").await.json();
    assert_eq!(counts, json!({"unread": 1, "categories": {"x": 1}}));
    assert_eq!(world.get("/v1/users/u1/items?state=read").await.json()["items"][0]["id"], id.as_str());
    assert_eq!(world.get("/v1/users/u1/items/counts").await.json()["unread"], 0);
    assert_eq!(world.get("/v1/users/nobody/items").await.json(), json!({"items": [], "next": null}));
    let delete = async || world.call(Method::DELETE, "/v1/users/u1/items", &world.key, "").await;
    assert_eq!(
        (delete().await.json(), delete().await.json()),
        (json!({"deleted": 1}), json!({"deleted": 0}))
    );
    assert_eq!(list(&one).await["items"], json!([]));
    assert_eq!(list(&stranger).await["items"].as_array().map(Vec::len), Some(1));
    world.call(Method::GET, "/v1/users/u1/items", &one, "").await.problem(401, "unauthorized");
    world.call(Method::GET, "/v1/me/items", &world.key, "").await.problem(401, "unauthorized");
}
