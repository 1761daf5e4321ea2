"""Topics with an open transaction of a Java producer: consumers get nothing from its first message on."""

import pytest
from java_peer import run_java
from skip_bench import INDEXED, PLAIN

from pulsar_ext import MessageId
from pulsar_ext.spark.options import READ, parse_options
from pulsar_ext.spark.planning import state_of
from pulsar_ext.testing import Profile

pytestmark = [pytest.mark.standalone_only("is about the transactions of one broker, which a cluster sets up apart")]
OPEN = {"transactionCoordinatorEnabled": "true"}
BEFORE = 9


@pytest.mark.parametrize(
    "bench",
    [
        Profile("skip-transactions", "transactions", {**PLAIN.settings, **OPEN}),
        Profile("skip-indexed-transactions", "transactions, a message index", {**INDEXED.settings, **OPEN}),
    ],
    indirect=True,
    ids=lambda profile: profile.name,
)
def test_counts_end_before_an_open_transaction(bench):
    """Skips, ids of later messages, readings and Spark's plans end at the last message that consumers can get."""
    topic = bench.topic()
    bench.client.subscribe(topic, "s").close()
    run_java("SendInTransaction", bench.broker.service_url, topic, BEFORE, 2, 20)
    reader = bench.client.create_reader(topic, MessageId.earliest)
    ids = [reader.read_next(10_000).message_id() for _ in range(BEFORE)]
    found = [bench.client.message_id_after(topic, MessageId.earliest, count) for count in range(1, 31)]
    assert found == [*ids, *[None] * (30 - BEFORE)]
    assert [message.message_id() for message in bench.client.read(topic)] == ids
    urls = {"service.url": bench.broker.service_url, "admin.url": bench.broker.admin_url}
    state = state_of(parse_options({**urls, "topic": topic}, READ), topic, bench.admin.internal_stats(topic))
    assert (state.end.ledger, state.end.entry) == (ids[-1].ledger_id(), ids[-1].entry_id())
    for count in (BEFORE, BEFORE + 1, 30):
        planned = bench.client.skip_messages(topic, "s", count, dry_run=True)
        assert (planned.skipped_messages, planned.exact) == (BEFORE, count == BEFORE)
    bench.client.skip_messages(topic, "s", 30)
    assert bench.admin.internal_stats(topic).cursors["s"].mark_delete_position == (state.end.ledger, state.end.entry)
