"""A demonstration from end to end: fill a topic, archive it, replay the archive, compare the counts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.client.client import Client
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.batching import MixedKeyBatchWarning

from .archive import archive
from .replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PipelineCounts", "run_pipeline"]

_NAMESPACE = "public/pipeline"
_TOPIC, _COPY = f"persistent://{_NAMESPACE}/orders", f"persistent://{_NAMESPACE}-copy/orders"
_PARTITIONS = 2
_CHUNKED_BYTES = 230_000
_CHUNKED_EVERY = 50
_BATCHING = {"batching_enabled": True, "batching_max_messages": 100}
_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batched": _BATCHING,
    "key-batched": {**_BATCHING, "batching_type": pulsar.BatchingType.KeyBased},
    "chunked": {"chunking_enabled": True},
}


@dataclass(frozen=True)
class PipelineCounts:
    """How many messages were sent, and after each step how many there were, and how many different ones."""

    sent: int
    steps: dict[str, tuple[int, int]]

    @property
    def match(self) -> bool:
        """Whether every step has each message once."""
        return all(step == (self.sent, self.sent) for step in self.steps.values())


def run_pipeline(
    spark: SparkSession, service_url: str, admin_url: str, directory: str, messages: int
) -> PipelineCounts:
    """Run the demonstration on a broker of its own.

    Args:
        spark: a session with the data source.
        service_url: of the broker.
        admin_url: of its admin API.
        directory: an empty one, for the archive and its checkpoint.
        messages: how many of each kind of message.
    """
    urls = {"service.url": service_url, "admin.url": admin_url}
    source, copy = {**urls, "topic": _TOPIC}, {**urls, "topic": _COPY}
    path = f"{directory}/archive"
    with PulsarAdmin(admin_url) as admin:
        for topic in (_TOPIC, _COPY):
            namespace = TopicName.parse(topic).namespace_name
            admin.create_namespace(namespace)
            admin.set_retention(namespace, Retention(-1, -1))
            admin.set_deduplication(namespace, topic == _COPY)
            admin.create_partitioned_topic(topic, _PARTITIONS)
        half = _fill(service_url, admin, 0, messages // 2)
        archive(spark, source, path)
        replay(spark, path, {**copy, "pulsar.producer.chunkingEnabled": "true"}, name="pipeline")
        sent = _fill(service_url, admin, half, messages - messages // 2)
        archive(spark, source, path)
    steps = {"archived in two runs": _count(spark.read.parquet(path))}
    for turn in ("replayed", "replayed again"):
        replay(spark, path, {**copy, "pulsar.producer.chunkingEnabled": "true"}, name="pipeline")
        steps[turn] = _count(spark.read.format("pulsar").options(**copy, columns="value").load())
    return PipelineCounts(sent, steps)


def _fill(service_url: str, admin: PulsarAdmin, start: int, count: int) -> int:
    """Send `count` messages of each kind, whose values begin with their numbers; give the next number."""
    number = start
    client = Client(service_url, admin=admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with client, warnings.catch_warnings():
        warnings.simplefilter("ignore", MixedKeyBatchWarning)  # the demonstration includes such batches
        for kind, options in _KINDS.items():
            with client.create_producer(_TOPIC, block_if_queue_full=True, **options) as producer:
                for index in range(count):
                    large = kind == "chunked" and not index % _CHUNKED_EVERY
                    content = str(number).encode().ljust(_CHUNKED_BYTES if large else 0)
                    producer.send_async(content, None, partition_key=f"key-{index % 97}" if index % 7 else None)
                    number += 1
                producer.flush()
    return number


def _count(rows: Any) -> tuple[int, int]:
    values = rows.selectExpr("trim(string(value)) AS number")
    return values.count(), values.distinct().count()
