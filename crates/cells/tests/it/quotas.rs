//! Apps over a quota in their cells: their messages wait and delay no other app.

use http::{Method, StatusCode};
use noroshi_types::Quota;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// Publishes to a user as an app, one batch.
async fn publish_all(world: &World, key: &str, user: &str, count: usize) -> Answer {
    let line = |n: usize| json!({"to": {"users": [user]}, "data": n}).to_string();
    let body: Vec<String> = (0..count).map(line).collect();
    world.call(Method::POST, "/v1/notifications/batch", key, &body.join("\n")).await
}

async fn inbox(world: &World, token: &str) -> Vec<Value> {
    world.inbox(token).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_over_its_quota_delays_no_other_app() {
    let world = World::weighted([1, 0, 0], |_| {}).await;
    let greedy = world.app("greedy").await;
    let registered = world
        .call(Method::POST, "/v1/devices", &greedy, &json!({"device": "g1", "user": "u1"}).to_string())
        .await;
    let greedy_token = registered.json()["token"].as_str().expect("a token").to_owned();
    let token = world.device("d1", "u1").await;
    world.limit("greedy", json!({"inbox_rows": 1})).await;

    // More than the worker reads at once.
    let answers = publish_all(&world, &greedy, "u1", 700).await.lines();
    assert!(answers.iter().all(|line| line["id"].is_string()), "{:?}", answers[0]);
    for n in 0..3 {
        let id = world.publish(json!({"to": {"users": ["u1"]}, "data": n})).await;
        world.until_done(&id).await;
    }
    assert_eq!(inbox(&world, &token).await, [json!(0), json!(1), json!(2)]);
    assert_eq!(inbox(&world, &greedy_token).await, [json!(0)]);
    assert_eq!(world.listed("a").await["waiting"], 699);

    // Its own order stays, and nothing is lost.
    world.limit("greedy", json!({})).await;
    let last = answers[699]["id"].as_str().expect("an id");
    crate::world::within("the rest to be handed on", async || {
        let state = world.call(Method::GET, &format!("/v1/notifications/{last}"), &greedy, "").await.json();
        crate::world::parts(&state).iter().all(|(_, state)| state != "waiting").then_some(())
    })
    .await;
    assert_eq!(inbox(&world, &greedy_token).await, (0..700).map(|n| json!(n)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_over_its_quota_leaves_half_of_the_outbox_to_others() {
    let world = World::weighted([1, 0, 0], |config| config.outbox_parts_max = 20).await;
    let greedy = world.app("greedy").await;
    world.call(Method::POST, "/v1/devices", &greedy, r#"{"device": "g1", "user": "u1"}"#).await;
    let token = world.device("d1", "u1").await;
    world.limit("greedy", json!({"inbox_rows": 0})).await;
    let one = json!({"to": {"users": ["u1"]}, "data": 1}).to_string();
    let publish = async || world.call(Method::POST, "/v1/notifications", &greedy, &one).await.status;
    assert_eq!(publish().await, StatusCode::ACCEPTED);
    // Publishes again: after the first attempt the front knows that the cell rejects the app.
    let cell = world.cells[0].state();
    let app = cell.auth.app("greedy").expect("the app").id;
    crate::world::within("the app to be refused twice", async || {
        let quotas = cell.delivery.usage.known(app)?;
        let rows = quotas.iter().find(|shown| shown.quota == Quota::InboxRows)?;
        (rows.refused >= 2).then_some(())
    })
    .await;
    let mut taken = 1;
    while publish().await == StatusCode::ACCEPTED {
        taken += 1;
    }
    assert_eq!(publish().await, StatusCode::SERVICE_UNAVAILABLE);
    assert!(taken < 20, "{taken}");
    for n in 0..20 {
        let id = world.publish(json!({"to": {"users": ["u1"]}, "data": n})).await;
        world.until_done(&id).await;
    }
    assert_eq!(inbox(&world, &token).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_new_topics_over_the_quota_do_not_block_the_app() {
    let world = World::weighted([1, 0, 0], |_| {}).await;
    let greedy = world.app("greedy").await;
    world.call(Method::POST, "/v1/devices", &greedy, r#"{"device": "g1", "user": "u1"}"#).await;
    world.limit("greedy", json!({"topics": 0})).await;
    // More than the worker reads in its first round, and then in one round of the app.
    let line = |n: usize| json!({"to": {"topic": format!("t{n}")}, "data": n}).to_string();
    let mut lines: Vec<String> = (0..600).map(line).collect();
    lines.push(json!({"to": {"users": ["u1"]}, "data": 1}).to_string());
    let answers =
        world.call(Method::POST, "/v1/notifications/batch", &greedy, &lines.join("\n")).await.lines();
    let id = answers[600]["id"].as_str().expect("an id");
    crate::world::within("the message to the user to pass", async || {
        let state = world.call(Method::GET, &format!("/v1/notifications/{id}"), &greedy, "").await.json();
        crate::world::parts(&state).iter().all(|(_, state)| state != "waiting").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_a_cell_rejects_delays_no_other_app() {
    let world = World::start().await;
    world.rejected_app("rejected").await;
    // The cells know it when this returns.
    world.app("later").await;
}
