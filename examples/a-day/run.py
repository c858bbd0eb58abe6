#!/usr/bin/env python3
"""A day of a node: 3,000 devices, 300 of them connected, 535 notifications of every kind.

    pip install websockets
    python3 examples/a-day/run.py               # set NOROSHI_BIN, default target/debug/noroshi; builds nothing

Imports the devices with `noroshi import devices`, connects real WebSocket clients, publishes the day hour by hour through
`POST /v1/notifications/batch`, lets the evening group log in, and prints which messages each group received live
and from its inbox, which it missed, and why. Compares every delivery with `model.py`; the exit code is 1 if one differs.
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
from model import ABSENT, ACTIVE, EVENING, EXPIRED, GROUPS, IDLE, INACTIVE, LIVE, OFFLINE, REASONS, REPLACED, WAITING  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("NOROSHI_BIN", str(ROOT / "target" / "debug" / "noroshi"))
KEY = "a-day-at-the-office"
DEADLINE_S = 60
#: The outcome in a trace for each fate of the model. If a device is offline and nothing is stored for it, the server
#: writes no row: it counts users, and the summary of the trace explains this.
OUTCOMES = {INACTIVE: "inactive", OFFLINE: None, EXPIRED: "expired", REPLACED: "collapsed", LIVE: "written", WAITING: "kept"}

problems: list[str] = []


def check(right: bool, text: str) -> None:
    if not right:
        problems.append(text)


class Node:
    """A node on free ports, with its data in a temporary folder."""

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
    """Below 32768, outside the range of outgoing connections."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Client:
    """One connected device; `received` holds the numbers of its notifications in order of arrival."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token = name, token
        self.received: list[int] = []
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
                self.received.append(frame["data"]["n"])
                if "topic" not in frame and frame.get("ack"):
                    self.ids.append(frame["id"])
                if frame.get("ack"):
                    await self.socket.send(json.dumps({"t": "ack", "ids": [frame["id"]]}))

    async def leave(self) -> None:
        await self.socket.close()
        await self.task


async def arrived(clients: list[Client], due: dict[str, set[int]], what: str) -> None:
    """Waits until every client has received its due notifications."""
    end = time.monotonic() + DEADLINE_S
    while any(not due[client.name] <= set(client.received) for client in clients):
        if time.monotonic() > end:
            late = next(client for client in clients if not due[client.name] <= set(client.received))
            missing = sorted(due[late.name] - set(late.received))
            check(False, f"{what}: {late.name} still waits for notifications {missing[:10]}")
            return
        await asyncio.sleep(0.02)


async def connect_all(node: Node, names: list[str], tokens: dict[str, str], groups: dict[str, str]) -> list[Client]:
    clients = [Client(name, tokens[name]) for name in names]
    for start in range(0, len(clients), 50):
        await asyncio.gather(*(c.connect(node, groups[c.name] == IDLE) for c in clients[start : start + 50]))
    return clients


async def run_day(day: model.Day, node: Node, tokens: dict[str, str], live: list[str], evening: list[str]) -> dict:
    """Runs the day; returns the ids of the notifications by number and what the clients received."""
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
    received_live = {client.name: client.received for client in clients}
    for client in clients:
        check(client.ids == sorted(client.ids), f"{client.name} received stored notifications out of order")

    # The flash sales of the last hour end, then the evening group logs in.
    await asyncio.sleep(max(0.0, last_flash_sale + generate.SHORT_TTL_S + 0.5 - time.monotonic()))
    back = await connect_all(node, evening, tokens, day.groups)
    await arrived(back, {name: set(day.numbers(name, WAITING)) for name in evening}, "evening")
    # Deliveries in flight arrive before this marker; after it, no duplicate can follow.
    marker = json.dumps({"to": {"everyone": True}, "when": "connected", "data": {"hour": 24, "n": -1}})
    await asyncio.to_thread(node.call, "POST", "/v1/notifications", marker)
    await arrived(clients + back, {client.name: {-1} for client in clients + back}, "end marker")
    received_evening = {client.name: client.received for client in back}
    await asyncio.gather(*(client.leave() for client in clients + back))
    return {"ids": ids, "live": received_live, "evening": received_evening}


def compare(day: model.Day, got: dict) -> None:
    """Checks that every device received exactly its due notifications, once."""
    for source, fate in (("live", LIVE), ("evening", WAITING)):
        for name, received in got[source].items():
            numbers = [number for number in received if number >= 0]
            wanted = day.numbers(name, fate)
            check(sorted(numbers) == wanted, f"{name} ({day.groups[name]}) received {difference(numbers, wanted)}")


def difference(received: list[int], wanted: list[int]) -> str:
    more, less = Counter(received) - Counter(wanted), Counter(wanted) - Counter(received)
    return f"too much: {sorted(more.elements())[:5]}, too little: {sorted(less.elements())[:5]}"


def check_traces(day: model.Day, node: Node, ids: dict[int, str], rng: random.Random) -> Counter:
    """Compares the reasons in the server's traces of some deliveries of each group and fate."""
    pairs_to_check = []
    for group in GROUPS:
        names = [name for name in day.devices if day.groups[name] == group]
        for fate in OUTCOMES:
            # For topics the server records nothing about offline devices: a topic message is one row.
            pairs = [
                (number, name)
                for name in rng.sample(names, min(40, len(names)))
                for number in day.numbers(name, fate)
                if "users" in day.notifications[number]["to"]
            ]
            pairs_to_check += [(number, name, fate) for number, name in rng.sample(pairs, min(15, len(pairs)))]

    def trace(pair) -> tuple:
        number, name, fate = pair
        end = time.monotonic() + 30
        while True:  # outcomes are recorded asynchronously; expired rows are deleted periodically
            answer = json.loads(node.call("GET", f"/v1/notifications/{ids[number]}/devices/{name}"))
            outcomes = [step["outcome"] for step in answer["steps"]]
            right = OUTCOMES[fate] in outcomes if OUTCOMES[fate] else not outcomes and "offline" in answer["summary"]
            if right or time.monotonic() > end:
                return number, name, fate, right, outcomes
            time.sleep(0.2)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(trace, pairs_to_check))
    for number, name, fate, right, outcomes in answers:
        check(right, f"trace of {number} on {name}: {outcomes}, but it was {fate}")
    return Counter(fate for _, _, fate, right, _ in answers if right)


def count_outcomes(day: model.Day, node: Node, ids: dict[int, str]) -> Counter:
    """Compares the server's sums for directed notifications with the model's."""
    names = {LIVE: "written", INACTIVE: "inactive"}
    total: Counter = Counter()
    for number, notification in enumerate(day.notifications):
        if not {"users", "devices"} & notification["to"].keys():
            continue
        if notification["when"] == "stored":
            wanted = {"kept": len(day.recipients[number])}
        else:
            fates = Counter(day.fate[name][number] for name in day.recipients[number])
            wanted = {names[fate]: count for fate, count in fates.items() if fate in names}
            # A user is offline if none of its devices is connected.
            wanted["offline"] = sum(
                all(day.groups[name] in (EVENING, ABSENT) for name in day.by_user[user]) for user in notification["to"]["users"]
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
    heads = ["group", "devices", "live", "from the inbox", "still waiting", *(f"missed: {r}" for r in REASONS)]
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
    parser.add_argument("--live", type=int, default=300, help="number of devices that are connected all day")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    # Stop the node when this process ends, also after SIGTERM.
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
    groups = {name: ABSENT for name in names}
    groups.update({name: ACTIVE if i % 3 else IDLE for i, name in enumerate(live)})
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
        print(f"a-day: {len(tokens):,} devices imported, {len(live)} connected, {len(notifications)} notifications to send")
        got = asyncio.run(run_day(day, node, tokens, live, evening))
        compare(day, got)
        print()
        report(day, got)
        print()
        counts = count_outcomes(day, node, got["ids"])
        print("  counted by the node for directed notifications: " + ", ".join(f"{k} {v:,}" for k, v in sorted(counts.items())))
        why = check_traces(day, node, got["ids"], rng)
        print("  traces with the right reason: " + ", ".join(f"{k} {v}" for k, v in sorted(why.items())))
    finally:
        code = node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    check(code == 0, f"the node exited with code {code}")
    for problem in problems[:20]:
        print(f"a-day: WRONG: {problem}")
    verdict = "as expected, to the last notification" if not problems else f"{len(problems)} differences"
    print(f"\na-day: {verdict} ({time.monotonic() - started:.0f} s)")
    return 0 if not problems else 1


if __name__ == "__main__":
    sys.exit(main())
