#!/usr/bin/env python3
"""A day in the life of a node: 3,000 devices, 300 of them connected, some 600 notifications of every kind.

    pip install websockets
    python3 examples/a-day/run.py               # builds nothing: set NOROSHI_BIN, default target/debug/noroshi

Imports the devices with `noroshi import devices`, connects real WebSocket clients, publishes the day hour by hour through
`POST /v1/notifications/batch`, lets the evening group log in, and prints what each group got: live, from its
inbox, or not at all and why. Everything is compared with what `model.py` says must happen; the exit code
is 1 if a single delivery differs.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parent))
import generate  # noqa: E402
import model  # noqa: E402
from model import AWAY, EVENING, EXPIRED, GONE, GROUPS, IDLE, IN_USE, LIVE, NOT_IN_USE, REASONS, REPLACED, WAITING  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("NOROSHI_BIN", str(ROOT / "target" / "debug" / "noroshi"))
KEY = "a-day-at-the-office"
DEADLINE_S = 60
#: What a trace says where the model gives the reason. Of who was away and had nothing kept for it, no row is
#: written: users are counted, and the trace says so in words.
OUTCOMES = {NOT_IN_USE: "inactive", AWAY: None, EXPIRED: "expired", REPLACED: "collapsed", LIVE: "written", WAITING: "kept"}

problems: list[str] = []


def check(right: bool, text: str) -> None:
    if not right:
        problems.append(text)


class Node:
    """A node of our own on free ports, with its data in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.http_port, self.admin_port = free_port(), free_port()
        self.base = f"http://127.0.0.1:{self.http_port}"
        self.log = (folder / "node.log").open("wb")
        self.process = subprocess.Popen(
            [BIN, "serve", "--dev", "--data", str(folder / "data")]
            + ["--http", f"127.0.0.1:{self.http_port}", "--admin", f"127.0.0.1:{self.admin_port}"],
            env={**os.environ, "NOROSHI_DEV_KEY": KEY},
            stdout=self.log,
            stderr=self.log,
        )
        end = time.monotonic() + DEADLINE_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                sys.exit("a-day: the node did not start:\n" + (folder / "node.log").read_text())
            time.sleep(0.05)

    def ready(self) -> bool:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz").status == 200
        except OSError:
            return False

    def call(self, method: str, path: str, body: str | None = None, *, token: str = KEY, kind: str = "application/json"):
        request = urllib.request.Request(self.base + path, method=method, data=body.encode() if body else None)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from None

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


def free_port() -> int:
    """Below 32768, where outgoing connections do not sit."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Client:
    """One connected device; `heard` holds the numbers of the notifications in the order they came."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token = name, token
        self.heard: list[int] = []
        self.ids: list[str] = []

    async def connect(self, node: Node, idle: bool) -> None:
        self.socket = await connect(f"ws://127.0.0.1:{node.http_port}/v1/connect?token={self.token}", subprotocols=["noroshi.v1"])
        ready = json.loads(await self.socket.recv())
        assert ready["t"] == "ready" and ready["device"] == self.name, ready
        if idle:
            await self.socket.send('{"t":"presence","state":"idle"}')
            await self.socket.send('{"t":"ping"}')
            while json.loads(await self.socket.recv())["t"] != "pong":
                pass
        self.task = asyncio.create_task(self.listen())

    async def listen(self) -> None:
        async for text in self.socket:
            frame = json.loads(text)
            if frame["t"] == "msg":
                self.heard.append(frame["data"]["n"])
                if "topic" not in frame and frame.get("ack"):
                    self.ids.append(frame["id"])
                if frame.get("ack"):
                    await self.socket.send(json.dumps({"t": "ack", "ids": [frame["id"]]}))

    async def leave(self) -> None:
        await self.socket.close()
        await self.task


async def arrived(clients: list[Client], due: dict[str, set[int]], what: str) -> None:
    """Waits until everybody has heard what is due."""
    end = time.monotonic() + DEADLINE_S
    while any(not due[client.name] <= set(client.heard) for client in clients):
        if time.monotonic() > end:
            late = next(client for client in clients if not due[client.name] <= set(client.heard))
            missing = sorted(due[late.name] - set(late.heard))
            check(False, f"{what}: {late.name} still waits for notifications {missing[:10]}")
            return
        await asyncio.sleep(0.02)


async def connect_all(node: Node, names: list[str], tokens: dict[str, str], groups: dict[str, str]) -> list[Client]:
    clients = [Client(name, tokens[name]) for name in names]
    for start in range(0, len(clients), 50):
        await asyncio.gather(*(c.connect(node, groups[c.name] == IDLE) for c in clients[start : start + 50]))
    return clients


async def live_through(day: model.Day, node: Node, tokens: dict[str, str], live: list[str], evening: list[str]) -> dict:
    """The day itself; answers the ids of the notifications by number and what the clients heard."""
    clients = await connect_all(node, live, tokens, day.groups)
    ids: dict[int, str] = {}
    due: dict[str, set[int]] = {name: set() for name in live}
    for hour in range(generate.HOURS):
        numbers = [n for n, notification in enumerate(day.notifications) if notification["data"]["hour"] == hour]
        lines = "".join(json.dumps(day.notifications[n]) + "\n" for n in numbers)
        answer = await asyncio.to_thread(
            node.call, "POST", "/v1/notifications/batch", lines, kind="application/x-ndjson"
        )
        for number, result in zip(numbers, map(json.loads, answer.splitlines()), strict=True):
            check("id" in result, f"notification {number} was refused: {result}")
            ids[number] = result.get("id", "")
        for name in live:
            due[name].update(n for n in numbers if day.fate[name].get(n) == LIVE)
        await arrived(clients, due, f"hour {hour}")
    last_flash_sale = time.monotonic()
    heard_live = {client.name: client.heard for client in clients}
    for client in clients:
        check(client.ids == sorted(client.ids), f"{client.name} heard what is kept for it out of order")

    # The flash sales of the last hour end, then the evening group comes home.
    await asyncio.sleep(max(0.0, last_flash_sale + generate.SHORT_TTL_S + 0.5 - time.monotonic()))
    back = await connect_all(node, evening, tokens, day.groups)
    await arrived(back, {name: set(day.numbers(name, WAITING)) for name in evening}, "evening")
    # Whatever else is under way comes before this; nobody has a reason to hear anything twice.
    marker = json.dumps({"to": {"everyone": True}, "when": "connected", "data": {"hour": 24, "n": -1}})
    await asyncio.to_thread(node.call, "POST", "/v1/notifications", marker)
    await arrived(clients + back, {client.name: {-1} for client in clients + back}, "good night")
    heard_evening = {client.name: client.heard for client in back}
    await asyncio.gather(*(client.leave() for client in clients + back))
    return {"ids": ids, "live": heard_live, "evening": heard_evening}


def compare(day: model.Day, got: dict) -> None:
    """Exactly what is due, to everybody, once."""
    for source, fate in (("live", LIVE), ("evening", WAITING)):
        for name, heard in got[source].items():
            numbers = [number for number in heard if number >= 0]
            wanted = day.numbers(name, fate)
            check(sorted(numbers) == wanted, f"{name} ({day.groups[name]}) heard {difference(numbers, wanted)}")


def difference(heard: list[int], wanted: list[int]) -> str:
    more, less = Counter(heard) - Counter(wanted), Counter(wanted) - Counter(heard)
    return f"too much: {sorted(more.elements())[:5]}, too little: {sorted(less.elements())[:5]}"


def ask_why(day: model.Day, node: Node, ids: dict[int, str], rng: random.Random) -> Counter:
    """Asks the server for the trace of some deliveries of each group and fate, and compares the reasons."""
    asked = []
    for group in GROUPS:
        names = [name for name in day.devices if day.groups[name] == group]
        for fate in OUTCOMES:
            # Of topics nothing is recorded for who is away: one row for all is the point of a topic.
            pairs = [
                (number, name)
                for name in rng.sample(names, min(40, len(names)))
                for number in day.numbers(name, fate)
                if "users" in day.notifications[number]["to"]
            ]
            asked += [(number, name, fate) for number, name in rng.sample(pairs, min(15, len(pairs)))]

    def trace(pair) -> tuple:
        number, name, fate = pair
        end = time.monotonic() + 30
        while True:  # outcomes are recorded a moment after they happen; expired rows are cleaned up now and then
            answer = json.loads(node.call("GET", f"/v1/notifications/{ids[number]}/devices/{name}"))
            outcomes = [step["outcome"] for step in answer["steps"]]
            right = OUTCOMES[fate] in outcomes if OUTCOMES[fate] else not outcomes and "away" in answer["summary"]
            if right or time.monotonic() > end:
                return number, name, fate, right, outcomes
            time.sleep(0.2)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(trace, asked))
    for number, name, fate, right, outcomes in answers:
        check(right, f"trace of {number} on {name}: {outcomes}, but it was {fate}")
    return Counter(fate for _, _, fate, right, _ in answers if right)


def count_outcomes(day: model.Day, node: Node, ids: dict[int, str]) -> Counter:
    """The sums that the server keeps for directed notifications, compared with the model's."""
    names = {LIVE: "written", NOT_IN_USE: "inactive"}
    total: Counter = Counter()
    for number, notification in enumerate(day.notifications):
        if not {"users", "devices"} & notification["to"].keys():
            continue
        if notification["when"] == "stored":
            wanted = {"kept": len(day.meant[number])}
        else:
            fates = Counter(day.fate[name][number] for name in day.meant[number])
            wanted = {names[fate]: count for fate, count in fates.items() if fate in names}
            # A user is offline if none of its devices is connected.
            wanted["offline"] = sum(
                all(day.groups[name] in (EVENING, GONE) for name in day.by_user[user]) for user in notification["to"]["users"]
            )
        end = time.monotonic() + 15
        while True:
            counts = json.loads(node.call("GET", f"/v1/notifications/{ids[number]}"))["counts"]
            if all(counts.get(outcome) == count for outcome, count in wanted.items()) or time.monotonic() > end:
                break
            time.sleep(0.1)
        total.update(counts)
        for outcome, count in wanted.items():
            check(counts.get(outcome) == count, f"notification {number}: {outcome} {counts.get(outcome)}, not {count}")
    return total


def report(day: model.Day, got: dict) -> None:
    heads = ["group", "devices", "heard live", "from the inbox", "still waiting", *(f"missed: {r}" for r in REASONS)]
    rows = []
    for group in GROUPS:
        names = [name for name in day.devices if day.groups[name] == group]
        fates = Counter(fate for name in names for fate in day.fate[name].values())
        live = sum(len([n for n in got["live"][name] if n >= 0]) for name in names if name in got["live"])
        home = sum(len([n for n in got["evening"][name] if n >= 0]) for name in names if name in got["evening"])
        rows.append([group, len(names), live, home, fates[WAITING] - home, *(fates[reason] for reason in REASONS)])
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, len(heads)))])
    cells = [heads] + [[row[0], *(f"{value:,}" for value in row[1:])] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        print("  " + "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=3_000)
    parser.add_argument("--live", type=int, default=300, help="how many of them are connected all day")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    # The node ends with us, also when we are told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="noroshi-a-day-"))
    started = time.monotonic()
    generate.generate(folder, arguments.devices, arguments.seed)
    devices = [json.loads(line) for line in (folder / "devices.ndjson").read_text().splitlines()]
    notifications = [json.loads(line) for line in (folder / "day.ndjson").read_text().splitlines()]
    rng = random.Random(arguments.seed)
    names = [device["device"] for device in devices]
    rng.shuffle(names)
    live, rest = names[: arguments.live], names[arguments.live :]
    evening = rest[: arguments.live]
    groups = {name: GONE for name in names}
    groups.update({name: IN_USE if i % 3 else IDLE for i, name in enumerate(live)})
    groups.update({name: EVENING for name in evening})
    day = model.Day(devices, notifications, groups)

    node = Node(folder)
    try:
        tokens_path = folder / "tokens.ndjson"
        subprocess.run(
            [BIN, "import", "devices", str(folder / "devices.ndjson"), "--tokens", str(tokens_path), "--server", node.base],
            env={**os.environ, "NOROSHI_KEY": KEY},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        tokens = {line["device"]: line["token"] for line in map(json.loads, tokens_path.read_text().splitlines())}
        check(len(tokens) == len(devices), f"{len(tokens)} devices were imported, not {len(devices)}")
        print(f"a-day: {len(tokens):,} devices imported, {len(live)} connect, {len(notifications)} notifications are sent")
        got = asyncio.run(live_through(day, node, tokens, live, evening))
        compare(day, got)
        print()
        report(day, got)
        print()
        counts = count_outcomes(day, node, got["ids"])
        print("  counted by the node for directed notifications: " + ", ".join(f"{k} {v:,}" for k, v in sorted(counts.items())))
        why = ask_why(day, node, got["ids"], rng)
        print("  traces that told the right reason: " + ", ".join(f"{k} {v}" for k, v in sorted(why.items())))
    finally:
        code = node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    check(code == 0, f"the node left with exit code {code}")
    for problem in problems[:20]:
        print(f"a-day: WRONG: {problem}")
    verdict = "as expected, to the last notification" if not problems else f"{len(problems)} differences"
    print(f"\na-day: {verdict} ({time.monotonic() - started:.0f} s)")
    return 0 if not problems else 1


if __name__ == "__main__":
    sys.exit(main())
