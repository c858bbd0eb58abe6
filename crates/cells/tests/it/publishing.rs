//! Which cells a message goes to, what the front answers, and deduplication.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{World, parts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_shows_that_the_category_is_essential() {
    let world = World::start().await;
    let (user, _) = world.resident("b", 0).await;
    let label = noroshi_types::Label::parse("alarm").expect("a label");
    for cell in &world.cells {
        let app = cell.state().auth.app("dev").expect("the app").id;
        cell.state().delivery.context.set_essential_categories([(app, vec![label.clone()])]);
    }
    for (category, essential) in [("alarm", json!(true)), ("promo", Value::Null)] {
        let id = world.publish(json!({"to": {"users": [user]}, "data": 1, "category": category})).await;
        let state = world.until_done(&id).await;
        assert_eq!((&state["category"], &state["essential"]), (&json!(category), &essential), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_message_goes_to_one_cell_and_a_topic_message_to_all() {
    let world = World::start().await;
    let (a, token_a) = world.resident("a", 0).await;
    let (b, token_b) = world.resident("b", 0).await;

    let one = world.post("/v1/notifications", &json!({"to": {"users": [a]}, "data": 1}).to_string()).await;
    assert_eq!((one.status, &one.json()["targets"]), (StatusCode::ACCEPTED, &json!(1)));
    let one = one.json()["id"].as_str().expect("an id").to_owned();
    let state = world.until_done(&one).await;
    assert_eq!(parts(&state), [("a".to_owned(), "pending".to_owned())]);
    assert_eq!(
        (&state["id"], &state["targets"], &state["state"]),
        (&json!(one), &json!(1), &json!("pending"))
    );

    let two = world
        .publish(json!({"to": {"users": [a, b, "nobody"]}, "data": 2, "collapse_key": "k", "category": "c"}))
        .await;
    let state = world.until_done(&two).await;
    assert_eq!(parts(&state).iter().map(|(cell, _)| &**cell).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((&state["counts"]["kept"], &state["counts"]["unknown"]), (&json!(2), &json!(1)));
    assert_eq!((&state["collapse_key"], &state["target"]["kind"]), (&json!("k"), &json!("users")));
    assert_eq!(state["category"], "c");

    for token in [&token_a, &token_b] {
        assert_eq!(
            world.call(Method::PUT, "/v1/me/topics/news", token, "").await.status,
            StatusCode::NO_CONTENT
        );
    }
    let topic = world.publish(json!({"to": {"topic": "news"}, "data": 3, "retain": true})).await;
    let state = world.until_done(&topic).await;
    assert_eq!(parts(&state).iter().map(|(cell, _)| &**cell).collect::<Vec<_>>(), ["a", "b", "c"]);
    let everyone = world.publish(json!({"to": {"everyone": true}, "data": 4})).await;
    assert_eq!(parts(&world.until_done(&everyone).await).len(), 3);

    let summed = world.get("/v1/topics/news").await.json();
    assert_eq!(
        (&summed["subscribers"], &summed["epoch"], &summed["offset"]),
        (&json!(2), &json!(null), &json!(1))
    );
    assert_eq!(summed["cells"].as_array().expect("cells").len(), 3);
    let retained = world.get("/v1/topics/news/retained").await.json();
    assert_eq!((&retained["id"], &retained["data"]), (&json!(topic), &json!(3)));
    assert_eq!(
        world.call(Method::DELETE, "/v1/topics/news/retained", &world.key, "").await.status,
        StatusCode::NO_CONTENT
    );
    world.get("/v1/topics/news/retained").await.problem(404, "not_found");
    let listed = world.get("/v1/topics").await.json();
    let names: Vec<&Value> =
        listed["topics"].as_array().expect("topics").iter().map(|one| &one["topic"]).collect();
    assert!(names.contains(&&json!("news")), "{listed}");

    assert_eq!(world.inbox(&token_a).await, [json!(1), json!(2)]);
    assert_eq!(world.inbox(&token_b).await, [json!(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inbox_keeps_the_order_of_acceptance() {
    let world = World::start().await;
    let token = world.device("d1", "u1").await;
    let mut expected = Vec::new();
    let mut last = String::new();
    for n in 0..60 {
        expected.push(json!(n));
        last = world.publish(json!({"to": {"users": ["u1"]}, "data": n})).await;
    }
    let lines: Vec<String> =
        (60..260).map(|n| json!({"to": {"devices": ["d1"]}, "data": n}).to_string()).collect();
    let answers = world.post("/v1/notifications/batch", &lines.join("\n")).await.lines();
    expected.extend((60..260).map(|n| json!(n)));
    assert!(answers.iter().all(|answer| answer["targets"] == 1), "{answers:?}");
    last = answers.last().and_then(|answer| answer["id"].as_str()).map_or(last, str::to_owned);
    world.until_done(&last).await;
    assert_eq!(world.inbox(&token).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_idempotency_key_gets_the_first_answer() {
    let world = World::start().await;
    let token = world.device("d1", "u1").await;
    let body = json!({"to": {"users": ["u1"]}, "data": 1}).to_string();
    let key = [("idempotency-key", "order-1")];
    let first = world.call_with("/v1/notifications", &body, &key).await;
    let again = world.call_with("/v1/notifications", &body, &key).await;
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert!(first.headers.get("idempotent-replayed").is_none());
    assert_eq!(again.headers.get("idempotent-replayed").map(|value| value.as_bytes()), Some(&b"true"[..]));
    let other = json!({"to": {"users": ["u1"]}, "data": 2}).to_string();
    world.call_with("/v1/notifications", &other, &key).await.problem(409, "idempotency_conflict");
    let lines = format!("{body}\n{body}\n{{}}");
    let first = world.call_with("/v1/notifications/batch", &lines, &key).await;
    let again = world.call_with("/v1/notifications/batch", &lines, &key).await;
    assert_eq!(first.text, again.text);
    assert_eq!(first.lines()[2]["error"]["code"], "invalid_field");
    world.until_done(first.lines()[1]["id"].as_str().expect("an id")).await;
    assert_eq!(world.inbox(&token).await, [json!(1), json!(1), json!(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_request_is_rejected_before_it_is_stored() {
    let world = World::start().await;
    let check = async |body: &str, status: u16, code: &str| {
        world.post("/v1/notifications", body).await.problem(status, code);
    };
    check("{", 400, "invalid_json").await;
    check(r#"{"to": {"users": []}, "data": 1}"#, 400, "invalid_field").await;
    check(r#"{"to": {"users": ["u"]}, "data": 1, "tll": 1}"#, 400, "unknown_field").await;
    let long = json!({"to": {"users": ["u"]}, "data": "x".repeat(5_000)}).to_string();
    check(&long, 413, "data_too_large").await;
    let push =
        json!({"to": {"users": ["u"]}, "data": "x".repeat(4_000), "push": {"mode": "always"}}).to_string();
    check(&push, 413, "push_payload_too_large").await;
    world.get("/v1/notifications/01890a5d-ac96-774b-bcce-b302099a8057").await.problem(404, "not_found");
    world.get("/v1/notifications/x").await.problem(400, "invalid_parameter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_devices_cell_answers_its_trace() {
    let world = World::start().await;
    world.device("d1", "u1").await;
    let id = world.publish(json!({"to": {"users": ["u1"]}, "data": 1})).await;
    world.until_done(&id).await;
    let trace = world.get(&format!("/v1/notifications/{id}/devices/d1")).await.json();
    assert_eq!((&trace["id"], &trace["in_inbox"]), (&json!(id), &json!(true)), "{trace}");
    world.get(&format!("/v1/notifications/{id}/devices/d9")).await.problem(404, "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presence_queries_the_cells_of_the_users() {
    let world = World::start().await;
    let (a, _) = world.resident("a", 0).await;
    let (b, _) = world.resident("b", 0).await;
    let users = json!({"users": [a, b, "nobody"]}).to_string();
    let told = world.post("/v1/presence", &users).await.json();
    assert_eq!(told["users"].as_object().expect("users").len(), 3);
    assert_eq!((&told["users"][&a]["presence"], &told["unanswered"]), (&json!("offline"), &json!([])));
}
