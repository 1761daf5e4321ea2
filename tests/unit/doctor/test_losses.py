"""Rules about messages that will be lost, rejected or stored twice, with facts that show the problem and without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_facts import NOW, TOPIC, entry_of, facts_of, subscription_of

from pulsar_ext.admin import SchemaInfo
from pulsar_ext.doctor.examination import wanted_entries
from pulsar_ext.doctor.rules import find_blocked_slots, find_forgotten, find_lagging_readers, find_schema_misfits

HOUR = 3_600_000
JSON = SchemaInfo(0, "JSON", "", {})


def with_a_reader(retention=None, mark="2:4", **more):
    """Return facts of two full ledgers and an open one, a subscription at `mark`, and a reader that has read two."""
    cursors = {"s": (mark, "[]", None), "r": ("1:1", "[]", None)}
    subscriptions = {"s": subscription_of(), "r": {**subscription_of(consumers=[{}]), "isDurable": False}}
    policies = {} if retention is None else {"retention_policies": retention}
    entries = [entry_of(1, 2, publish_time=NOW - HOUR)]
    ledgers = [(1, 5), (2, 5), (3, 5)]
    return facts_of(ledgers, cursors, subscriptions, entries=entries, policies=policies, **more)


def kept(minutes, size):
    """Return a retention as the broker's JSON has it."""
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def test_lagging_reader_is_found():
    """Unread entries kept by a retention only are found, with an error once it is over, and a longer one proposed."""
    [found] = find_lagging_readers(with_a_reader(kept(60, -1)))
    assert (found.severity, found.subscription, found.evidence["unread_entries"]) == ("error", "r", 8)
    assert found.evidence["first"] == "1:2"
    assert found.remedies[0].command == "pulsar-ext admin set-retention public/default --minutes=600 --size-mib=-1"
    [found] = find_lagging_readers(with_a_reader(kept(70, 1000)))
    assert found.severity == "warning"
    [found] = find_lagging_readers(with_a_reader())
    assert "there is no retention" in found.what


@pytest.mark.parametrize("retention", [(1000, -1), (-1, -1), (-1, 100)])
def test_reader_within_its_retention_is_not_found(retention):
    """A retention with time left or without a limit is not a finding."""
    assert not list(find_lagging_readers(with_a_reader(kept(*retention))))


def test_unacknowledged_ledgers_protect_a_reader():
    """Entries that a subscription has not acknowledged, and the open ledger, are kept for the reader."""
    assert not list(find_lagging_readers(with_a_reader(mark="1:1")))
    one = facts_of([(1, 5)], {"r": ("1:1", "[]", None)}, {"r": {**subscription_of(), "isDurable": False}})
    assert not list(find_lagging_readers(one))


def test_first_unread_entry_of_a_reader_is_inspected():
    """A reader's first unread entry is among the inspected entries."""
    facts = with_a_reader(mark="3:4", deduplicationStatus="Enabled")
    assert [str(one) for one in wanted_entries(facts, 10)] == ["1:2"]


def test_schema_misfits_are_found():
    """Entries without a version and of a deleted version are distinguished, and the skip covers both."""
    entries = [
        entry_of(1, 0, schema_version=None),
        entry_of(1, 1, schema_version=bytes(8)),
        entry_of(1, 2, schema_version=(7).to_bytes(8, "big")),
        entry_of(1, 3, schema_version=None, marker_type=1),
    ]
    facts = facts_of([(1, 5)], {"s": ("1:-1", "[]", None)}, entries=entries)
    assert not list(find_schema_misfits(facts))  # schemas were not requested
    [found] = find_schema_misfits(replace(facts, schemas={0: JSON}))
    assert (found.severity, found.evidence["without"], found.evidence["gone"]) == ("error", ["1:0"], {"1:2": 7})
    assert found.remedies[-1].command == f"pulsar-ext skip {TOPIC} s 3 --unit entry"
    [found] = find_schema_misfits(replace(facts, schemas={0: JSON, 7: JSON}))
    assert (found.severity, found.evidence["gone"]) == ("warning", {})


def test_entries_that_fit_their_schema_are_not_found():
    """A topic without a schema, entries of existing versions and acknowledged entries are not findings."""
    plain = [entry_of(1, 0)]
    facts = facts_of([(1, 5)], {"s": ("1:-1", "[]", None)}, entries=plain, limits={"entries": 5})
    assert not list(find_schema_misfits(replace(facts, schemas={})))
    done = facts_of([(1, 5)], {"s": ("1:4", "[]", None)}, entries=plain)
    assert not list(find_schema_misfits(replace(done, schemas={0: JSON})))


def deduplicating(properties, publishers=("p",), entries=(), mark="1:4", **more):
    """Return facts of a topic whose snapshot of sequence ids is at its fifth entry."""
    facts = facts_of(
        [(1, 10)],
        {"pulsar.dedup": (mark, "[]", None)},
        {},
        entries=entries,
        publishers=[{"producerName": one} for one in publishers],
        **{"deduplicationStatus": "Enabled", **more},
    )
    facts.internal.cursors["pulsar.dedup"].raw["properties"] = properties
    return facts


def test_forgotten_producer_is_found():
    """A connected producer that has sent, but is neither in the snapshot nor after it, is found with its last id."""
    entries = [entry_of(1, 2, sequence_id=3, highest_sequence_id=8), entry_of(1, 7, producer_name="other")]
    facts = deduplicating({"other": 1}, entries=entries)
    [found] = find_forgotten(facts)
    assert found.evidence["producers"] == {"p": {"last_entry": "1:2", "sequence_id": 8}}
    assert found.evidence["producers_in_snapshot"] == 1
    assert len(wanted_entries(facts, 4)) == 2  # the topic's last entries


def test_known_producers_are_not_found():
    """Producers in the snapshot, after it or not connected, and topics without deduplication are not findings."""
    before, after = entry_of(1, 2), entry_of(1, 6)
    assert not list(find_forgotten(deduplicating({"p": 2}, entries=[before])))
    assert not list(find_forgotten(deduplicating({}, entries=[before, after])))
    assert not list(find_forgotten(deduplicating({}, (), entries=[before])))
    assert not list(find_forgotten(deduplicating({}, entries=[before], deduplicationStatus="Disabled")))
    assert not list(find_forgotten(deduplicating({}, entries=[])))
    assert wanted_entries(deduplicating({"p": 2}), 4) == []


def holding(acked=0, attempts=3):
    """Return statistics of two Key_Shared consumers; the first holds messages of a slot that moved to the second."""
    held = {
        "drainingHashes": [{"hash": 7, "unackMsgs": 4, "blockedAttempts": attempts}],
        "lastAckedTimestamp": acked,
        "keyHashRangeArrays": [[8, 65535]],
    }
    return {"s": subscription_of("Key_Shared", consumers=[held, {"keyHashRangeArrays": [[0, 7]]}])}


def test_blocked_slots_are_found():
    """A slot blocked by an idle consumer is found with its new consumer, unless it works or nothing is blocked."""
    cursors = {"s": ("1:-1", "[]", None)}
    facts = facts_of([(1, 5)], cursors, holding())
    [found] = find_blocked_slots(replace(facts, later=[(facts.stats, facts.internal)]))
    assert (found.evidence["held_by"], found.evidence["held_messages"]) == ({"c0": "/10.0.0.1:5"}, 4)
    assert (found.evidence["slots"], found.evidence["waiting_consumers"]) == ([7], ["c1"])
    assert not list(find_blocked_slots(facts_of([(1, 5)], cursors, holding(acked=NOW))))
    assert not list(find_blocked_slots(facts_of([(1, 5)], cursors, holding(attempts=0))))
    done = facts_of([(1, 5)], cursors, {"s": subscription_of("Key_Shared", consumers=[{}])})
    assert not list(find_blocked_slots(replace(facts, later=[(done.stats, done.internal)])))
