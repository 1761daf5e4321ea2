"""What a test can connect to, own and end: a single broker or a whole cluster, whatever it runs in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType, TracebackType

    from .access import Access
    from .detour import Detour

__all__ = ["Reachable", "Startable"]


class Startable(ABC):
    """What runs from the beginning of a `with` block or `start()` on, and is gone after the block or `stop()`."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> Self:
        """Start all of it and return when it is ready; a second call does nothing.

        Raises:
            BrokerStartError: it did not become ready; nothing is left running, and the message ends with a log.
        """

    @abstractmethod
    def stop(self) -> None:
        """End all of it and remove what it leaves behind; a second call does nothing."""


class Reachable(Startable):
    """What clients connect to: a broker or a cluster."""

    @property
    @abstractmethod
    def service_url(self) -> str:
        """The URL for clients, `pulsar://host:port`, or `pulsar+ssl://…` where the profile has TLS."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """The URL of the admin REST API, `http://host:port`, or `https://…`."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """What a client needs besides the URLs: the superuser's credentials, and whom to trust."""

    @property
    def detours(self) -> Sequence[Detour]:
        """What a fault proxy needs besides the URL: `FaultProxy.to(broker.service_url, broker.detours)`."""
        return ()

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether all of it is alive now."""

    @property
    def token(self) -> str | None:
        """The superuser's token, or None where none is taken."""
        return self.access.token

    def client_options(self, module: ModuleType) -> dict[str, Any]:
        """Give what a client needs: `pulsar_ext.Client(broker.service_url, **broker.client_options(pulsar_ext))`.

        Args:
            module: `pulsar` or `pulsar_ext`, whose authentication is used.
        """
        return self.access.client_options(module)
