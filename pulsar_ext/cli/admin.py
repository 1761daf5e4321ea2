"""`pulsar-ext admin`: the methods of `PulsarAdmin` that the doctor's remedies and the guides need, as commands."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from pulsar_ext.admin import Retention

from .arguments import LOCAL, Reach

app = App(
    name="admin",
    help="Change a topic, a subscription or a namespace. Each command calls the method of PulsarAdmin with its name.",
)


@app.command
def unload(topic: str, /, *, reach: Reach = LOCAL) -> None:
    """Close TOPIC on its broker: clients reconnect, and unacknowledged messages are redelivered."""
    with reach.open_admin() as admin:
        admin.unload(topic)


@app.command
def compact(topic: str, /, *, reach: Reach = LOCAL) -> None:
    """Start a compaction of TOPIC."""
    with reach.open_admin() as admin:
        admin.compact(topic)


@app.command
def create_subscription(
    topic: str, subscription: str, position: Literal["earliest", "latest"] = "latest", /, *, reach: Reach = LOCAL
) -> None:
    """Create SUBSCRIPTION on TOPIC, at its earliest message or after its latest one."""
    with reach.open_admin() as admin:
        admin.create_subscription(topic, subscription, position)


@app.command
def delete_subscription(topic: str, subscription: str, /, *, reach: Reach = LOCAL) -> None:
    """Delete SUBSCRIPTION of TOPIC, which has no consumers. Its unacknowledged messages are lost to it."""
    with reach.open_admin() as admin:
        admin.delete_subscription(topic, subscription)


@app.command
def set_deduplication(namespace: str, value: bool, /, *, reach: Reach = LOCAL) -> None:
    """Set whether the broker drops duplicates on the topics of NAMESPACE: true or false."""
    with reach.open_admin() as admin:
        admin.set_deduplication(namespace, value)


@app.command
def set_message_ttl(namespace: str, seconds: int, /, *, reach: Reach = LOCAL) -> None:
    """Set the SECONDS after which the broker acknowledges messages of NAMESPACE itself."""
    with reach.open_admin() as admin:
        admin.set_message_ttl(namespace, seconds)


@app.command
def set_retention(namespace: str, /, *, minutes: int, size_mib: int, reach: Reach = LOCAL) -> None:
    """Set the time and size for which acknowledged messages of NAMESPACE are kept; -1 is unlimited, 0 keeps none."""
    with reach.open_admin() as admin:
        admin.set_retention(namespace, Retention(minutes, size_mib))


@app.command
def set_backlog_quota(
    namespace: str,
    /,
    *,
    policy: Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
    kind: Literal["destination_storage", "message_age"] = "destination_storage",
    limit_bytes: int = -1,
    limit_seconds: int = -1,
    reach: Reach = LOCAL,
) -> None:
    """Set what happens when a backlog of NAMESPACE passes a size or an age; -1 sets no limit."""
    with reach.open_admin() as admin:
        admin.set_backlog_quota(
            namespace, limit_bytes=limit_bytes, limit_seconds=limit_seconds, policy=policy, kind=kind
        )


@app.command
def set_schema_validation_enforced(namespace: str, value: bool, /, *, reach: Reach = LOCAL) -> None:
    """Set whether topics of NAMESPACE that have a schema reject producers without one: true or false."""
    with reach.open_admin() as admin:
        admin.set_schema_validation_enforced(namespace, value)
