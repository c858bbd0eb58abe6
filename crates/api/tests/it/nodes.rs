//! Several nodes: their list, roles, and the addresses given to devices.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_api::document;
use noroshi_api::nodes::{Node, Nodes};
use noroshi_types::Timestamp;
use serde_json::{Value, json};

use crate::service::{OPERATOR, Service};

struct FakeNodes;

impl Nodes for FakeNodes {
    fn nodes(&self) -> Vec<Node> {
        vec![Node {
            name: "g1".to_owned(),
            epoch: Some("00000000000000a1".to_owned()),
            roles: vec!["gateway"],
            http: "https://g1.example.com".to_owned(),
            admin: "http://10.0.0.1:9090".to_owned(),
            version: "0.1.0".to_owned(),
            started_at: Timestamp(1_800_000_000_000),
            lease: Some(Duration::from_millis(9_120)),
            connections: 18_000,
            deliveries_per_second: 6_120.456,
            cpu: Some(0.41234),
            drain: "serving".to_owned(),
            this: true,
        }]
    }

    fn gateway(&self) -> Option<String> {
        Some("https://g1.example.com".to_owned())
    }

    fn gateway_again(&self, before: &str) -> Option<String> {
        Some(before.to_owned())
    }
}

#[tokio::test]
async fn the_operator_lists_the_nodes() {
    let service = Service::with(|state| state.nodes = Some(Arc::new(FakeNodes))).await;
    let answer = service.operate(Method::GET, "/v1/nodes", OPERATOR, "").await.json();
    let node = &answer["nodes"][0];
    assert_eq!(
        *node,
        json!({"name": "g1", "this": true, "epoch": "00000000000000a1", "roles": ["gateway"],
               "http": "https://g1.example.com", "admin": "http://10.0.0.1:9090", "version": "0.1.0",
               "started_at": "2027-01-15T08:00:00.000Z", "lease_ms": 9_120, "connections": 18_000,
               "deliveries_per_second": 6_120.5, "cpu": 0.412, "drain": "serving"})
    );
    let document: Value = serde_json::from_str(document::ADMIN).expect("JSON");
    let described = document["components"]["schemas"]["Node"]["properties"].as_object().expect("properties");
    assert!(node.as_object().expect("an object").keys().eq(described.keys()), "{described:?}");
    for bearer in ["", "wrong", &service.key] {
        service.operate(Method::GET, "/v1/nodes", bearer, "").await.problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn devices_get_a_gateway_of_the_cluster_unless_an_address_is_configured() {
    let register = async |service: &Service| {
        let answer = service.call(Method::POST, "/v1/devices", &service.key, "{}").await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["connect"]["websocket"].clone()
    };
    let service = Service::with(|state| state.nodes = Some(Arc::new(FakeNodes))).await;
    assert_eq!(register(&service).await, "wss://g1.example.com/v1/connect");
    let configured = Service::with(|state| {
        state.nodes = Some(Arc::new(FakeNodes));
        state.config.public_url = Some("https://push.example.com".to_owned());
    });
    assert_eq!(register(&configured.await).await, "wss://push.example.com/v1/connect");
}

#[tokio::test]
async fn a_node_without_the_role_api_rejects_requests_but_answers_probes() {
    let service = Service::with(|state| state.config.public = false).await;
    let refused = service.call(Method::POST, "/v1/notifications", &service.key, "{}").await;
    refused.problem(421, "misdirected");
    let ready = service.operate(Method::GET, "/readyz", "", "").await;
    assert_eq!(ready.status, StatusCode::OK);
    // A path of the gateway, which this node does not have either.
    service.call(Method::GET, "/v1/connect", "", "").await.problem(421, "misdirected");
}
