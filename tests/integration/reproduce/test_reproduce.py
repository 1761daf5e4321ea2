"""Every scenario on a real broker, the command that runs them, and the README's example."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ways import OWN_PROXY

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.reproduce import SCENARIOS, Place, Verdict, carry_out
from pulsar_ext.reproduce._support import count

pytestmark = pytest.mark.standalone_only(
    "runs scenarios, which take URLs and a token, and no certificates", ways=("mtls",)
)

_README = Path(__file__).parents[3] / "README.md"
_ONE_AT_A_TIME = pytest.mark.xdist_group("reproduce-commands")  # they list all namespaces


def _scenarios():
    """Yield the names of all scenarios; those with a proxy need a single broker."""
    for name, scenario in SCENARIOS.items():
        uses_proxy = hasattr(sys.modules[scenario.run.__module__], "FaultProxy")
        yield pytest.param(name, marks=OWN_PROXY if uses_proxy else ())


@pytest.fixture
def place(pulsar_broker_factory, pulsar_namespace_factory):
    def on(profile):
        broker = pulsar_broker_factory(profile)
        with PulsarAdmin(broker.admin_url) as admin:
            largest = int(admin.broker_configuration()["maxMessageSize"])
        namespace = pulsar_namespace_factory(broker)
        return Place(broker.service_url, broker.admin_url, namespace, largest, broker_version=broker.version)

    return on


@pytest.mark.core(each="name")
@pytest.mark.parametrize("name", [*_scenarios()])
def test_pulsar_ext_alone_is_clean(name, place):
    """pulsar_ext loses, duplicates and blocks no message."""
    (ours,) = count(SCENARIOS[name].run, place(SCENARIOS[name].profile), ["pulsar_ext"])
    assert ours.clean, str(ours)


@pytest.mark.parametrize("name", [*_scenarios()])
def test_pulsar_ext_is_clean(name, place):
    """pulsar_ext loses, duplicates and blocks no message, and the official client was measured."""
    row = carry_out(SCENARIOS[name], place(SCENARIOS[name].profile))
    assert row.verdict in {Verdict.FIXED_HERE, Verdict.FIXED_UPSTREAM}, f"{row.official} | {row.ours}"


def _reproduce(broker, *arguments):
    urls = ("--url", broker.service_url, "--admin-url", broker.admin_url)
    command = [sys.executable, "-c", "from pulsar_ext.cli import main; main()", "reproduce", *urls, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.core
@_ONE_AT_A_TIME
def test_command_prints_json(pulsar_broker_factory):
    """On an existing broker the command runs one scenario, prints JSON and leaves no namespace."""
    broker = pulsar_broker_factory("small-chunks")
    with PulsarAdmin(broker.admin_url) as admin:
        before = admin.namespaces("public")
        done = _reproduce(broker, "chunk-seek", "--json")
        after = admin.namespaces("public")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["scenarios"]
    assert row["name"] == "chunk-seek"
    assert row["pulsar_ext"]["delivered"] == row["pulsar_ext"]["sent"] == 3
    assert sorted(after) == sorted(before)


@_ONE_AT_A_TIME
def test_rows_run_on_a_broker_with_default_settings(pulsar_broker_factory):
    """With large chunks and no deduplication, scenarios send less, and switch deduplication on."""
    done = _reproduce(
        pulsar_broker_factory("plain"), "chunk-restart", "chunk-seek-in-flight", "sequence-id-zero", "--json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {row["name"]: row["verdict"] for row in json.loads(done.stdout)["scenarios"]}
    assert set(verdicts.values()) <= {"fixed here", "fixed upstream"}, verdicts


@_ONE_AT_A_TIME
def test_command_updates_the_table(pulsar_broker_factory, tmp_path):
    """--update replaces the rows of a Markdown file."""
    file = tmp_path / "README.md"
    file.write_text("<!-- reproduce: begin -->\n<!-- reproduce: end -->\n")
    done = _reproduce(pulsar_broker_factory("small-chunks"), "chunk-reader-start", "--update", str(file))
    assert done.returncode == 0, done.stderr
    assert re.search(r"chunk-reader-start.+\| fixed (here|upstream) \|", file.read_text())


def test_readme_example_runs(pulsar_broker, pulsar_namespace):
    """The README's example works unchanged except for the broker's addresses."""
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", _README.read_text(), re.DOTALL) if "send" in block
    )
    code = code.replace("pulsar://localhost:6650", pulsar_broker.service_url)
    code = code.replace("http://localhost:8080", pulsar_broker.admin_url)
    code = code.replace('"documents"', f'"persistent://{pulsar_namespace}/documents"')
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(len(message.data()))"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if re.fullmatch(r"[\d:;-]+", line)]
    assert re.fullmatch(r"(\d+):0:-1;\1:2:-1", printed[0])
    assert printed[1] == "12000000"
