"""Private push services, as in ../lib/push.mjs: `noroshi dev-push`, the strict fakes, on free ports with keys in a
temporary folder, controlled and queried over their control port; and certificates for servers of tests."""

import datetime
import ipaddress
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node import BIN, DEADLINE_S, free_port, until


class DevPush:
    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="noroshi-push-")
        port = free_port()
        flags = ["--folder", self.folder, "--control", str(port), "--quiet", "--known-tokens-only"]
        for name in ("apns", "apns-sandbox", "apns-channels", "apns-sandbox-channels", "fcm", "oauth", "webpush", "webhook", "hms", "wns", "wns-login"):
            flags += [f"--{name}", "0"]
        self.process = subprocess.Popen([BIN, "dev-push", *flags])
        self.control = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S)
        self.info = until("the fakes to answer", self._info)

    def _info(self):
        assert self.process.poll() is None, "dev-push ended at once"
        try:
            return self.control.get("/info").json()
        except httpx.TransportError:
            return None

    def token(self, service: str, **options) -> dict:
        """A push token of an existing device, in the format of the API."""
        answer = self.control.post("/tokens", json={"service": service, "count": 1, **options})
        assert answer.status_code == 200, answer.text
        return answer.json()["push_tokens"][0]

    def received(self, service: str, token: str) -> list:
        """The pushes for a token, oldest first."""
        answer = self.control.get("/received", params={"service": service, "token": token})
        assert answer.status_code == 200, answer.text
        return answer.json()["received"]

    def stop(self) -> None:
        self.control.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert code == 0


def certificates(folder: Path) -> tuple[Path, Path]:
    """A CA, and a server certificate for this machine: (`ca.pem`, `server.pem` with chain and key)."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tests' authority")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    root = _issue(authority, authority_key.public_key(), authority, authority_key, is_authority=True, names=[])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    leaf = _issue(subject, key.public_key(), authority, authority_key, is_authority=False, names=names)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.pem").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(secret + leaf.public_bytes(pem))
    return folder / "ca.pem", folder / "server.pem"


def _issue(subject, public_key, issuer, issuer_key, is_authority, names):
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
