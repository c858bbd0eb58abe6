//! Every route of the API is served, forwarded or rejected by name; none falls through.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use noroshi_api::router as api;
use noroshi_cells::router::{OWN, public_paths};
use noroshi_types::Role;
use serde_json::json;

use crate::world::World;

#[test]
fn every_route_of_the_api_is_in_one_list() {
    let all: BTreeSet<String> = api::public_paths().iter().map(|(m, p)| format!("{m} {p}")).collect();
    let fronted: Vec<String> = public_paths().iter().map(|(m, p)| format!("{m} {p}")).collect();
    let own = OWN.iter().map(|(m, p)| format!("{m} {p}"));
    let listed: BTreeSet<String> = fronted.iter().cloned().chain(own.clone()).collect();
    assert_eq!(listed, all);
    assert_eq!(listed.len(), fronted.len() + own.count(), "none is in two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_of_cells_are_rejected_by_name() {
    let world = World::start().await;
    for (method, path) in [
        (Method::POST, "/v1/campaigns"),
        (Method::GET, "/v1/campaigns/x"),
        (Method::GET, "/v1/notifications"),
        (Method::GET, "/v1/push/invalidations"),
        (Method::GET, "/v1/push/channels"),
        (Method::POST, "/v1/push/channels"),
        (Method::POST, "/v1/push/channels/final/broadcasts"),
        (Method::DELETE, "/v1/push/apns-channels/x"),
        (Method::GET, "/v1/apps/dev/push"),
        (Method::POST, "/v1/notifications/relay"),
        (Method::GET, "/v1/events"),
    ] {
        world.call(method, path, &world.key, "").await.problem(421, "not_at_a_front");
    }
    let broadcast = r#"{"to": {"topic": "t"}, "data": 1, "push": {"broadcast": {"event": "end"}}}"#;
    let refused = world.call(Method::POST, "/v1/notifications", &world.key, broadcast).await;
    assert_eq!(refused.problem(421, "not_at_a_front")["field"], "push.broadcast");
    world.call(Method::GET, "/v1/nothing", "", "").await.problem(404, "not_found");
    world.call(Method::PUT, "/v1/me", "", "").await.problem(405, "method_not_allowed");
    world.call(Method::GET, "/v1/topics", "", "").await.problem(401, "unauthorized");
    assert_eq!(world.call(Method::GET, "/openapi.json", "", "").await.status, StatusCode::OK);
    assert_eq!(world.get("/v1/apps/dev").await.json()["name"], "dev");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_of_a_front_shows_devices_of_all_cells_and_moves_them() {
    let world = World::start().await;
    world.device("d1", "u1").await;
    let owner = async |method: Method, path: &str, body: &str| {
        world.in_console(Role::Owner, method, path, body).await
    };
    assert_eq!(owner(Method::GET, "/v1/session", "").await.json()["front"], true);
    let devices = owner(Method::GET, "/v1/devices", "").await.json();
    assert_eq!(devices["devices"].as_array().map(Vec::len), Some(1), "{devices}");
    assert_eq!(owner(Method::GET, "/v1/devices/d1/endpoints", "").await.json(), json!({"endpoints": []}));
    let sent = owner(Method::POST, "/v1/notifications", r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    assert_eq!(sent.status, StatusCode::ACCEPTED, "{}", sent.text);
    assert_eq!(owner(Method::GET, "/v1/apps/dev/keys", "").await.status, StatusCode::OK);

    let from = world.cell_of("d1").await;
    let to = ["a", "b", "c"].into_iter().find(|cell| *cell != from).expect("another cell");
    let body = json!({"to": to, "app": "dev", "user": "u1"}).to_string();
    let moves = format!("/v1/cells/{from}/moves");
    let by_viewer = world.in_console(Role::Viewer, Method::POST, &moves, &body).await;
    by_viewer.problem(403, "forbidden");
    assert_eq!(
        world.in_console(Role::Viewer, Method::GET, "/v1/cells", "").await.json()["cells"][0]["cell"],
        "a"
    );
    assert_eq!(owner(Method::POST, &moves, &body).await.json(), json!({"users": 1, "devices": 1}));
    let audited = owner(Method::GET, "/v1/audit", "").await;
    assert!(audited.text.contains(&moves), "{}", audited.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_of_a_front_refuses_what_only_cells_have() {
    let world = World::start().await;
    for (method, path) in [
        (Method::GET, "/v1/campaigns"),
        (Method::GET, "/v1/activities"),
        (Method::GET, "/v1/push/channels"),
        (Method::GET, "/v1/apps/dev/push"),
        (Method::GET, "/v1/apps/dev/experiments"),
        (Method::POST, "/v1/devices"),
        (Method::POST, "/v1/test-notifications"),
    ] {
        let answer = world.in_console(Role::Owner, method.clone(), path, "{}").await;
        answer.problem(421, "not_at_a_front");
        assert!(answer.text.contains("cell"), "{method} {path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_connects_to_the_front_gets_the_address_of_its_cell() {
    let world = World::start().await;
    let token = world.device("d1", "u1").await;
    let cell = world.cell_of("d1").await;
    let told = world.call(Method::GET, "/v1/connect", &token, "").await.problem(421, "not_at_a_front");
    assert_eq!(told["connect"]["websocket"], format!("wss://{cell}.example/v1/connect"));
    let told = world.call(Method::GET, &format!("/v1/events?token={token}"), "", "").await;
    assert_eq!(
        told.problem(421, "not_at_a_front")["connect"]["sse"],
        format!("https://{cell}.example/v1/events")
    );
    let nobody = world.call(Method::GET, "/v1/connect", "nd1.AAAA.AAAA", "").await;
    assert_eq!(nobody.problem(421, "not_at_a_front")["connect"], json!(null));
}
