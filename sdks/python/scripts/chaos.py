#!/usr/bin/env python3
"""Device clients against a real node, under faults.

The faults are kill -9, drain, a stalled and a cut network, revoked devices, replaced connections, and tokens of a few
seconds. Every message that the node accepted has to be shown exactly once, except messages of a topic for which the
client reported a gap.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from typing import Any

import httpx
from device import Device, jwt, until
from node import KEY, Node
from noroshi_client import NoroshiError
from proxy import Proxy

TOPIC = "chaos"


class Looping(Device):
    """Takes messages by a loop, which is a little slow, and begins again after the client was closed."""

    def __init__(self, url: str, device: str, **options: Any) -> None:
        super().__init__(url, device, **options)
        self.remove()

    async def loop(self) -> None:
        while True:
            with contextlib.suppress(NoroshiError):
                async for message in self.client.messages():
                    await asyncio.sleep(random.random() * 0.01)
                    self.shown.append(message.data)
            await asyncio.sleep(0.05)


class Chaos:
    def __init__(self, seed: int, minutes: float) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.end = time.monotonic() + minutes * 60
        self.node = Node()
        self.proxy = Proxy(self.node.http_port)
        self.http = httpx.AsyncClient(
            base_url=self.node.url, headers={"authorization": f"Bearer {KEY}"}, timeout=httpx.Timeout(10, connect=2)
        )
        self.devices: list[Device] = []
        self.sent: dict[int, dict[str, Any]] = {}
        self.targets: dict[int, Any] = {}
        self.happened: Counter[str] = Counter()
        self.is_over = False
        self.log: list[tuple[int, str]] = []

    async def publish(self, to: dict[str, Any], receivers: list[Device]) -> None:
        """With the same key until the node has answered: a message whose answer was lost is not published twice."""
        data = len(self.sent)
        self.sent[data] = to
        headers = {"idempotency-key": f"chaos-{self.seed}-{data}"}
        while True:
            try:
                answer = await self.http.post("/v1/notifications", json={"to": to, "data": data}, headers=headers)
            except httpx.HTTPError:
                answer = None
            if answer is not None and answer.status_code == 202:
                self.targets[data] = answer.json()
                break
            await asyncio.sleep(0.05)
        for device in receivers:
            device.expected.append(data)

    async def publishing(self) -> None:
        while not self.is_over:
            if self.random.random() < 0.3:
                await self.publish({"topic": TOPIC}, self.devices)
            else:
                device = self.random.choice(self.devices)
                await self.publish({"users": [device.user]}, [device])
            await asyncio.sleep(self.random.random() * 0.02)

    async def kill(self) -> None:
        await asyncio.to_thread(self.node.kill)
        await asyncio.to_thread(self.node.spawn)

    async def drain(self) -> None:
        await asyncio.to_thread(self.node.drain)
        await asyncio.to_thread(self.node.spawn)

    async def freeze(self) -> None:
        self.proxy.freeze()
        await asyncio.sleep(2 + self.random.random() * 13)
        await self.proxy.heal()

    async def cut(self) -> None:
        await self.proxy.cut()
        await asyncio.sleep(self.random.random() * 3)
        await self.proxy.heal()

    async def revoke(self) -> None:
        device = self.random.choice(self.devices)
        (await self.http.post(f"/v1/devices/{device.device}/revoke")).raise_for_status()

    async def replace(self) -> None:
        victim = self.random.choice(self.devices)
        if victim.client.state.state != "connected":
            return
        # A connection of the same device that acknowledges nothing.
        async with Device(self.node.url, victim.device, acknowledge="manual") as other:
            await until("the other connection", lambda: other.client.state.state == "connected")
        await until("the client is replaced", lambda: victim.client.state.state != "connected")
        victim.client.connect()  # Without effect unless it is closed.

    def note(self, device: Device) -> None:
        device.client.on(
            "state",
            lambda state: self.log.append(
                (len(self.sent), f"{device.device} {state.state} {state.reason or state.transport or ''}")
            ),
        )

    async def run(self, count: int) -> bool:
        await self.proxy.start()
        loops: list[asyncio.Task[None]] = []
        for n in range(count):
            kind = Looping if n % 2 else Device
            device = kind(
                self.proxy.url,
                f"chaos-{n}",
                ping_interval=1,
                lifetime=8 if n % 4 > 1 else 3_600,
                transports=("sse",) if n % 3 == 2 else ("websocket", "sse"),
            )
            self.note(device)
            device.client.topic(TOPIC, recover=True)
            device.client.connect()
            if isinstance(device, Looping):
                loops.append(asyncio.ensure_future(device.loop()))
            self.devices.append(device)
        for device in self.devices:
            await device.client.connected()

        async def all_have_a_position() -> bool:
            await self.publish({"topic": TOPIC}, [])
            await asyncio.sleep(0.1)
            return all(device.shown for device in self.devices)

        await until("the topic", all_have_a_position)
        await asyncio.sleep(1)
        for device in self.devices:
            device.shown.clear()

        publishing = asyncio.ensure_future(self.publishing())
        faults = [self.kill, self.drain, self.freeze, self.cut, self.revoke, self.replace]
        while time.monotonic() < self.end:
            fault = self.random.choice(faults)
            self.log.append((len(self.sent), f"begin {fault.__name__}"))
            await fault()
            self.log.append((len(self.sent), f"end {fault.__name__}"))
            self.happened[fault.__name__] += 1
            await asyncio.sleep(self.random.random() * 4)
        self.is_over = True
        await publishing
        for device in self.devices:
            with contextlib.suppress(AssertionError):
                await device.shows(len(device.expected))
        await asyncio.sleep(1)
        is_right = True
        for device in self.devices:
            is_right &= await self.report(device)
        print(f"seed {self.seed}, {len(self.sent)} messages, faults: {json.dumps(self.happened)}")
        for task in loops:
            task.cancel()
        for device in self.devices:
            await device.client.close()
        await self.http.aclose()
        await self.proxy.stop()
        return is_right

    async def report(self, device: Device) -> bool:
        counts = Counter(device.shown)
        missing = [data for data in device.expected if data not in counts]
        twice = [data for data, count in counts.items() if count > 1]
        gaps = [event for event in device.recovered if event.complete is False]
        # A change from a WebSocket to a stream has no position of a topic: the client reports a gap (X5, X6).
        reported = [data for data in missing if gaps and "topic" in self.sent[data]]
        lost = [data for data in missing if data not in reported]
        codes = sorted({error.code for error in device.errors})
        print(
            f"{device.device}: {len(device.expected)} expected, {len(lost)} lost, {len(twice)} twice, "
            f"{len(gaps)} reported gaps with {len(reported)} messages{', errors: ' + ', '.join(codes) if codes else ''}"
        )
        if lost:
            of_topic = sum("topic" in self.sent[data] for data in lost)
            print(f"  lost: {lost[:20]}; {of_topic} of the topic; the first one: {self.targets[lost[0]]}")
            trace = await self.http.get(f"/v1/notifications/{self.targets[lost[0]]['id']}/devices/{device.device}")
            print(f"  its trace: {trace.text}")
            inbox = await self.http.get("/v1/me/inbox", headers={"authorization": f"Bearer {jwt(device.device)}"})
            print(f"  the inbox of the device: {inbox.text[:200]}")
            for sent, text in self.log:
                is_near = lost[0] - 600 <= sent <= lost[-1] + 600
                if is_near and text.split(" ")[0] in (device.device, "begin", "end"):
                    print(f"  {sent} {text}")
        if twice:
            print(f"  twice: {twice[:20]}")
        return not lost and not twice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--devices", type=int, default=6)
    options = parser.parse_args()
    chaos = Chaos(options.seed, options.minutes)
    try:
        is_right = asyncio.run(chaos.run(options.devices))
    finally:
        chaos.node.stop()
    raise SystemExit(0 if is_right else 1)


if __name__ == "__main__":
    main()
