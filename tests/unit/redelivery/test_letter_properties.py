"""Letters are named and counted as Java's are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext as pulsar
from pulsar_ext.errors import InvalidUse
from pulsar_ext.redelivery.letters import RetryTopics, check_retry, origin_properties, retried
from pulsar_ext.redelivery.tracker import RedeliveryOptions

TOPIC, OTHER = "persistent://public/default/a", "persistent://public/default/b"
PROPERTIES = st.dictionaries(st.text(), st.text())


@given(PROPERTIES, st.integers(1, 9), st.integers(0, 10**6))
def test_a_letter_counts_and_remembers_its_first_origin(properties, times, delay):
    """However often it is consumed later: the first origin and the application's properties stay, the count goes up."""
    properties.pop("RECONSUMETIMES", None)
    letter = dict(properties)
    for number in range(times):
        letter, count = retried(origin_properties(letter, f"topic-{number}", f"1:{number}:-1", f"s-{number}"), delay)
        assert count == number + 1
    origin = {
        "REAL_TOPIC": "topic-0",
        "REAL_SUBSCRIPTION": "s-0",
        "ORIGIN_MESSAGE_ID": "1:0:-1",
        "ORIGIN_MESSAGE_IDY_TIME": "1:0:-1",
    }
    assert letter == origin | properties | {"RECONSUMETIMES": str(times), "DELAY_TIME": str(delay)}


@pytest.mark.parametrize("count", ["", "-1", "x", "1.0", "²", " 1"])
def test_a_count_that_is_none_is_refused(count):
    """What another application wrote there is not guessed at."""
    with pytest.raises(InvalidUse, match="RECONSUMETIMES"):
        retried({"RECONSUMETIMES": count}, 0)


@pytest.mark.parametrize("delay", [-1, 1.0, True, None, "1", 2**63, 86_400_000_000_000_000])
def test_a_delay_is_whole_milliseconds(delay):
    """Anything else is refused."""
    with pytest.raises(InvalidUse, match="delay_ms"):
        check_retry(delay, None)


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}, ["a"], "a"])
def test_properties_are_texts(properties):
    """Anything else is refused."""
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
def test_topics_are_named_by_the_least_as_in_java(topic, policy, retry, expected):
    """The retry topic is read once, the dead letter topic is the policy's if it names one, and 16 times is the most."""
    named = policy and pulsar.ConsumerDeadLetterPolicy(*policy)
    topics = RetryTopics(topic, "s", named, retry)
    assert (topics.topics, topics.policy.max_redeliver_count, topics.policy.dead_letter_topic) == expected


def test_a_backoff_of_a_timeout_needs_the_timeout():
    """It adds to `unacked_messages_timeout_ms`: without that it would do nothing."""
    with pytest.raises(InvalidUse, match="unacked_messages_timeout_ms"):
        RedeliveryOptions(ack_timeout_redelivery_backoff=lambda _: 1).retry_topics(
            {"unacked_messages_timeout_ms": None}, splits=True
        )
