"""sdks/scripted-server: plays the service's part of vectors over real sockets."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx

SERVER = Path(__file__).resolve().parents[2] / "scripted-server" / "server.mjs"


class ScriptedServer:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url
        self._control = httpx.AsyncClient(base_url=url, timeout=10)

    @classmethod
    async def start(cls) -> ScriptedServer:
        process = await asyncio.create_subprocess_exec(
            os.environ.get("NODE", "node"), str(SERVER), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        return cls(process, line.decode().strip())

    async def stop(self) -> None:
        await self._control.aclose()
        self._process.kill()
        await self._process.wait()

    async def reset(self) -> None:
        await self._post("reset", {})

    async def step(self, step: dict[str, Any]) -> None:
        await self._post("step", step)

    async def expect(self, observations: list[dict[str, Any]]) -> None:
        await self._post("expect", observations)

    async def _post(self, path: str, body: object) -> None:
        answer = await self._control.post(f"/control/{path}", json=body)
        if answer.status_code == 409:
            result = answer.json()
            raise AssertionError(f"on the wire: expected {result['expected']}\nobserved {result['observed']}")
        assert answer.status_code == 200, answer.text
