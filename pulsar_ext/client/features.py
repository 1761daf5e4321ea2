"""Features that depend on the installed official client, with their checks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from pulsar_ext._native.consumer_settings import (
    event_listener_setter,
    priority_level_setter,
    subscription_properties_setter,
)
from pulsar_ext._native.message_index import index_reader
from pulsar_ext._native.messages import prove_sequence_ids
from pulsar_ext._native.replicated import replicated_from_reader
from pulsar_ext._native.schemas import prove_avro

FEATURES: Final[dict[str, Callable[[], object]]] = {
    "subscribe(priority_level=)": priority_level_setter,
    "subscribe(subscription_properties=)": subscription_properties_setter,
    "subscribe(consumer_event_listener=)": event_listener_setter,
    "Message.replicated_from()": replicated_from_reader,
    "Message.index()": index_reader,
    "key slots of messages without keys": prove_sequence_ids,
    **({"AvroSchema": prove_avro} if find_spec("fastavro") else {}),
}
"""The check of each feature, which raises `InvalidUse` like its use."""


def unavailable_features() -> dict[str, str]:
    """Return the unavailable features with their reasons."""
    unavailable = {}
    for feature, prove in FEATURES.items():
        try:
            prove()
        except Exception as error:  # noqa: BLE001  # any exception: the feature does not work
            unavailable[feature] = str(error)
    return unavailable
