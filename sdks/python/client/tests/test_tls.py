"""A service with a certificate of an own authority."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from device import Device, until
from node import Node, free_port

x509 = pytest.importorskip("cryptography.x509")


def certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "push.test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)

    async def run(node: Node) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", node.http_port)

            async def forward(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
                try:
                    while data := await one.read(65_536):
                        other.write(data)
                except OSError:
                    pass
                finally:
                    other.close()

            await asyncio.gather(forward(reader, back), forward(there, writer))

        port = free_port()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=context)
        trusted = ssl.create_default_context(cafile=str(cert))
        for transport in ("websocket", "sse"):
            async with Device(f"https://127.0.0.1:{port}", "tls", transports=(transport,), ssl_context=trusted) as one:
                await one.connected(transport)
                assert (await one.client.me())["device"] == "tls"
        async with Device(f"https://127.0.0.1:{port}", "tls", transports=("websocket",)) as one:
            await until("the refusal", lambda: one.client.state.state == "waiting")
        server.close()
        await asyncio.sleep(0.1)

    with Node() as node:
        asyncio.run(run(node))
