"""What a test broker proves itself with, and what its superuser does: files, and the settings that name them.

They are made anew for each broker, and kept with its data. Files, because the broker logs all its settings when it
starts: a secret among them would be in the log.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final, Self

from .access import Access
from .certificates import certificate_files, openssl
from .profiles import SUPERUSER, Profile
from .token_endpoint import TokenEndpoint
from .tokens import KEY_FILE, TokenSecret

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path, PurePath

__all__ = ["Identity"]

_TOKEN_FILE: Final = "superuser.token"  # noqa: S105  # a file name
_PASSWORD_FILE: Final = "superuser.password"  # noqa: S105  # likewise
_USERS_FILE: Final = "users.htpasswd"
_OAUTH2_FILE: Final = "oauth2-client.json"
_AUDIENCE: Final = "urn:pulsar-ext:test"
_NAMES: Final = "DNS:localhost, IP:127.0.0.1"


class Identity:
    """The secrets of one broker; none shows in a repr.

    Args:
        profile: what the broker is.
        files: the content of each file by its name.
    """

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
            BrokerStartError: there is no `openssl` command, which certificates and hashed passwords need.
        """
        files: dict[str, bytes] = {}
        if profile.kind not in {None, "certificate"}:
            secret = TokenSecret()
            files |= {KEY_FILE: secret.key, _TOKEN_FILE: secret.token().encode()}
        if profile.kind == "basic":
            password = secrets.token_urlsafe(24)
            hashed = openssl("passwd", "-apr1", "-stdin", given=password).strip()
            files |= {_PASSWORD_FILE: password.encode(), _USERS_FILE: f"{SUPERUSER}:{hashed}\n".encode()}
        if profile.kind == "oauth2":
            client = {"type": "client_credentials", "client_id": SUPERUSER, "client_secret": secrets.token_urlsafe(24)}
            files[_OAUTH2_FILE] = json.dumps(client).encode()
        if profile.tls:
            subjects = {"broker": "localhost"} | ({"admin": SUPERUSER} if profile.kind == "certificate" else {})
            files |= certificate_files(", ".join([_NAMES, *(f"DNS:{name}" for name in names)]), subjects)
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
