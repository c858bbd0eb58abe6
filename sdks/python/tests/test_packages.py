"""What README files and examples show, with the packages as pip installs them.

`NOROSHI_DIST` is a folder with both wheels installed, `NOROSHI_WHEELS` has the wheels and source distributions.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from device import jwt
from node import KEY, Node

ROOT = Path(__file__).resolve().parent.parent
DIST = os.environ["NOROSHI_DIST"]
WHEELS = Path(os.environ["NOROSHI_WHEELS"])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


def blocks(package: str, node: Node) -> list[tuple[str, str]]:
    """The commands and programs of the first message."""
    text = (ROOT / package / "README.md").read_text("utf-8").split("## What you need to know")[0]
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    here = [(language, re.sub(r"^ {3}", "", code, flags=re.MULTILINE)) for language, code in found]
    return [
        (kind, code.replace("http://127.0.0.1:8080", node.url).replace("my-development-key", KEY))
        for kind, code in here
    ]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": DIST, "PYTHONWARNINGS": "error", **more}


def shell(code: str, **more: str) -> str:
    lines = re.sub(r"^\$ ", "", code, flags=re.MULTILINE)
    return subprocess.run(
        ["bash", "-ec", lines], check=True, capture_output=True, text=True, env=environment(**more)
    ).stdout


def python(file: Path, *args: str, **more: str) -> str:
    return subprocess.run(
        [sys.executable, str(file), *args],
        check=True,
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=30,
    ).stdout


def shows(file: Path, first: str, then: str, act, **more: str) -> None:  # type: ignore[no-untyped-def]
    """Runs a program that listens: it prints `first`, and after `act` also `then`."""
    program = subprocess.Popen(
        [sys.executable, str(file)], env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert program.stdout is not None
    os.set_blocking(program.stdout.fileno(), False)
    printed = ""
    try:
        for text in (first, then):
            end = time.monotonic() + 20
            while text not in printed:
                assert time.monotonic() < end, printed
                assert program.poll() is None, printed
                printed += (program.stdout.read() or b"").decode()
                time.sleep(0.02)
            if text == first:
                act()
        program.send_signal(signal.SIGINT)
        program.wait(10)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_the_readme_of_the_client(node: Node, tmp_path: Path) -> None:
    start, register, install, send = [code for kind, code in blocks("client", node) if kind == "console"]
    assert "noroshi serve --dev" in start
    assert install == "$ pip install noroshi-client\n"
    token = shell(f'{register}\nprintf %s "$TOKEN"')
    (program,) = [code for kind, code in blocks("client", node) if kind == "python"]
    file = tmp_path / "listen.py"
    file.write_text(program)
    shows(file, "connected", "Hello", lambda: shell(send), TOKEN=token)


def test_the_readme_of_the_server(node: Node, tmp_path: Path) -> None:
    (program,) = [code for kind, code in blocks("server", node) if kind == "python"]
    file = tmp_path / "publish.py"
    file.write_text(program)
    printed = python(file)
    assert "token of the device: " in printed
    assert "why it arrived: " in printed


def test_the_examples(node: Node) -> None:
    def publish() -> None:
        id_ = python(
            ROOT / "server/examples/publish.py", "user-of-example", "Hi", NOROSHI_URL=node.url, NOROSHI_KEY=KEY
        )
        assert re.fullmatch(r"[0-9a-f-]{36}\n", id_)

    shows(ROOT / "client/examples/listen.py", "connected", "'Hi'", publish, NOROSHI_URL=node.url, TOKEN=jwt("example"))


@pytest.mark.parametrize("name", ["noroshi_client", "noroshi_server"])
def test_the_package_has_what_it_needs_and_nothing_else(name: str) -> None:
    (wheel,) = WHEELS.glob(f"{name}-*.whl")
    (source,) = WHEELS.glob(f"{name}-*.tar.gz")
    files = zipfile.ZipFile(wheel).namelist()
    assert f"{name}/py.typed" in files
    assert all(re.match(rf"{name}(-[\d.]+\.dist-info)?/", file) for file in files)
    assert not [file for file in files if "test" in file or "pycache" in file]
    with tarfile.open(source) as archive:
        tops = {member.name.split("/")[1] for member in archive.getmembers()}
    assert tops == {
        "src",
        "examples",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "pyproject.toml",
        ".gitignore",
    } - ({".gitignore"} if ".gitignore" not in tops else set())
