"""Archive, replay and audit of many messages, counted by other programs: the Java client, pyarrow and hashlib.

    python tests/faults/spark_outside.py [--messages N] [--cluster] [--directory DIR] [--json]

The Java client (`SparkOutside.java`) sends N messages (10^6) of every kind: plain, batched, batched by key, in chunks,
compressed in four ways, encrypted, null values, and Avro records in three versions of a schema. Halfway, the topics get
two more partitions. The jobs of this library archive the topics in two runs, replay the archives, the second replay
repeating the first, and audit. Then the Java client counts the topics, and pyarrow and hashlib count the archives'
files: for each kind, the number of messages, and the sum of their digests over key, ordering key, event
time, properties and value. Null values are not replayed, as the client cannot send them.

Exit status: 1 if a count or a digest differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.spark import jobs, spark_session
from pulsar_ext.spark.shipping import pack
from pulsar_ext.testing import PulsarProcess, SparkCluster
from pulsar_ext.testing.jars import ensure_jars, find_java

Counts = dict[str, tuple[int, str]]
"""For each kind, the number of messages, and the sum of their digests."""

SHARES: Final = {
    "plain": 0.05,
    "batched": 0.35,
    "encrypted": 0.05,
    "keyed": 0.10,
    "lz4": 0.06,
    "zlib": 0.06,
    "zstd": 0.06,
    "snappy": 0.06,
    "null": 0.0095,
    "chunked": 0.0005,
}
"""Share of each kind of messages; the rest are records, by the versions of their schema in each half."""
_VERSIONS: Final = ({"schema1": 0.1, "schema2": 0.1}, {"schema3": 0.1, "schema2": 0.1})
_NAMESPACE: Final = "public/outside"
_COLUMNS: Final = ["__key", "__orderingKey", "__eventTime", "__messageProperties", "value"]
_LARGE: Final = 100_000
_CONFIG: Final = {
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}


class Outside:
    """The Java client.

    Args:
        service_url: of the broker.
        keys: a directory with a key pair, for encrypted messages.
    """

    def __init__(self, service_url: str, keys: Path) -> None:
        self._url = service_url
        self._keys = keys

    def send(self, topic: str, kinds: list[tuple[str, int, int]]) -> None:
        """Send messages: for each kind, the first number and the count."""
        self._run("send", topic, *(str(part) for kind in kinds for part in kind))

    def count(self, topic: str) -> Counts:
        """Count the messages of a topic."""
        lines = (line.split() for line in self._run("count", topic).splitlines() if line.startswith("COUNT "))
        return {kind: (int(count), digest) for _, kind, count, digest in lines}

    def _run(self, what: str, *arguments: str) -> str:
        program = Path(__file__).with_name("SparkOutside.java")
        java = [str(find_java()), "-Xmx768m", "-cp", f"{ensure_jars()}/*", str(program)]
        topic, *kinds = arguments
        command = [*java, what, self._url, topic, str(self._keys), *kinds]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{what} failed: {done.stderr[-3000:]}")
        return done.stdout


def count_files(path: str) -> Counts:
    """Count the messages in the files of an archive, without Spark and without this library."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    files = sorted(str(one) for one in Path(path).glob("part-*.parquet"))
    for batch in pa.dataset.dataset(files).to_batches(columns=_COLUMNS, batch_size=20_000):
        # Spark writes nanoseconds, which are whole milliseconds here.
        times = batch["__eventTime"].cast(pa.timestamp("ms")).cast("int64").to_pylist()
        rows = (batch[name].to_pylist() for name in ("__key", "__orderingKey", "__messageProperties", "value"))
        for key, order, properties, value, millis in zip(*rows, times, strict=True):
            sums = found[_kind_of(key, value)]
            sums[0] += 1
            sums[1] += _digest(key, order, millis or 0, properties, value)
    return {kind: (count, f"{total % (1 << 64):016x}") for kind, (count, total) in sorted(found.items())}


def _kind_of(key: bytes | None, value: bytes | None) -> str:
    head = (key or b"").decode() if value is None else value[:40].decode("latin-1")
    parts = head.split(":")
    # Like Java's [a-z0-9]+, which matches only ASCII.
    named = parts[0].isascii() and parts[0].isalnum() and parts[0] == parts[0].lower()
    return parts[0] if len(parts) > 2 and named else "record"


def _digest(key: Any, order: Any, millis: int, properties: Any, value: Any) -> int:
    fields = [key, order, str(millis).encode()]
    for name, content in sorted(properties or ()):
        fields += [name.encode(), content.encode()]
    sha = hashlib.sha256()
    for field in [*fields, value]:
        sha.update(b"-:" if field is None else b"%d:%s" % (len(field), field))
    return int.from_bytes(sha.digest()[:8], "big")


class Steps:
    """The steps of one run, with their durations on standard error.

    Args:
        broker: the broker of the topics.
        spark: a session.
        directory: for the archives.
        messages: total number of messages.
    """

    def __init__(self, broker: Any, spark: Any, directory: Path, messages: int) -> None:
        self._urls = {"service.url": broker.service_url, "admin.url": broker.admin_url}
        self._spark = spark
        self._directory = directory
        self._messages = messages
        sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
        from encryption_keys import encryption_key_files  # noqa: PLC0415  # shared with the tests

        self._private_key, _ = encryption_key_files(directory)
        self._outside = Outside(broker.service_url, directory)
        self._sent = 0
        self._since = time.monotonic()

    def run(self, admin: PulsarAdmin) -> dict[str, Any]:
        """Run all steps; return the counts by step."""
        topics = [f"persistent://{_NAMESPACE}/{name}" for name in ("kinds", "records")]
        copies = [f"persistent://{_NAMESPACE}-copy/{name}" for name in ("kinds", "records")]
        for topic in (*topics, *copies):
            admin.create_partitioned_topic(topic, 2)
        for half in (0, 1):
            if half:
                for topic in topics:
                    admin.update_partitions(topic, 4)
            self._fill(*topics, half)
            for topic in topics:
                jobs.archive(self._spark, self._reading(topic), self._path(topic))
                self._log(f"archived {topic}")
            for topic, copy in zip(topics, copies, strict=True):
                self._replay(topic, copy)
        audits = {topic: jobs.audit(self._spark, self._reading(topic)) for topic in (*topics, *copies)}
        self._log("audited")
        counts = {
            "sent": self._outside.count(topics[0]) | self._outside.count(topics[1]),
            "archived": count_files(self._path(topics[0])) | count_files(self._path(topics[1])),
            "replayed": self._outside.count(copies[0]) | self._outside.count(copies[1]),
        }
        self._log("counted")
        audited = {
            name: sum(one.messages for topic in which for one in audits[topic])
            for name, which in (("sent", topics), ("replayed", copies))
        }
        found = [
            one for audit in audits.values() for one in audit if one.incomplete_chunks.count or one.gone_entries.count
        ]
        return {"sent": self._sent, "counts": counts, "audited": audited, "findings": len(found)}

    def _fill(self, kinds: str, records: str, half: int) -> None:
        shares = [*SHARES.items(), *_VERSIONS[half].items()]
        number = half * self._messages
        parts = []
        for kind, share in shares:
            count = round(self._messages * share / 2)
            parts.append((kind, number, count))
            number += count
        self._outside.send(kinds, parts[: len(SHARES)])
        self._outside.send(records, parts[len(SHARES) :])
        self._sent += number - half * self._messages
        self._log(f"sent {self._sent:,} messages")

    def _replay(self, topic: str, copy: str) -> None:
        selections = {
            "small": (f"length(value) < {_LARGE}", {}),
            "large": (f"length(value) >= {_LARGE}", {"pulsar.producer.chunkingEnabled": "true"}),
        }
        # Later partitions have names of their own, which cannot be proved new on a long topic.
        options = {**self._options(copy), "unknownProducers": "new"}
        for _ in range(2):
            for name, (where, more) in selections.items():
                jobs.replay(self._spark, self._path(topic), {**options, **more}, name=name, where=where)
            self._log(f"replayed to {copy}")

    def _options(self, topic: str) -> dict[str, str]:
        return {**self._urls, "topic": topic}

    def _reading(self, topic: str) -> dict[str, str]:
        return {**self._options(topic), "cryptoPrivateKeyFile": str(self._private_key)}

    def _path(self, topic: str) -> str:
        return str(self._directory / topic.rpartition("/")[2])

    def _log(self, what: str) -> None:
        now = time.monotonic()
        print(f"{now - self._since:7.1f} s  {what}", file=sys.stderr, flush=True)
        self._since = now


def differences(found: dict[str, Any]) -> list[str]:
    """Return the differences between the steps."""
    sent, archived, replayed = (found["counts"][name] for name in ("sent", "archived", "replayed"))
    wrong = [
        f"archived {kind}: {archived.get(kind)}"
        for kind in sent.keys() | archived
        if sent.get(kind) != archived.get(kind)
    ]
    kept = {kind: count for kind, count in sent.items() if kind != "null"}
    wrong += [
        f"replayed {kind}: {replayed.get(kind)}"
        for kind in kept.keys() | replayed
        if kept.get(kind) != replayed.get(kind)
    ]
    totals = {
        "sent": sum(count for count, _ in sent.values()),
        "replayed": sum(count for count, _ in replayed.values()),
    }
    wrong += [f"audited {name}: {found['audited'][name]}" for name in totals if found["audited"][name] != totals[name]]
    if totals["sent"] != found["sent"]:
        wrong.append(f"{totals['sent']} messages on the topics instead of {found['sent']}")
    if found["findings"]:
        wrong.append(f"{found['findings']} partitions with incomplete chunks or deleted entries")
    return wrong


def print_counts(counts: dict[str, Counts]) -> None:
    """Print a table of the counts, with a mark for equal digests."""
    print("| kind | sent | archived | replayed | digests |")
    print("|---|---:|---:|---:|---|")
    for kind in counts["sent"]:
        cells = [counts[step].get(kind, (0, "")) for step in ("sent", "archived", "replayed")]
        digests = {digest for count, digest in cells if count}
        same = "equal" if len(digests) == 1 else "differ"
        print(f"| {kind} | {' | '.join(f'{count:,}' for count, _ in cells)} | {same} |")
    totals = (sum(count for count, _ in counts[step].values()) for step in ("sent", "archived", "replayed"))
    print(f"| all | {' | '.join(f'{total:,}' for total in totals)} | |")


def main() -> int:
    """Run the steps with the requested number of messages, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="total number of messages (1000000)")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster instead of in one process")
    parser.add_argument("--directory", type=Path, help="a directory to keep the archives in")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    settings = {"managedLedgerMaxEntriesPerLedger": 20_000}
    with contextlib.ExitStack() as stack:
        directory = arguments.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(PulsarProcess("small-chunks", settings=settings))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        for namespace in (_NAMESPACE, f"{_NAMESPACE}-copy"):
            admin.create_namespace(namespace)
            admin.set_retention(namespace, Retention(-1, -1))
        admin.set_deduplication(f"{_NAMESPACE}-copy", value=True)
        master, config = "local[2]", _CONFIG
        if arguments.cluster:
            library = directory / "pulsar_ext.zip"
            pack(library)
            master = stack.enter_context(SparkCluster()).master_url
            config = {**_CONFIG, "spark.files": str(library), "spark.submit.pyFiles": str(library)}
        spark = spark_session("outside", master=master, config=config)
        stack.callback(spark.stop)
        found = Steps(broker, spark, directory, arguments.messages).run(admin)
    wrong = differences(found)
    if arguments.as_json:
        print(json.dumps({**found, "differences": wrong}, indent=1))
    else:
        print_counts(found["counts"])
    print("\n".join(wrong) or "all counts and digests are equal", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
