"""The OpenAPI document is valid, and requests made from it never break the server."""

import subprocess
import sys

import pytest
from openapi_spec_validator import validate

from node import CACHE, KEY


@pytest.fixture(scope="module")
def document(node):
    return node.provider.get("/openapi.json").json()


def test_the_document_is_valid(document):
    validate(document)


def test_every_operation_has_a_name_and_documents_its_errors(document):
    names = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in {"get", "put", "post", "patch", "delete"}:
                continue
            names.append(operation["operationId"])
            if operation.get("security") == [] and "parameters" not in operation:
                continue  # a client can make no error here
            assert any(status.startswith(("4", "default")) for status in operation["responses"]), f"{method} {path}"
    assert len(names) == len(set(names))


def test_no_generated_request_causes_a_server_error(node, document):
    """schemathesis, a few requests per operation, with the key of a provider."""
    log = CACHE / "schemathesis.log"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{node.http}/openapi.json"]
    command += ["--checks", "not_a_server_error", "--max-examples", "10", "--generation-deterministic"]
    command += ["--header", f"Authorization: Bearer {KEY}", "--exclude-path", "/v1/events", "--exclude-path", "/v1/connect"]
    # schemathesis has no serializer for newline-delimited JSON.
    command += ["--exclude-path-regex", "/(batch|recipients|relay)$"]
    command += ["--request-timeout", "20", "--suppress-health-check", "all"]
    with log.open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=CACHE, timeout=900).returncode
    assert code == 0, log.read_text()[-4_000:]
    assert node.process.poll() is None
