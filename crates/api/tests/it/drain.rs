//! Draining through the admin listener: access, rejections and reports.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_api::body::DrainRequest;
use noroshi_api::document;
use noroshi_api::drain::{Drain, DrainProgress, DrainReport, DrainState, Stopping};
use noroshi_types::Timestamp;
use serde_json::{Value, json};

use crate::service::{OPERATOR, Service};

/// One second before the service's clock: 2027-01-15T07:59:59Z.
const STARTED_AT: Timestamp = Timestamp(1_799_999_999_000);

/// 2,500 devices, 500 of them moved.
#[derive(Default)]
struct FakeDrain {
    request: Mutex<Option<DrainRequest>>,
    stopping: bool,
}

impl FakeDrain {
    fn unless_stopping(&self, request: Option<DrainRequest>) -> Result<(), Stopping> {
        if self.stopping {
            return Err(Stopping);
        }
        *self.request.lock().expect("no panic") = request;
        Ok(())
    }
}

impl Drain for FakeDrain {
    fn begin(&self, request: DrainRequest) -> Result<(), Stopping> {
        self.unless_stopping(Some(request))
    }

    fn cancel(&self) -> Result<(), Stopping> {
        self.unless_stopping(None)
    }

    fn report(&self) -> DrainReport {
        let request = self.request.lock().expect("no panic").clone();
        DrainReport {
            state: if request.is_some() { DrainState::Draining } else { DrainState::Serving },
            connections: 2_500,
            progress: request.map(|request| DrainProgress {
                rate_per_second: request.rate_per_second.unwrap_or(1_000),
                spread: request.spread.unwrap_or(Duration::from_secs(5)),
                moved: 500,
                started_at: STARTED_AT,
                deadline_at: request.deadline.map(|after| STARTED_AT.saturating_add(after)),
            }),
        }
    }
}

async fn service(stopping: bool) -> Service {
    Service::with(|state| state.drain = Some(Arc::new(FakeDrain { stopping, ..FakeDrain::default() }))).await
}

impl Service {
    async fn drain(&self, method: Method, body: &str) -> Value {
        let answer = self.operate(method, "/v1/drain", OPERATOR, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json()
    }
}

#[tokio::test]
async fn the_operator_starts_changes_and_cancels_a_drain() {
    let service = service(false).await;
    let ready = async || service.operate(Method::GET, "/readyz", "", "").await;
    assert_eq!(ready().await.status, StatusCode::OK);
    assert_eq!(
        service.drain(Method::GET, "").await,
        json!({"state": "serving", "connections": 2_500, "moved": null, "rate": null, "spread_ms": null,
               "started_at": null, "deadline_at": null, "eta_s": null})
    );
    let begun = service.drain(Method::PUT, "").await;
    assert_eq!(
        begun,
        json!({"state": "draining", "connections": 2_500, "moved": 500, "rate": 1_000, "spread_ms": 5_000,
               "started_at": "2027-01-15T07:59:59.000Z", "deadline_at": null, "eta_s": 3})
    );
    ready().await.problem(503, "unavailable");
    let changed = service.drain(Method::PUT, r#"{"rate": 10, "spread": "1s", "deadline": "1m"}"#).await;
    assert_eq!((&changed["rate"], &changed["spread_ms"]), (&json!(10), &json!(1_000)));
    assert_eq!(
        (&changed["deadline_at"], &changed["eta_s"]),
        (&json!("2027-01-15T08:00:59.000Z"), &json!(59))
    );
    assert_eq!(service.drain(Method::DELETE, "").await["state"], "serving");
    assert_eq!(service.drain(Method::DELETE, "").await["state"], "serving", "nothing to cancel is no error");
    assert_eq!(ready().await.status, StatusCode::OK);
    let document: Value = serde_json::from_str(document::ADMIN).expect("JSON");
    let described = document["components"]["schemas"]["Drain"]["properties"].as_object().expect("properties");
    assert!(begun.as_object().expect("an object").keys().eq(described.keys()), "{described:?}");
    let example =
        &document["paths"]["/v1/drain"]["put"]["requestBody"]["content"]["application/json"]["example"];
    service.drain(Method::PUT, &example.to_string()).await;
}

#[tokio::test]
async fn only_the_operator_drains_and_only_on_the_admin_listener() {
    let service = service(false).await;
    for bearer in ["", "wrong", &service.key] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            service.operate(method, "/v1/drain", bearer, "").await.problem(401, "unauthorized");
        }
    }
    service.call(Method::PUT, "/v1/drain", OPERATOR, "").await.problem(404, "not_found");
    assert_eq!(service.drain(Method::GET, "").await["state"], "serving");
}

#[tokio::test]
async fn an_invalid_drain_request_changes_nothing() {
    let service = service(false).await;
    for (body, code, field) in [
        (r#"{"rate": 0}"#, "invalid_field", "rate"),
        (r#"{"rate": -5}"#, "invalid_field", "rate"),
        (r#"{"rate": 1e12}"#, "invalid_field", "rate"),
        (r#"{"spread": "2h"}"#, "invalid_field", "spread"),
        (r#"{"speed": 1}"#, "unknown_field", "speed"),
    ] {
        let answer = service.operate(Method::PUT, "/v1/drain", OPERATOR, body).await;
        assert_eq!(answer.problem(400, code)["field"], field, "{body}");
    }
    assert_eq!(service.drain(Method::GET, "").await["state"], "serving");
}

#[tokio::test]
async fn a_stopping_node_rejects_drain_changes() {
    let service = service(true).await;
    for method in [Method::PUT, Method::DELETE] {
        service.operate(method, "/v1/drain", OPERATOR, "").await.problem(503, "unavailable");
    }
    let without = Service::start().await;
    without.operate(Method::GET, "/v1/drain", OPERATOR, "").await.problem(503, "unavailable");
}
