"""What both clients share: how a request is built, whether and when it is repeated, and what its answer means.

Nothing here has input or output: time and random numbers are arguments.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

from ._version import USER_AGENT
from .errors import DeadlineError, InvalidAnswerError, NetworkError, NoroshiError, ProblemError, problem_error

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]

_RETRIED = frozenset((408, 425, 429, 500, 502, 503, 504))
# The service did not begin to process these.
_NOT_PROCESSED = frozenset((408, 425, 429, 503))
_RETRY_AFTER_MAX_S = 86_400.0
ANSWER_BYTES_MAX = 64 << 20
PROBLEM_BYTES_MAX = 64 << 10
_LINE_BYTES_MAX = 1 << 20
LINES_MAX = 10_000
_BATCH_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Retry:
    """When a request is repeated.

    The client repeats requests after network errors and after the statuses 408, 425, 429, 500, 502, 503 and 504, unless
    a repetition could do something twice. It waits a random time of at most `first_wait`, doubled after each attempt
    up to `longest_wait`, and at least as long as the header `Retry-After` says.
    """

    attempts: int = 5
    """The most attempts, with the first one."""
    deadline: float = 60
    """Seconds for all attempts. If the wait for the next one would end later, the error is raised at once."""
    attempt_timeout: float = 20
    """Seconds for one attempt."""
    first_wait: float = 0.25
    longest_wait: float = 10

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.deadline, self.attempt_timeout) <= 0:
            raise ValueError("attempts, deadline and attempt_timeout have to be above 0")


NO_RETRY = Retry(attempts=1)
"""One attempt."""


class Call(Generic[T]):
    """One request of the API, and the type of its answer."""

    def __init__(
        self,
        method: str,
        to: str,
        body: object = None,
        *,
        lines: bytes | None = None,
        query: Query | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        is_repeatable: bool = True,
    ) -> None:
        self.method = method
        self.path = with_query(to, query or {})
        self.is_repeatable = is_repeatable
        """A repetition does nothing twice."""
        self.headers: dict[str, str] = {}
        self.body = lines
        if lines is not None:
            self.headers["content-type"] = "application/x-ndjson"
        elif body is not None:
            self.headers["content-type"] = "application/json"
            self.body = encode(body)
        if idempotency_key is not None:
            self.headers["idempotency-key"] = idempotency_key
        if traceparent is not None:
            self.headers["traceparent"] = traceparent


def path(template: str, *names: str) -> str:
    """A path of the API. A name may have any character."""
    return "/v1/" + template.format(*map(_segment, names))


def _segment(name: str) -> str:
    if not name:
        raise ValueError("a name is empty")
    # URLs have no segment "." or "..", not even if it is encoded.
    if name in (".", ".."):
        raise ValueError(f"{name!r} cannot be part of an address")
    return quote(name, safe="")


def with_query(to: str, query: Query) -> str:
    given = {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }
    return f"{to}?{urlencode(given)}" if given else to


def encode(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def new_key() -> str:
    return str(uuid.uuid4())


def decode(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise InvalidAnswerError("the answer is not JSON") from error


def retry_after(text: str | None, wall: float) -> float | None:
    """The seconds of a header `Retry-After`, which states seconds or a date (RFC 9110 §10.2.3)."""
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - wall
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _RETRY_AFTER_MAX_S)


def problem_of(status: int, headers: Mapping[str, str], body: bytes, wall: float) -> ProblemError:
    try:
        value: object = json.loads(body)
    except ValueError:
        value = None  # a proxy's page
    problem = cast("dict[str, Any]", value) if isinstance(value, dict) else dict[str, Any]()
    wait = retry_after(headers.get("retry-after"), wall)
    return problem_error(status, problem, request_id=headers.get("x-request-id"), retry_after=wait)


class Attempts:
    """The attempts of one call: how long the next one may take, and how long to wait before it."""

    def __init__(self, call: Call[Any], retry: Retry, now: float) -> None:
        self._call = call
        self._retry = retry
        self._end = now + retry.deadline
        self._attempt_end = self._end
        self._made = 0
        self._may_have_deleted = False
        self.may_have_deleted = False
        """An earlier attempt may have deleted what a later one does not find."""

    def begin(self, now: float) -> float:
        """The seconds of the next attempt."""
        self._made += 1
        self._attempt_end = min(now + self._retry.attempt_timeout, self._end)
        return max(self._attempt_end - now, 0.001)

    def check(self, now: float) -> None:
        """While an answer arrives."""
        if now > self._attempt_end:
            raise DeadlineError(f"{self._call.method} {self._call.path}: the answer did not arrive in time")

    def answered(self, problem: ProblemError, now: float, random: float) -> float:
        """Seconds until the next attempt. Raises the problem if there is none."""
        self._note(is_processed=problem.status not in _NOT_PROCESSED)
        is_repeated = problem.status in (_RETRIED if self._call.is_repeatable else _NOT_PROCESSED)
        return self._wait(problem, is_repeated, problem.retry_after or 0, now, random)

    def broke(self, error: NetworkError, *, was_sent: bool, now: float, random: float) -> float:
        """The same after a network error."""
        self._note(is_processed=was_sent)
        return self._wait(error, self._call.is_repeatable or not was_sent, 0, now, random)

    def _note(self, *, is_processed: bool) -> None:
        # The answer of the present attempt says nothing about itself.
        self.may_have_deleted = self._may_have_deleted
        if is_processed and self._call.method == "DELETE":
            self._may_have_deleted = True

    def _wait(self, error: NoroshiError, is_repeated: bool, hint: float, now: float, random: float) -> float:
        if not is_repeated or self._made >= self._retry.attempts:
            raise error
        most = min(self._retry.longest_wait, self._retry.first_wait * (1 << min(self._made - 1, 30)))
        # After a hint the random part is added, so that clients do not return at the same moment.
        wait = hint + most * random
        if now + wait >= self._end:
            raise error
        return wait


# Batches.


@dataclass(frozen=True, slots=True)
class LineResult(Generic[T]):
    """The result of one line of a batch: `value` or `error`."""

    index: int
    """The number of the line, from 0."""
    value: T | None
    error: ProblemError | None

    def unwrap(self) -> T:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines of one request."""

    number: int
    first: int
    count: int
    body: bytes
    is_repeatable: bool


class Chunks:
    """Divides lines into requests, bounded by their number and their size."""

    def __init__(self, lines_per_request: int, repeatable_field: str | None) -> None:
        if not 1 <= lines_per_request <= LINES_MAX:
            raise ValueError(f"lines_per_request is 1 to {LINES_MAX}")
        self._lines_per_request = lines_per_request
        # If lines without this field are created anew by each repetition.
        self._repeatable_field = repeatable_field
        self._number = 0
        self._first = 0
        self._lines: list[bytes] = []
        self._size = 0
        self._is_repeatable = True

    def add(self, line: Mapping[str, Any]) -> Chunk | None:
        """Takes a line. Returns the lines before it if there is no room for it."""
        text = encode(line)
        full = len(self._lines) >= self._lines_per_request or self._size + len(text) + 1 > _BATCH_BYTES_MAX
        chunk = self.rest() if full else None
        self._lines.append(text)
        self._size += len(text) + 1
        if self._repeatable_field is not None and line.get(self._repeatable_field) is None:
            self._is_repeatable = False
        return chunk

    def rest(self) -> Chunk | None:
        if not self._lines:
            return None
        body = b"\n".join(self._lines) + b"\n"
        chunk = Chunk(self._number, self._first, len(self._lines), body, self._is_repeatable)
        self._number += 1
        self._first += len(self._lines)
        self._lines = []
        self._size = 0
        self._is_repeatable = True
        return chunk


class Lines:
    """The lines of an answer, as they arrive. After a repetition it skips those that were returned before."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._rest = b""
        self._seen = 0
        self.returned = 0

    def restart(self) -> None:
        self._rest = b""
        self._seen = 0

    def feed(self, data: bytes) -> Iterator[LineResult[Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            raise InvalidAnswerError("a line of the answer is too long")
        for line in lines:
            yield from self._result(line)

    def end(self) -> Iterator[LineResult[Any]]:
        """Raises `NetworkError` if lines are missing."""
        if self._rest:
            yield from self._result(self._rest)
        if self._seen < self._chunk.count:
            raise NetworkError(f"the answer has {self._seen} lines instead of {self._chunk.count}")

    def _result(self, line: bytes) -> Iterator[LineResult[Any]]:
        value = decode(line)
        if self._seen >= self._chunk.count or not isinstance(value, dict):
            raise InvalidAnswerError("the answer has more lines than the request")
        self._seen += 1
        if self._seen <= self.returned:
            return
        self.returned = self._seen
        fields = cast("dict[str, Any]", value)
        error = fields.get("error")
        index = self._chunk.first + self._seen - 1
        if isinstance(error, dict):
            problem = cast("dict[str, Any]", error)
            status = problem.get("status")
            yield LineResult(index, None, problem_error(status if isinstance(status, int) else 500, problem))
        else:
            yield LineResult(index, fields, None)


def batch_call(to: str, chunk: Chunk, idempotency_key: str | None, traceparent: str | None) -> Call[Any]:
    key = None if idempotency_key is None else f"{idempotency_key}.{chunk.number}"
    return Call(
        "POST",
        to,
        lines=chunk.body,
        idempotency_key=key,
        traceparent=traceparent,
        is_repeatable=chunk.is_repeatable,
    )


# Pages.


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Entries of a list."""

    entries: list[T]
    next: str | None
    """`after` of the next page. `None` on the last one."""
    body: Mapping[str, Any]
    """The whole answer."""


def page_of(body: Any, name: str) -> Page[Any]:
    if not isinstance(body, dict):
        raise InvalidAnswerError("the answer is not an object")
    fields = cast("dict[str, Any]", body)
    entries = fields.get(name)
    after = fields.get("next")
    if not isinstance(entries, list):
        raise InvalidAnswerError(f"the answer has no {name}")
    return Page(cast("list[object]", entries), after if isinstance(after, str) and after else None, fields)


def base_url(url: str) -> str:
    if not re.match(r"https?://[^/]", url):
        raise ValueError(f"url has to begin with http:// or https://, not {url!r}")
    return url.rstrip("/")


def common_headers(key: str) -> dict[str, str]:
    if not key or not re.fullmatch(r"[!-~]+", key):
        raise ValueError("key is not an API key")
    return {
        "authorization": f"Bearer {key}",
        "user-agent": USER_AGENT,
        "accept": "application/json, application/x-ndjson",
    }
