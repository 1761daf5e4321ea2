"""`pulsar-ext spark`: jobs on topics that Spark carries out, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

app = App(name="spark", help="Archive, replay, balance and audit topics with Apache Spark.")

_LOCAL = "pulsar://localhost:6650"

Url = Annotated[str, Parameter(env_var="PULSAR_EXT_URL")]
AdminUrl = Annotated[str | None, Parameter(env_var=("PULSAR_EXT_ADMIN_URL", "PULSAR_ADMIN_URL"))]
Token = Annotated[str | None, Parameter(env_var="PULSAR_EXT_TOKEN", show=False)]
Master = Annotated[str | None, Parameter(env_var="SPARK_MASTER")]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Options = Annotated[tuple[str, ...], Parameter(name=("--option", "-o"), negative="")]


@app.command
def archive(
    topic: str,
    path: str,
    *,
    checkpoint: str | None = None,
    url: Url = _LOCAL,
    admin_url: AdminUrl = None,
    token: Token = None,
    master: Master = None,
    option: Options = (),
    as_json: Json = False,
) -> None:
    """Write what a topic holds to Parquet, with the messages' ids; run again, it adds what is new, exactly once.

    Args:
        topic: with or without partitions; several separated by commas.
        path: the archive: a directory, or a URL that Spark can write to.
        checkpoint: where the progress is kept; by default beside the archive.
        url: the broker.
        admin_url: its admin REST API; by default the same host's usual port.
        token: to authenticate with, best given by the environment.
        master: Spark's master; by default all cores of this machine.
        option: an option of the source, as name=value; may be given several times.
        as_json: print JSON instead of a line.
    """
    with _session(master) as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        done = jobs.archive(spark, _source(topic, url, admin_url, token, option), path, checkpoint=checkpoint)
    _tell(as_json, {"rows": done.rows, "batches": done.batches}, f"{done.rows:,} rows in {done.batches} batches added")


@app.command
def replay(
    source: str,
    topic: str,
    *,
    name: str | None = None,
    where: str | None = None,
    checkpoint: str | None = None,
    at_least_once: Annotated[bool, Parameter(negative="")] = False,
    url: Url = _LOCAL,
    admin_url: AdminUrl = None,
    token: Token = None,
    master: Master = None,
    option: Options = (),
    as_json: Json = False,
) -> None:
    """Write an archive, or what a topic holds, to a topic; effectively once, however often it is repeated.

    Args:
        source: the archive's path; or a topic, then --checkpoint is needed.
        topic: where to.
        name: of the replay of an archive, by which the topic knows what it holds of it; by default the archive's name.
        where: which rows of the archive, as SQL.
        checkpoint: where the progress of a copy from a topic is kept.
        at_least_once: do without deduplication; a repeated run then writes everything again.
        url: the broker.
        admin_url: its admin REST API; by default the same host's usual port.
        token: to authenticate with, best given by the environment.
        master: Spark's master; by default all cores of this machine.
        option: an option of the sink, as name=value; may be given several times.
        as_json: print JSON instead of a line.
    """
    with _session(master) as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        sink = _source(topic, url, admin_url, token, option)
        if checkpoint is not None:
            read = _source(source, url, admin_url, token, ())
            done = jobs.replay_topic(spark, read, sink, checkpoint=checkpoint, exactly_once=not at_least_once)
        else:
            given = name or Path(source.rstrip("/")).name
            done = jobs.replay(spark, source, sink, name=given, where=where, exactly_once=not at_least_once)
    _tell(as_json, {"rows": done.rows}, f"{done.rows:,} rows replayed")


@app.command
def plan_ranges(
    topic: str,
    parts: int,
    *,
    by: Literal["messages", "bytes"] = "messages",
    png: Annotated[Path | None, Parameter(negative_none="no-")] = Path("ranges.png"),
    url: Url = _LOCAL,
    admin_url: AdminUrl = None,
    token: Token = None,
    master: Master = None,
    option: Options = (),
    as_json: Json = False,
) -> None:
    """Weigh a topic's key slots and print so many ranges of about equal weight; draw the slots with the cuts.

    Args:
        topic: with or without partitions; several separated by commas.
        parts: how many ranges: one a consumer.
        by: what to balance.
        png: where to draw the picture; --no-png draws none.
        url: the broker.
        admin_url: its admin REST API; by default the same host's usual port.
        token: to authenticate with, best given by the environment.
        master: Spark's master; by default all cores of this machine.
        option: an option of the source, as name=value; may be given several times.
        as_json: print JSON instead of a table.
    """
    with _session(master) as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        plan = jobs.plan_ranges(spark, _source(topic, url, admin_url, token, option), parts, by=by, png=png)
    pairs = list(zip(map(str, plan.ranges), plan.weights, strict=True))
    if as_json:
        _print(json.dumps([{"ranges": ranges, by: int(weight)} for ranges, weight in pairs]))
        return
    total = sum(plan.weights)
    table = Table("ranges", Column(by, justify="right"), Column("share", justify="right"))
    for ranges, weight in pairs:
        table.add_row(ranges, f"{weight:,.0f}", f"{weight / total:.1%}" if total else "")
    Console().print(table)


@app.command
def audit(
    topic: str,
    *,
    url: Url = _LOCAL,
    admin_url: AdminUrl = None,
    token: Token = None,
    master: Master = None,
    option: Options = (),
    as_json: Json = False,
) -> int:
    """Look for incomplete chunks, repeated sequence ids, keyed batches that mix slots, and gaps.

    Exit status: 0 if nothing is wrong, 1 if something is.

    Args:
        topic: with or without partitions; several separated by commas.
        url: the broker.
        admin_url: its admin REST API; by default the same host's usual port.
        token: to authenticate with, best given by the environment.
        master: Spark's master; by default all cores of this machine.
        option: an option of the source, as name=value; may be given several times.
        as_json: print JSON instead of a table.
    """
    with _session(master) as spark:
        from pulsar_ext.spark import jobs  # noqa: PLC0415  # needs Spark

        found = jobs.audit(spark, _source(topic, url, admin_url, token, option))
    names = ("incomplete_chunks", "duplicate_sequence_ids", "mixed_batches", "sequence_gaps", "gone_entries")
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "topic": one.topic,
                "messages": one.messages,
                "clean": one.is_clean,
                **{name: vars(getattr(one, name)) for name in names},
            }
            for one in found
        ]
        _print(json.dumps(rows))
    else:
        table = Table("topic", Column("messages", justify="right"), *(name.replace("_", " ") for name in names))
        for one in found:
            findings = (getattr(one, name) for name in names)
            cells = (f"{f.count:,}" + (f": {', '.join(f.examples[:3])}" if f.count else "") for f in findings)
            table.add_row(one.topic, f"{one.messages:,}", *cells, style=None if one.is_clean else "yellow")
        Console().print(table)
    return 0 if all(one.is_clean for one in found) else 1


@app.command
def pipeline(
    *,
    messages: int = 2000,
    backend: Literal["auto", "docker", "process"] | None = None,
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Start a broker, fill a topic, archive it, replay the archive twice, and show that the counts match.

    Exit status: 0 if each message is in the archive once and in the other topic once, 1 if not.

    Args:
        messages: how many of each kind: plain, batched, batched by key, chunked.
        backend: what the broker runs in; by default Docker where an engine answers, else a process.
        master: Spark's master; by default all cores of this machine.
        as_json: print JSON instead of a table.
    """
    from pulsar_ext.testing import start_broker  # noqa: PLC0415  # only for this command

    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    broker = start_broker(
        backend,
        "small-chunks",
        settings={"managedLedgerMaxEntriesPerLedger": 500},
        report=lambda line: notes.print(line, style="dim", markup=False),
    )
    with broker, _session(master) as spark, tempfile.TemporaryDirectory() as directory:
        from pulsar_ext.spark.jobs.pipeline import run_pipeline  # noqa: PLC0415  # needs Spark

        notes.print(f"broker: {broker.describe()}", style="dim", markup=False)
        counts = run_pipeline(spark, broker.service_url, broker.admin_url, directory, messages)
    if as_json:
        _print(json.dumps(vars(counts)))
    else:
        table = Table("step", Column("messages", justify="right"), Column("distinct", justify="right"))
        for step, (rows, distinct) in counts.steps.items():
            table.add_row(step, f"{rows:,}", f"{distinct:,}", style=None if rows == distinct == counts.sent else "red")
        Console().print(table)
        Console().print("[green]all counts match[/]" if counts.match else "[red]counts differ[/]")
    return 0 if counts.match else 1


@contextlib.contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """Give a session that says on standard error what each batch did."""
    try:
        from pulsar_ext.spark.jobs.progress import ProgressLines  # noqa: PLC0415  # an extra
        from pulsar_ext.spark.session import spark_session  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise InvalidUse(
            f"Spark is missing ({error}): pip install 'pulsar-ext[spark]', and Java 17 or newer."
        ) from None
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    spark = spark_session("pulsar-ext", master=master, config={"spark.log.level": "ERROR"})
    lines = ProgressLines(lambda line: notes.print(line, style="dim", markup=False))
    spark.streams.addListener(lines)
    try:
        yield spark
    finally:
        spark.streams.removeListener(lines)
        spark.stop()


def _source(topic: str, url: str, admin_url: str | None, token: str | None, given: tuple[str, ...]) -> dict[str, str]:
    options = {"service.url": url, "topics" if "," in topic else "topic": topic}
    if admin_url is not None:
        options["admin.url"] = admin_url
    if token is not None:
        options["token"] = token
    for one in given:
        name, separator, value = one.partition("=")
        if not separator:
            raise InvalidUse(f"--option {one!r}: write it as name=value.")
        options[name.strip()] = value
    return options


def _tell(as_json: bool, facts: dict[str, int], line: str) -> None:
    _print(json.dumps(facts) if as_json else line)


def _print(text: str) -> None:
    print(text)  # noqa: T201  # it is the result
