//! Cells that are down, a front that dies: no accepted message is lost or duplicated, and no other cell is affected.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;

use crate::world::{World, parts, within};

async fn cancel(world: &World, id: &str) -> serde_json::Value {
    world.call(Method::DELETE, &format!("/v1/notifications/{id}"), &world.key, "").await.json()
}

async fn until_away(world: &World, cell: &str) {
    within("the front to notice", async || (world.listed(cell).await["up"] == json!(false)).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_cell_delays_only_its_own_messages() {
    let mut world = World::start().await;
    let (a, token_a) = world.resident("a", 0).await;
    let (b, token_b) = world.resident("b", 0).await;
    world.cell_mut("b").kill().await;
    let started = Instant::now();
    let (mut of_a, mut of_b, mut of_all) = (String::new(), String::new(), String::new());
    for n in 0..20 {
        of_a = world.publish(json!({"to": {"users": [a]}, "data": n})).await;
        of_b = world.publish(json!({"to": {"users": [b]}, "data": n})).await;
        of_all = world.publish(json!({"to": {"everyone": true}, "data": n})).await;
    }
    world.until_done(&of_a).await;
    assert_eq!(world.inbox(&token_a).await, (0..20).map(|n| json!(n)).collect::<Vec<_>>());
    // A single request to a cell that does not answer would take longer.
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    until_away(&world, "b").await;
    let state = world.get(&format!("/v1/notifications/{of_all}")).await.json();
    assert_eq!((&state["state"], parts(&state)[1].1.as_str()), (&json!("pending"), "waiting"));
    assert_eq!(world.parts(&of_b).await, [("b".to_owned(), "waiting".to_owned())]);
    let trace = world.get(&format!("/v1/notifications/{of_b}/devices/{b}")).await.json();
    assert!(trace["summary"].as_str().expect("a summary").contains("queued"), "{trace}");
    assert_eq!((&trace["targeted_by"], &trace["reason"]), (&json!("unknown"), &json!("pending")), "{trace}");
    world.call(Method::GET, "/v1/me", &token_b, "").await.problem(503, "cell_unavailable");
    let told = world.post("/v1/presence", &json!({"users": [a, b]}).to_string()).await.json();
    assert_eq!(told["unanswered"], json!(["b"]));
    let late = world.post("/v1/devices", r#"{"user": "newcomer"}"#).await;
    assert_eq!(late.status, StatusCode::CREATED, "newcomers go elsewhere: {}", late.text);
    assert_eq!(world.listed("b").await["waiting"], 40);

    world.cell_mut("b").revive().await;
    world.until_done(&of_b).await;
    world.until_done(&of_all).await;
    assert_eq!(
        world.inbox(&token_b).await,
        (0..20).map(|n| json!(n)).collect::<Vec<_>>(),
        "each once, in order"
    );
    assert_eq!(world.listed("b").await["waiting"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_front_continues_where_it_stopped() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let mut last = String::new();
    for n in 0..30 {
        if n == 10 {
            world.cell_mut(&cell).kill().await;
        }
        if n % 7 == 0 {
            world.kill_front().await;
            world.start_front().await;
        }
        last = world.publish(json!({"to": {"users": ["u1"]}, "data": n})).await;
    }
    world.kill_front().await;
    world.cell_mut(&cell).revive().await;
    world.start_front().await;
    world.until_done(&last).await;
    assert_eq!(world.inbox(&token).await, (0..30).map(|n| json!(n)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_that_dies_repeatedly_gets_each_message_once() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let mut last = String::new();
    for round in 0..4 {
        let lines: Vec<String> =
            (0..50).map(|n| json!({"to": {"users": ["u1"]}, "data": round * 50 + n}).to_string()).collect();
        let answers = world.post("/v1/notifications/batch", &lines.join("\n")).await.lines();
        last = answers[49]["id"].as_str().expect("an id").to_owned();
        tokio::time::sleep(Duration::from_millis(3 * round)).await;
        world.cell_mut(&cell).kill().await;
        world.cell_mut(&cell).revive().await;
    }
    world.until_done(&last).await;
    assert_eq!(world.inbox(&token).await, (0..200).map(|n| json!(n)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_messages_are_not_forwarded() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    world.cell_mut(&cell).kill().await;
    let brief = world.publish(json!({"to": {"users": ["u1"]}, "data": "brief", "ttl": "1s"})).await;
    let lasting = world.publish(json!({"to": {"users": ["u1"]}, "data": "lasting", "ttl": "1h"})).await;
    let state = world.until(&format!("/v1/notifications/{brief}"), |state| state["state"] == "expired").await;
    assert_eq!(parts(&state), [(cell.clone(), "expired".to_owned())]);
    world.cell_mut(&cell).revive().await;
    world.until_done(&lasting).await;
    assert_eq!(world.inbox(&token).await, [json!("lasting")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_messages_are_not_delivered_later() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let forwarded = world.publish(json!({"to": {"users": ["u1"]}, "data": "forwarded"})).await;
    world.until_done(&forwarded).await;
    world.cell_mut(&cell).kill().await;
    let waiting = world.publish(json!({"to": {"users": ["u1"]}, "data": "waiting"})).await;
    let kept = world.publish(json!({"to": {"users": ["u1"]}, "data": "kept"})).await;
    until_away(&world, &cell).await;
    assert_eq!(cancel(&world, &waiting).await["unanswered"], json!([]));
    assert_eq!(cancel(&world, &forwarded).await["unanswered"], json!([cell]));
    let state = world.get(&format!("/v1/notifications/{waiting}")).await.json();
    assert_eq!(state["state"], "cancelled");
    world.cell_mut(&cell).revive().await;
    world.until_done(&kept).await;
    within("the cell to be told", async || (world.inbox(&token).await == [json!("kept")]).then_some(()))
        .await;
    let again = world.publish(json!({"to": {"users": ["u1"]}, "data": "again"})).await;
    world.until_done(&again).await;
    assert_eq!(cancel(&world, &again).await["removed"], 1);
    world
        .call(Method::DELETE, "/v1/notifications/01890a5d-ac96-774b-bcce-b302099a8057", &world.key, "")
        .await
        .problem(404, "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_rejects_only_messages_for_its_cell() {
    let mut world = World::weighted([1, 1, 1], |config| config.outbox_parts_max = 3).await;
    let (a, _) = world.resident("a", 0).await;
    let (b, _) = world.resident("b", 0).await;
    world.cell_mut("b").kill().await;
    until_away(&world, "b").await;
    for n in 0..3 {
        world.publish(json!({"to": {"users": [b]}, "data": n})).await;
    }
    let full = json!({"to": {"users": [a, b]}, "data": 4}).to_string();
    world.post("/v1/notifications", &full).await.problem(503, "overloaded");
    let id = world.publish(json!({"to": {"users": [a]}, "data": 5})).await;
    world.until_done(&id).await;
    world.cell_mut("b").revive().await;
    within("room", async || {
        (world.post("/v1/notifications", &full).await.status == StatusCode::ACCEPTED).then_some(())
    })
    .await;
}
