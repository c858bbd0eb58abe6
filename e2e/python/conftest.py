"""One node for each file of tests."""

import pytest

from node import Node


@pytest.fixture(scope="module")
def node():
    node = Node()
    yield node
    node.stop()
