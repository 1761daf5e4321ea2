"""`pulsar-ext spark`: jobs on topics that run on Spark, local or on a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from pulsar_ext.errors import InvalidUse, PulsarExtError
from pulsar_ext.ids.text import counted
from pulsar_ext.look.page import AuditedTopic, audit_page

from .arguments import DEFAULT_PICTURE, LOCAL_URL, AdminUrl, Backend, Flag, Html, Json, Png, Token, Url, read_pairs
from .output import check_writable, choose_picture, note, now_text, print_plan, print_result, write_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = App(name="spark", help="Archive, replay, balance and audit topics with Apache Spark.")

_ARCHIVE = "environment.tar.gz"
_UNPACKED = "environment"
_CLUSTER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}

Master = Annotated[
    str | None, Parameter(env_var="SPARK_MASTER", help="Spark's master. The default is all cores of this machine.")
]
Topics = Annotated[str, Parameter(help="The topic to read, with or without partitions. Separate several by commas.")]

_FINDINGS = {
    "incomplete_chunks": "incomplete chunks",
    "duplicate_sequence_ids": "repeated sequence ids",
    "mixed_batches": "mixed batches",
    "sequence_gaps": "gaps in sequence ids",
    "gone_entries": "entries that are gone",
}


@Parameter(name="*")
@dataclass(frozen=True)
class Target:
    """Access to the topics of a job, and the Spark master that runs it.

    Args:
        option: An option of the data source, as NAME=VALUE. May be repeated.
        conf: A setting of Spark, as NAME=VALUE. May be repeated.
    """

    url: Url = None
    admin_url: AdminUrl = None
    token: Token = None
    master: Master = None
    option: Annotated[tuple[str, ...], Parameter(name=("--option", "-o"), negative="")] = ()
    conf: Annotated[tuple[str, ...], Parameter(negative="")] = ()

    def options(self, topic: str, *, given: bool = True) -> dict[str, str]:
        """Return the options of a read or a write."""
        options = {"service.url": self.url or LOCAL_URL, "topics" if "," in topic else "topic": topic}
        if self.admin_url is not None:
            options["admin.url"] = self.admin_url
        if self.token is not None:
            options["token"] = self.token
        return options | (read_pairs("--option", self.option) if given else {})

    def session(self) -> contextlib.AbstractContextManager[SparkSession]:
        """Return a Spark session with these settings."""
        return _session(self.master, read_pairs("--conf", self.conf))


_LOCAL_TARGET = Target()


@app.command
def archive(
    topic: Topics, path: str, *, checkpoint: str | None = None, target: Target = _LOCAL_TARGET, as_json: Json = False
) -> None:
    """Write the messages of a topic to Parquet, with their ids; each run adds the new messages exactly once.

    Args:
        path: The archive: a directory, or a URL that Spark can write to.
        checkpoint: Directory for the progress. The default is beside the archive.
    """
    with target.session() as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        done = jobs.archive(spark, target.options(topic), path, checkpoint=checkpoint)
    text = f"{counted(done.rows, 'row')} in {counted(done.batches, 'batch')} added"
    print_result({"rows": done.rows, "batches": done.batches} if as_json else text)


@app.command
def replay(
    source: str,
    topic: str,
    *,
    name: str | None = None,
    where: str | None = None,
    checkpoint: str | None = None,
    at_least_once: Flag = False,
    target: Target = _LOCAL_TARGET,
    as_json: Json = False,
) -> None:
    """Write an archive, or the messages of a topic, to a topic; effectively once, also if repeated.

    Messages with keys keep their order within each key. -o pulsar.producer.batchingEnabled=false keeps the order of all
    messages.

    Args:
        source: Path of the archive to read, or the topic to read. A topic needs --checkpoint as well.
        topic: The topic to write to.
        name: Name of the replay, by which the broker recognizes messages that it already has. The default is the
            archive's name.
        where: SQL condition for the rows of the archive to write. It must not revive deleted keys.
        checkpoint: Directory for the progress, if the source is a topic.
        at_least_once: Do not deduplicate. Each run then writes everything.
    """
    with target.session() as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        sink = target.options(topic)
        if checkpoint is not None:
            read = target.options(source, given=False)
            done = jobs.replay_topic(spark, read, sink, checkpoint=checkpoint, exactly_once=not at_least_once)
        else:
            given = name or Path(source.rstrip("/")).name
            done = jobs.replay(spark, source, sink, name=given, where=where, exactly_once=not at_least_once)
    print_result({"rows": done.rows} if as_json else f"{counted(done.rows, 'row')} replayed")


@app.command
def plan_ranges(
    topic: Topics,
    parts: int,
    *,
    by: Literal["messages", "bytes"] = "messages",
    png: Png = DEFAULT_PICTURE,
    html: Html = None,
    target: Target = _LOCAL_TARGET,
    as_json: Json = False,
) -> None:
    """Weigh the key slots of a topic, print ranges of about equal weight, and draw the slots with the ranges.

    Args:
        parts: Number of ranges, one for each consumer.
        by: What to balance between the ranges.
    """
    png = choose_picture(png)
    check_writable(html, "--html")
    with target.session() as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        plan = jobs.plan_ranges(spark, target.options(topic), parts, by=by, png=png)
    print_plan(topic, by, plan.histogram, plan.ranges, html=html, as_json=as_json)


@app.command
def audit(topic: Topics, *, html: Html = None, target: Target = _LOCAL_TARGET, as_json: Json = False) -> int:
    """Find incomplete chunks, repeated sequence ids, keyed batches that mix slots, and gaps in sequence ids.

    Exit status: 0 if nothing was found, 1 if something was.
    """
    with target.session() as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        found = jobs.audit(spark, target.options(topic))
    if html is not None:
        pictured = []
        for one in found:
            each = {label: getattr(one, name) for name, label in _FINDINGS.items()}
            counts = {label: (finding.count, finding.examples) for label, finding in each.items()}
            pictured.append(AuditedTopic(one.topic, one.messages, one.is_clean, counts))
        write_page(html, audit_page(pictured, topic, now_text()))
    if as_json:
        print_result(
            [
                {"topic": one.topic, "messages": one.messages, "clean": one.is_clean}
                | {name: vars(getattr(one, name)) for name in _FINDINGS}
                for one in found
            ]
        )
    else:
        table = Table("topic", Column("messages", justify="right"), *_FINDINGS.values())
        for one in found:
            findings = (getattr(one, name) for name in _FINDINGS)
            cells = (f"{f.count:,}" + (f": {', '.join(f.examples[:3])}" if f.count else "") for f in findings)
            table.add_row(one.topic, f"{one.messages:,}", *cells, style=None if one.is_clean else "yellow")
        Console().print(table)
    return 0 if all(one.is_clean for one in found) else 1


@app.command
def pipeline(
    *,
    messages: int = 2000,
    backend: Backend = None,
    master: Master = None,
    cluster: Flag = False,
    as_json: Json = False,
) -> int:
    """Start a broker, fill a topic, archive it, replay the archive twice, and show that the counts match.

    Exit status: 0 if the archive and the other topic each have every message once, 1 if not.

    Args:
        messages: Number of messages of each kind to send: plain, batched, batched by key, chunked.
        cluster: Start a standalone Spark cluster, a master and two workers, and run on it.
    """
    if cluster and master is not None:
        raise InvalidUse("--cluster starts a cluster, so --master and SPARK_MASTER must not be set")
    from pulsar_ext.testing import start_broker  # noqa: PLC0415  # only for this command

    settings = {"managedLedgerMaxEntriesPerLedger": 500}
    broker = start_broker(backend, "small-chunks", settings=settings, report=note)
    with broker, contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        config: dict[str, str] = {}
        if cluster:
            master, config = stack.enter_context(_own_cluster(directory))
            note(f"cluster: {master} with two workers")
        spark = stack.enter_context(_session(master, config))
        from pulsar_ext.spark.jobs import run_pipeline  # noqa: PLC0415  # needs Spark

        note(f"broker: {broker.describe()}")
        counts = run_pipeline(spark, broker.service_url, broker.admin_url, directory, messages)
    if as_json:
        print_result(vars(counts))
    else:
        table = Table("step", Column("messages", justify="right"), Column("distinct", justify="right"))
        for step, (rows, distinct) in counts.steps.items():
            table.add_row(step, f"{rows:,}", f"{distinct:,}", style=None if rows == distinct == counts.sent else "red")
        Console().print(table)
        Console().print("[green]all counts match[/]" if counts.match else "[red]counts differ[/]")
    return 0 if counts.match else 1


@app.command
def pack(path: Path, *, as_json: Json = False) -> None:
    """Pack this library with its dependencies for the executors of a cluster.

    Args:
        path: `NAME.tar.gz` for a virtual environment (`--archives`), `NAME.zip` for the library alone (`--py-files`).
    """
    from pulsar_ext.spark import shipping  # noqa: PLC0415  # only for this command

    packed = shipping.pack(path)
    size = path.stat().st_size
    text = f"{path}: {size / 1e6:,.1f} MB, {', '.join(packed)}"
    print_result({"path": str(path), "bytes": size, "distributions": packed} if as_json else text)


@contextlib.contextmanager
def _own_cluster(directory: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a master and two workers; yield the master's URL and the settings of a session.

    The library is sent to the workers as to any cluster. Until the end, this process's working directory has the
    unpacked environment, and `PYSPARK_PYTHON` is set.
    """
    from pulsar_ext.spark import shipping  # noqa: PLC0415  # only for this
    from pulsar_ext.testing import SparkCluster  # noqa: PLC0415  # an extra

    archive = Path(directory, _ARCHIVE)
    shipping.pack(archive)
    unpacked = Path(directory, _UNPACKED)
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", unpacked], check=True)
    os.environ |= {"PYSPARK_PYTHON": f"./{_UNPACKED}/bin/python", "SPARK_LOCAL_IP": "127.0.0.1"}
    with contextlib.chdir(directory), SparkCluster() as cluster:
        yield cluster.master_url, {**_CLUSTER_SETTINGS, "spark.archives": f"{archive}#{_UNPACKED}"}


@contextlib.contextmanager
def _session(master: str | None, config: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session that reports each batch of a stream on standard error."""
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # an extra
    from pulsar_ext.spark.errors import reason  # noqa: PLC0415  # an extra
    from pulsar_ext.spark.jobs import ProgressLines  # noqa: PLC0415  # an extra
    from pulsar_ext.spark.source import SPARK_ERRORS  # noqa: PLC0415  # an extra

    try:
        spark = spark_session("pulsar-ext", master=master, config={"spark.log.level": "ERROR", **config})
        spark.streams.addListener(lines := ProgressLines(note))
        try:
            yield spark
        finally:
            spark.streams.removeListener(lines)
            spark.stop()
    except SPARK_ERRORS as error:
        raise PulsarExtError(reason(str(error))) from error
