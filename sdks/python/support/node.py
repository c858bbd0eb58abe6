"""A private Noroshi node on free ports, with its data in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

KEY = "sdk-key-with-all-scopes"
JWT_SECRET = "sdk-secret-of-at-least-thirty-two-bytes"


def free_port() -> int:
    """Below the ports of outgoing connections: the node uses it again after a restart."""
    while True:
        port = random.randrange(11_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Node:
    def __init__(self, *args: str) -> None:
        self.binary = os.environ["NOROSHI_BIN"]
        self.args = args
        self.data = Path(tempfile.mkdtemp(prefix="noroshi-python-"))
        self.http_port = free_port()
        self.admin_port = free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self._log = (self.data / "log").open("ab")
        self.spawn()

    def spawn(self) -> None:
        """Starts the process on the same ports and data; used again after a kill."""
        command = [self.binary, "serve", "--dev", "--data", str(self.data)]
        command += ["--http", f"127.0.0.1:{self.http_port}", "--admin", f"127.0.0.1:{self.admin_port}", *self.args]
        env = {**os.environ, "NOROSHI_DEV_KEY": KEY, "NOROSHI_DEV_JWT_SECRET": JWT_SECRET}
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=env)
        end = time.monotonic() + 60
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the node is not ready:\n{self.log()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log()

    def log(self) -> str:
        return (self.data / "log").read_text("utf-8", "replace")[-3_000:]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
