//! Moving users and devices: no stored message is lost.

use http::{Method, StatusCode};
use serde_json::json;

use crate::world::{World, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_moves_with_its_inbox() {
    let world = World::start().await;
    let (user, token) = world.resident("a", 0).await;
    let before = world
        .publish(json!({"to": {"users": [user]}, "data": "before", "urgency": "high", "category": "c"}))
        .await;
    world.until_done(&before).await;

    let body = json!({"to": "b", "app": "dev", "user": user}).to_string();
    let moved = world.operate(Method::POST, "/v1/cells/a/moves", &body).await;
    assert_eq!(moved.status, StatusCode::ACCEPTED, "{}", moved.text);
    assert_eq!(moved.json(), json!({"users": 1, "devices": 1}));
    within("its session to be ended", async || {
        let answer = world.call(Method::GET, "/v1/me", &token, "").await;
        (answer.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    // Both cells are queried while it moves.
    let between = world.publish(json!({"to": {"users": [user]}, "data": "between"})).await;
    let state = world.until_done(&between).await;
    assert_eq!(state["cells"].as_array().expect("cells").len(), 2);

    let token = world.device(&user, &user).await;
    assert!(world.cell("b").has("dev", &user).await);
    let after = world.publish(json!({"to": {"users": [user]}, "data": "after"})).await;
    world.until_done(&after).await;
    within("all of it to be there", async || (world.inbox(&token).await.len() >= 3).then_some(())).await;
    within("it to be gone from the first cell", async || {
        (!world.cell("a").has("dev", &user).await).then_some(())
    })
    .await;
    let mut inbox = world.inbox(&token).await;
    inbox.sort_by_key(ToString::to_string);
    assert_eq!(inbox, [json!("after"), json!("before"), json!("between")], "each once");
    let copied = world.call(Method::GET, "/v1/me/inbox", &token, "").await.json();
    let copied = copied["messages"].as_array().expect("messages").iter().find(|one| one["data"] == "before");
    let id = copied.and_then(|one| one["id"].as_str()).expect("an id");
    let path = format!("/v1/notifications/{id}");
    let copied = world.cell("b").call(Method::GET, &path, &world.key, "").await.json();
    assert_eq!((&copied["category"], &copied["urgency"]), (&json!("c"), &json!("high")));
    // From then on only the new one is queried.
    within("the first cell to be asked no more", async || {
        let id = world.publish(json!({"to": {"users": [user]}, "when": "active", "data": 0})).await;
        (world.parts(&id).await.len() == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_moves_with_its_push_tokens() {
    let world = World::start().await;
    let (user, token) = world.resident("a", 0).await;
    let put = async |path: &str, bearer: &str, body: &str| {
        let answer = world.call(Method::PUT, path, bearer, body).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{path}: {}", answer.text);
    };
    let of_device = format!("/v1/devices/{user}/push-tokens");
    put("/v1/me/push-tokens/alert", &token, r#"{"token": "00aa"}"#).await;
    put("/v1/me/push-tokens/voip", &token, r#"{"token": "00bb", "topic": "com.example.calls"}"#).await;
    put(&format!("{of_device}/controls/lamp"), &world.key, r#"{"token": "00cc"}"#).await;
    put("/v1/me/push-tokens/live-activity/a1", &token, r#"{"token": "00dd"}"#).await;
    let before = world.get(&of_device).await.json();

    let body = json!({"to": "b", "app": "dev", "user": user}).to_string();
    let moved = world.operate(Method::POST, "/v1/cells/a/moves", &body).await;
    assert_eq!(moved.status, StatusCode::ACCEPTED, "{}", moved.text);
    within("its session to be ended", async || {
        let answer = world.call(Method::GET, "/v1/me", &token, "").await;
        (answer.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    // It registers a newer token in its new cell itself.
    let again = json!({"device": user, "user": user, "push_tokens": [{"kind": "voip", "token": "00ee"}]});
    assert_eq!(world.post("/v1/devices", &again.to_string()).await.status, StatusCode::CREATED);
    within("it to be gone from the first cell", async || {
        (!world.cell("a").has("dev", &user).await).then_some(())
    })
    .await;
    let after = world.get(&of_device).await.json();
    let known = |tokens: &serde_json::Value| -> Vec<(String, String)> {
        let tokens = tokens["push_tokens"].as_array().expect("a list").iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        tokens.map(|one| (text(&one["kind"]), text(&one["token"]["token"]))).collect()
    };
    let mut expected = known(&before);
    assert_eq!(expected.len(), 4);
    expected.iter_mut().filter(|(kind, _)| kind == "voip").for_each(|(_, token)| *token = "00ee".to_owned());
    assert_eq!(known(&after), expected);
    assert_eq!(after["push_tokens"][0]["main"], true);
    assert_eq!(after["push_tokens"][3]["expires_at"], before["push_tokens"][3]["expires_at"]);
    let removed = world.call(Method::DELETE, &format!("{of_device}/voip"), &world.key, "").await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text);
    world.call(Method::DELETE, &format!("{of_device}/voip"), &world.key, "").await.problem(404, "not_found");
    world.call(Method::GET, &of_device, "wrong", "").await.problem(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferences_move_with_the_last_device_of_a_user() {
    let world = World::start().await;
    let (user, token) = world.resident("a", 0).await;
    let second = format!("{user}-2");
    world.device(&second, &user).await;
    let mute = |name: &str| json!({"categories": {name: {"muted": true}}});
    let put = async |path: &str, bearer: &str, body: &serde_json::Value| {
        let answer = world.call(Method::PUT, path, bearer, &body.to_string()).await;
        assert_eq!((answer.status, &answer.json()), (StatusCode::OK, body), "{path}");
    };
    let of_user = format!("/v1/users/{user}/preferences");
    put("/v1/me/preferences", &token, &mute("first")).await;
    put("/v1/me/user/preferences", &token, &mute("user")).await;
    put(&format!("/v1/devices/{second}/preferences"), &world.key, &mute("second")).await;
    assert_eq!(world.get(&of_user).await.json(), mute("user"));

    let body = json!({"to": "b", "app": "dev", "user": user}).to_string();
    let moved = world.operate(Method::POST, "/v1/cells/a/moves", &body).await;
    assert_eq!(moved.json()["devices"], 2, "{}", moved.text);
    let in_a = async || world.cell("a").call(Method::GET, &of_user, &world.key, "").await.json();
    for (device, is_last) in [(&user, false), (&second, true)] {
        within("its session to be ended", async || {
            let me = world.call(Method::GET, "/v1/me", &token, "").await;
            (me.status == StatusCode::UNAUTHORIZED).then_some(())
        })
        .await;
        world.device(device, &user).await;
        within("it to be gone from the first cell", async || {
            (!world.cell("a").has("dev", device).await).then_some(())
        })
        .await;
        let own = mute(if is_last { "second" } else { "first" });
        assert_eq!(world.get(&format!("/v1/devices/{device}/preferences")).await.json(), own);
        let (of_new, of_old) = (world.get(&of_user).await.json(), in_a().await);
        let rest = if is_last { json!({}) } else { mute("user") };
        assert_eq!((of_new, of_old), (mute(if is_last { "changed" } else { "user" }), rest));
        // What is set in the new cell stays.
        put(&of_user, &world.key, &mute("changed")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_is_emptied() {
    let world = World::start().await;
    let lines: Vec<String> =
        (0..40).map(|n| json!({"device": format!("d{n}"), "user": format!("u{n}")}).to_string()).collect();
    world.post("/v1/devices/batch", &lines.join("\n")).await;
    world.operate(Method::PATCH, "/v1/cells/a", r#"{"draining": true}"#).await;
    let all = world.listed("a").await["users"].as_u64().expect("a number");
    let half = world.operate(Method::POST, "/v1/cells/a/moves", r#"{"to": "b", "share": 50}"#).await.json();
    assert_eq!(half["users"], all.div_ceil(2));
    let rest = world.operate(Method::POST, "/v1/cells/a/moves", r#"{"to": "c", "share": 100}"#).await.json();
    assert_eq!(rest["users"], all / 2);
    world.post("/v1/devices/batch", &lines.join("\n")).await;
    within("the cell to be empty", async || {
        let listed = world.listed("a").await;
        (listed["devices"] == 0 && listed["leaving"] == 0).then_some(())
    })
    .await;
    for n in 0..40 {
        assert!(!world.cell("a").has("dev", &format!("d{n}")).await);
    }
    let check = async |body: &str, status: u16, code: &str| {
        world.operate(Method::POST, "/v1/cells/a/moves", body).await.problem(status, code);
    };
    check(r#"{"to": "a", "share": 1}"#, 400, "invalid_field").await;
    check(r#"{"to": "x", "share": 1}"#, 404, "not_found").await;
    check(r#"{"to": "b", "share": 101}"#, 400, "invalid_field").await;
    check(r#"{"to": "b"}"#, 400, "invalid_field").await;
    check(r#"{"to": "b", "app": "dev", "user": "nobody"}"#, 404, "not_found").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_leaves_a_dead_cell_without_waiting() {
    let mut world = World::start().await;
    let (user, _) = world.resident("a", 0).await;
    let kept = world.publish(json!({"to": {"users": [user]}, "data": "kept there"})).await;
    world.until_done(&kept).await;
    world.cell_mut("a").kill().await;
    let body = json!({"to": "b", "app": "dev", "user": user}).to_string();
    assert_eq!(world.operate(Method::POST, "/v1/cells/a/moves", &body).await.status, StatusCode::ACCEPTED);
    let token = world.device(&user, &user).await;
    let id = world.publish(json!({"to": {"users": [user]}, "data": "new"})).await;
    within("it to hear what is new", async || (world.inbox(&token).await == [json!("new")]).then_some(()))
        .await;
    world.cell_mut("a").revive().await;
    world.until_done(&id).await;
    within("what was kept to follow", async || (world.inbox(&token).await.len() == 2).then_some(())).await;
    within("it to be gone from the first cell", async || {
        (!world.cell("a").has("dev", &user).await).then_some(())
    })
    .await;
    assert_eq!(world.inbox(&token).await, [json!("new"), json!("kept there")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_a_new_user_leaves_no_inbox_behind() {
    let world = World::start().await;
    let (first, _) = world.resident("a", 0).await;
    let (second, _) = world.resident("b", 0).await;
    world.device("shared", &first).await;
    let id = world.publish(json!({"to": {"devices": ["shared"]}, "data": "for the first"})).await;
    world.until_done(&id).await;
    let token = world.device("shared", &second).await;
    assert!(world.cell("b").has("dev", "shared").await);
    within("it to be gone from the first cell", async || {
        (!world.cell("a").has("dev", "shared").await).then_some(())
    })
    .await;
    assert_eq!(world.inbox(&token).await, Vec::<serde_json::Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_of_more_than_a_page_moves() {
    const MESSAGES: usize = 1_040;
    let world = World::start().await;
    let (user, _) = world.resident("a", 0).await;
    let lines: Vec<String> =
        (0..MESSAGES).map(|n| json!({"to": {"users": [user]}, "data": n}).to_string()).collect();
    let kept = world.post("/v1/notifications/batch", &lines.join("\n")).await.lines();
    assert!(kept.len() == MESSAGES && kept.iter().all(|line| line["id"].is_string()));
    within("the cell to have all", async || (world.listed("a").await["waiting"] == 0).then_some(())).await;
    let body = json!({"to": "b", "app": "dev", "user": user}).to_string();
    assert_eq!(world.operate(Method::POST, "/v1/cells/a/moves", &body).await.status, StatusCode::ACCEPTED);
    let token = world.device(&user, &user).await;
    within("it to be gone from the first cell", async || {
        (!world.cell("a").has("dev", &user).await).then_some(())
    })
    .await;
    within("all to be there", async || {
        let inbox = world.call(Method::GET, "/v1/me/inbox?limit=1", &token, "").await.json();
        (inbox["total"] == MESSAGES).then_some(())
    })
    .await;
}
