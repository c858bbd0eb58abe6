"""Retries, deadlines and errors, with a network of this process."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from noroshi_server import (
    NO_RETRY,
    AsyncNoroshi,
    BatchError,
    DeadlineError,
    InvalidAnswerError,
    NetworkError,
    Noroshi,
    NotFoundError,
    Retry,
    TooManyRequestsError,
    UnavailableError,
)
from noroshi_server._calls import Attempts, Call, Chunks, path, retry_after, with_query

URL = "http://service.test"
Answer = httpx.Response | Exception


class Network:
    """Answers in order, and keeps requests and waits."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **options: Any) -> Noroshi:
        return Noroshi(URL, "nk1.key", http_client=httpx.Client(transport=httpx.MockTransport(self)), **options)

    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.requests]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of the client, which does not really wait."""
    seen: list[float] = []

    async def async_pause(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr("noroshi_server._sync.pause", seen.append)
    monkeypatch.setattr("noroshi_server._async.async_pause", async_pause)
    monkeypatch.setattr(random, "random", lambda: 1.0)
    return seen


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"type": f"/docs#{code}", "title": code, "status": status, "code": code, "detail": "no"}
    return httpx.Response(status, json=body, headers={"x-request-id": "r1", **headers})


def receipt(n: int = 1) -> httpx.Response:
    return httpx.Response(202, json={"id": f"n{n}", "targets": 1})


NOTE: Any = {"to": {"users": ["u"]}, "data": 1}


@pytest.mark.parametrize(
    "failure",
    [
        lambda: httpx.ConnectError("refused"),
        lambda: httpx.ReadError("broke"),
        lambda: httpx.ReadTimeout("late"),
        lambda: httpx.RemoteProtocolError("closed"),
        *(lambda status=status: problem(status, "x") for status in (408, 425, 429, 500, 502, 503, 504)),
    ],
)
def test_publish_is_repeated_with_the_same_key(failure: Callable[[], Answer], waits: list[float]) -> None:
    network = Network(failure(), failure(), receipt())
    assert network.client().publish(NOTE) == {"id": "n1", "targets": 1}
    keys = network.keys()
    assert len(set(keys)) == 1
    assert keys[0]
    assert len({request.content for request in network.requests}) == 1
    assert waits == [0.25, 0.5]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 507])
def test_other_statuses_are_not_repeated(status: int) -> None:
    network = Network(problem(status, "no_way"))
    with pytest.raises(Exception) as caught:
        network.client().publish(NOTE)
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (status, "no_way", "r1")  # type: ignore[attr-defined]
    assert len(network.requests) == 1


def test_attempts_are_bounded(waits: list[float]) -> None:
    network = Network(*(problem(503, "overloaded") for _ in range(9)))
    with pytest.raises(UnavailableError):
        network.client(retry=Retry(attempts=4)).publish(NOTE)
    assert len(network.requests) == 4
    assert waits == [0.25, 0.5, 1]
    network = Network(httpx.ReadError("broke"))
    with pytest.raises(NetworkError):
        network.client().with_retry(NO_RETRY).publish(NOTE)


def test_retry_after_is_waited_for(waits: list[float]) -> None:
    network = Network(problem(429, "too_many_requests", **{"retry-after": "7"}), receipt())
    network.client().publish(NOTE)
    assert waits == [7.25]


def test_a_hint_beyond_the_deadline_is_an_error_at_once(waits: list[float]) -> None:
    network = Network(problem(429, "quota_exceeded", **{"retry-after": "3600"}))
    with pytest.raises(TooManyRequestsError) as caught:
        network.client().publish(NOTE)
    assert caught.value.retry_after == 3_600
    assert waits == []


def test_retry_after_has_seconds_or_a_date() -> None:
    assert retry_after("3", 0) == 3
    assert retry_after("Thu, 01 Jan 2026 00:00:20 GMT", 1_767_225_600) == 20
    assert retry_after("Thu, 01 Jan 2026 00:00:20 GMT", 1_867_225_600) == 0
    for text in (None, "", "soon", "-1", "1.5"):
        assert retry_after(text, 0) is None


def test_what_a_repetition_would_do_twice_is_not_repeated() -> None:
    network = Network(httpx.ReadError("broke"))
    with pytest.raises(NetworkError):
        network.client().devices.register({"user": "u"})
    network = Network(problem(500, "internal"))
    with pytest.raises(UnavailableError):
        network.client().app("a").create_key({"name": "k", "scopes": ["read"]})
    # The service did not begin with these.
    made = httpx.Response(201, json={"device": "d", "token": "t"})
    network = Network(httpx.ConnectError("refused"), problem(503, "unavailable"), problem(429, "x"), made)
    assert network.client().devices.register({"user": "u"})["device"] == "d"
    # With a name a repetition updates.
    network = Network(httpx.ReadError("broke"), httpx.Response(201, json={"device": "d", "token": "t"}))
    assert network.client().devices.register({"device": "d"})["device"] == "d"


def test_a_repeated_deletion_may_find_nothing() -> None:
    network = Network(httpx.ReadError("broke"), problem(404, "not_found"))
    network.client().devices.delete("d")
    network = Network(problem(503, "unavailable"), problem(404, "not_found"))
    with pytest.raises(NotFoundError):
        network.client().devices.delete("d")
    network = Network(httpx.ReadError("broke"), problem(404, "not_found"))
    with pytest.raises(NotFoundError):
        network.client().devices.get("d")


def test_the_deadline_covers_all_attempts() -> None:
    attempts = Attempts(Call("GET", path("topics")), Retry(deadline=10, attempt_timeout=4), 100)
    assert attempts.begin(100) == 4
    attempts.check(104)
    with pytest.raises(DeadlineError):
        attempts.check(104.1)
    assert attempts.begin(107.5) == 2.5
    with pytest.raises(NetworkError):
        attempts.broke(NetworkError("x"), was_sent=True, now=109.9, random=1)


def test_answers_of_a_proxy() -> None:
    network = Network(httpx.Response(404, text="<html>"))
    with pytest.raises(Exception, match="http_404"):
        network.client().publish(NOTE)
    with pytest.raises(InvalidAnswerError):
        Network(httpx.Response(200, text="<html>")).client().publish(NOTE)


def ndjson(*lines: object) -> httpx.Response:
    return httpx.Response(200, text="".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_batch_is_repeated_with_its_key_and_reports_each_line_once() -> None:
    cut = httpx.Response(200, text='{"id":"n0","targets":1}\n')
    network = Network(httpx.ReadError("broke"), cut, ndjson({"id": "n0"}, {"id": "n1"}), ndjson({"id": "n2"}))
    results = list(network.client().publish_batch([NOTE] * 3, idempotency_key="k", lines_per_request=2))
    assert [(result.index, result.unwrap()["id"]) for result in results] == [(0, "n0"), (1, "n1"), (2, "n2")]
    assert network.keys() == ["k.0", "k.0", "k.0", "k.1"]


def test_a_batch_that_ends_early_says_where() -> None:
    network = Network(ndjson({"id": "n0"}, {"id": "n1"}), problem(401, "unauthorized"))
    results = network.client().publish_batch([NOTE] * 4, idempotency_key="k", lines_per_request=2)
    assert next(results).index == 0
    assert next(results).index == 1
    with pytest.raises(BatchError) as caught:
        next(results)
    assert (caught.value.index, caught.value.idempotency_key) == (2, "k")
    assert caught.value.__cause__.code == "unauthorized"  # type: ignore[union-attr]


def test_a_batch_of_devices_without_names_is_not_repeated() -> None:
    network = Network(httpx.ReadError("broke"))
    with pytest.raises(BatchError):
        list(network.client().devices.register_batch([{"device": "d"}, {"user": "u"}]))


def test_requests_of_a_batch_are_bounded() -> None:
    chunks = Chunks(10_000, None)
    line = {"data": "x" * 1_000_000}
    sizes = [len(chunk.body) for _ in range(20) if (chunk := chunks.add(line)) is not None]
    assert all(size <= 4 << 20 for size in sizes)
    assert len(sizes) == 4
    with pytest.raises(ValueError, match="1 to 10000"):
        Chunks(0, None)


def test_asyncio_has_the_same_behaviour(waits: list[float]) -> None:
    async def run() -> None:
        network = Network(problem(503, "x"), receipt(), httpx.ReadError("broke"), ndjson({"id": "a"}))
        http = httpx.AsyncClient(transport=httpx.MockTransport(network))
        async with http, AsyncNoroshi(URL, "nk1.key", http_client=http) as noroshi:
            assert (await noroshi.publish(NOTE))["id"] == "n1"
            assert [one.unwrap()["id"] async for one in noroshi.publish_batch([NOTE])] == ["a"]

    asyncio.run(run())
    assert waits == [0.25, 0.25]


def test_addresses() -> None:
    assert path("devices/{}/push-tokens/{}", "a/b", "{}?") == "/v1/devices/a%2Fb/push-tokens/%7B%7D%3F"
    assert with_query("/v1/x", {"a": True, "from_": "x y", "none": None, "n": 1}) == "/v1/x?a=true&from=x+y&n=1"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError):
            path("devices/{}", name)
    for url in ("push.example.com", "ftp://x", "http://"):
        with pytest.raises(ValueError, match="http"):
            Noroshi(url, "nk1.key")
    with pytest.raises(ValueError, match="API key"):
        Noroshi(URL, "two words")


def test_nothing_shows_the_key() -> None:
    client = Network().client()
    assert "nk1.key" not in repr(client) + str(vars(client)) + repr(problem(401, "x"))
