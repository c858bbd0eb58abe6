//! The exporter against a strict collector.

mod collector;

use std::time::Duration;

use noroshi_otel::metrics::Loss;
use noroshi_otel::{Config, Exporter, Metrics};
use noroshi_telemetry::span::{Ended, Kind, Sampling, Spans};
use noroshi_types::TraceContext;
use noroshi_types::trace::TraceState;
use opentelemetry_proto::tonic::trace::v1 as otlp;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use collector::{Collector, Tell};

/// Generous: only a failure waits this long.
const DEADLINE: Duration = Duration::from_secs(60);

struct Stand {
    collector: Collector,
    spans: Spans,
    metrics: Metrics,
    /// Dropping it stops the node.
    end: Option<oneshot::Sender<()>>,
    run: JoinHandle<()>,
}

fn start(change: impl FnOnce(&mut Config)) -> Stand {
    let collector = Collector::start();
    let mut registry = noroshi_telemetry::registry();
    let metrics = Metrics::new(&mut registry);
    let logins = Counter::<u64>::default();
    registry.register("logins", "Log-ins", logins.clone());
    logins.inc_by(7);
    let mut config = Config {
        endpoint: collector.url.clone(),
        headers: vec![("x-key".to_owned(), "secret".to_owned())],
        timeout: Duration::from_secs(10),
        metrics_interval: None,
        drain: Duration::from_secs(10),
        resource: vec![("service.name".to_owned(), "noroshi".to_owned())],
        proxies: Default::default(),
        ca: Vec::new(),
    };
    change(&mut config);
    let (spans, ended): (Spans, Ended) = Spans::new(Sampling::per_million(1_000_000), Counter::default());
    let scrape = Box::new(move || noroshi_telemetry::encode(&registry).ok());
    let exporter = Exporter::new(config, metrics.clone(), scrape).expect("an exporter");
    let (end, ending) = oneshot::channel::<()>();
    let run = tokio::spawn(exporter.run(ended, async move {
        let _ = ending.await;
    }));
    Stand { collector, spans, metrics, end: Some(end), run }
}

impl Stand {
    async fn stop(mut self) -> (Collector, Metrics) {
        drop(self.end.take());
        tokio::time::timeout(DEADLINE, self.run).await.expect("it ends").expect("no panic");
        (self.collector, self.metrics)
    }

    async fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let waited = async {
            while !reached() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, waited).await.is_ok(), "{what}");
    }
}

fn text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|pair| pair.key == key).unwrap_or_else(|| panic!("no {key}"));
    format!("{:?}", found.value.as_ref().and_then(|value| value.value.as_ref()).expect("a value"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_arrive_complete_and_with_their_parents() {
    let stand = start(|_| {});
    let parent =
        TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("one");
    let mut request =
        stand.spans.begin("POST /v1/notifications", Kind::Server, Some(&parent)).expect("recorded");
    request.parent_was_remote(TraceState::of_headers([&b"rojo=1,congo=2"[..]].into_iter()));
    request.set("http.response.status_code", 503_u64);
    request.set("noroshi.replayed", true);
    request.set("http.route", "/v1/notifications");
    request.fail("503");
    let context = request.context().expect("a context");
    drop(stand.spans.begin("publish", Kind::Internal, Some(&context)));
    drop(stand.spans.begin("push call", Kind::Client, Some(&context)));
    drop(request);
    let (collector, _) = stand.stop().await;
    let spans = collector.spans();
    let [publish, call, request] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(request.trace_id, parent.trace.as_bytes());
    assert_eq!(request.parent_span_id, parent.parent.as_bytes());
    assert_eq!((request.trace_state.as_str(), request.flags), ("rojo=1,congo=2", 0x301));
    assert_eq!((publish.parent_span_id.as_slice(), publish.flags), (request.span_id.as_slice(), 0x101));
    assert_eq!(call.parent_span_id, request.span_id);
    assert_eq!(
        [request.kind, publish.kind, call.kind],
        [otlp::span::SpanKind::Server, otlp::span::SpanKind::Internal, otlp::span::SpanKind::Client]
            .map(i32::from)
    );
    assert_eq!(text(&request.attributes, "http.response.status_code"), "IntValue(503)");
    assert_eq!(text(&request.attributes, "noroshi.replayed"), "BoolValue(true)");
    assert_eq!(text(&request.attributes, "http.route"), "StringValue(\"/v1/notifications\")");
    let status = request.status.as_ref().expect("a status");
    assert_eq!((status.code, status.message.as_str()), (2, "503"));
    assert!(publish.status.is_none());
    assert_eq!(text(&collector.resource(), "service.name"), "StringValue(\"noroshi\")");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_collector_gets_everything_later() {
    let stand = start(|_| {});
    stand.collector.tell(Tell::Status(503), 2);
    for _ in 0..1_500 {
        drop(stand.spans.begin("publish", Kind::Internal, None));
    }
    let collected = || stand.collector.spans().len() == 1_500;
    stand.until("all spans", collected).await;
    let (collector, metrics) = stand.stop().await;
    assert_eq!(collector.refused(), 2);
    let mut ids: Vec<_> = collector.spans().into_iter().map(|span| span.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1_500, "nothing that was accepted is sent again");
    for loss in [Loss::Refused, Loss::Unreachable, Loss::Ended] {
        assert_eq!(metrics.dropped(loss).get(), 0, "{loss:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_spans_are_dropped_if_the_collector_stays_busy() {
    let stand = start(|_| {});
    stand.collector.tell(Tell::NotBefore(600), 1);
    drop(stand.spans.begin("a", Kind::Internal, None));
    let unreachable = stand.metrics.dropped(Loss::Unreachable);
    stand.until("given up", || unreachable.get() == 1).await;
    drop(stand.spans.begin("b", Kind::Internal, None));
    stand.until("the next one", || stand.collector.spans().len() == 1).await;
    let (collector, _) = stand.stop().await;
    assert_eq!((collector.refused(), collector.spans()[0].name.as_str()), (1, "b"), "not sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_spans_are_counted_and_not_sent_again() {
    let stand = start(|_| {});
    stand.collector.tell(Tell::Status(400), 1);
    drop(stand.spans.begin("a", Kind::Internal, None));
    let refused = stand.metrics.dropped(Loss::Refused);
    stand.until("a refusal", || refused.get() == 1).await;
    // One: the first batch may have a single span.
    stand.collector.tell(Tell::Partly(1), 1);
    for _ in 0..5 {
        drop(stand.spans.begin("b", Kind::Internal, None));
    }
    stand.until("the rest", || stand.collector.spans().len() == 5).await;
    let (_, metrics) = stand.stop().await;
    assert_eq!(metrics.dropped(Loss::Refused).get(), 2, "one of five, as the collector said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shutdown_does_not_repeat_a_request_in_flight() {
    let stand = start(|_| {});
    stand.collector.tell(Tell::Late(Duration::from_millis(300)), 1);
    drop(stand.spans.begin("a", Kind::Internal, None));
    stand.until("the span", || stand.collector.spans().len() == 1).await;
    drop(stand.spans.begin("b", Kind::Internal, None));
    let (collector, metrics) = stand.stop().await;
    let names: Vec<_> = collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(metrics.dropped(Loss::Ended).get(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shutdown_waits_for_a_dead_collector_only_until_its_timeout() {
    let stand = start(|config| {
        config.drain = Duration::from_millis(300);
        // No server listens there.
        config.endpoint = "http://127.0.0.1:9".to_owned();
    });
    for _ in 0..10 {
        drop(stand.spans.begin("a", Kind::Internal, None));
    }
    let (_, metrics) = stand.stop().await;
    assert_eq!(metrics.dropped(Loss::Ended).get(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_metrics_match_the_registry() {
    let stand = start(|config| config.metrics_interval = Some(Duration::from_millis(1)));
    stand.until("metrics", || !stand.collector.metrics().is_empty()).await;
    let (collector, _) = stand.stop().await;
    let metrics = collector.metrics();
    let logins = metrics.iter().find(|metric| metric.name == "noroshi_logins_total").expect("log-ins");
    let shown = format!("{:?}", logins.data);
    assert!(shown.contains("AsDouble(7.0)") && shown.contains("is_monotonic: true"), "{shown}");
}
