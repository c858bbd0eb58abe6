//! Doctor's findings and the configuration: who sees them, and in which form.

use std::sync::Arc;

use http::{Method, StatusCode};
use noroshi_api::inspection::{Check, Diagnosis, Inspection, Inspector, Setting, SourceKind};
use noroshi_types::Timestamp;
use serde_json::json;

use crate::service::{NOW, OPERATOR, Service};

struct Fake;

impl Inspection for Fake {
    fn node(&self) -> &str {
        "n1"
    }

    fn examine(&self, connections: Option<u64>) -> Diagnosis {
        let check = Check {
            name: "cores",
            verdict: "warn",
            found: "1".into(),
            wanted: "2".into(),
            advice: "add one".into(),
        };
        Diagnosis {
            verdict: "warn",
            connections: connections.unwrap_or(10_000),
            tls: false,
            checks: vec![check],
            sysctl: vec![("fs.nr_open", "9".into())],
            limit_nofile: Some(9),
            room: Some((7, "memory".into())),
        }
    }

    fn settings(&self) -> Vec<Setting> {
        vec![Setting {
            key: "store.url",
            help: "PostgreSQL.",
            unit: "url",
            range: "postgres://".into(),
            value: Some("\"postgres://u:…@h\"".into()),
            default: None,
            is_masked: true,
            source: SourceKind::Environment,
            place: Some("NOROSHI__STORE__URL".into()),
        }]
    }
}

async fn service() -> Service {
    Service::with(|state| state.inspector = Some(Arc::new(Inspector::new(Arc::new(Fake))))).await
}

#[tokio::test]
async fn queues_have_the_figures_of_the_metrics() {
    let service = service().await;
    service.operate(Method::GET, "/v1/queues", &service.key, "").await.problem(401, "unauthorized");
    let body = service.operate(Method::GET, "/v1/queues", OPERATOR, "").await.json();
    assert_eq!((&body["node"], &body["leads"]), (&json!("n1"), &json!(false)));
    let store =
        body["queues"].as_array().and_then(|queues| queues.iter().find(|one| one["queue"] == "store"));
    let store = store.unwrap_or_else(|| panic!("{body}"));
    assert_eq!((&store["waiting"], &store["bytes"], &store["of"]), (&json!(0.0), &json!(null), &json!({})));
}

#[tokio::test]
async fn only_the_operator_sees_findings_and_configuration() {
    let service = service().await;
    for path in ["/v1/doctor", "/v1/configuration"] {
        for credential in ["", "no_wrong", &service.key] {
            let answer = service.operate(Method::GET, path, credential, "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        }
    }
}

#[tokio::test]
async fn findings_are_those_of_the_command_line_for_the_requested_number_of_devices() {
    let service = service().await;
    let doctor = service.operate(Method::GET, "/v1/doctor?connections=5", OPERATOR, "").await;
    assert_eq!(
        doctor.json(),
        json!({
            "node": "n1", "verdict": "warn", "connections": 5, "tls": false,
            "checks": [{"name": "cores", "verdict": "warn", "found": "1", "wanted": "2", "advice": "add one"}],
            "sysctl": {"fs.nr_open": "9"}, "limit_nofile": 9,
            "room": {"devices": 7, "limited_by": "memory"},
        })
    );
    for wrong in ["connections=0", "connections=100000001", "connections=x", "tls=true"] {
        let answer = service.operate(Method::GET, &format!("/v1/doctor?{wrong}"), OPERATOR, "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn each_key_of_the_configuration_names_its_source() {
    let configuration = service().await.operate(Method::GET, "/v1/configuration", OPERATOR, "").await;
    let setting = json!({
        "key": "store.url", "value": "\"postgres://u:…@h\"", "default": null, "masked": true,
        "source": "environment", "place": "NOROSHI__STORE__URL", "unit": "url", "range": "postgres://",
        "description": "PostgreSQL.",
    });
    assert_eq!(configuration.json(), json!({"node": "n1", "settings": [setting]}));
}

#[tokio::test]
async fn a_node_that_cannot_examine_itself_says_so() {
    let service = Service::start().await;
    for path in ["/v1/doctor", "/v1/configuration"] {
        service.operate(Method::GET, path, OPERATOR, "").await.problem(503, "unavailable");
    }
}

#[tokio::test]
async fn doctor_warns_of_keys_that_expire() {
    let service = service().await;
    let create = async |name: &str, expires_at: Option<&str>| {
        let body = json!({"name": name, "scopes": ["read"], "expires_at": expires_at}).to_string();
        assert_eq!(service.post("/v1/apps/dev/keys", &service.key, &body).await.status, StatusCode::CREATED);
    };
    let found = async || {
        let body = service.operate(Method::GET, "/v1/doctor", OPERATOR, "").await.json();
        body["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "API keys").cloned()
    };
    create("never", None).await;
    create("later", Some("2027-01-29T08:00:01Z")).await;
    assert_eq!(found().await, None);
    create("soon", Some("2027-01-29T08:00:00Z")).await;
    create("sooner", Some("2027-01-15T09:00:00Z")).await;
    service.clock.set(Timestamp(NOW.0 + 3_600_000));
    for number in 0..4 {
        create(&format!("k{number}"), Some("2027-01-20T08:00:00Z")).await;
    }
    let check = found().await.expect("a finding");
    assert_eq!(
        (&check["verdict"], &check["found"]),
        (&json!("warn"), &json!("1 expired, 6 expire within 14 days"))
    );
    let advice = check["advice"].as_str().expect("a text");
    assert!(advice.contains("sooner of dev (2027-01-15T09:00:00.000Z), k0 of dev"), "{advice}");
    assert!(advice.ends_with(", 2 more") && !advice.contains("never"), "{advice}");
}
