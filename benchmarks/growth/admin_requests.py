"""Admin API requests: ids that are resolved, and messages that are skipped."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Final

from benchmarks.growth.line import OURS, Bench, Line, Watch, fill_entries, keep_all
from benchmarks.steps import fill
from pulsar_ext import MessageId, SkipInsideMessage
from pulsar_ext.testing import PROFILES

__all__ = ["LINES"]

_BATCHES_ENDED_EARLY: Final = 20
"""Divisor for additional messages, so that the last batch does not end where a skip does."""


def _prepare_ids(bench: Bench) -> None:
    keep_all(bench)
    fill_entries(bench, bench.size)


def _run_ids(bench: Bench, watch: Watch) -> None:
    """Resolve ids that have only ledger and entry, one by one."""
    with bench.admin() as admin, bench.open(_counting(bench, watch)) as client:
        sizes = admin.internal_stats(bench.topic).ledger_sizes()
        places = ((ledger, entry) for ledger, entries in sizes for entry in range(entries))
        ids = [MessageId(-1, *place) for place in islice(places, bench.size)]
        with watch:
            for one in ids:
                client.resolve_message_id(bench.topic, one)


def _prepare_skip(bench: Bench) -> None:
    keep_all(bench)
    with bench.open() as client:
        fill(client, bench.topic, bench.size + max(bench.size // _BATCHES_ENDED_EARLY, 1000))


def _run_skip(bench: Bench, watch: Watch) -> None:
    """Skip messages with the broker's entry index; a skip that would end inside a batch ends before it."""
    name = uuid.uuid4().hex
    with bench.admin() as admin, bench.open(_counting(bench, watch)) as client:
        admin.create_subscription(bench.topic, name, "earliest")
        count = bench.size
        try:
            client.skip_messages(bench.topic, name, count, dry_run=True)
        except SkipInsideMessage as error:
            count = error.below
        watch.requests = 0
        with watch:
            skipped = client.skip_messages(bench.topic, name, count)
        assert skipped.skipped_messages == count
        admin.delete_subscription(bench.topic, name)


def _counting(bench: Bench, watch: Watch) -> object:
    """Return an admin API that counts its requests."""
    watch.requests = 0

    def count(_path: str) -> None:
        watch.requests = (watch.requests or 0) + 1

    return bench.admin().check_requests(count)


LINES: Final = (
    Line(
        "ids of bare numbers, resolved",
        "ids",
        (10, 100, 300, 1_000, 3_000),
        (10, 50, 200),
        _run_ids,
        _prepare_ids,
        OURS,
    ),
    Line(
        "messages skipped, by index",
        "messages",
        (1_000, 10_000, 100_000, 300_000, 1_000_000),
        (1_000, 5_000, 20_000),
        _run_skip,
        _prepare_skip,
        OURS,
        PROFILES["entry-index"],
        far=100_000_000,
    ),
)
