"""Publishing through a network that stalls and breaks, to a node that is killed: each notification arrives once."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
from node import JWT_SECRET, KEY, Node
from noroshi_server import AsyncNoroshi, Retry, device_jwt
from proxy import Proxy


async def run(node: Node) -> None:
    proxy = await Proxy(node.http_port).start()
    retry = Retry(attempts=20, deadline=60, attempt_timeout=1)
    async with AsyncNoroshi(proxy.url, KEY, retry=retry) as noroshi:
        await noroshi.devices.register({"device": "d", "user": "u"})

        async def publish(start: int) -> None:
            for n in range(start, start + 30):
                await noroshi.publish({"to": {"users": ["u"]}, "data": n})
            lines = [{"to": {"users": ["u"]}, "data": n} for n in range(start + 30, start + 60)]
            async for result in noroshi.publish_batch(lines, lines_per_request=7):  # type: ignore[arg-type]
                result.unwrap()

        publishing = asyncio.gather(*(publish(start) for start in range(0, 240, 60)))
        for fault in (proxy.freeze, proxy.cut, None):
            await asyncio.sleep(0.15)
            if fault is None:
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.spawn)
            elif (work := fault()) is not None:
                await work
            await asyncio.sleep(1.5)
            await proxy.heal()
        await publishing
    await proxy.stop()
    token = device_jwt(JWT_SECRET, user="u", device="d")
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
        answer = await http.get(f"{node.url}/v1/me/inbox", params={"limit": 1_000})
    counts = Counter(message["data"] for message in answer.json()["messages"])
    assert counts == Counter(range(240))


def test_each_notification_arrives_once() -> None:
    with Node() as node:
        asyncio.run(asyncio.wait_for(run(node), 90))
