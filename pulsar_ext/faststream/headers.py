"""FastStream's headers as Pulsar's properties.

The names are those of FastStream's other brokers. What a `Requester` of this library writes is read as well, so that a
handler answers it: see docs/request.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import InvalidUse
from pulsar_ext.request.envelope import CORRELATION, REPLY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["answering", "content_type_of", "correlation_id_of", "properties_of", "reply_topic_of"]

_CONTENT_TYPE: Final = "content-type"
_CORRELATION_ID: Final = "correlation_id"
_REPLY_TO: Final = "reply_to"


def properties_of(
    headers: Mapping[str, Any], *, content_type: str | None, correlation_id: str | None, reply_to: str
) -> dict[str, str]:
    """Give the properties of a message that is sent; the application's headers win.

    Raises:
        InvalidUse: a header is not text, as properties are.
    """
    ours = {_CONTENT_TYPE: content_type, _CORRELATION_ID: correlation_id, _REPLY_TO: reply_to}
    properties = {name: value for name, value in ours.items() if value}
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidUse(
                f"The header {name!r} is of type {type(value).__name__}. Headers are Pulsar's properties, which are "
                "text: convert it to a str. Nothing was sent."
            )
        properties[name] = value
    return properties


def content_type_of(properties: Mapping[str, str]) -> str | None:
    """Give what the body is, None if the sender did not say."""
    return properties.get(_CONTENT_TYPE)


def correlation_id_of(properties: Mapping[str, str]) -> str | None:
    """Give the correlation id, of FastStream or of a requester."""
    return properties.get(_CORRELATION_ID) or properties.get(CORRELATION)


def reply_topic_of(properties: Mapping[str, str]) -> str:
    """Give the topic that a reply goes to, empty if none is wanted."""
    return properties.get(_REPLY_TO) or properties.get(REPLY_TOPIC, "")


def answering(properties: Mapping[str, str]) -> dict[str, str]:
    """Give the properties by which a requester knows a reply to a request with these properties."""
    asked = properties.get(CORRELATION)
    return {} if asked is None else {CORRELATION: asked}
