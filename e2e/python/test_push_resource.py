"""A node as a Web Push service (RFC 8030): `pywebpush` posts to a device's endpoint as to a browser's, and
`http-ece` decrypts the messages that the device receives over its WebSocket."""

import base64
import json
import uuid
from contextlib import contextmanager

import http_ece
import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02
from pywebpush import WebPushException, webpush
from websockets.sync.client import connect

from node import DEADLINE_S, Node

CLAIMS = {"sub": "mailto:ops@example.com"}


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def point(key) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def vapid() -> Vapid02:
    made = Vapid02()
    made.generate_keys()
    return made


@pytest.fixture(scope="module")
def node():
    node = Node("--set", "web_push.endpoint_rate=10")
    yield node
    node.stop()


class Receiver:
    """A device with an endpoint and a browser's keys."""

    def __init__(self, node, **wanted) -> None:
        self.node, self.device = node, node.register()
        self.bearer = {"Authorization": f"Bearer {self.device['token']}"}
        self.key, self.auth = ec.generate_private_key(ec.SECP256R1()), uuid.uuid4().bytes
        made = httpx.post(f"{node.http}/v1/me/endpoints", json=wanted, headers=self.bearer)
        assert made.status_code == 201, made.text
        self.endpoint = made.json()
        keys = {"p256dh": text_of(point(self.key.public_key())), "auth": text_of(self.auth)}
        self.subscription = {"endpoint": self.endpoint["url"], "keys": keys}

    @contextmanager
    def connect(self):
        with connect(f"{self.node.ws}/v1/connect?token={self.device['token']}") as socket:
            assert json.loads(socket.recv(DEADLINE_S))["t"] == "ready"
            yield socket

    def next(self, socket) -> bytes:
        """The plain text of the next message."""
        msg = json.loads(socket.recv(DEADLINE_S))
        pushed = msg["data"]["web_push"]
        assert (msg["t"], pushed["endpoint"]) == ("msg", self.endpoint["id"])
        body = base64.urlsafe_b64decode(pushed["body"] + "=" * (-len(pushed["body"]) % 4))
        options = {}
        if pushed["content_encoding"] == "aesgcm":
            options["salt"] = parameter(pushed["encryption"], "salt")
            options["dh"] = parameter(pushed["crypto_key"], "dh")
        version = pushed["content_encoding"]
        return http_ece.decrypt(body, private_key=self.key, auth_secret=self.auth, version=version, **options)


def parameter(header: str, name: str) -> bytes:
    pairs = (part.strip().split("=", 1) for part in header.replace(",", ";").split(";"))
    value = next(value for key, value in pairs if key == name)
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def send(receiver, data, signer=None, **options):
    options = {"ttl": 60, **options}
    if signer:
        options |= {"vapid_private_key": signer, "vapid_claims": dict(CLAIMS)}
    return webpush(receiver.subscription, data, **options)


def refused(receiver, data="x", **options) -> int:
    with pytest.raises(WebPushException) as error:
        send(receiver, data, **options)
    return error.value.response.status_code


@pytest.mark.parametrize("encoding", ["aes128gcm", "aesgcm"])
def test_a_message_is_received_and_decrypted(node, encoding):
    receiver = Receiver(node)
    with receiver.connect() as socket:
        for data in ["狼煙 🔥", "x" * 3_900]:
            answer = send(receiver, data, content_encoding=encoding, signer=vapid())
            assert (answer.status_code, answer.headers["ttl"]) == (201, "60")
            assert answer.headers["location"].startswith(f"{node.http}/push/message/")
            assert receiver.next(socket) == data.encode()


def test_an_offline_device_receives_it_at_its_next_log_in(node):
    receiver = Receiver(node)
    for data in ["one", "two"]:
        send(receiver, data, headers={"Topic": "upd"})
    send(receiver, "three")
    send(receiver, "now or never", ttl=0)
    with receiver.connect() as socket:
        assert [receiver.next(socket) for _ in range(2)] == [b"two", b"three"]
        send(receiver, "now", ttl=0)
        assert receiver.next(socket) == b"now"


def test_a_bound_endpoint_accepts_its_own_sender_only(node):
    mine, other = vapid(), vapid()
    receiver = Receiver(node, vapid_key=text_of(point(mine.public_key)))
    assert send(receiver, "x", signer=mine).status_code == 201
    assert refused(receiver, signer=other) == 403
    assert refused(receiver) == 401


def test_a_receipt_follows_the_acknowledgement(node):
    receiver = Receiver(node)
    answer = send(receiver, "confirm me", headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    receipt = answer.links["urn:ietf:params:push:receipt"]["url"]
    assert httpx.get(receipt).status_code == 202
    with receiver.connect() as socket:
        msg = json.loads(socket.recv(DEADLINE_S))
        socket.send(json.dumps({"t": "ack", "ids": [msg["id"]]}))
        assert httpx.get(receipt, headers={"Prefer": "wait=30"}, timeout=DEADLINE_S * 2).status_code == 204


def test_limits_of_size_rate_and_lifetime(node):
    receiver = Receiver(node)
    url = receiver.endpoint["url"]
    assert httpx.get(url).json() == {"unifiedpush": {"version": 1}}
    assert httpx.post(url, content=b"x" * 4_097, headers={"TTL": "1"}).status_code == 413
    assert httpx.post(url, content=b"x").status_code == 400
    # An unencrypted body is forwarded too: the node does not check.
    assert httpx.post(url, content=b"plain", headers={"TTL": "1"}).status_code == 201
    statuses = [httpx.post(url, content=b"x", headers={"TTL": "1"}).status_code for _ in range(11)]
    assert statuses[-1] == 429 and set(statuses) <= {201, 429}
    mine = f"{node.http}/v1/me/endpoints/{receiver.endpoint['id']}"
    assert httpx.delete(mine, headers=receiver.bearer).status_code == 204
    assert refused(receiver) == 410
    device = node.provider.get(f"/v1/devices/{receiver.device['device']}").json()
    assert device["endpoints"] == 0
