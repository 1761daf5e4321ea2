"""Requests under faults: a broker that is killed, repliers that die with a reply in hand, and a termination."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import PREAMBLE
from reach import Reach
from serving import Serving, echo

import pulsar_ext as pulsar

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
    """Starts a replier in a process of its own, whose handler is a few lines; gives the process when it runs."""
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
def test_every_request_is_answered_though_the_broker_is_killed(pulsar_own_broker, client_factory):
    """Four threads ask on while the broker is killed and restarted: each request has its own reply."""
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


def test_a_replier_that_dies_with_a_reply_in_hand(client, topic, replier_process):
    """Its request comes to another one, which answers it; the requester notices nothing."""
    process = replier_process("os.kill(os.getpid(), signal.SIGKILL)")
    with client.requester(topic, timeout_ms=LONG_MS) as requester, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        assert process.stdout.readline() == "asked\n"
        process.wait()
        with Serving(client, topic, echo):
            assert asked.result().data() == b"re: x"


def test_a_replier_that_dies_amid_its_replies(client, topic, replier_process):
    """Another one begins anew: each reply is handed out once, in order."""
    process = replier_process("yield b'0'\nyield b'1'\nos.kill(os.getpid(), signal.SIGKILL)\nyield b'2'")
    with client.requester(topic, timeout_ms=LONG_MS) as requester:
        replies = requester.request_many(b"x")
        assert [next(replies).data(), next(replies).data()] == [b"0", b"1"]
        process.wait()
        with Serving(client, topic, lambda _: iter([b"0", b"1", b"2"])):
            assert [reply.data() for reply in replies] == [b"2"]


def test_a_termination_answers_what_is_under_way(client, topic, replier_process):
    """A SIGTERM amid a handler: the request is answered, the process ends by itself, and the next one answers on."""
    process = replier_process("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.5)\nreturn b'done'")
    with client.requester(topic, timeout_ms=LONG_MS) as requester:
        assert requester.request(b"x").data() == b"done"
        assert process.communicate(timeout=60)[0] == "asked\nended\n"
        assert process.returncode == 0
        with Serving(client, topic, echo):
            assert requester.request(b"y").data() == b"re: y"


def test_a_reply_that_cannot_be_sent_has_its_request_come_again(client, topic, monkeypatch):
    """Where a producer of replies fails as if the broker were away, the request is answered in another attempt."""
    from pulsar_ext.request.replier import ReplyProducers  # noqa: PLC0415  # what is hindered here

    producer, failures = ReplyProducers.producer, [pulsar.ConnectError("away")] * 2

    def fail_twice(self, reply_topic):
        if failures:
            raise failures.pop()
        return producer(self, reply_topic)

    monkeypatch.setattr(ReplyProducers, "producer", fail_twice)
    asked = []

    def handle(message):
        asked.append(message.data())
        return echo(message)

    with Serving(client, topic, handle), client.requester(topic, timeout_ms=LONG_MS) as requester:
        assert requester.request(b"x").data() == b"re: x"
    assert asked == [b"x"] * 3
