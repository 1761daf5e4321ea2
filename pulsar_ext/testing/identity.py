"""What a test broker proves itself with, and what its superuser does: files, and the settings that name them.

They are made anew for each broker, and kept with its data: certificates by an authority of its own, JSON web tokens, a
hashed password, and an issuer of access tokens on the loopback for the profile `oauth2`. Files, because the broker logs
all its settings when it starts: a secret among them would be in the log.
"""

from __future__ import annotations

import hmac
import json
import secrets
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs

from pulsar_ext.errors import BrokerStartError

from .access import Access
from .profiles import SUPERUSER, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path, PurePath

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


_SECONDS: Final = 60


def certificate_files(names: Iterable[str], subjects: dict[str, str]) -> dict[str, bytes]:
    """Make an authority, and a certificate and a key in PKCS 8 for each subject.

    Args:
        names: hosts and addresses that every certificate is valid for.
        subjects: the common name of each by its file name.

    Returns:
        By file name: `ca.pem`, and `NAME.pem` and `NAME.key` of each subject. The authority's key is thrown away.
    """
    import trustme  # noqa: PLC0415  # only the profiles with TLS need it
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # likewise

    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    files = {"ca.pem": authority.cert_pem.bytes()}
    for name, common_name in subjects.items():
        made = authority.issue_cert(*names, common_name=common_name, key_type=trustme.KeyType.RSA)
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        files |= {f"{name}.pem": made.cert_chain_pems[0].bytes(), f"{name}.key": _pem_of(key)}
    return files


def encryption_key_files(directory: Path) -> tuple[Path, Path]:
    """Make a pair of keys for end-to-end encryption, in PEM.

    Args:
        directory: where `private.pem` and `public.pem` go.

    Returns:
        The files of the private and of the public key.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # tests of encryption need it
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415  # likewise

    key = rsa.generate_private_key(65537, 2048)
    public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    (directory / "private.pem").write_bytes(_pem_of(key))
    (directory / "public.pem").write_bytes(key.public_key().public_bytes(*public))
    return directory / "private.pem", directory / "public.pem"


def _pem_of(key: PrivateKeyTypes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415  # as its callers

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _hashed(password: str) -> str:
    """Return a password as the broker's provider `basic` reads it: Apache's MD5, which no library here makes."""
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
        raise BrokerStartError("the profile basic needs the command openssl for its password: install it") from None
    if done.returncode:
        raise BrokerStartError(f"openssl passwd failed: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


KEY_FILE: Final = "token-secret.key"
"""Where the key is, among a broker's files."""


class TokenSecret:
    """The secret key of one broker, and the tokens (JSON web tokens, HS256) that it signs.

    The key is random and lives as long as the broker's data; neither it nor a token shows in a repr.

    Args:
        key: 32 bytes or more, as read back from a kept data directory; a new random key by default.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        """What the broker reads."""

    def __repr__(self) -> str:
        return "TokenSecret(<hidden>)"

    def token(self, role: str = SUPERUSER, expires: int | None = None) -> str:
        """Sign a token for the role; only `SUPERUSER` is permitted anything at first.

        Args:
            role: for whom.
            expires: when it ends, in seconds since 1970; None for never.
        """
        claims: dict[str, str | int] = {"sub": role} if expires is None else {"sub": role, "exp": expires}
        import jwt  # noqa: PLC0415  # only the profiles with tokens need it

        return jwt.encode(claims, self.key, "HS256")

    @classmethod
    def load(cls, directory: Path) -> TokenSecret:
        """Take the key of the broker whose files are in the directory."""
        return cls((directory / KEY_FILE).read_bytes())


_LASTS_SECONDS: Final = 3600
_MOST_BYTES: Final = 64 * 1024


class TokenEndpoint:
    """Gives access tokens for client credentials, on a free port of the loopback, until it is closed.

    Args:
        client: the JSON object with the client's id and secret, as `AuthenticationOauth2` reads it.
        sign: makes an access token of the client's id and a time in seconds since 1970.
    """

    def __init__(self, client: bytes, sign: Callable[[str, int], str]) -> None:
        known = json.loads(client)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(known["client_id"], known["client_secret"], sign))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="pulsar-ext-oauth2", daemon=True).start()

    @property
    def issuer_url(self) -> str:
        """The issuer's URL, below which its configuration is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _handler(client_id: str, secret: str, sign: Callable[[str, int], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/.well-known/openid-configuration":
                self._answer(404, {"error": "not_found"})
                return
            issuer = f"http://{self.headers['Host']}"
            self._answer(200, {"issuer": issuer, "token_endpoint": f"{issuer}/oauth/token"})

        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length") or 0), _MOST_BYTES)
            form = parse_qs(self.rfile.read(length).decode(errors="replace"))
            given = {name: values[0] for name, values in form.items()}
            is_known = given.get("client_id") == client_id and hmac.compare_digest(
                given.get("client_secret", "").encode(), secret.encode()
            )
            if self.path != "/oauth/token" or given.get("grant_type") != "client_credentials" or not is_known:
                self._answer(401, {"error": "invalid_client"})
                return
            token = sign(client_id, int(time.time()) + _LASTS_SECONDS)
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": _LASTS_SECONDS})

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's names
            """Print nothing: tests look at what is printed."""

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


_TOKEN_FILE: Final = "superuser.token"  # noqa: S105  # a file name
_PASSWORD_FILE: Final = "superuser.password"  # noqa: S105  # likewise
_USERS_FILE: Final = "users.htpasswd"
_OAUTH2_FILE: Final = "oauth2-client.json"
_AUDIENCE: Final = "urn:pulsar-ext:test"
_NAMES: Final = ("localhost", "127.0.0.1")


class Identity:
    """The secrets of one broker; none shows in a repr."""

    def __init__(self, profile: Profile, files: dict[str, bytes]) -> None:
        self._profile = profile
        self._files = files
        self._endpoint: TokenEndpoint | None = None

    def __repr__(self) -> str:
        return "Identity(<hidden>)"

    @classmethod
    def make(cls, profile: Profile, names: Iterable[str] = ()) -> Self:
        """Make new ones.

        Args:
            profile: what the broker is.
            names: what its certificate is valid for, besides `localhost` and `127.0.0.1`.

        Raises:
            BrokerStartError: there is no `openssl` command, which hashed passwords need.
        """
        files: dict[str, bytes] = {}
        if profile.kind not in {None, "certificate"}:
            secret = TokenSecret()
            files |= {KEY_FILE: secret.key, _TOKEN_FILE: secret.token().encode()}
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
        """Take those that `write` left in the directory, or new ones if any is missing."""
        made = cls.make(profile)
        paths = {name: directory / name for name in made.files()}
        if paths and all(path.is_file() for path in paths.values()):
            return cls(profile, {name: path.read_bytes() for name, path in paths.items()})
        return made

    def files(self) -> dict[str, bytes]:
        """Give the content of each file by its name."""
        return dict(self._files)

    def write(self, directory: Path) -> None:
        """Write the files so that only their owner can read them."""
        for name, content in self._files.items():
            path = directory / name
            path.touch(mode=0o600)
            path.chmod(0o600)
            path.write_bytes(content)

    def settings(self, directory: PurePath) -> dict[str, str]:
        """Give the broker settings that name the files in that directory, as the broker sees it."""
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
        """Give what a client needs; for `oauth2` the endpoint is opened with the first call.

        Args:
            directory: where `write` has put the files.
        """
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
            self._endpoint.close()
            self._endpoint = None

    def _oauth2(self, directory: Path) -> str:
        if self._endpoint is None:
            self._endpoint = TokenEndpoint(self._files[_OAUTH2_FILE], TokenSecret(self._files[KEY_FILE]).token)
        key = str(directory / _OAUTH2_FILE)
        return json.dumps({"issuer_url": self._endpoint.issuer_url, "private_key": key, "audience": _AUDIENCE})
