//! The trace of a request (W3C Trace Context): kept with what it publishes, returned with it, and never a reason for a
//! rejection.

use http::{HeaderName, HeaderValue, Method, StatusCode};
use noroshi_delivery::campaign::Spec;
use noroshi_telemetry::span::{Sampling, Span, Spans, Value};
use serde_json::json;

use crate::service::{Answer, Service, in_an_hour, jwt, request};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const BODY: &str = r#"{"to": {"users": ["u1"]}, "data": 1}"#;

/// Posts with these values of `traceparent`.
async fn post(service: &Service, path: &str, body: &str, values: &[&str]) -> Answer {
    let mut request = request(Method::POST, path, &service.key, body);
    for value in values {
        let value = HeaderValue::from_str(value).expect("a header");
        request.headers_mut().append(HeaderName::from_static("traceparent"), value);
    }
    service.send(request).await
}

/// The trace of the notification that such a request publishes.
async fn trace_of(service: &Service, values: &[&str]) -> serde_json::Value {
    let answer = post(service, "/v1/notifications", BODY, values).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{values:?}: {}", answer.text);
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    let state = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();
    let device = service.get(&format!("/v1/notifications/{id}/devices/d1"), &service.key).await.json();
    assert_eq!(state.get("trace"), device.get("trace"));
    state.get("trace").cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_notification_keeps_the_trace_of_its_request() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    assert_eq!(trace_of(&service, &[PARENT]).await, TRACE);
    assert_eq!(trace_of(&service, &[&PARENT.replace("-01", "-00")]).await, TRACE, "sampled or not");
    assert_eq!(trace_of(&service, &[]).await, json!(null));
    // Ignored, not rejected.
    let upper = PARENT.to_uppercase();
    for wrong in ["", "x", upper.as_str(), "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        assert_eq!(trace_of(&service, &[wrong]).await, json!(null), "{wrong}");
    }
    assert_eq!(trace_of(&service, &[PARENT, PARENT]).await, json!(null), "two headers count as none");
}

#[tokio::test]
async fn batches_and_campaigns_keep_the_trace() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    let lines = format!("{BODY}\n{BODY}\n");
    let answer = post(&service, "/v1/notifications/batch", &lines, &[PARENT]).await;
    for line in answer.text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let path = format!("/v1/notifications/{}", line["id"].as_str().expect("an id"));
        assert_eq!(service.get(&path, &service.key).await.json()["trace"], TRACE);
    }
    let campaign = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "start": false}"#;
    let answer = post(&service, "/v1/campaigns", campaign, &[PARENT]).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let kept = service
        .state
        .delivery
        .campaigns
        .list(service.app(), noroshi_store::CampaignFilter::first(1))
        .await
        .expect("read")
        .0;
    let spec = Spec::from_json(&kept[0].campaign.spec).expect("a campaign");
    assert_eq!(spec.trace.expect("kept").trace.to_string(), TRACE);
}

#[tokio::test]
async fn a_request_is_a_span_with_its_work_as_children() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (spans, ended) = Spans::new(Sampling::per_million(0), Default::default());
    service.state.delivery.context.attach_spans(spans);
    let answer = post(&service, "/v1/notifications", BODY, &[PARENT]).await;
    // A device, and a request without a trace: neither is recorded.
    let mut request = request(Method::GET, "/v1/me", &token, "");
    request.headers_mut().insert("traceparent", HeaderValue::from_static(PARENT));
    assert_eq!(service.send(request).await.status, StatusCode::OK);
    service.post("/v1/notifications", &service.key, BODY).await;
    let spans: Vec<Span> = ended.0.try_iter().collect();
    let [store, publish, request] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(request.name, "POST /v1/notifications");
    assert!(request.parent_is_remote && request.trace.to_string() == TRACE);
    assert_eq!(request.parent.expect("a parent").to_string(), "00f067aa0ba902b7");
    assert!(request.attributes.contains(&("http.response.status_code", Value::Count(202))));
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    assert!(request.attributes.contains(&("noroshi.notification", Value::from(id))));
    assert_eq!((publish.name.as_ref(), publish.parent), ("publish", Some(request.id)));
    assert_eq!((store.name.as_ref(), store.parent), ("store accept", Some(publish.id)));
}

/// Providers and devices register at the same path.
#[tokio::test]
async fn a_trace_of_a_device_is_ignored() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (spans, ended) = Spans::new(Sampling::per_million(0), Default::default());
    service.state.delivery.context.attach_spans(spans);
    let jwt = jwt(&json!({"sub": "u2", "device": "d2", "exp": in_an_hour()}));
    for (bearer, recorded) in [(&token, 0), (&jwt, 0), (&service.key, 1)] {
        let mut request = request(Method::POST, "/v1/devices", bearer, "{}");
        request.headers_mut().insert("traceparent", HeaderValue::from_static(PARENT));
        assert_eq!(service.send(request).await.status, StatusCode::CREATED);
        assert_eq!(ended.0.try_iter().count(), recorded, "{bearer}");
    }
}
