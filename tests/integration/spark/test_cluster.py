"""Spark's standalone cluster without this checkout: shipping the library to workers, and ending the cluster."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from chunked import eventually
from spark_topics import fill, keep_everything, options_of

pytest.importorskip("pyspark")
from pulsar_ext.testing import SparkCluster

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.standalone_only("tests Spark's cluster, independent of the broker"),
]

_DOCS = Path(__file__).parents[3] / "docs" / "spark.md"
_JOB = """\
from pulsar_ext.spark import spark_session

spark = spark_session("job", config={config!r})
print("rows:", spark.read.format("pulsar").options(**{options!r}).load().count())


def where(_):
    import pulsar_ext

    yield pulsar_ext.__file__


print("library:", spark.sparkContext.parallelize([0], 1).mapPartitions(where).first())
"""
_CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="module")
def cluster():
    """Start a master and two workers."""
    with SparkCluster() as started:
        yield started


@pytest.fixture
def filled(broker, client, admin, topic):
    """Return a topic with messages of every kind, and their number."""
    keep_everything(admin, topic)
    return topic, fill(client, topic, 10)


@pytest.fixture
def place(tmp_path, broker, filled):
    """Return a directory with a program that counts the topic's messages, as in the docs."""
    options = options_of(broker, filled[0])
    (tmp_path / "job.py").write_text(_JOB.format(config=_CONFIG, options=options))
    command = tmp_path / "bin" / "pulsar-ext"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from pulsar_ext.cli import main; main()' \"$@\"\n")
    command.chmod(0o755)
    return tmp_path


def commands(name, **replaced):
    """Return the docs' commands marked with a name, with names of this machine."""
    (text,) = re.findall(rf"<!-- run: {name} -->\n((?:    .*\n)+)", _DOCS.read_text())
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    return "set -e\n" + re.sub("^    ", "", text, flags=re.MULTILINE)


def run(place, script, **variables):
    """Run commands in a directory, with this Python on the PATH."""
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    environment.pop("PYSPARK_PYTHON", None)
    return subprocess.run(
        ["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def test_packed_environment_runs_on_workers(place, cluster, broker, filled):
    """The docs' commands send a packed environment to workers without any; a job of this library runs there too."""
    master = cluster.master_url.removeprefix("spark://")
    done = run(place, commands("archive", **{"MASTER:7077": master}))
    assert f"rows: {filled[1]}\n" in done.stdout, done.stderr[-4000:]
    library = done.stdout.partition("library: ")[2].strip()
    assert library.endswith(
        "/environment/lib/python{}.{}/site-packages/pulsar_ext/__init__.py".format(*sys.version_info)
    )
    assert library.startswith(str(cluster.directory)), "the library was not an executor's own"
    job = commands("jobs", **{"MASTER:7077": master, " orders ": f" {filled[0]} "}).rstrip() + " --json"
    urls = {"PULSAR_EXT_URL": broker.service_url, "PULSAR_EXT_ADMIN_URL": broker.admin_url}
    memory = " --conf spark.executor.memory=512m --conf spark.driver.host=127.0.0.1"
    done = run(place, job + memory, **urls)
    assert f'"messages": {filled[1]}' in done.stdout, done.stderr[-4000:]


def test_library_zip_runs_on_workers(place, cluster, filled):
    """The docs' commands send the library alone to executors whose Python has the dependencies."""
    master = cluster.master_url.removeprefix("spark://")
    replaced = {"MASTER:7077": master, "/opt/python/bin/python": sys.executable}
    done = run(place, commands("py-files", **replaced))
    assert f"rows: {filled[1]}\n" in done.stdout, done.stderr[-4000:]
    assert done.stdout.partition("library: ")[2].strip().endswith("/pulsar_ext.zip/pulsar_ext/__init__.py")


def test_driver_warns_without_pyspark_python(place, cluster):
    """Without PYSPARK_PYTHON, the driver warns about the executors' Python before a task fails."""
    done = run(place, f"spark-submit --master {cluster.master_url} job.py")
    # spark-submit writes both of the driver's outputs to standard output.
    warned = done.stdout.partition("PYSPARK_PYTHON is not set: each executor uses the python3 of its own PATH.")
    assert "with pulsar_ext and its extra spark" in warned[2], done.stdout[-4000:]
    assert "No module named" not in warned[0], "the warning came too late"


def test_documented_daemon_commands_work(tmp_path):
    """The docs' commands start a master, and a worker that registers with it."""
    script = commands("daemons", **{"MASTER --port 7077": "127.0.0.1 --port 0 --webui-port 0"})
    lines = script.replace("spark://MASTER:7077", "--host 127.0.0.1 --webui-port 0 $MASTER").splitlines()
    begun = []
    try:
        master = _start(tmp_path, "master", lines[:3], begun)
        assert eventually(lambda: "Starting Spark master at" in master.read_text(), 120), master.read_text()
        (url,) = re.findall(r"Starting Spark master at (spark://\S+)", master.read_text())
        worker = _start(tmp_path, "worker", [*lines[:2], lines[3].replace("$MASTER", url)], begun)
        assert eventually(lambda: "Successfully registered with master" in worker.read_text(), 120), worker.read_text()
    finally:
        for one in begun:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def _start(directory, name, lines, begun):
    log = directory / f"{name}.log"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("w") as opened:
        begun.append(
            subprocess.Popen(
                ["bash", "-c", "\n".join(lines)],
                cwd=directory,
                env=environment,
                stdout=opened,
                stderr=opened,
                start_new_session=True,
            )
        )
    return log


_OWNER = """
import sys, time
from pyspark.sql import SparkSession
from pulsar_ext.testing import SparkCluster

cluster = SparkCluster(1).start()
builder = SparkSession.builder.master(cluster.master_url)
for name, value in {config!r}.items():
    builder = builder.config(name, value)
builder.getOrCreate().sparkContext.parallelize([0], 1).map(lambda one: one).count()
print(cluster.directory, flush=True)
time.sleep(600)
"""


def test_cluster_ends_with_its_owner(tmp_path):
    """All daemons, executors and Python workers end when the program that started the cluster is killed."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER.format(config=_CONFIG)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    home = owner.stdout.readline().strip()
    before = _processes_of(home)
    assert any("CoarseGrainedExecutorBackend" in " ".join(one.cmdline()) for one in before)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert eventually(lambda: not any(one.is_running() for one in before) and not _processes_of(home), 120)
    assert eventually(lambda: not Path(home).exists(), 60), "the cluster's files remain"


def _processes_of(home):
    """Return all processes that run in a directory."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if home in one.cwd() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def test_killed_worker_registers_again(cluster):
    """A killed worker's executors end, and it registers again after a restart."""
    worker = cluster.workers[1]
    worker.kill()
    assert not worker.is_running()
    assert not worker.executors()
    cluster.restart(worker)
    assert worker.is_registered()
