"""Where requests may go: which admin URL is asked first, and which redirects may carry a secret (pure)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from pulsar_ext.errors import AdminError

from ._url import host_of, is_less_safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._core import Answer

__all__ = ["Places", "brokers_of", "last_of", "questions_about_brokers", "redirect_target"]

_OK = 200
_TOPIC_PARTS = 4
_URLS_OF_LOOKUP = ("httpUrl", "httpUrlTls", "brokerUrl", "brokerUrlTls")


class Places:
    """The admin URLs of one cluster and what is known of its brokers, shared by all that asks them.

    Safe between threads: each of the two facts is replaced as a whole.

    Args:
        bases: the admin URLs, in the order in which they are to be asked.
    """

    def __init__(self, bases: Sequence[str]) -> None:
        self._bases = tuple(bases)
        self._hosts = frozenset(map(host_of, bases))

    @property
    def first(self) -> str:
        """The one that is asked first."""
        return self._bases[0]

    def in_order(self) -> tuple[str, ...]:
        """Give all of them, the one that answered last before the others."""
        return self._bases

    def answered(self, base: str) -> None:
        """Ask this one first from now on."""
        bases = self._bases
        if bases[0] != base:
            at = bases.index(base)
            self._bases = bases[at:] + bases[:at]

    def knows(self, url: str) -> bool:
        """Whether a URL is of a host that the application named, or that the cluster lists as a broker."""
        return host_of(url) in self._hosts

    def learn(self, brokers: frozenset[str]) -> None:
        """Note the hosts of the cluster's brokers."""
        self._hosts = self._hosts | brokers


def questions_about_brokers(path: str) -> tuple[str, ...]:
    """Give what to ask a cluster for its brokers, for a request to this path below `/admin/v2/`.

    The first is for superusers only; where a topic is, whoever may use the topic may ask.
    """
    parts = path.split("/")
    if len(parts) <= _TOPIC_PARTS or parts[0] not in {"persistent", "non-persistent"}:
        return ("admin/v2/brokers",)
    return "admin/v2/brokers", "/".join(["lookup/v2/topic", *parts[:_TOPIC_PARTS]])


def brokers_of(answer: Answer) -> frozenset[str]:
    """Read the hosts of the cluster's brokers from the answer to one of these questions; none if it is no answer."""
    try:
        found = json.loads(answer.body) if answer.status == _OK else None
    except ValueError:
        return frozenset()
    if isinstance(found, dict):
        found = [found.get(name) for name in _URLS_OF_LOOKUP]
    if not isinstance(found, list):
        return frozenset()
    return frozenset(filter(None, (host_of(one) for one in found if isinstance(one, str))))


def redirect_target(url: str, answer: Answer) -> str:
    """Read where a redirect leads.

    Raises:
        AdminError: to what is no URL; or from https to something else, where others could read along.
    """
    try:
        target = urljoin(url, answer.headers.get("location", ""))
    except ValueError as error:
        raise AdminError(
            f"The broker redirects to what is no URL: {error}", status=answer.status, reason="redirect to no URL"
        ) from error
    if is_less_safe(url, target):
        raise AdminError(
            "The broker redirects from https to something else; set webServiceUrlTls on it",
            status=answer.status,
            reason="redirect to an insecure URL",
        )
    return target


def last_of(redirects: Sequence[str]) -> str:
    """Give the scheme, host and port of the last URL; an empty text if there is none."""
    if not redirects:
        return ""
    scheme, _, rest = redirects[-1].partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
