"""Web Push (RFC 8030, 8291, 8292) against third-party packages.

Our pushes go to a plain receiver of its own, which opens them with `http-ece` and believes VAPID tokens by `py-vapid` and
`PyJWT`; and `pywebpush` pushes to the fake push service, which must accept it."""

import base64
import http.server
import json
import queue
import ssl
import threading
import time
import uuid

import http_ece
import jwt
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02
from pywebpush import WebPusher, WebPushException, webpush

from node import DEADLINE_S, Node
from push import DevPush, certificates

SUBJECT = "mailto:ops@example.com"


def text_of(data: bytes, padding: bool = False) -> str:
    text = base64.urlsafe_b64encode(data).decode()
    return text if padding else text.rstrip("=")


def point(key) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


class Browser:
    """A subscription with a browser's private keys, and its received pushes."""

    def __init__(self, origin: str, padding: bool = False) -> None:
        self.path = f"/push/{uuid.uuid4().hex}?v=2"
        self.key, self.auth = ec.generate_private_key(ec.SECP256R1()), uuid.uuid4().bytes
        keys = {"p256dh": text_of(point(self.key.public_key()), padding), "auth": text_of(self.auth, padding)}
        self.push_token = {"service": "webpush", "endpoint": origin + self.path, "keys": keys}
        self.arrived = queue.Queue()

    def next(self) -> tuple[dict, bytes]:
        """The headers (their names in lower case) and the plain text of the next push."""
        headers, body = self.arrived.get(timeout=DEADLINE_S)
        return headers, http_ece.decrypt(body, private_key=self.key, auth_secret=self.auth, version="aes128gcm")


class Receiver:
    """A minimal push service: HTTP/1.1 over TLS, accepts everything, keeps it for the browser."""

    def __init__(self, certificate) -> None:
        browsers = self.browsers = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = [(name.lower(), value) for name, value in self.headers.items()]
                assert len(dict(headers)) == len(headers), "a header is there twice"
                browser = browsers.get(self.path)
                if browser:
                    browser.arrived.put((dict(headers), body))
                self.send_response(201 if browser else 404)
                self.send_header("Location", f"https://{self.headers['host']}/message/1")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.set_alpn_protocols(["http/1.1"])
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.origin = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def browser(self, **options) -> Browser:
        browser = Browser(self.origin, **options)
        self.browsers[browser.path] = browser
        return browser


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    ca, server = certificates(tmp_path_factory.mktemp("tls"))
    receiver = Receiver(server)
    receiver.ca = ca
    yield receiver
    receiver.server.shutdown()


@pytest.fixture(scope="module")
def vapid():
    """The sender's key pair, created by `py-vapid`."""
    vapid = Vapid02()
    vapid.generate_keys()
    return vapid


@pytest.fixture(scope="module")
def node(receiver, vapid):
    node = Node("--set", f"egress.ca_file={receiver.ca}")
    shown = node.add_credential({"service": "webpush", "private_key": vapid.private_pem().decode(), "subject": SUBJECT})
    assert text_of(point(vapid.public_key)) in json.dumps(shown), "the public key, as a page needs it"
    yield node
    node.stop()


def sent(node, browser, **fields) -> tuple[str, dict, bytes]:
    """Pushes to a new device with the subscription; returns the notification's id, the headers, the plain text."""
    device = node.register(push_token=browser.push_token)["device"]
    push = {"mode": "always", **fields.pop("push", {})}
    made = node.publish(to={"devices": [device]}, push=push, **fields)["id"]
    headers, plain = browser.next()
    node.outcome(made, device, "pushed")
    assert browser.arrived.empty(), "once"
    return made, headers, plain


@pytest.mark.parametrize("padding", [False, True], ids=["unpadded keys", "padded keys"])
def test_http_ece_decrypts_a_push(node, receiver, padding):
    notification = {"title": "狼煙 🔥", "body": "up\n\"quoted\" \\ \u0000", "url": "https://example.com/?a=1&b=2"}
    data = {"n": 1.5, "list": [None, True, {"deep": "ü"}], "empty": ""}
    made, headers, plain = sent(node, receiver.browser(padding=padding), notification=notification, data=data)
    # A title and a URL make the message declarative, too.
    shown = {**notification, "navigate": notification["url"], "mutable": True}
    assert json.loads(plain) == {"web_push": 8030, "id": made, "notification": shown, "data": data, "mutable": True}
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("length", [1, 1_000, 3_991])
def test_a_payload_of_any_size_is_decrypted_unchanged(node, receiver, length):
    """At most 3,993 bytes fit into 4,096 encrypted ones; two are the quotes."""
    payload = ("abcdefghij" * 400)[:length]
    _, headers, plain = sent(node, receiver.browser(), notification={"title": "t"}, push={"webpush": {"payload": payload}})
    assert plain == json.dumps(payload).encode()
    assert int(headers["content-length"]) <= 4_096


def test_salt_and_key_are_new_for_every_push(node, receiver):
    browser = receiver.browser()
    device = node.register(push_token=browser.push_token)["device"]
    for _ in range(3):
        node.publish(to={"devices": [device]}, notification={"title": "same"}, push={"mode": "always"})
    bodies = [browser.arrived.get(timeout=DEADLINE_S)[1] for _ in range(3)]
    assert len({body[:16] for body in bodies}) == 3
    assert len({body[21:86] for body in bodies}) == 3


def test_the_vapid_token_is_for_this_origin_and_signed_by_the_key(node, receiver, vapid):
    _, headers, _ = sent(node, receiver.browser(), notification={"title": "t"})
    authorization = headers["authorization"]
    # py-vapid accepts only "t=…,k=…" without the space that RFC 9110 allows and RFC 8292's example contains.
    assert Vapid02.verify(authorization.replace(", ", ","))
    scheme, parameters = authorization.split(" ", 1)
    assert scheme == "vapid"
    parameters = dict(part.strip().split("=", 1) for part in parameters.split(","))
    assert parameters["k"] == text_of(point(vapid.public_key))
    head = jwt.get_unverified_header(parameters["t"])
    assert (head["typ"], head["alg"]) == ("JWT", "ES256")
    required = {"require": ["aud", "exp", "sub"]}
    claims = jwt.decode(parameters["t"], vapid.public_key, ["ES256"], audience=receiver.origin, options=required)
    assert claims["sub"] == SUBJECT
    assert time.time() < claims["exp"] <= time.time() + 24 * 3_600


@pytest.mark.parametrize("urgency", ["very-low", "low", "normal", "high"])
def test_ttl_urgency_and_topic_are_in_the_headers(node, receiver, urgency):
    _, headers, _ = sent(node, receiver.browser(), notification={"title": "t"}, urgency=urgency, ttl="1h", collapse_key="score-7")
    assert headers["urgency"] == urgency
    assert 0 < int(headers["ttl"]) <= 3_600
    assert headers["topic"] == "score-7"


def test_a_long_collapse_key_becomes_a_valid_topic(node, receiver):
    topics = []
    for key in ["an order of a customer: № 1", "an order of a customer: № 2", "an order of a customer: № 1"]:
        _, headers, _ = sent(node, receiver.browser(), notification={"title": "t"}, collapse_key=key)
        assert len(headers["topic"]) <= 32
        base64.urlsafe_b64decode(headers["topic"] + "=" * (-len(headers["topic"]) % 4))
        topics.append(headers["topic"])
    assert topics[0] == topics[2] != topics[1]
    assert "topic" not in sent(node, receiver.browser(), notification={"title": "t"})[1]


def test_explicit_fields_of_a_provider_are_sent_unchanged(node, receiver):
    own = {"headers": {"TTL": "77", "Urgency": "low", "Topic": "mine"}, "payload": {"any": ["thing"]}}
    _, headers, plain = sent(node, receiver.browser(), notification={"title": "t"}, urgency="high", push={"webpush": own})
    assert [headers[name] for name in ("ttl", "urgency", "topic")] == ["77", "low", "mine"]
    assert json.loads(plain) == own["payload"]


# -- pywebpush as the sender, the fake as the push service ---------------------------------------


@pytest.fixture(scope="module")
def fakes():
    fakes = DevPush()
    yield fakes
    fakes.stop()


@pytest.fixture(scope="module")
def session(fakes):
    with requests.Session() as session:
        session.verify = fakes.info["ca_file"]
        session.trust_env = False
        yield session


def push_to(fakes, session, subscription, data, **options):
    options = {"headers": {}, "ttl": 60, "vapid_claims": {"sub": SUBJECT}, **options}
    key = options.pop("key", fakes.info["credentials"]["webpush"]["private_key"])
    info = {"endpoint": subscription["endpoint"], "keys": subscription["keys"]}
    return webpush(info, data, vapid_private_key=key, requests_session=session, timeout=DEADLINE_S, **options)


@pytest.mark.parametrize("data", ["hello", "狼煙 🔥", "x" * 3_993], ids=["text", "unicode", "the most"])
def test_the_fake_decrypts_pushes_of_pywebpush(fakes, session, data):
    subscription = fakes.token("webpush")
    answer = push_to(fakes, session, subscription, data, headers={"urgency": "high", "topic": "score"})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"].startswith("https://") and answer.headers["ttl"] == "60"
    [got] = fakes.received("webpush", subscription["endpoint"])
    assert (got["status"], got["payload"]) == (201, data)
    assert [got["headers"][name] for name in ("ttl", "urgency", "topic")] == ["60", "high", "score"]


def test_the_fake_accepts_a_push_without_a_payload(fakes, session):
    subscription = fakes.token("webpush")
    assert push_to(fakes, session, subscription, None).status_code == 201


def test_the_fake_rejects_invalid_pushes(fakes, session):
    """Another key, another origin, too long a lifetime, an outdated encoding, too large: like real push services."""
    now = int(time.time())
    for status, wrong in [
        (403, {"key": Vapid02.from_raw(text_of(b"\1" * 32).encode())}),
        (401, {"vapid_claims": {"sub": SUBJECT, "aud": "https://push.example.com"}}),
        (401, {"vapid_claims": {"sub": SUBJECT, "exp": now + 25 * 3_600}}),
        (400, {"content_encoding": "aesgcm"}),
        (413, {"data": "x" * 3_994}),
        (400, {"headers": {"urgency": "extreme"}}),
        (400, {"headers": {"topic": "x" * 33}}),
    ]:
        subscription = fakes.token("webpush")
        with pytest.raises(WebPushException) as refused:
            push_to(fakes, session, subscription, **{"data": "hello", **wrong})
        assert refused.value.response.status_code == status, (wrong, refused.value.response.text)
    # A subscription restricted to a key rejects a sender without one (RFC 8292 §4.2).
    subscription = fakes.token("webpush")
    info = {"endpoint": subscription["endpoint"], "keys": subscription["keys"]}
    answer = WebPusher(info, requests_session=session).send("hello", ttl=60, timeout=DEADLINE_S)
    assert answer.status_code == 401, answer.text
