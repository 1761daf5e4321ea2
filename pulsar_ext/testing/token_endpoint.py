"""The OAuth 2.0 endpoint of the profile `oauth2`: an issuer of access tokens on the loopback."""

from __future__ import annotations

import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TokenEndpoint"]

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
