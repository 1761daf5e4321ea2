"""Helpers of the Spark tests: topics with every kind of message, options, and queries."""

from __future__ import annotations

import contextlib
import warnings

import pulsar
from encryption_keys import encryption_key_files
from reach import Reach

from pulsar_ext.admin import Retention

CHUNKED_BYTES = 230_000
KINDS = {
    "plain": {},
    "batched": {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 60_000},
    "key-batched": {
        "batching_enabled": True,
        "batching_type": pulsar.BatchingType.KeyBased,
        "batching_max_publish_delay_ms": 60_000,
    },
    "chunked": {"chunking_enabled": True},
}


def keep_everything(admin, topic):
    """Let the topic's namespace keep messages without a subscription."""
    admin.set_retention("/".join(topic.removeprefix("persistent://").split("/")[:2]), Retention(-1, -1))


def fill(client, topic, count=60, *, kinds=tuple(KINDS), start=0):
    """Send `count` messages of each kind, whose values begin with consecutive numbers; return the next number."""
    number = start
    for kind in kinds:
        producer = client.create_producer(topic, block_if_queue_full=True, **KINDS[kind])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tests need batches that mix keys
            for index in range(count):
                size = CHUNKED_BYTES if kind == "chunked" and index % 3 == 0 else 0
                producer.send_async(
                    str(number).encode().ljust(size),
                    None,
                    partition_key=f"key-{index % 17}" if index % 5 else None,
                    ordering_key="order" if index % 11 == 3 else None,
                    properties={"number": str(number)} if index % 2 else None,
                    event_timestamp=1_000_000 + index if index % 3 else None,
                )
                number += 1
        producer.flush()
        producer.close()
    return number


def key_files(directory):
    """Create a key pair for end-to-end encryption; return the options of a read and of a write that name its files."""
    private, public = map(str, encryption_key_files(directory))
    return {"cryptoPrivateKeyFile": private}, {"cryptoPublicKeyFile": public, "encryptionKey": "app"}


def roll_over(admin, topic):
    """Close the topic's ledger, so that the next message opens another."""
    admin.unload(topic)


def numbers(rows):
    """Return the numbers of rows, sorted."""
    return sorted(int(bytes(row.value).strip()) for row in rows)


def options_of(broker, topic, **more):
    """Return the options of a read or a write."""
    return {**Reach.of(broker).spark_options(), "topic": topic, **more}


@contextlib.contextmanager
def running(query, seconds=60):
    """Stop a streaming query at the end, also after an error."""
    try:
        yield query
    finally:
        query.stop()


def archive_once(spark, source, path, checkpoint, **more):
    """Run a query from the source to Parquet over the existing messages; return its progress reports."""
    frame = spark.readStream.format("pulsar").options(**source, **more).load()
    query = (
        frame.select("value", "__messageId")
        .writeStream.format("parquet")
        .option("path", str(path))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return query.recentProgress


def drop_last_commit(checkpoint):
    """Delete the newest entry of a query's commit log: its last batch runs again at the next start."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
