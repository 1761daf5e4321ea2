"""Each rule of the diagnosis, with facts that show the problem and facts that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_facts import NOW, TOPIC, entry_of, facts_of, subscription_of

from pulsar_ext.doctor.examination import wanted_entries
from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits
from pulsar_ext.doctor.rules import (
    RULES,
    find_chunks,
    find_duplicates,
    find_expiring,
    find_holes,
    find_kept_ledgers,
    find_mixed_batches,
    find_never_compacted,
    find_quotas,
    find_stalled,
    find_storms,
    find_unconsumed,
    find_uncovered_slots,
    find_unread_letters,
)
from pulsar_ext.errors import InvalidUse

HOLE = {"s": ("1:1", "[(1:2..1:9]]", "1:10")}
"""The third of ten entries is not acknowledged."""
LONG_AGO = NOW - 3_600_000


def _message(key=None):
    """Return one message of a batch, as encoded in an entry."""
    metadata = (b"" if key is None else b"\x12\x01" + key) + b"\x18\x01"
    return len(metadata).to_bytes(4, "big") + metadata + b"x"


@pytest.mark.parametrize(
    ("keys", "mixed"),
    [((None, None), 0), ((b"a", None, b"a"), 0), ((None, b"a"), 2), ((b"a", b"b", None), 2)],
    ids=["keyless", "one key", "keyless first", "two keys"],
)
def test_keyless_messages_mix_no_batch(keys, mixed):
    """Messages without a key belong to no slot, unless one comes first in a batch with keys."""
    payload = b"".join(map(_message, keys))
    batch = replace(entry_of(1, 0), num_messages_in_batch=len(keys), payload=payload)
    subscriptions = {"s": subscription_of("Key_Shared", consumers=[{}, {}])}
    found = list(find_mixed_batches(facts_of([(1, 1)], {"s": ("1:-1", "[]", None)}, subscriptions, entries=[batch])))
    assert [one.evidence["batches"]["1:0"]["slots"] for one in found] == [mixed] * bool(mixed)


def test_hole_is_found():
    """A hole is found with its position, its holder and the acknowledged entries after it; the skip covers it only."""
    holder = {"unackedMessages": 1}
    [found] = find_holes(facts_of([(1, 10)], HOLE, {"s": subscription_of(consumers=[holder, {}])}))
    assert (found.kind, found.severity, found.subscription) == ("holes", "warning", "s")
    assert found.evidence["holes"] == [{"first": "1:2", "last": "1:2", "entries": 1}]
    assert found.evidence["acknowledged_behind"] == 7
    assert [one["consumer"] for one in found.evidence["held_by"]] == ["c0"]
    assert found.remedies[1].command == f"pulsar-ext skip {TOPIC} s 1 --unit entry"
    assert found.remedies[1].dry_run.endswith("--dry-run")


def test_hole_without_a_holder_is_an_error():
    """A hole that no consumer holds is an error."""
    [found] = find_holes(facts_of([(1, 10)], HOLE, {"s": subscription_of(consumers=[{}])}))
    assert (found.severity, found.evidence["held_by"]) == ("error", [])


def test_backlog_without_holes_is_not_found():
    """A backlog without holes, a hole with few entries after it and delayed messages are not findings."""
    assert not list(find_holes(facts_of([(1, 10)], {"s": ("1:1", "[]", None)})))
    assert not list(find_holes(facts_of([(1, 10)], HOLE, limits={"hole_distance": 8})))
    delayed = entry_of(1, 2, deliver_at_time=NOW + 1)
    delayed_only = {"s": subscription_of(msgDelayed=1)}
    assert not list(find_holes(facts_of([(1, 10)], HOLE, delayed_only, entries=[delayed])))


def test_new_and_closing_holes_are_not_found():
    """A hole that was published a moment ago, or was closed during the watch, is not a finding."""
    assert not list(find_holes(facts_of([(1, 10)], HOLE, entries=[entry_of(1, 2, publish_time=NOW - 1)])))
    facts = facts_of([(1, 10)], HOLE)
    closed = facts_of([(1, 10)], {"s": ("1:9", "[]", None)})
    assert len(list(find_holes(replace(facts, later=[(facts.stats, facts.internal)])))) == 1
    assert not list(find_holes(replace(facts, later=[(closed.stats, closed.internal)])))


def test_acknowledgements_inside_batches_are_counted():
    """The difference between delivered and held messages is acknowledged inside batches."""
    batch = entry_of(1, 2, num_messages_in_batch=10)
    held = {"s": subscription_of(consumers=[{"unackedMessages": 6}])}
    [found] = find_holes(facts_of([(1, 10)], HOLE, held, entries=[batch]))
    assert found.evidence["messages_acknowledged_in_batches"] == 4
    assert found.evidence["batches"] == {"1:2": 10}


def test_incomplete_chunked_messages_are_found():
    """Chunks of partly acknowledged messages and of messages without an end are distinguished."""
    old = {"num_chunks": 3, "total_chunk_size": 300, "publish_time": LONG_AGO}
    entries = [
        entry_of(1, 0, uuid="a", chunk_id=0, sequence_id=0, **old),
        entry_of(1, 1, uuid="a", chunk_id=1, sequence_id=0, **old),
        entry_of(1, 2, uuid="a", chunk_id=2, sequence_id=0, **old),
        entry_of(1, 3, uuid="b", chunk_id=0, sequence_id=1, **old),
    ]
    facts = facts_of([(1, 4)], {"s": ("1:-1", "[(1:1..1:2]]", None)}, entries=entries)
    [found] = find_chunks(facts)
    assert found.severity == "error"
    assert [one["acknowledged_chunks"] for one in found.evidence["messages"]] == [[2], []]
    assert (found.evidence["chunks"], found.evidence["bytes"]) == (3, 300)
    assert found.remedies[-1].command == f"pulsar-ext skip {TOPIC} s 3 --unit entry"
    recent = [replace(one, publish_time=NOW) for one in entries]
    assert not list(find_chunks(facts_of([(1, 4)], {"s": ("1:-1", "[(1:1..1:2]]", None)}, entries=recent)))


def test_stalled_consumers_are_found():
    """Idle consumers without permits, with negative permits or blocked are found."""
    asked = {"lastConsumedFlowTimestamp": LONG_AGO}
    consumers = [
        {"availablePermits": 0, **asked},
        {"availablePermits": -9, **asked},
        {"blockedConsumerOnUnackedMsgs": True, **asked},
        {"availablePermits": 0, "lastConsumedFlowTimestamp": NOW - 1},
        asked,
    ]
    cursors = {"s": ("1:-1", "[]", None)}
    [found] = find_stalled(facts_of([(1, 10)], cursors, {"s": subscription_of(consumers=consumers)}))
    assert [one["consumer"] for one in found.evidence["consumers"]] == ["c0", "c1", "c2"]
    assert found.severity == "warning"
    [alone] = find_stalled(facts_of([(1, 10)], cursors, {"s": subscription_of(consumers=consumers[:1])}))
    assert alone.severity == "error"
    assert not list(find_stalled(facts_of([(1, 10)], cursors, {"s": subscription_of(consumers=consumers, backlog=0)})))


@pytest.mark.parametrize(("counts", "found"), [((10, 15, 20), 1), ((10, 20, 20), 0), ((10, 10, 10), 0)])
def test_redelivery_storm_is_found(counts, found):
    """Deliveries between all samples with an unmoved cursor are a storm; one redelivery is not."""
    samples = [
        facts_of([(1, 5)], {"s": ("1:-1", "[]", None)}, {"s": subscription_of(consumers=[{}], msgOutCounter=count)})
        for count in counts
    ]
    facts = replace(samples[0], later=[(one.stats, one.internal) for one in samples[1:]])
    storms = list(find_storms(facts))
    assert [one.evidence["delivered"] for one in storms] == [10] * found
    moved = facts_of([(1, 5)], {"s": ("1:0", "[]", None)}, {"s": subscription_of(consumers=[{}], msgOutCounter=20)})
    assert not list(find_storms(replace(facts, later=[*facts.later[:1], (moved.stats, moved.internal)])))


def test_subscription_without_consumers_is_found():
    """A subscription with a backlog and no consumer is found, unless its consumer left just now."""
    cursors = {"s": ("1:4", "[]", None)}
    [found] = find_unconsumed(facts_of([(1, 10)], cursors))
    assert (found.evidence["entries"], found.evidence["first"]) == (5, "1:5")
    left = {"s": subscription_of(lastConsumedFlowTimestamp=NOW - 1)}
    assert not list(find_unconsumed(facts_of([(1, 10)], cursors, left)))
    assert not list(find_unconsumed(facts_of([(1, 10)], {"s": ("1:9", "[]", None)})))
    assert not list(find_unconsumed(facts_of([(1, 10)], {"__compaction": ("1:4", "[]", None)})))


def test_uncovered_slots_are_found():
    """Slots that no sticky range covers are found; complete ranges and slots split by the broker are not."""
    cursors = {"s": ("1:-1", "[]", None)}

    def found(ranges, mode="STICKY"):
        stats = subscription_of("Key_Shared", consumers=[{"keyHashRanges": [ranges]}], keySharedMode=mode)
        return list(find_uncovered_slots(facts_of([(1, 1)], cursors, {"s": stats})))

    [one] = found("[0, 99]")
    assert one.evidence["uncovered"] == "100-65535"
    assert not found("[0, 65535]")
    assert not found("[0, 99]", "AUTO_SPLIT")


def test_unread_dead_letters_are_found():
    """Dead letters without a subscription are an error, or a warning with a retention; other topics are not found."""
    name = f"{TOPIC}-s-DLQ"
    [found] = find_unread_letters(facts_of([(1, 3)], {}, name=name))
    assert (found.severity, found.evidence["entries"]) == ("error", 3)
    kept = {"retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}}
    assert [one.severity for one in find_unread_letters(facts_of([(1, 3)], {}, name=name, policies=kept))] == [
        "warning"
    ]
    assert not list(find_unread_letters(facts_of([(1, 3)], {})))
    assert not list(find_unread_letters(facts_of([(1, 3)], {"s": ("1:-1", "[]", None)}, name=name)))


def test_expiring_messages_are_found():
    """A message near the end of its time to live is found, and the remedy sets one longer than its age."""
    cursors = {"s": ("1:-1", "[]", None)}
    old = entry_of(1, 0, publish_time=NOW - 90_000)
    [found] = find_expiring(facts_of([(1, 3)], cursors, entries=[old], policies={"message_ttl_in_seconds": 100}))
    assert (found.severity, found.evidence["oldest"], found.evidence["age_seconds"]) == ("warning", "1:0", 90.0)
    assert "set-message-ttl public/default 1000" in found.remedies[0].command
    assert not list(find_expiring(facts_of([(1, 3)], cursors, entries=[old])))
    assert not list(find_expiring(facts_of([(1, 3)], cursors, entries=[old], policies={"message_ttl_in_seconds": 200})))


@pytest.mark.parametrize(("used", "severity"), [(79, []), (80, ["warning"]), (120, ["error"])])
def test_quota_is_found_from_its_share_on(used, severity):
    """A quota is a warning from its share on, and an error when it is used up; the slowest subscription is named."""
    cursors = {"fast": ("1:2", "[]", None), "slow": ("1:-1", "[]", None)}
    found = list(find_quotas(facts_of([(1, 3)], cursors, backlogSize=used, backlogQuotaLimitSize=100)))
    assert [one.severity for one in found] == severity
    assert {one.subscription for one in found} <= {"slow"}


def test_kept_ledgers_are_found():
    """Full ledgers that one subscription alone keeps are found; a few, or those that others keep too, are not."""
    ledgers = [(1, 5), (2, 5), (3, 5), (4, 1)]
    cursors = {"slow": ("1:1", "[]", None), "fast": ("3:4", "[]", None)}
    [found] = find_kept_ledgers(facts_of(ledgers, cursors))
    assert (found.subscription, found.evidence["ledgers"], found.evidence["bytes"]) == ("slow", [1, 2, 3], 150)
    assert not list(find_kept_ledgers(facts_of(ledgers, cursors, limits={"kept_ledgers": 4})))
    assert not list(find_kept_ledgers(facts_of(ledgers, {**cursors, "third": ("1:1", "[]", None)})))
    assert not list(find_kept_ledgers(facts_of(ledgers, cursors, only="fast")))


def test_topic_that_was_never_compacted_is_found():
    """A topic above its threshold is found until a compaction succeeds; below it or without one it is not."""
    policies = {"compaction_threshold": 20}
    [found] = find_never_compacted(facts_of([(1, 3)], {}, policies=policies))
    assert (found.evidence["bytes"], found.evidence["threshold"]) == (30, 20)
    done = {"lastCompactionSucceedTimestamp": NOW}
    assert not list(find_never_compacted(facts_of([(1, 3)], {}, policies=policies, compaction=done)))
    assert not list(find_never_compacted(facts_of([(1, 2)], {}, policies=policies)))
    assert not list(find_never_compacted(facts_of([(1, 3)], {})))


def test_repeated_and_decreasing_sequence_ids_are_found():
    """Repeated and decreasing ids are distinguished; with deduplication, or in order, nothing is found."""
    entries = [entry_of(1, at, sequence_id=one) for at, one in enumerate([0, 1, 2, 5, 1, 4])]
    cursors = {"s": ("1:-1", "[]", None)}
    [found] = find_duplicates(facts_of([(1, 6)], cursors, entries=entries))
    assert found.evidence["again"] == [["1:1", "1:4"]]
    assert found.evidence["backwards"] == [{"entry": "1:5", "after": 5, "sequence_id": 4}]
    assert not list(find_duplicates(facts_of([(1, 6)], cursors, entries=entries, deduplicationStatus="Enabled")))
    assert not list(find_duplicates(facts_of([(1, 6)], cursors, entries=entries[:4])))


def test_first_and_last_entries_are_inspected():
    """The first unacknowledged entries and the topic's last ones are inspected, within the limit and each once."""
    facts = facts_of([(1, 100)], {"a": ("1:4", "[]", None), "b": ("1:4", "[]", None)})
    wanted = wanted_entries(facts, 10)
    assert [one.entry_id for one in wanted] == [*range(5, 15), *range(95, 100)]
    assert wanted_entries(facts, 0) == []


def test_healthy_topic_has_no_findings():
    """A topic whose subscription has read everything has no findings."""
    facts = facts_of([(1, 5), (2, 5)], {"s": ("2:4", "[]", None)}, {"s": subscription_of(backlog=0, consumers=[{}])})
    assert [found for rule in RULES for found in rule(facts)] == []


def test_exit_status_follows_severity():
    """The status is 0 without findings, 1 with warnings, 2 with an error; the dict has the evidence."""
    [hole] = find_holes(facts_of([(1, 10)], HOLE))
    warning = replace(hole, severity="warning")
    assert [Diagnosis(one, 1).exit_status for one in ((), (warning,), (warning, hole))] == [0, 1, 2]
    assert Diagnosis((hole,), 1).to_dict()["findings"][0]["evidence"]["entries"] == 1


@pytest.mark.parametrize("wrong", [{"entries": -1}, {"quota_share": 1.5}, {"max_requests": 0}, {"hole_distance": "x"}])
def test_invalid_limits_raise(wrong):
    """An invalid limit raises `InvalidUse`."""
    with pytest.raises(InvalidUse):
        DiagnosisLimits(**wrong)
