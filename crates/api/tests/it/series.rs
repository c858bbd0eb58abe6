//! The time series and the streams of live figures: who may see what, and when a stream ends.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use noroshi_api::router::CONSOLE_API;
use noroshi_series::live::{VIEWERS_MAX, VIEWERS_OF_PERSON_MAX};
use noroshi_store::AppSettings;
use noroshi_types::{AppId, AppName, Role};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::console::{Browser, person};
use crate::service::{NOW, OPERATOR, Service};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn figures_are_for_those_who_may_read_them() {
    let service = Service::start().await;
    let app = Some(service.app());
    let all = service.operate(Method::GET, "/v1/series", OPERATOR, "").await.json();
    assert_eq!((&all["step_s"], &all["covered_s"][359]), (&json!(10), &json!(0)));
    assert_eq!((all["series"].as_array().map(Vec::len), &all["nodes"]), (Some(28), &json!([])));
    assert_eq!(all["series"][0]["points"].as_array().map(Vec::len), Some(360));
    let own = service.get("/v1/apps/dev/series?names=publishes,connections", &service.key).await.json();
    assert_eq!((&own["series"][0]["name"], &own["nodes"]), (&json!("publishes"), &Value::Null));
    service.get("/v1/apps/dev/series", &service.other_key).await.problem(404, "not_found");
    service.get("/v1/series", &service.key).await.problem(404, "not_found");
    let reader = service.key_with(&[noroshi_types::Scope::Read]).await;
    service.get("/v1/apps/dev/series", &reader).await.problem(403, "forbidden");
    service.operate(Method::GET, "/v1/series", "", "").await.problem(401, "unauthorized");

    let viewer = person(&service, "viewer@example.com", vec![(app, Role::Viewer)]).await;
    let everywhere = person(&service, "all@example.com", vec![(None, Role::Viewer)]).await;
    let get = async |browser: &Browser, path: &str| browser.call(&service, Method::GET, path, "").await;
    assert_eq!(get(&viewer, "/v1/apps/dev/series").await.status, 200);
    get(&viewer, "/v1/apps/other/series").await.problem(404, "not_found");
    get(&viewer, "/v1/series").await.problem(403, "forbidden");
    get(&viewer, "/v1/live").await.problem(403, "forbidden");
    get(&viewer, "/v1/apps/other/live").await.problem(404, "not_found");
    assert_eq!(
        get(&everywhere, "/v1/series?from=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z").await.status,
        200
    );
    for (query, field) in [
        ("names=cpu", "names"),
        ("from=yesterday", "from"),
        ("step=5s", "step"),
        ("step=10s&from=2020-01-01T00:00:00Z", "step"),
        ("node=node", "node"),
        ("from=2200-01-01T00:00:00Z", "from"),
    ] {
        let problem = get(&viewer, &format!("/v1/apps/dev/series?{query}")).await;
        problem.problem(400, "invalid_parameter");
        assert_eq!(problem.json()["field"], field, "{query}");
    }
}

async fn open(service: &Service, browser: &Browser, path: &str) -> Response<Body> {
    let request = Request::get(format!("{CONSOLE_API}{path}"))
        .header(header::COOKIE, format!("noroshi_session={}", browser.cookie))
        .body(Body::empty())
        .expect("a request");
    service.console.clone().oneshot(request).await.expect("a response")
}

/// The data of the next event. `None`: the stream ended.
async fn next(stream: &mut Response<Body>) -> Option<Value> {
    let frame = tokio::time::timeout(PATIENCE, stream.frame()).await.expect("in time")?.expect("a frame");
    let bytes = frame.into_data().expect("data");
    let text = std::str::from_utf8(&bytes).expect("text");
    Some(serde_json::from_str(text.strip_prefix("event: figures\ndata: ").expect("an event")).expect("JSON"))
}

#[tokio::test]
async fn a_stream_has_the_figures_of_its_scope() {
    let service = Service::start().await;
    let viewer = person(&service, "viewer@example.com", vec![(Some(service.app()), Role::Viewer)]).await;
    let owner = person(&service, "owner@example.com", vec![(None, Role::Owner)]).await;
    let mut of_app = open(&service, &viewer, "/v1/apps/dev/live").await;
    assert_eq!(of_app.headers()[header::CONTENT_TYPE], "text/event-stream");
    let figures = next(&mut of_app).await.expect("an event");
    assert_eq!((figures.get("nodes"), figures["figures"].get("cpu")), (None, None));
    let mut all = open(&service, &owner, "/v1/live").await;
    let figures = next(&mut all).await.expect("an event");
    assert_eq!(figures["nodes"][0]["name"], "node");
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let mut seen = Value::Null;
    for _ in 0..10 {
        seen = next(&mut of_app).await.expect("an event");
        if seen["figures"]["publishes"].as_f64().is_some_and(|rate| rate > 0.0) {
            break;
        }
    }
    assert!(seen["figures"]["publishes"].as_f64().is_some_and(|rate| rate > 0.0), "{seen}");
}

#[tokio::test]
async fn a_stream_ends_with_the_session_the_role_and_the_node() {
    let service = Service::start().await;
    let app: Option<AppId> = Some(service.app());
    let ann = person(&service, "ann@example.com", vec![(app, Role::Viewer)]).await;
    let bob = person(&service, "bob@example.com", vec![(app, Role::Viewer)]).await;
    let cid = person(&service, "cid@example.com", vec![(app, Role::Viewer)]).await;
    let mut of_ann = open(&service, &ann, "/v1/apps/dev/live").await;
    let mut of_bob = open(&service, &bob, "/v1/apps/dev/live").await;
    let mut of_cid = open(&service, &cid, "/v1/apps/dev/live").await;
    for stream in [&mut of_ann, &mut of_bob, &mut of_cid] {
        assert!(next(stream).await.is_some());
    }
    assert_eq!(ann.call(&service, Method::DELETE, "/v1/session", "").await.status, 204);
    service.store.set_role(bob.id, app, None).await.expect("removed");
    let events = async |stream: &mut Response<Body>| {
        let mut count = 0;
        while next(stream).await.is_some() {
            count += 1;
        }
        count
    };
    assert!(events(&mut of_ann).await <= 10);
    assert!(events(&mut of_bob).await <= 10);
    assert!(next(&mut of_cid).await.is_some(), "the others go on");
    service.state.series.live.close();
    assert!(events(&mut of_cid).await <= 1);
    let refused = open(&service, &cid, "/v1/apps/dev/live").await;
    assert_eq!(refused.status(), 503);
}

#[tokio::test]
async fn too_many_streams_are_refused() {
    let service = Service::start().await;
    let mut streams = Vec::new();
    for n in 0..VIEWERS_MAX / VIEWERS_OF_PERSON_MAX {
        let owner = person(&service, &format!("owner{n}@example.com"), vec![(None, Role::Owner)]).await;
        for _ in 0..VIEWERS_OF_PERSON_MAX {
            let stream = open(&service, &owner, "/v1/live").await;
            assert_eq!(stream.status(), 200);
            streams.push(stream);
        }
        let refused = open(&service, &owner, "/v1/live").await;
        assert_eq!(refused.status(), 409, "the others of the node keep their places");
    }
    let owner = person(&service, "owner@example.com", vec![(None, Role::Owner)]).await;
    let refused = open(&service, &owner, "/v1/live").await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    streams.pop();
    assert_eq!(open(&service, &owner, "/v1/live").await.status(), 200);
}

#[tokio::test]
async fn a_new_app_has_no_figures_of_others() {
    let service = Service::start().await;
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let name = AppName::parse("fresh").expect("a name");
    service.state.auth.create_app(name, AppSettings::default(), NOW).await.expect("an app");
    let answer = service.operate(Method::GET, "/v1/apps/fresh/series", OPERATOR, "").await.json();
    for series in answer["series"].as_array().expect("series") {
        assert!(series["points"].as_array().expect("points").iter().all(Value::is_null), "{series}");
    }
}
