"""The fake of APNs against an independent client: `httpx` over HTTP/2, with provider tokens from `PyJWT`."""

import ssl
import time
import uuid

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from node import DEADLINE_S
from push import DevPush


@pytest.fixture(scope="module")
def fakes():
    fakes = DevPush()
    yield fakes
    fakes.stop()


@pytest.fixture(scope="module")
def client(fakes):
    trust = ssl.create_default_context(cadata=fakes.info["ca"])
    options = {"http1": False, "http2": True, "trust_env": False, "timeout": DEADLINE_S}
    with httpx.Client(base_url=fakes.info["origins"]["apns"], verify=trust, **options) as client:
        yield client


@pytest.fixture(scope="module")
def bearer(fakes):
    return provider_token(fakes)


def provider_token(fakes, key=None, **claims) -> str:
    credential = fakes.info["credentials"]["apns"]
    claims = {"iss": credential["team_id"], "iat": int(time.time()), **claims}
    return "bearer " + jwt.encode(claims, key or credential["key"], "ES256", headers={"kid": credential["key_id"]})


def push(fakes, client, bearer, token=None, payload=None, **headers):
    token = token or fakes.token("apns")["token"]
    given = {"authorization": bearer, "apns-topic": fakes.info["credentials"]["apns"]["topic"], "apns-push-type": "alert"}
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    given = {name: value for name, value in given.items() if value is not None}
    return client.post(f"/3/device/{token}", json=payload or {"aps": {"alert": "狼煙"}}, headers=given)


def test_a_push_is_accepted_over_http2(fakes, client, bearer):
    name = str(uuid.uuid4())
    answer = push(fakes, client, bearer, apns_id=name, apns_priority="10", apns_expiration="0", apns_collapse_id="k")
    assert (answer.status_code, answer.http_version, answer.headers["apns-id"]) == (200, "HTTP/2", name), answer.text
    assert answer.content == b""


def test_a_push_without_an_id_gets_one(fakes, client, bearer):
    uuid.UUID(push(fakes, client, bearer).headers["apns-id"])


@pytest.mark.parametrize(
    "status, reason, wrong",
    [
        (400, "BadDeviceToken", {"token": "ab" * 32}),
        (400, "MissingTopic", {"apns_topic": None}),
        (400, "DeviceTokenNotForTopic", {"apns_topic": "com.example.another"}),
        (400, "BadPriority", {"apns_priority": "7"}),
        (400, "BadMessageId", {"apns_id": "1"}),
        (400, "BadCollapseId", {"apns_collapse_id": "x" * 65}),
        (400, "BadExpirationDate", {"apns_expiration": "soon"}),
        (413, "PayloadTooLarge", {"payload": {"aps": {"alert": "x" * 4_096}}}),
        (403, "MissingProviderToken", {"authorization": None}),
    ],
)
def test_errors_have_the_reasons_of_apple(fakes, client, bearer, status, reason, wrong):
    answer = push(fakes, client, bearer, **wrong)
    assert (answer.status_code, answer.json()["reason"]) == (status, reason)
    assert push(fakes, client, bearer).status_code == 200, "the connection continues"


def test_a_provider_token_of_another_key_or_of_yesterday_is_rejected(fakes, client):
    forged = provider_token(fakes, ec.generate_private_key(ec.SECP256R1()))
    answer = push(fakes, client, forged)
    assert (answer.status_code, answer.json()["reason"]) == (403, "InvalidProviderToken")
    answer = push(fakes, client, provider_token(fakes, iat=int(time.time()) - 3_700))
    assert (answer.status_code, answer.json()["reason"]) == (403, "ExpiredProviderToken")


def test_an_unregistered_device_is_reported_with_its_time(fakes, client, bearer):
    at_ms = int(time.time() * 1_000) - 5_000
    answer = push(fakes, client, bearer, fakes.token("apns", state={"unregistered": {"at_ms": at_ms}})["token"])
    assert (answer.status_code, answer.json()) == (410, {"reason": "Unregistered", "timestamp": at_ms})
