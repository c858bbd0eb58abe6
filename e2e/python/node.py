"""A private Noroshi node, as in ../lib/node.mjs: the built binary on free ports below 32768 with its
data in a temporary folder, stopped by SIGTERM; it must exit with code 0."""

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("NOROSHI_BIN", str(ROOT / "target" / "debug" / "noroshi"))
CACHE = ROOT / "e2e" / ".cache"
KEY = "e2e-key-with-all-scopes"
JWT_SECRET = "e2e-secret-of-at-least-thirty-two-bytes"
DEADLINE_S = 30


def claim(port: int) -> bool:
    """False if another test process has reserved it: seconds pass until a server listens."""
    path = Path(tempfile.gettempdir(), f"noroshi-e2e-port-{port}")
    try:
        with path.open("x") as owner:
            owner.write(str(os.getpid()))
    except FileExistsError:
        return False
    atexit.register(path.unlink, missing_ok=True)
    return True


def free_port() -> int:
    while True:
        port = random.randrange(11_000, 32_000)
        if not claim(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def until(what: str, probe):
    """Calls `probe` until it returns a true value, and returns it."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for: {what}"
        time.sleep(0.02)


class Node:
    def __init__(self, *args: str) -> None:
        """`args` are additional flags of `serve`."""
        self.data = tempfile.mkdtemp(prefix="noroshi-e2e-")
        self.http_port, self.admin_port = free_port(), free_port()
        self.http = f"http://127.0.0.1:{self.http_port}"
        self.ws = f"ws://127.0.0.1:{self.http_port}"
        (CACHE / "logs").mkdir(parents=True, exist_ok=True)
        self.log_path = CACHE / "logs" / f"node-py-{os.getpid()}-{self.http_port}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [BIN, "serve", "--dev", "--data", self.data]
                + ["--http", f"127.0.0.1:{self.http_port}", "--admin", f"127.0.0.1:{self.admin_port}", *args],
                stdout=log,
                stderr=log,
                env={**os.environ, "NOROSHI_DEV_KEY": KEY, "NOROSHI_DEV_JWT_SECRET": JWT_SECRET},
            )
        until("the node to be ready", self._ready)
        self.provider = httpx.Client(base_url=self.http, headers={"Authorization": f"Bearer {KEY}"}, timeout=DEADLINE_S)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{self.admin_port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def register(self, **device) -> dict:
        answer = self.provider.post("/v1/devices", json=device)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def publish(self, **notification) -> dict:
        answer = self.provider.post("/v1/notifications", json=notification)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def add_credential(self, credential: dict) -> dict:
        """Adds a push credential to the development app, through the admin API with the token of the data folder."""
        token = Path(self.data, "operator.token").read_text().strip()
        url = f"http://127.0.0.1:{self.admin_port}/v1/apps/dev/push"
        answer = httpx.post(url, json=credential, headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE_S)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def outcome(self, notification: str, device: str, wanted: str) -> dict:
        """Waits for the outcome in the trace; returns the step."""

        def step():
            trace = self.provider.get(f"/v1/notifications/{notification}/devices/{device}").json()
            return next((step for step in trace.get("steps", []) if step["outcome"] == wanted), None)

        return until(f"{wanted} of {device}", step)

    def stop(self) -> None:
        self.provider.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            shutil.rmtree(self.data, ignore_errors=True)
        assert code == 0, self.log_path.read_text()[-4_000:]
