"""Every vector against the scripted server, over real sockets."""

from __future__ import annotations

import asyncio
import json

import pytest
from scripted import ScriptedServer
from vectors import FILES, VECTORS, Run

# A vector waits for sockets most of the time; each has a server for itself.
SERVERS = 8


async def _play_all(names: list[str]) -> dict[str, Exception | None]:
    results: dict[str, Exception | None] = {}
    queue = list(reversed(names))

    async def work() -> None:
        server = await ScriptedServer.start()
        try:
            while queue:
                name = queue.pop()
                await server.reset()
                try:
                    await Run(VECTORS[name], server).play()
                    results[name] = None
                except Exception as error:
                    results[name] = error
        finally:
            await server.stop()

    await asyncio.gather(*(work() for _ in range(min(SERVERS, len(names)))))
    return results


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Exception | None]:
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = [spec.params.get("name") for spec in specs if spec]
    return asyncio.run(_play_all([name for name in VECTORS if name in wanted]))


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str, results: dict[str, Exception | None]) -> None:
    if (error := results[name]) is not None:
        raise error


def test_names_are_unique() -> None:
    count = sum(len(json.loads(path.read_text("utf-8"))["vectors"]) for path in FILES)
    assert len(VECTORS) == count >= 160
