"""Changes of the cluster that a client is connected to, by `AutoClusterFailover` or a service info provider.

Ids, positions and acknowledgements belong to one cluster. The C++ client does not report that it connects to another
one, but its service info shows the other cluster's URL before its first connection there. So the service info is
queried before a request that names an id is sent, and several times a second for consumers and readers that only
receive. They follow with a transition that drops everything they keep; see `pulsar_ext.receive.order`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import pulsar

from pulsar_ext._native.locks import OwnedLock

_POLL_SECONDS: Final = 0.05
"""Interval of service info queries; the C++ client takes at least 90 ms to connect to another cluster."""
_RETRY_SECONDS: Final = 1.0
"""Seconds until a consumer or reader that could not be opened on the other cluster is reopened again."""

_log = logging.getLogger("pulsar_ext")


class Follower(Protocol):
    """A consumer or a reader."""

    @property
    def _cluster_(self) -> int: ...  # the number of the cluster that its native object was opened on
    def _follow_cluster_(self, number: int) -> None: ...  # drops what is of another cluster, and closes it
    def _reopen_(self, timeout_millis: int) -> None: ...  # opens another native object if it was closed for that


class ClusterWatch:
    """Numbers the clusters that one client is connected to, and moves its consumers and readers.

    `service_url` is None if it never changes; `forget` drops what the client itself keeps of a cluster.
    """

    def __init__(
        self,
        service_url: Callable[[], str] | None,
        followers: Callable[[], Sequence[Follower]],
        forget: Callable[[], object],
    ) -> None:
        self._service_url, self._followers, self._forget = service_url, followers, forget
        self._last_url, self._number = "" if service_url is None else service_url(), 0
        self._forgotten, self._all_open = 0, True
        self._lock = OwnedLock()

    @property
    def may_change(self) -> bool:
        """True if the client may connect to another cluster."""
        return self._service_url is not None

    def number(self) -> int:
        """Return the number of the cluster that the client is connected to now; 0 for the first one."""
        if self._service_url is None:
            return 0
        with self._lock:
            service_url = self._service_url()
            if service_url != self._last_url:
                self._last_url, self._number = service_url, self._number + 1
                _log.warning(
                    "The client is connected to another cluster, %s. Unsent acknowledgements are dropped, and its "
                    "consumers and readers are reopened, because ids belong to one cluster.",
                    service_url,
                )
            return self._number

    def tick(self, now: float) -> float:  # noqa: ARG002  # the scheduler's protocol
        """Move consumers and readers to the current cluster; return the seconds until the next check."""
        number = self.number()
        if number != self._forgotten:
            self._forget()
            self._forgotten = number
        followers = self._followers()
        steps = [partial(one._follow_cluster_, number) for one in followers if one._cluster_ != number]
        if self._all_open and not steps:
            return _POLL_SECONDS
        self._all_open = True
        # All are closed before one is opened: the C++ client would connect them to the other cluster by itself.
        for step in (*steps, *(partial(one._reopen_, 0) for one in followers)):
            try:
                step()
            except pulsar.AlreadyClosed:
                continue
            except pulsar.PulsarException as error:
                _log.warning("A consumer or reader could not be opened on the other cluster; retrying: %s", error)
                self._all_open = False
        return _POLL_SECONDS if self._all_open else _RETRY_SECONDS

    def close(self) -> None:
        """Ignore the end of the client."""
