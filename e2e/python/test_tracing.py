"""Traces from a provider's request to the push service's answer, decoded with OpenTelemetry's messages (PyPI's
`opentelemetry-proto`): the collector uses Python's HTTP server and Google's protobuf runtime."""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from node import BIN, Node, until
from push import DevPush

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"}


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans, self.resources, self.metrics, self.wrong = [], [], {}, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str, trace: str = TRACE) -> list:
        assert not self.wrong, self.wrong
        return [span for span in self.spans if span.name == name and span.trace_id.hex() == trace]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body, collector = self.rfile.read(int(self.headers["content-length"])), self.server
        if self.headers["content-type"] != "application/x-protobuf" or self.headers["x-key"] != "secret":
            collector.wrong.append(dict(self.headers))
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                collector.resources.append({pair.key: pair.value.string_value for pair in resource.resource.attributes})
                for scope in resource.scope_spans:
                    collector.spans.extend(scope.spans)
        elif self.path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    collector.metrics |= {metric.name: metric for metric in scope.metrics}
        else:
            collector.wrong.append(self.path)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def collector():
    probe = subprocess.run([BIN, "config", "print", "--set", "tracing.endpoint=http://127.0.0.1:9"], capture_output=True, text=True)
    if probe.returncode != 0:
        assert "feature `otel`" in probe.stdout + probe.stderr, probe
        pytest.skip("this binary was built without the feature otel")
    collector = Collector()
    yield collector
    collector.shutdown()


@pytest.fixture(scope="module")
def fakes():
    fakes = DevPush()
    yield fakes
    fakes.stop()


@pytest.fixture(scope="module")
def node(collector, fakes, tmp_path_factory):
    headers = tmp_path_factory.mktemp("tracing") / "headers"
    headers.write_text("X-Key: secret\n")
    keys = {
        "egress.ca_file": fakes.info["ca_file"],
        "tracing.endpoint": collector.url,
        "tracing.headers_file": headers,
        "tracing.sample_per_million": 0,
        "tracing.metrics_interval": "1s",
        "tracing.attributes": "deployment.environment.name=e2e",
        "tracing.push_services": "true",
    }
    node = Node(*(part for key, value in keys.items() for part in ("--set", f"{key}={value}")))
    for service in ("apns", "fcm"):
        node.add_credential(fakes.info["credentials"][service])
    yield node
    node.stop()


def publish(node: Node, user: str, headers: dict) -> str:
    body = {"to": {"users": [user]}, "notification": {"title": "T"}, "push": {"mode": "always"}}
    answer = node.provider.post("/v1/notifications", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def attributes(span) -> dict:
    values = {pair.key: pair.value for pair in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


@pytest.mark.parametrize("service", ["apns", "fcm"])
def test_one_trace_from_the_request_to_the_push_service(node, fakes, collector, service):
    token = fakes.token(service)
    device = node.register(user=f"traced-{service}", push_token=token)["device"]
    before = len(collector.named("publish"))
    id = publish(node, f"traced-{service}", SAMPLED)
    node.outcome(id, device, "pushed")
    assert node.provider.get(f"/v1/notifications/{id}").json()["trace"] == TRACE

    def of(name: str):
        found = collector.named(name)
        return [span for span in found if name != "publish" or attributes(span).get("noroshi.notification") == id]

    until("all spans", lambda: of("publish") and of(f"push {service}") and len(of("push call")) > before)
    [publish_span], [attempt] = of("publish"), of(f"push {service}")
    [request] = [span for span in of("POST /v1/notifications") if span.span_id == publish_span.parent_span_id]
    [stored] = [span for span in of("store accept") if span.parent_span_id == publish_span.span_id]
    [call] = [span for span in of("push call") if span.parent_span_id == attempt.span_id]
    assert request.parent_span_id.hex() == PARENT
    assert (request.trace_state, request.kind) == ("rojo=1", 2)
    assert attributes(request)["http.response.status_code"] == 202
    assert attributes(request)["http.route"] == "/v1/notifications"
    assert attempt.parent_span_id == publish_span.span_id
    assert request.start_time_unix_nano <= stored.start_time_unix_nano <= stored.end_time_unix_nano
    assert attributes(call)["noroshi.push.result"] == "accepted"
    [got] = [one for one in fakes.received(service, token["token"]) if one["status"] == 200]
    assert got["headers"]["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    resource = collector.resources[-1]
    assert resource["service.name"] == "noroshi" and resource["deployment.environment.name"] == "e2e"
    assert resource["noroshi.roles"] == "api,gateway,sender" and resource["service.instance.id"]


def test_an_unsampled_trace_is_propagated_but_not_recorded(node, fakes, collector):
    token, other = fakes.token("fcm"), "ffffffffffffffffffffffffffffffff"
    device = node.register(user="quiet", push_token=token)["device"]
    for headers in ({"traceparent": f"00-{other}-{PARENT}-00"}, {}, {"traceparent": "nonsense"}):
        node.outcome(publish(node, "quiet", headers), device, "pushed")
    traced = publish(node, "quiet", SAMPLED)
    until("a later span", lambda: any(attributes(span).get("noroshi.notification") == traced for span in collector.named("publish")))
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    sent = [one["headers"].get("traceparent") for one in fakes.received("fcm", token["token"])]
    assert sent[:3] == [f"00-{other}-{PARENT}-00", None, None]


def test_metrics_are_those_of_the_metrics_page(node, collector):
    until("metrics", lambda: collector.metrics)
    accepted = collector.metrics["noroshi_tracing_spans_exported_total"]
    assert accepted.sum.is_monotonic and accepted.sum.aggregation_temporality == 2
    histogram = next(metric for metric in collector.metrics.values() if metric.WhichOneof("data") == "histogram")
    for point in histogram.histogram.data_points:
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert sum(point.bucket_counts) == point.count
