"""For which consumers messages may be fetched ahead."""

from __future__ import annotations

import pulsar
import pytest

from pulsar_ext.ahead import take_over_batches

ARGUMENTS = {
    "receiver_queue_size": 1_000,
    "batch_receive_policy": None,
    "message_listener": None,
    "unacked_messages_timeout_ms": None,
    "dead_letter_policy": None,
}


@pytest.mark.parametrize(("queue", "at_once"), [(200, 50), (401, 100), (1_000, 250), (1_600, 400), (100_000, 400)])
def test_a_fetch_takes_a_quarter_of_the_queue_at_most(queue, at_once):
    """And never more than 400: that many more are out of the broker's hands."""
    named = ARGUMENTS | {"receiver_queue_size": queue}
    assert take_over_batches(named, screens=False)
    policy = named["batch_receive_policy"].policy()
    assert (policy.getMaxNumMessages(), policy.getMaxNumBytes(), policy.getTimeoutMs()) == (at_once, 1 << 20, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"receiver_queue_size": 199},
        {"receiver_queue_size": 0},
        {"receiver_queue_size": "many"},
        {"batch_receive_policy": pulsar.ConsumerBatchReceivePolicy(10, -1, 100)},
        {"message_listener": print},
        {"unacked_messages_timeout_ms": 10_000},
        {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3)},
    ],
)
def test_what_counts_from_the_queue_or_is_the_applications_own_stays(changed):
    """A small queue, a policy, a listener, an acknowledgement timeout, dead letters: the arguments stay as they are."""
    named = ARGUMENTS | changed
    assert not take_over_batches(named, screens=False)
    assert named == ARGUMENTS | changed


def test_a_consumer_that_looks_at_each_message_fetches_none_ahead():
    """What it looks at is about to be received."""
    named = dict(ARGUMENTS)
    assert not take_over_batches(named, screens=True)
    assert named == ARGUMENTS
