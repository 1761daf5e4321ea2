"""Features that need what the official client does not promise, and those that the installed one does not give."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext._native.consumer_settings import known_priority_setter, known_properties
from pulsar_ext._native.event_listener import known_listener_setter
from pulsar_ext._native.messages import known_sequence_ids
from pulsar_ext._native.replicated import known_reader
from pulsar_ext._native.schemas import known_avro

if TYPE_CHECKING:
    from collections.abc import Callable


FEATURES: Final[dict[str, Callable[[], Any]]] = {
    "subscribe(priority_level=)": known_priority_setter,
    "subscribe(subscription_properties=)": known_properties,
    "subscribe(consumer_event_listener=)": known_listener_setter,
    "Message.replicated_from()": known_reader,
    "key slots of messages without keys": known_sequence_ids,
    **({"AvroSchema": known_avro} if find_spec("fastavro") else {}),
}
"""What proves each, which raises `InvalidUse` as its use does."""


def refused_features() -> dict[str, str]:
    """Return the features that do not work with the installed official client, with the reason of each."""
    refused = {}
    for feature, prove in FEATURES.items():
        try:
            prove()
        except Exception as error:  # noqa: BLE001  # whatever it is, the feature does not work
            refused[feature] = str(error)
    return refused
