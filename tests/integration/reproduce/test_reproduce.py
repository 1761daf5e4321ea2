"""Every scenario on a real broker, the command that runs them, and the README's example."""

from __future__ import annotations

import ast
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
_PROVEN_BY = {
    "chunk-seek": "reproduce/test_reproduce.py::test_command_prints_json",
    "chunk-reader-start": "chunks/test_ids.py::test_last_message_id_of_chunked_message_resolves",
    "chunk-ack-deserialized": "ack/test_grouping.py::test_chunked_messages_are_acknowledged_whole",
    "chunk-restart": "redelivery/test_stranded.py::test_message_of_a_lost_consumer_goes_to_the_next",
    "chunk-cut": "produce/test_chunks_cut.py::test_chunked_messages_survive_connection_loss",
    "async-chunk-send-id": "asyncio/test_asyncio.py::test_chunked_messages",
    "seek-beyond-end": "chunks/test_ids.py::test_seek_beyond_the_end_raises_and_moves_nothing",
    "seek-one-partition": "receive/test_seek.py::test_seek_on_one_partition_keeps_the_others",
    "interrupted-receive": "receive/test_interrupted.py::test_interrupted_receive_loses_no_message",
    "async-cancelled-receive": "asyncio/test_asyncio.py::test_cancelled_receives",
    "pattern-discovery": "client/test_consumer_settings.py::test_pattern_discovers_topics_in_its_period",
    "ack-disconnected": "ack/test_grouping.py::test_cut_connection_loses_no_acks",
    "ack-then-reset": "ack/test_cursor_reset.py::test_reset_after_cumulative_ack_redelivers_all",
    "dead-letter-batch": "redelivery/test_dead_letters.py::test_nacked_message_of_a_batch_becomes_a_dead_letter",
    "callback-raises": "client/test_callbacks.py::test_send_callback_may_raise",
    "send-refused": "produce/test_refused.py::test_message_rejected_by_topic_times_out",
    "exit-pending": "client/test_fork.py::test_worker_process_sends_everything_on_exit",
    "exit-acknowledged": "client/test_close.py::test_exit_without_close_sends_everything",
    "forked-client": "client/test_fork.py::test_inherited_client_raises_in_a_forked_child",
    "ack-batch-index": "ack/test_batch_index.py::test_acked_messages_of_a_batch_are_not_redelivered",
    "batch-partly-acknowledged": "ack/test_partly_acknowledged.py::test_rest_of_anothers_batch_completes_it",
    "dedup-batch-loss": "dedup/test_dedup.py::test_send_many_is_deduplicated",
    "dedup-batch-duplicates": "dedup/test_dedup.py::test_send_many_is_deduplicated",
}
"""Scenarios whose behaviour of pulsar_ext another core test proves."""


def _scenarios(excluded=()):
    """Yield the names of scenarios; those with a proxy need a single broker."""
    for name in [name for name in SCENARIOS if name not in excluded]:
        uses_proxy = hasattr(sys.modules[SCENARIOS[name].run.__module__], "FaultProxy")
        yield pytest.param(name, marks=OWN_PROXY if uses_proxy else ())


@pytest.fixture
def place(pulsar_broker_factory, pulsar_namespace_factory):
    def on(profile, *, deduplication=False):
        broker = pulsar_broker_factory(profile)
        namespace = pulsar_namespace_factory(broker)
        with PulsarAdmin(broker.admin_url) as admin:
            largest = int(admin.broker_configuration()["maxMessageSize"])
            if deduplication:
                admin.set_deduplication(namespace, value=True)
        return Place(broker.service_url, broker.admin_url, namespace, largest, broker_version=broker.version)

    return on


@pytest.mark.core(each="name", slow="scenarios have outages and waits")
@pytest.mark.parametrize("name", [*_scenarios(_PROVEN_BY)])
def test_pulsar_ext_alone_is_clean(name, place):
    """pulsar_ext loses, duplicates and blocks no message, on the broker of most tests."""
    scenario = SCENARIOS[name]
    (ours,) = count(scenario.run, place("small-chunks", deduplication=scenario.profile == "dedup"), ["pulsar_ext"])
    assert ours.clean, str(ours)


@pytest.mark.core
def test_other_scenarios_are_proven_in_the_core():
    """Each test that stands for a scenario is in the core tier."""
    for name, test in _PROVEN_BY.items():
        path, _, function = test.partition("::")
        tree = ast.parse((Path(__file__).parents[1] / path).read_text())
        [found] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
        assert any("mark.core" in ast.unparse(mark) for mark in found.decorator_list), test
        assert name in SCENARIOS


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
