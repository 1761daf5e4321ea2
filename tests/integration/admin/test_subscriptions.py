"""Subscriptions are skipped, reset, expired, created and deleted through the admin API."""

import time

import pytest
from stored import mark_delete, send_entries

from pulsar_ext.errors import (
    AdminConflict,
    AdminNotFound,
    AdminPrecondition,
    InvalidUse,
)
from pulsar_ext.ids.position import Position

BOTH_CLIENTS = True


@pytest.mark.core
def test_skip_counts_unacknowledged_entries(admin, client, topic):
    """Skipping crosses ledgers, excludes acknowledged entries, does nothing for 0 and stops at the end."""
    positions = send_entries(client, topic)
    admin.skip_entries(topic, "s", 0)
    assert mark_delete(admin, topic).entry_id == -1
    admin.skip_entries(topic, "s", 12)
    assert mark_delete(admin, topic) == positions[11]
    admin.skip_entries(topic, "s", 2**31 - 1)
    assert mark_delete(admin, topic) == positions[-1]
    admin.reset_cursor(topic, "s", "earliest")
    admin.skip_all(topic, "s")
    assert mark_delete(admin, topic) == positions[-1]


@pytest.mark.core
def test_reset_moves_to_the_given_position(admin, client, topic):
    """A cursor is reset to a position, included or not, to either end and to a time; consumers continue there."""
    positions = send_entries(client, topic)
    admin.reset_cursor(topic, "s", positions[12])
    assert mark_delete(admin, topic) == positions[11]
    admin.reset_cursor(topic, "s", positions[12], excluded=True)
    assert mark_delete(admin, topic) == positions[12]
    consumer = client.subscribe(topic, "s")
    assert consumer.receive(5000).data() == b"13"
    consumer.close()
    admin.reset_cursor(topic, "s", "latest")
    assert mark_delete(admin, topic) == positions[-1]
    admin.reset_cursor(topic, "s", "earliest")
    assert mark_delete(admin, topic).entry_id == -1
    admin.skip_all(topic, "s")
    admin.reset_cursor_to_time(topic, "s", 1)
    assert mark_delete(admin, topic).entry_id == -1
    end = Position(positions[-1].ledger_id, positions[-1].entry_id + 1)
    admin.reset_cursor(topic, "s", end)
    assert mark_delete(admin, topic) == positions[-1]


@pytest.mark.core
def test_position_beyond_the_end_raises(admin, client, topic):
    """A position beyond the end raises and moves nothing: the broker would move past it and lose later messages."""
    positions = send_entries(client, topic)
    before = mark_delete(admin, topic)
    last = positions[-1]
    for beyond in (Position(last.ledger_id, last.entry_id + 2), Position(last.ledger_id + 1000, 0)):
        for call in (
            lambda position=beyond: admin.reset_cursor(topic, "s", position),
            lambda position=beyond: admin.expire_messages(topic, "s", position),
            lambda position=beyond: admin.create_subscription(topic, "other", position),
        ):
            with pytest.raises(AdminNotFound, match="beyond the end"):
                call()
    assert mark_delete(admin, topic) == before
    assert admin.subscriptions(topic) == ("s",)


@pytest.mark.core
def test_expire_by_position(admin, client, topic):
    """All entries up to the position are acknowledged."""
    positions = send_entries(client, topic)
    admin.expire_messages(topic, "s", positions[14])
    deadline = time.monotonic() + 10
    while mark_delete(admin, topic) != positions[14]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.core
def test_expire_by_age(admin, client, topic):
    """Entries above the age are acknowledged and younger ones are not."""
    positions = send_entries(client, topic)
    admin.expire_messages_older_than(topic, "s", 3600)
    assert mark_delete(admin, topic) < positions[0]
    published = admin.entry(topic, *positions[-1]).publish_time / 1000
    time.sleep(max(0.0, published + 2 - time.time()))  # the age is the condition
    client.create_producer(topic).send(b"young")
    admin.expire_messages_older_than(topic, "s", 2)
    deadline = time.monotonic() + 10
    while mark_delete(admin, topic) != positions[-1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(InvalidUse, match="seconds must be an int from 1"):
        admin.expire_messages_older_than(topic, "s", 0)


@pytest.mark.core
def test_subscriptions_are_created_and_deleted(admin, client, topic):
    """Subscriptions are created at each end and at a position; one with consumers is deleted only by force."""
    positions = send_entries(client, topic)
    admin.create_subscription(topic, "at", positions[12])
    admin.create_subscription(topic, "end")
    assert admin.subscriptions(topic) == ("at", "end", "s")
    assert mark_delete(admin, topic, "at") == positions[11]
    assert mark_delete(admin, topic, "end") == positions[-1]
    with pytest.raises(AdminConflict):
        admin.create_subscription(topic, "end")
    consumer = client.subscribe(topic, "end")
    with pytest.raises(AdminPrecondition):
        admin.delete_subscription(topic, "end")
    consumer.close()
    admin.delete_subscription(topic, "end")
    admin.delete_subscription(topic, "at", force=True)
    with pytest.raises(AdminNotFound):
        admin.delete_subscription(topic, "end")


@pytest.mark.core
def test_peek_does_not_create_a_subscription(admin, client, topic):
    """`peek()` does not create a missing subscription as the broker's call would; all other calls report it missing."""
    positions = send_entries(client, topic, 3)
    for call in (
        lambda: admin.peek(topic, "absent"),
        lambda: admin.skip_entries(topic, "absent", 1),
        lambda: admin.skip_all(topic, "absent"),
        lambda: admin.reset_cursor(topic, "absent", "earliest"),
        lambda: admin.reset_cursor_to_time(topic, "absent", 1),
        lambda: admin.expire_messages(topic, "absent", positions[0]),
        lambda: admin.expire_messages_older_than(topic, "absent", 1),
        lambda: admin.analyze_backlog(topic, "absent"),
    ):
        with pytest.raises(AdminNotFound, match="absent") as caught:
            call()
        assert caught.value.status == 404
    assert admin.subscriptions(topic) == ("s",)
