"""Errors of this library. `code` is stable, texts are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NoroshiError(Exception):
    """Every error of this library."""

    code: str = "error"
    """A stable name."""


class NetworkError(NoroshiError):
    """A request found no server, or broke."""

    code = "network"


class DeadlineError(NetworkError):
    """A request took longer than its attempt or all attempts may take."""

    code = "timeout"


class InvalidAnswerError(NoroshiError):
    """The answer is not what the API documents, for example because of a proxy."""

    code = "invalid_answer"


class WebhookVerificationError(NoroshiError):
    """A webhook's signature or time is wrong. Answer with 400 or 401, and do not use the body."""

    code = "webhook"


class BatchError(NoroshiError):
    """A batch ended early. The lines before `index` have results, and the results of the later ones are unknown.

    `__cause__` is the reason. Publishing the same lines again with the same `idempotency_key` delivers none twice.
    """

    code = "batch"

    def __init__(self, index: int, idempotency_key: str | None, cause: NoroshiError) -> None:
        super().__init__(f"no result for line {index} and later ones: {cause}")
        self.index = index
        """The first line without a result, counted from 0."""
        self.idempotency_key = idempotency_key


class ProblemError(NoroshiError):
    """The service answered with a problem document (RFC 9457). There is a subclass for each common status."""

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        def text(name: str) -> str | None:
            value = problem.get(name)
            return value if isinstance(value, str) else None

        super().__init__(text("detail") or text("title") or f"status {status}")
        self.status = status
        """The HTTP status."""
        self.code = text("code") or f"http_{status}"
        """A stable name: the `code` of the problem document, or `http_` and the status."""
        self.title = text("title")
        self.field = text("field")
        """The wrong field or parameter."""
        self.request_id = request_id
        """The id of the request in the logs of the service."""
        self.retry_after = retry_after
        """Seconds to wait before another attempt, if the service stated them."""

    def __str__(self) -> str:
        text = f"{self.code}: {super().__str__()}"
        return f"{text} (request {self.request_id})" if self.request_id else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}(status={self.status}, code={self.code!r}, field={self.field!r})"


class BadRequestError(ProblemError):
    """400: the request is not valid; `field` names the wrong field."""


class UnauthorizedError(ProblemError):
    """401: the API key is missing, unknown or expired."""


class ForbiddenError(ProblemError):
    """403: the API key lacks a scope."""


class NotFoundError(ProblemError):
    """404"""


class ConflictError(ProblemError):
    """409: the state does not allow this, or the idempotency key was used with another request."""


class TooLargeError(ProblemError):
    """413"""


class TooManyRequestsError(ProblemError):
    """429: too many requests, or a quota is exhausted."""


class UnavailableError(ProblemError):
    """5xx: the service failed, is overloaded, starts or stops."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    429: TooManyRequestsError,
}


def problem_error(
    status: int, problem: Mapping[str, Any], *, request_id: str | None = None, retry_after: float | None = None
) -> ProblemError:
    kind = UnavailableError if status >= 500 else _BY_STATUS.get(status, ProblemError)
    return kind(status, problem, request_id=request_id, retry_after=retry_after)
