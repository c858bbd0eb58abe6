"""One node per test file."""

import pytest

from node import Node


@pytest.fixture(scope="module")
def node():
    node = Node()
    yield node
    node.stop()
