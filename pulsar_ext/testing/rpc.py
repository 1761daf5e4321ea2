"""Access of a test run's processes to the brokers of one of them: a local connection with a key.

Under xdist the controller serves and the workers are clients. Nothing of Pulsar is imported before the first request,
because the controller serves in every run, whether a test needs a broker or not.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from .profiles import Profile

_BACKLOG = 64


class Ticket(TypedDict):
    """Connection data for another process, in plain types; not to be printed."""

    port: int
    key: str


class Source(Protocol):
    """Source of brokers; `pulsar_ext.testing.shared` has them."""

    def ask(self, name: str, profile: Profile, *arguments: object) -> object:
        """Return an attribute of a profile's broker, or what a method returns."""
        ...


class PoolServer:
    """Server of a source's answers for other processes, with a thread per request."""

    def __init__(self, source: Callable[[], Source]) -> None:
        self._source = source
        self._key = secrets.token_bytes(32)
        # The listener has no key, as it would wait for it: a silent connection must not delay others.
        self._listener = Listener(("127.0.0.1", 0), backlog=_BACKLOG)
        threading.Thread(target=self._serve, name="pulsar-ext-pool", daemon=True).start()

    @property
    def ticket(self) -> Ticket:
        """Connection data for another process."""
        return {"port": self._listener.address[1], "key": self._key.hex()}

    def close(self) -> None:
        """Stop answering."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # close() ended it
                return
            threading.Thread(target=self._answer, args=(connection,), name="pulsar-ext-pool", daemon=True).start()

    def _answer(self, connection: Connection[object, tuple[str, Profile, *tuple[object, ...]]]) -> None:
        with connection, contextlib.suppress(EOFError, OSError, AuthenticationError):
            # The same handshake as of a listener with a key.
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            question = connection.recv()
            try:
                answer = self._source().ask(*question)
            except Exception as error:  # noqa: BLE001  # any error is passed to the client
                answer = error
            connection.send(answer)


class PoolClient:
    """Client of a `PoolServer` in another process."""

    def __init__(self, ticket: Ticket) -> None:
        self._port, self._key = ticket["port"], bytes.fromhex(ticket["key"])

    def ask(self, name: str, profile: Profile, *arguments: object) -> object:
        """Return an attribute of a profile's broker, or what a method returns; the server starts it if needed."""
        try:
            with Client(("127.0.0.1", self._port), authkey=self._key) as connection:
                connection.send((name, profile, *arguments))
                answer = connection.recv()
        except (EOFError, OSError) as error:
            from pulsar_ext.errors import BrokerStartError  # noqa: PLC0415  # it imports the official client

            raise BrokerStartError(f"no answer from the process that owns the brokers of this run: {error}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer
