"""Secrets and certificates of a test broker and of its superuser: files, and the settings that name them.

They are created for each broker and kept with its data: certificates of its own authority, JSON web tokens, a hashed
password, and an issuer of access tokens on the loopback for the profile `oauth2`. They are files because the broker
logs all its settings when it starts: a secret among them would be in the log.
"""

from __future__ import annotations

import hmac
import json
import secrets
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs

from pulsar_ext.errors import BrokerStartError

from .access import Access
from .profiles import SUPERUSER, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path, PurePath


_SECONDS: Final = 60


def certificate_files(names: Iterable[str], subjects: dict[str, str]) -> dict[str, bytes]:
    """Return `ca.pem` of a new authority, and `NAME.pem` and `NAME.key` (PKCS 8) of each subject by its common name."""
    import trustme  # noqa: PLC0415  # only for profiles with TLS
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415  # only for profiles with TLS

    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    files = {"ca.pem": authority.cert_pem.bytes()}
    for name, common_name in subjects.items():
        made = authority.issue_cert(*names, common_name=common_name, key_type=trustme.KeyType.RSA)
        key = form.load_pem_private_key(made.private_key_pem.bytes(), None)
        pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        files |= {f"{name}.pem": made.cert_chain_pems[0].bytes(), f"{name}.key": pem}
    return files


def _hashed(password: str) -> str:
    """Return a password in the form of the broker's provider `basic`: Apache's MD5, which no library here supports."""
    try:
        done = subprocess.run(
            ["openssl", "passwd", "-apr1", "-stdin"],
            input=password,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise BrokerStartError("the profile basic needs the command openssl, which is missing: install it") from None
    if done.returncode:
        raise BrokerStartError(f"openssl passwd failed: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


KEY_FILE: Final = "token-secret.key"
"""Name of the key's file among a broker's files."""


def signed_token(key: bytes, role: str = SUPERUSER, expires: int | None = None) -> str:
    """Return a JSON web token (HS256), with a lifetime or none; initially only `SUPERUSER` has permissions."""
    import jwt  # noqa: PLC0415  # only for profiles with tokens

    return jwt.encode({"sub": role} if expires is None else {"sub": role, "exp": expires}, key, "HS256")


_TOKEN_SECONDS: Final = 3600
_MAX_BODY_BYTES: Final = 64 * 1024


class _TokenEndpoint(ThreadingHTTPServer):
    """Issuer of access tokens for client credentials, on a free port of the loopback, until it is closed."""

    def __init__(self, client: bytes, key: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _TokenHandler)
        self.client: dict[str, str] = json.loads(client)
        self.key = key
        threading.Thread(target=self.serve_forever, name="pulsar-ext-oauth2", daemon=True).start()


class _TokenHandler(BaseHTTPRequestHandler):
    server: _TokenEndpoint

    def do_GET(self) -> None:
        if self.path != "/.well-known/openid-configuration":
            self._answer(404, {"error": "not_found"})
            return
        issuer = f"http://{self.headers['Host']}"
        self._answer(200, {"issuer": issuer, "token_endpoint": f"{issuer}/oauth/token"})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _MAX_BODY_BYTES)
        form = parse_qs(self.rfile.read(length).decode(errors="replace"))
        sent = {name: entries[0] for name, entries in form.items()}
        client_id, secret = self.server.client["client_id"], self.server.client["client_secret"]
        is_known = sent.get("client_id") == client_id and hmac.compare_digest(
            sent.get("client_secret", "").encode(), secret.encode()
        )
        if self.path != "/oauth/token" or sent.get("grant_type") != "client_credentials" or not is_known:
            self._answer(401, {"error": "invalid_client"})
            return
        token = signed_token(self.server.key, client_id, int(time.time()) + _TOKEN_SECONDS)
        self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": _TOKEN_SECONDS})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # names of the base class
        """Print nothing: tests check the output."""

    def _answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_TOKEN_FILE: Final = "superuser.token"  # noqa: S105  # a file name
_PASSWORD_FILE: Final = "superuser.password"  # noqa: S105  # a file name
_USERS_FILE: Final = "users.htpasswd"
_OAUTH2_FILE: Final = "oauth2-client.json"
_AUDIENCE: Final = "urn:pulsar-ext:test"
_NAMES: Final = ("localhost", "127.0.0.1")


class Identity:
    """Secrets of one broker; no repr shows them."""

    def __init__(self, profile: Profile, files: dict[str, bytes]) -> None:
        self._profile = profile
        self._files = files
        self._endpoint: _TokenEndpoint | None = None

    def __repr__(self) -> str:
        return "Identity(<hidden>)"

    @classmethod
    def make(cls, profile: Profile, names: Iterable[str] = ()) -> Self:
        """Create new secrets."""
        files: dict[str, bytes] = {}
        if profile.kind not in {None, "certificate"}:
            key = secrets.token_bytes(32)
            files |= {KEY_FILE: key, _TOKEN_FILE: signed_token(key).encode()}
        if profile.kind == "basic":
            password = secrets.token_urlsafe(24)
            files |= {_PASSWORD_FILE: password.encode(), _USERS_FILE: f"{SUPERUSER}:{_hashed(password)}\n".encode()}
        if profile.kind == "oauth2":
            client = {"type": "client_credentials", "client_id": SUPERUSER, "client_secret": secrets.token_urlsafe(24)}
            files[_OAUTH2_FILE] = json.dumps(client).encode()
        if profile.tls:
            subjects = {"broker": "localhost"} | ({"admin": SUPERUSER} if profile.kind == "certificate" else {})
            files |= certificate_files([*_NAMES, *names], subjects)
        return cls(profile, files)

    @classmethod
    def load(cls, profile: Profile, directory: Path) -> Self:
        """Return the secrets that `write` stored in the directory, or new ones if any is missing."""
        made = cls.make(profile)
        paths = {name: directory / name for name in made.files()}
        if paths and all(path.is_file() for path in paths.values()):
            return cls(profile, {name: path.read_bytes() for name, path in paths.items()})
        return made

    def files(self) -> dict[str, bytes]:
        """Return the content of each file by its name."""
        return dict(self._files)

    def write(self, directory: Path) -> None:
        """Write the files, readable by their owner only."""
        for name, content in self._files.items():
            path = directory / name
            path.touch(mode=0o600)
            path.chmod(0o600)
            path.write_bytes(content)

    def settings(self, directory: PurePath) -> dict[str, str]:
        """Return the broker settings that name the files in a directory, as the broker sees it."""
        found: dict[str, str] = {}
        if KEY_FILE in self._files:
            found["tokenSecretKey"] = f"file://{directory / KEY_FILE}"
            found["brokerClientAuthenticationParameters"] = f"file://{directory / _TOKEN_FILE}"
        if _USERS_FILE in self._files:
            found["basicAuthConf"] = f"file://{directory / _USERS_FILE}"
        if "admin.pem" in self._files:
            own = f"tlsCertFile:{directory / 'admin.pem'},tlsKeyFile:{directory / 'admin.key'}"
            found["brokerClientAuthenticationParameters"] = own
        if "ca.pem" in self._files:
            found["tlsCertificateFilePath"] = str(directory / "broker.pem")
            found["tlsKeyFilePath"] = str(directory / "broker.key")
            found["tlsTrustCertsFilePath"] = found["brokerClientTrustCertsFilePath"] = str(directory / "ca.pem")
        return found

    def access(self, directory: Path) -> Access:
        """Return the access of a client; for `oauth2` the first call starts the token endpoint."""
        password, token = self._files.get(_PASSWORD_FILE), self._files.get(_TOKEN_FILE)
        certificate = (str(directory / "admin.pem"), str(directory / "admin.key"))
        return Access(
            kind=self._profile.kind,
            token=token.decode() if token is not None else None,
            basic=(SUPERUSER, password.decode()) if password is not None else None,
            oauth2=self._oauth2(directory) if _OAUTH2_FILE in self._files else None,
            trust_certs=str(directory / "ca.pem") if "ca.pem" in self._files else None,
            certificate=certificate if "admin.pem" in self._files else None,
        )

    def close(self) -> None:
        """Close the endpoint, if there is one."""
        if self._endpoint is not None:
            self._endpoint.shutdown()
            self._endpoint.server_close()
            self._endpoint = None

    def _oauth2(self, directory: Path) -> str:
        if self._endpoint is None:
            self._endpoint = _TokenEndpoint(self._files[_OAUTH2_FILE], self._files[KEY_FILE])
        url, key = f"http://127.0.0.1:{self._endpoint.server_port}", str(directory / _OAUTH2_FILE)
        return json.dumps({"issuer_url": url, "private_key": key, "audience": _AUDIENCE})
