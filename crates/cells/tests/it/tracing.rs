//! The trace of a notification that passes through the front to its cell.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use noroshi_telemetry::span::Span;
use serde_json::{Value, json};

use crate::world::{Answer, World, in_an_hour, jwt, parts, within};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACED: &[(&str, &str)] = &[("traceparent", PARENT)];

async fn publish(world: &World, to: &str, headers: &[(&str, &str)]) -> String {
    let body = json!({"to": {"users": [to]}, "data": 1}).to_string();
    id_of(&world.call_with("/v1/notifications", &body, headers).await)
}

fn id_of(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// The answer of the only cell of a notification, once it has it.
async fn in_its_cell(world: &World, id: &str) -> Value {
    let state = world.until_done(id).await;
    let part = &state["cells"][0];
    let (cell, remote) = (part["cell"].as_str().expect("a name"), part["id"].as_str().expect("an id"));
    world.cell(cell).call(Method::GET, &format!("/v1/notifications/{remote}"), &world.key, "").await.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_gets_the_trace_of_a_notification() {
    let world = World::start().await;
    world.device("d1", "u1").await;
    let id = publish(&world, "u1", TRACED).await;
    assert_eq!(in_its_cell(&world, &id).await["trace"], TRACE);
    assert_eq!(world.get(&format!("/v1/notifications/{id}")).await.json()["trace"], TRACE);
    assert_eq!(world.get(&format!("/v1/notifications/{id}/devices/d1")).await.json()["trace"], TRACE);

    let line = json!({"to": {"users": ["u1"]}, "data": 2});
    let lines = format!("{line}\n{line}\n");
    for line in world.call_with("/v1/notifications/batch", &lines, TRACED).await.lines() {
        assert_eq!(in_its_cell(&world, line["id"].as_str().expect("an id")).await["trace"], TRACE);
    }
    let without = publish(&world, "u1", &[]).await;
    assert_eq!(in_its_cell(&world, &without).await.get("trace"), None);
    assert_eq!(world.get(&format!("/v1/notifications/{without}")).await.json().get("trace"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_waits_with_its_notification() {
    let mut world = World::start().await;
    world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    world.cell_mut(&cell).kill().await;
    let id = publish(&world, "u1", TRACED).await;
    world.kill_front().await;
    world.start_front().await;
    let state = world.get(&format!("/v1/notifications/{id}")).await.json();
    assert_eq!((parts(&state), &state["trace"]), (vec![(cell.clone(), "waiting".to_owned())], &json!(TRACE)));
    let device = world.get(&format!("/v1/notifications/{id}/devices/d1")).await.json();
    assert_eq!(device["trace"], TRACE, "{device}");
    world.cell_mut(&cell).revive().await;
    assert_eq!(in_its_cell(&world, &id).await["trace"], TRACE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_moves_with_a_copied_message() {
    let world = World::start().await;
    let (user, token) = world.resident("a", 0).await;
    let id = publish(&world, &user, TRACED).await;
    world.until_done(&id).await;
    let body = json!({"app": "dev", "user": user, "to": "b"}).to_string();
    let moved = world.operate(Method::POST, "/v1/cells/a/moves", &body).await;
    assert_eq!(moved.status, StatusCode::ACCEPTED, "{}", moved.text);
    within("the device to be told", async || {
        (world.call(Method::GET, "/v1/me", &token, "").await.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    let token = world.device(&user, &user).await;
    within("it to be carried over", async || (world.inbox(&token).await == [json!(1)]).then_some(())).await;
    let inbox = world.call(Method::GET, "/v1/me/inbox", &token, "").await.json();
    let carried = inbox["messages"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/notifications/{carried}");
    assert_eq!(world.cell("b").call(Method::GET, &path, &world.key, "").await.json()["trace"], TRACE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cells_span_is_a_child_of_the_fronts_request() {
    let world = World::start().await;
    world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let (at_front, at_cell) = (world.spans(), world.cell(&cell).spans());
    let id = publish(&world, "u1", TRACED).await;
    world.until_done(&id).await;
    let path = format!("/v1/notifications/{id}");
    world.get_with(&path, TRACED).await;
    let named = |spans: &[Span], name: &str| spans.iter().find(|span| span.name == name).expect(name).clone();
    let (front, there): (Vec<Span>, Vec<Span>) =
        (at_front.0.try_iter().collect(), at_cell.0.try_iter().collect());
    let request = named(&front, "POST /v1/notifications");
    let published = named(&there, "publish");
    assert_eq!((published.trace, published.parent), (request.trace, Some(request.id)));
    assert_eq!(published.trace.to_string(), TRACE);
    let asked = "GET /v1/notifications/{id}";
    assert_eq!(named(&there, asked).parent, Some(named(&front, asked).id), "asked at once");
}

/// A provider's registration is part of its trace, at the front and in the cell; a trace that a device sends is
/// ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_providers_trace_is_continued() {
    let world = World::weighted([1, 0, 0], |_| {}).await;
    let (at_front, at_cell) = (world.spans(), world.cell("a").spans());
    let token = world.device("d1", "u1").await;
    let jwt = jwt(&json!({"sub": "u2", "device": "d2", "exp": in_an_hour()}));
    for bearer in [&token, &jwt] {
        let answer = world.call_as(bearer, "/v1/devices", "{}", TRACED).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    }
    assert_eq!((at_front.0.try_iter().next(), at_cell.0.try_iter().next()), (None, None));
    let device = json!({"device": "d3", "user": "u3"}).to_string();
    let answer = world.call_with("/v1/devices", &device, TRACED).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let (front, there) = (at_front.0.try_recv().expect("a span"), at_cell.0.try_recv().expect("a span"));
    assert_eq!((front.name.as_ref(), front.trace.to_string().as_str()), ("POST /v1/devices", TRACE));
    assert_eq!((there.name.as_ref(), there.parent), ("POST /v1/devices", Some(front.id)));
}

/// Fronts are upgraded last. In another order traces are lost, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_without_support_for_traces_gets_lines_without_one() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let older = world.cell(&cell).older.clone();
    older.is.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let id = publish(&world, "u1", TRACED).await;
        assert_eq!(in_its_cell(&world, &id).await.get("trace"), None);
    }
    assert_eq!(world.inbox(&token).await, [json!(1), json!(1), json!(1)]);
    assert_eq!(older.refused.load(Ordering::Relaxed), 1, "it is remembered");

    older.is.store(false, Ordering::Relaxed);
    world.cell_mut(&cell).kill().await;
    within("the cell to be away", async || (world.listed(&cell).await["up"] == false).then_some(())).await;
    world.cell_mut(&cell).revive().await;
    let id = publish(&world, "u1", TRACED).await;
    assert_eq!(in_its_cell(&world, &id).await["trace"], TRACE, "it came back with another version");

    // The same if it becomes an older version without being down.
    older.is.store(true, Ordering::Relaxed);
    let id = publish(&world, "u1", TRACED).await;
    assert_eq!(in_its_cell(&world, &id).await.get("trace"), None);
    assert_eq!(world.inbox(&token).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_without_support_for_traces_gets_all_messages_in_order() {
    let mut world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    world.cell(&cell).older.is.store(true, Ordering::Relaxed);
    world.cell_mut(&cell).kill().await;
    let mut last = String::new();
    for n in 0..6 {
        let body = json!({"to": {"users": ["u1"]}, "data": n}).to_string();
        let headers = if n % 3 == 1 { TRACED } else { &[] };
        last = id_of(&world.call_with("/v1/notifications", &body, headers).await);
    }
    world.cell_mut(&cell).revive().await;
    world.until_done(&last).await;
    assert_eq!(world.inbox(&token).await, (0..6).map(|n| json!(n)).collect::<Vec<_>>());
}
