"""Names, properties and retry counts of letters, as in Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext as pulsar
from pulsar_ext.errors import InvalidUse
from pulsar_ext.redelivery.letters import RetryTopics, check_retry, count_retry, origin_properties
from pulsar_ext.redelivery.tracker import RedeliveryOptions

TOPIC, OTHER = "persistent://public/default/a", "persistent://public/default/b"
PROPERTIES = st.dictionaries(st.text(), st.text())


@given(PROPERTIES, st.integers(1, 9), st.integers(0, 10**6))
def test_letter_counts_and_keeps_its_first_origin(properties, times, delay):
    """After any number of retries the first origin and the application's properties stay, and the count is exact."""
    properties.pop("RECONSUMETIMES", None)
    letter = dict(properties)
    for number in range(times):
        letter, count = count_retry(
            origin_properties(letter, f"topic-{number}", f"1:{number}:-1", f"s-{number}"), delay
        )
        assert count == number + 1
    origin = {
        "REAL_TOPIC": "topic-0",
        "REAL_SUBSCRIPTION": "s-0",
        "ORIGIN_MESSAGE_ID": "1:0:-1",
        "ORIGIN_MESSAGE_IDY_TIME": "1:0:-1",
    }
    assert letter == origin | properties | {"RECONSUMETIMES": str(times), "DELAY_TIME": str(delay)}


@pytest.mark.parametrize("count", ["", "-1", "x", "1.0", "²", " 1"])
def test_invalid_retry_count_raises(count):
    """A property that another application wrote is not interpreted."""
    with pytest.raises(InvalidUse, match="RECONSUMETIMES"):
        count_retry({"RECONSUMETIMES": count}, 0)


@pytest.mark.parametrize("delay", [-1, 1.0, True, None, "1", 2**63, 86_400_000_000_000_000])
def test_invalid_delay_raises(delay):
    """A delay must be an int of milliseconds in range."""
    with pytest.raises(InvalidUse, match="delay_ms"):
        check_retry(delay, None)


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}, ["a"], "a"])
def test_invalid_properties_raise(properties):
    """Properties must be a dict of str."""
    with pytest.raises(InvalidUse, match="properties"):
        check_retry(0, properties)


@pytest.mark.parametrize(
    ("topic", "policy", "retry", "expected"),
    [
        ("a", None, None, (["a", f"{TOPIC}-s-RETRY"], 16, f"{TOPIC}-s-DLQ")),
        ([TOPIC, "b"], (3, None), None, ([TOPIC, "b", f"{OTHER}-s-RETRY"], 3, f"{OTHER}-s-DLQ")),
        ("a", (3, "dead"), "again", (["a", "again"], 3, "dead")),
        (["a", "again"], None, TOPIC, (["a", "again"], 16, f"{TOPIC}-s-DLQ")),
    ],
)
def test_default_topics_are_named_as_in_java(topic, policy, retry, expected):
    """The retry topic is read once, the policy's dead letter topic is used, and the default is 16 retries."""
    named = policy and pulsar.ConsumerDeadLetterPolicy(*policy)
    topics = RetryTopics(topic, "s", named, retry)
    assert (topics.topics, topics.policy.max_redeliver_count, topics.policy.dead_letter_topic) == expected


def test_timeout_backoff_needs_a_timeout():
    """A timeout backoff is added to `unacked_messages_timeout_ms`, so it is invalid without it."""
    with pytest.raises(InvalidUse, match="unacked_messages_timeout_ms"):
        RedeliveryOptions(ack_timeout_redelivery_backoff=lambda _: 1).retry_topics(
            {"unacked_messages_timeout_ms": None}, is_shared=True
        )
