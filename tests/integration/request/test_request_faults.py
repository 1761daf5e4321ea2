"""Requests under faults: a killed broker, repliers that die before or during their replies, and a termination."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import PREAMBLE
from reach import Reach
from serving import Serving, echo

import pulsar_ext as pulsar
from pulsar_ext.asyncio._pool import EndpointPool
from pulsar_ext.request import ReplyProducers

BOTH_CLIENTS = True
LONG_MS = 90_000
DYING = """
def handle(message):
    print("asked", flush=True)
    {handle}
with connect() as client, client.replier(topic, handle) as replier:
    replier.run()
print("ended", flush=True)
"""


@pytest.fixture
def replier_process(broker, topic, tmp_path):
    """Return a function that starts a replier process with a handler of a few lines, and returns the process."""
    started = []

    def start(handle):
        script = tmp_path / "replier.py"
        script.write_text(PREAMBLE + DYING.format(handle=handle.replace("\n", "\n    ")))
        started.append(
            subprocess.Popen(
                [sys.executable, str(script), Reach.of(broker).pack(), topic], stdout=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.mark.standalone_only("is about one broker that is killed")
@pytest.mark.twin_on_demand
def test_requests_are_answered_after_a_broker_crash(pulsar_own_broker, client_factory):
    """Each request of four threads gets its own reply while the broker is killed and restarted."""
    broker = pulsar_own_broker("plain")
    client = client_factory(broker)
    topic = "persistent://public/default/asked"
    with Serving(client, topic, echo), client.requester(topic, timeout_ms=LONG_MS) as requester:
        assert requester.request(b"before").data() == b"re: before"
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(requester.request, b"%d" % number) for number in range(400)]
            asked[40].result()
            broker.kill()
            broker.restart()
            assert [one.result().data() for one in asked] == [b"re: %d" % number for number in range(400)]


def test_request_of_a_killed_replier_is_redelivered(client, topic, replier_process):
    """A replier killed before its reply has its request redelivered to another one, which answers it."""
    process = replier_process("os.kill(os.getpid(), signal.SIGKILL)")
    with client.requester(topic, timeout_ms=LONG_MS) as requester, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        assert process.stdout.readline() == "asked\n"
        process.wait()
        with Serving(client, topic, echo):
            assert asked.result().data() == b"re: x"


def test_killed_repliers_replies_are_not_repeated(client, topic, replier_process):
    """Another replier begins again after a killed one, and each reply is returned once, in order."""
    process = replier_process("yield b'0'\nyield b'1'\nos.kill(os.getpid(), signal.SIGKILL)\nyield b'2'")
    with client.requester(topic, timeout_ms=LONG_MS) as requester:
        replies = requester.request_many(b"x")
        assert [next(replies).data(), next(replies).data()] == [b"0", b"1"]
        process.wait()
        with Serving(client, topic, lambda _: iter([b"0", b"1", b"2"])):
            assert [reply.data() for reply in replies] == [b"2"]


def test_termination_answers_running_requests(client, topic, replier_process):
    """After a SIGTERM in a handler the request is answered, the process ends, and another replier continues."""
    process = replier_process("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.5)\nreturn b'done'")
    with client.requester(topic, timeout_ms=LONG_MS) as requester:
        assert requester.request(b"x").data() == b"done"
        assert process.communicate(timeout=60)[0] == "asked\nended\n"
        assert process.returncode == 0
        with Serving(client, topic, echo):
            assert requester.request(b"y").data() == b"re: y"


def test_unsendable_reply_redelivers_the_request(client, topic, monkeypatch):
    """A reply whose producer fails as if the broker were away has its request redelivered and answered."""
    failures = [pulsar.ConnectError("away")] * 2

    def fail_twice(get):
        def fail_or_get(*args):
            if failures:
                raise failures.pop()
            return get(*args)

        return fail_or_get

    monkeypatch.setattr(ReplyProducers, "producer", fail_twice(ReplyProducers.producer))
    monkeypatch.setattr(EndpointPool, "use", fail_twice(EndpointPool.use))
    asked = []

    def handle(message):
        asked.append(message.data())
        return echo(message)

    with Serving(client, topic, handle), client.requester(topic, timeout_ms=LONG_MS) as requester:
        assert requester.request(b"x").data() == b"re: x"
    assert asked == [b"x"] * 3
