"""Where the broker is, and the token, by the environment: `PULSAR_URL` and `PULSAR_TOKEN` (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidUse

from .authentication import AuthenticationToken

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["located"]


def located(arguments: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Complete the arguments of a client that was given no service URL.

    A client that was given one takes nothing from here: the environment's token does not go to another broker.

    Raises:
        InvalidUse: the environment does not say where the broker is either.
    """
    if arguments["service_url"] is not None:
        return arguments
    url, token = environment.get("PULSAR_URL"), environment.get("PULSAR_TOKEN")
    if not url:
        raise InvalidUse('A client needs a service URL, such as Client("pulsar://localhost:6650"), or PULSAR_URL.')
    added: dict[str, Any] = {"service_url": url}
    if token and arguments["authentication"] is None:
        added["authentication"] = AuthenticationToken(token)
    return {**arguments, **added}
