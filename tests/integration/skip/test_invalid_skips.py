"""Skips that raise before anything is changed, and dry runs."""

import pytest
from skip_bench import PLAIN, on

import pulsar_ext
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import (
    AdminNotAllowed,
    AdminNotFound,
    AdminUnauthorized,
    AdminUnavailable,
    InvalidUse,
)

BOTH_CLIENTS = True


@pytest.mark.core
@on(PLAIN)
def test_bad_input(bench):
    """Each invalid argument has its own error, and nothing moves."""
    topic = bench.topic()
    bench.fill(topic, "plain", 5)
    parent = f"persistent://{bench.namespace}/parent"
    bench.admin.create_partitioned_topic(parent, 2)
    skip = bench.client.skip_messages
    for count in (-1, True, 1.0, "1", None, 2**63):
        with pytest.raises(InvalidUse, match=r"count must be an int from 0"):
            skip(topic, "s", count)
    with pytest.raises(InvalidUse, match="unit must be"):
        skip(topic, "s", 1, unit="batch")
    with pytest.raises(InvalidUse, match="subscription's name"):
        skip(topic, "", 1)
    with pytest.raises(InvalidUse, match="Invalid topic"):
        skip("a/b", "s", 1)
    with pytest.raises(AdminNotFound, match=r"Subscription 'other' not found.*subscriptions: 's'"):
        skip(topic, "other", 1)
    with pytest.raises(AdminNotFound, match="not found"):
        skip(topic + "-missing", "s", 1)
    with pytest.raises(AdminNotAllowed, match=r"partition-0 to .*partition-1"):
        skip(parent, "s", 1)
    with pytest.raises(AdminNotAllowed, match="non-persistent"):
        skip(topic.replace("persistent", "non-persistent", 1), "s", 1)
    assert bench.backlog(topic) == 5
    assert bench.admin.subscriptions(topic) == ("s",)


@pytest.mark.standalone_only("is about tokens, which mtls replaces by certificates", ways=("mtls",))
def test_without_permission_or_admin(pulsar_broker_factory, pulsar_namespace_factory):
    """A role without permission and an unreachable admin API raise their own errors."""
    broker = pulsar_broker_factory("auth")
    topic = f"persistent://{pulsar_namespace_factory(broker)}/topic"
    good = pulsar_ext.AuthenticationToken(broker.token)
    with PulsarAdmin(broker.admin_url, token=broker.token) as admin:
        admin.create_topic(topic)
        admin.create_subscription(topic, "s", "earliest")
        for url, token, kind in (
            (broker.admin_url, None, AdminUnauthorized),
            ("http://127.0.0.1:1", broker.token, AdminUnavailable),
        ):
            with PulsarAdmin(url, token=token, deadline_seconds=1) as wrong:
                client = pulsar_ext.Client(broker.service_url, authentication=good, admin=wrong)
                with pytest.raises(kind):
                    client.skip_messages(topic, "s", 1)
                client.close()
        assert admin.internal_stats(topic).cursors["s"].mark_delete_position.entry_id == -1


@pytest.mark.core
@on(PLAIN)
def test_dry_run(bench):
    """A dry run returns the cursor's target, and moves nothing."""
    topic = bench.topic()
    bench.fill(topic, "chunked")
    plan = bench.client.skip_messages(topic, "s", 10, dry_run=True)
    assert (plan.dry_run, plan.skipped_messages, plan.skipped_entries) == (True, 10, 20)
    assert bench.mark_delete(topic) == plan.position_before
    done = bench.client.skip_messages(topic, "s", 10)
    assert bench.mark_delete(topic) == done.position_after == plan.position_after
