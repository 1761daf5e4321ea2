"""Subscriptions and their cursors through the admin API: skipped, reset, expired, created and deleted."""

import time

import pytest
from stored import mark_delete, send_entries

from pulsar_ext.errors import (
    AdminConflict,
    AdminNotFound,
    AdminPrecondition,
)
from pulsar_ext.ids.position import Position

BOTH_CLIENTS = True


@pytest.mark.core
def test_skip_counts_entries_and_passes_holes(admin, client, topic):
    """Skipping goes across ledgers, leaves out what is acknowledged, does nothing for 0 and stops at the end."""
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
def test_reset_lands_where_it_says(admin, client, topic):
    """By position, included or not, by either end and by time; consumers then read on from there."""
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
def test_cursors_are_never_put_beyond_the_end(admin, client, topic):
    """The broker would go to the end, or past it and lose what comes; so nothing is moved and nothing created."""
    positions = send_entries(client, topic)
    before = mark_delete(admin, topic)
    last = positions[-1]
    for beyond in (Position(last.ledger_id, last.entry_id + 2), Position(last.ledger_id + 1000, 0)):
        for call in (
            lambda where=beyond: admin.reset_cursor(topic, "s", where),
            lambda where=beyond: admin.expire_messages(topic, "s", where),
            lambda where=beyond: admin.create_subscription(topic, "other", where),
        ):
            with pytest.raises(AdminNotFound, match="beyond the end"):
                call()
    assert mark_delete(admin, topic) == before
    assert admin.subscriptions(topic) == ("s",)


@pytest.mark.core
def test_expire_by_position(admin, client, topic):
    """Everything up to the position is acknowledged."""
    positions = send_entries(client, topic)
    admin.expire_messages(topic, "s", positions[14])
    deadline = time.monotonic() + 10
    while mark_delete(admin, topic) != positions[14]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.core
def test_subscriptions_come_and_go(admin, client, topic):
    """Created at each end and at a position; busy ones are deleted only by force; conflicts and absences are typed."""
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
def test_absent_subscriptions_are_not_created_by_looking(admin, client, topic):
    """The broker's position call would create a subscription; peek looks first, and all others say it is missing."""
    positions = send_entries(client, topic, 3)
    for call in (
        lambda: admin.peek(topic, "absent"),
        lambda: admin.skip_entries(topic, "absent", 1),
        lambda: admin.skip_all(topic, "absent"),
        lambda: admin.reset_cursor(topic, "absent", "earliest"),
        lambda: admin.reset_cursor_to_time(topic, "absent", 1),
        lambda: admin.expire_messages(topic, "absent", positions[0]),
        lambda: admin.analyze_backlog(topic, "absent"),
    ):
        with pytest.raises(AdminNotFound, match="absent") as caught:
            call()
        assert caught.value.status == 404
    assert admin.subscriptions(topic) == ("s",)
