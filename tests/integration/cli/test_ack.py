"""`pulsar-ext ack` acknowledges messages by their ids."""

from __future__ import annotations

import json

import pytest
from commands import call_command

pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))


@pytest.mark.core
def test_ids_are_acknowledged_all_or_none(broker, client, topic, admin):
    """Ids as text and bytes are acknowledged; a dry run and a missing message acknowledge nothing."""
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    first, second, _ = [producer.send(b"x") for _ in range(3)]
    urls = ("--url", broker.service_url, "--admin-url", broker.admin_url)

    def ack(*arguments):
        return call_command("ack", topic, "s", *arguments, *urls)

    assert ack(first.to_text(), "--dry-run")[:2] == (0, "would acknowledge 1 message\n")
    status, output, errors = ack(first.to_text(), "99999:0")
    assert (status, output) == (1, "")
    assert "Entry 99999:0 not found" in errors
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 3
    assert ack(first.to_text())[:2] == (0, "acknowledged 1 message\n")
    assert ack(first.to_text(), second.serialize().hex())[:2] == (0, "acknowledged 1 message; acknowledged before: 1\n")
    found = json.loads(ack(second.to_text(), "--json")[1])
    assert found == {"requested": 1, "acknowledged": 0, "already_acknowledged": 1, "dry_run": False}
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 1
    assert ack()[0] == 1
